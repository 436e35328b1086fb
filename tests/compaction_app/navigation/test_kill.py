"""A move, a label, a fork and both kinds of summary, killed before each of its parts and at any moment: the next start
completes it, or nothing of it is left."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compaction_app.changes.backups import list_backups
from compaction_app.changes.change import Confirmations
from compaction_app.changes.entries import append_entries, fork_session, move_to, set_label
from compaction_app.models import AuditEntry, SummaryDraft
from compaction_app.summaries.drafts import WantedSummary, append_draft, plan_draft, save_text, start_draft
from compaction_app.summaries.summary_task import SummaryTask, branch_task, compaction_task
from sessions_app.index.index_store import session_row
from sessions_app.index.session_locks import settle_interrupted
from sessions_app.storage.session_loader import load_session
from tests import kill_steps
from tests.budget import long_except
from tests.compaction_app.undo.scenes import Scene, scene
from tests.files import backdate, place
from tests.installation import Installation

NOW = datetime(2026, 11, 23, tzinfo=UTC)
CONFIRMED = Confirmations(live=True)
STEPS: dict[str, Callable[[Scene], object]] = {
    "move": lambda made: append_entries(made.path, move_to("e4"), CONFIRMED, NOW),
    "label": lambda made: append_entries(made.path, set_label("e4", "here"), CONFIRMED, NOW),
    "fork": lambda made: fork_session(made.path, "e4", NOW),
    "summary": lambda made: append_summary(compaction_task(made.path)),
    "summary of a branch": lambda made: append_summary(branch_task(made.path, "e4")),
    "summary of a draft": lambda made: append_own_draft(made.path),
}
FIRST = ("move", "fork")
"""Each kind of write once. A draft changes its state as well; the others take the steps of a move."""


def append_summary(task: SummaryTask) -> None:
    append_entries(task.present.path, task.change("We looked at the parser."), CONFIRMED, NOW)


def append_own_draft(path: Path) -> None:
    """Append a draft that is written for it: a kill of an earlier part has left others."""
    SummaryDraft.objects.all().delete()
    draft = start_draft(session_row(path), WantedSummary())
    save_text(draft, "We looked at the parser.")
    append_draft(draft, CONFIRMED, NOW, plan_draft(draft, NOW).digest)


class Kills:
    """A step that is taken again and again, and the check of what a kill has left of it."""

    def __init__(self, redline: Installation, step: str) -> None:
        self.step = step
        self.scene = scene(redline, "pi", "context-edit", steps=4)
        backdate(self.scene.path)
        place(redline.home / ".pi" / "agent" / "settings.json", b'{"compaction": {"keepRecentTokens": 10}}')
        self.content = self.scene.path.read_bytes()
        session_row(self.scene.path)
        self.world = kill_steps.World(redline.data, self.scene.path.parent)

    def act(self) -> None:
        STEPS[self.step](self.scene)

    def outcome(self) -> str:
        """Whether the step is taken, with all its records, or not at all, once Redline has started again."""
        settle_interrupted()
        path = self.scene.path
        self.world.assert_the_next_locks_leave_nothing_over(path)
        forks = [one for one in path.parent.glob("*.jsonl") if one != path]
        appended = path.read_bytes()[len(self.content) :]
        assert path.read_bytes().startswith(self.content)
        assert appended.count(b"\n") == (appended != b"")
        is_made = bool(forks or appended)
        recorded = AuditEntry.objects.all()
        assert [one.action for one in recorded] == [self.step.split()[0]] * is_made
        backups = list_backups(path)
        for listed in backups:
            assert listed.file.path.read_bytes() == self.content
            assert listed.recorded == hashlib.sha256(self.content).hexdigest()
        if self.step.endswith("draft") and SummaryDraft.objects.exists():
            assert (SummaryDraft.objects.get().state == "appended") is is_made
        if not is_made:
            assert len(backups) in (0, 1)  # one that was complete before the step was announced is kept
            return "before"
        changed = forks[0] if forks else path
        assert recorded[0].sha256_after == hashlib.sha256(changed.read_bytes()).hexdigest()
        assert changed.stat().st_mtime_ns == session_row(changed).own_write_ns
        assert len(backups) == (0 if forks else 1)
        load_session(changed)
        return "after"


@pytest.mark.parametrize("step", long_except(("move",), STEPS))
def test_a_step_killed_before_any_of_its_parts_is_completed_or_not_made(redline, step):
    kills = Kills(redline, step)
    kill_steps.assert_each_kill_leaves_one_of_two_states(kills.world, kills.act, kills.outcome, is_first=step in FIRST)


@pytest.mark.parametrize("step", STEPS if kill_steps.IS_SOAK else FIRST[:1])
def test_a_step_killed_at_any_moment_is_completed_or_not_made(redline, step):
    kills = Kills(redline, step)
    kill_steps.assert_any_kill_leaves_one_of_two_states(kills.world.put_back, kills.act, kills.outcome)

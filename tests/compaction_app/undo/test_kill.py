"""An undo, killed before each of its steps and at any moment: the next start completes it, or nothing of it is left."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compaction_app.changes.backups import list_backups
from compaction_app.changes.change import Confirmations
from compaction_app.changes.undo import planned, undo
from compaction_app.core.states import RunState
from compaction_app.core.undo_ways import UndoWay
from compaction_app.models import AuditEntry, Compaction, Run, Undo
from sessions_app.index.index_store import session_row
from sessions_app.index.session_locks import settle_interrupted
from tests import kill_steps
from tests.budget import long_except
from tests.files import backdate
from tests.installation import Installation, refusal
from tests.sessions_app.agents.codex.rollouts import work

from .scenes import codex_scene, deleted_by, scene

FIRST = ("leaf", "removal")
"""A written line and a deleted file. A new file is written as by a fork, which the tests of moves kill everywhere."""
WAYS = {
    "leaf": ("pi", "context-edit", "", False, UndoWay.LEAF),
    "removal": ("pi", "fork", "", False, UndoWay.REMOVAL),
    "fork": ("atomic-0.8", "context-compaction", "", True, UndoWay.FORK),
    "edits": ("pi", "context-edit", "", True, UndoWay.EDITS),
    "smaller": ("atomic-0.8", "context-compaction", "e5", False, UndoWay.SMALLER),
    "fuller list": ("codex", "compacted", "", False, UndoWay.EDITS),
    "fuller list with one entry": ("codex", "compacted", "7", False, UndoWay.EDITS),
    "removal of a thread": ("codex", "fork", "", False, UndoWay.REMOVAL),
}


class Kills:
    """An undo that is done again and again, and the check of what a kill has left of it."""

    def __init__(self, redline: Installation, name: str) -> None:
        reader, writer, entry_id, is_continued, self.way = WAYS[name]
        self.scene = (
            codex_scene(redline, work(), writer) if reader == "codex" else scene(redline, reader, writer, steps=4)
        )
        self.entries = [entry_id] if entry_id else []
        self.committed = self.scene.compact()
        assert set(self.entries) <= {target.entry_id for target in deleted_by(self.committed)}
        self.made = {self.committed.made.created} - {None}
        for path in self.made:
            backdate(path)
        facts = {"planner": "embedded", "created_at": datetime.now(UTC), "state": RunState.COMMITTED}
        self.run = Run.objects.create(session=Compaction.objects.get().session, **facts)
        Compaction.objects.update(run=self.run)
        if is_continued:
            self.scene.continue_with("Go on.")
        self.compacted, self.context = self.scene.path.read_bytes(), self.scene.context()
        self.request = self.scene.request(*self.entries)
        self.world = kill_steps.World(redline.data, self.scene.path.parent)

    def act(self) -> None:
        assert undo(self.request, Confirmations(live=True), datetime.now(UTC)).plan.way is self.way

    def outcome(self) -> str:
        """Whether the undo is made, with all its records, or not at all, once Redline has started again."""
        settle_interrupted()
        path = self.scene.path
        self.world.assert_the_next_locks_leave_nothing_over(path, *self.made)
        assert path.read_bytes().startswith(self.compacted)
        for listed in list_backups(path):
            assert listed.recorded == hashlib.sha256(listed.file.path.read_bytes()).hexdigest()
        self.run.refresh_from_db()
        row = Undo.objects.first()
        sessions = {one for one in path.parent.glob("*.jsonl") if one != path}
        is_made = path.read_bytes() != self.compacted or sessions != self.made
        assert (row is not None) is is_made
        assert AuditEntry.objects.exclude(action=AuditEntry.Action.COMMIT).count() == int(is_made)
        backups = len(list_backups(path))
        if row is None:
            assert self.scene.context() == self.context
            assert self.run.state == RunState.COMMITTED
            assert backups in (1, 2)  # one that was complete before the step was announced is kept
            return "before"
        assert row.way == self.way
        assert self.run.state == (RunState.COMMITTED if self.entries else RunState.RESTORED)
        assert backups == (1 if self.way is UndoWay.REMOVAL else 2)
        assert not row.created or Path(row.created).exists()
        if self.way.appends:
            assert path.stat().st_mtime_ns == session_row(path).own_write_ns
        if not self.entries and self.way is not UndoWay.FORK:
            again = self.scene.request(name=self.committed.made.entry_id)
            assert refusal(lambda: planned(again, datetime.now(UTC))) == "4 undone_already"
        return "after"


@pytest.mark.parametrize("way", long_except((FIRST[0], "fork"), WAYS))
def test_an_undo_killed_before_any_step_is_completed_or_not_made(redline, way):
    kills = Kills(redline, way)
    kill_steps.assert_each_kill_leaves_one_of_two_states(kills.world, kills.act, kills.outcome, is_first=way in FIRST)


@pytest.mark.parametrize("way", WAYS if kill_steps.IS_SOAK else FIRST[:1])
def test_an_undo_killed_at_any_moment_is_completed_or_not_made(redline, way):
    kills = Kills(redline, way)
    kill_steps.assert_any_kill_leaves_one_of_two_states(kills.world.put_back, kills.act, kills.outcome)

"""A commit by each writer, and a restore, killed before each of their steps: the next start completes or undoes them,
and shows which. `test_kill_commands` kills at random moments; here no step of an appended line and of a rewritten file
is left out. For what takes the same steps, `make test` has the moment at which it is made, and `make test-long` the
rest."""

import hashlib
import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from compaction_app.changes.backups import list_backups, restore
from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import approval, commit
from compaction_app.core.states import RunState
from compaction_app.models import AuditEntry, Backup, Compaction
from sessions_app.agents.registry import READERS
from sessions_app.index.indexer import index_file, select_reader
from sessions_app.index.session_locks import settle_interrupted
from sessions_app.storage.session_loader import load_session
from tests.compaction_app.undo.scenes import Scene, claude_scene, claude_work, codex_scene, scene as pi_scene
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.html import text_of
from tests.installation import Installation
from tests.kill_steps import World, assert_each_kill_leaves_one_of_two_states
from tests.plans import approved_plan
from tests.runs import approve_proposals, commit_approved, plan_session
from tests.sessions_app.agents.codex.rollouts import work


class Work:
    """A run with every proposal approved, its session, and their pages."""

    def __init__(self, redline: Installation, root: Path, browser: Client, writer: str) -> None:
        self.path, self.browser, self.writer = root / "work.jsonl", browser, writer
        session = index_file(place(self.path, session_bytes(working_session(steps=4))))
        if writer != "context-compaction":
            select_reader(session, "pi")
            session.refresh_from_db()
        self.run = approve_proposals(plan_session(session))
        self.before = self.path.read_bytes()
        self.redline = redline

    def remember(self) -> None:
        self.world = World(self.redline.data, self.path.parent)

    def commit(self) -> Path:
        """Returns the backup."""
        self.run.refresh_from_db()
        return commit_approved(self.run, self.writer).backup.path

    def page(self, name: str) -> str:
        """The text of a page of the plan; without a name, of its review."""
        return self._text(f"/plans/{self.run.pk}{name}")

    def inbox(self) -> str:
        return self._text("/inbox")

    def _text(self, address: str) -> str:
        answer = self.browser.get(address, follow=True)
        assert answer.status_code == 200, (address, answer.content)
        return text_of(answer)

    def state(self) -> str:
        self.run.refresh_from_db()
        assert self.run.committing_since is None
        return str(self.run.state)

    def settle(self) -> bytes:
        """What the session has once Redline has started again. Every file named like a backup is a whole one."""
        settle_interrupted()
        self.world.assert_the_next_locks_leave_nothing_over(self.path)
        for listed in list_backups(self.path):
            assert listed.recorded == hashlib.sha256(listed.file.path.read_bytes()).hexdigest()
        return self.path.read_bytes()


@pytest.mark.parametrize("writer", ["context-compaction", "fork"])
def test_a_commit_of_a_run_killed_before_any_step_is_completed_or_undone(redline, known_root, browser, writer):
    work = Work(redline, known_root, browser, writer)
    approved = approval(work.run)

    def outcome() -> str:
        content = work.settle()
        made = [one for one in work.path.parent.glob("*.jsonl") if one != work.path]
        assert content.startswith(work.before)
        assert {listed.file.path.read_bytes() for listed in list_backups(work.path)} <= {work.before}
        if content == work.before and not made:
            assert work.state() == RunState.TARGET_MET
            assert (Compaction.objects.count(), Backup.objects.count()) == (0, 0)
            return "before"
        assert (content == work.before, len(made)) == ((True, 1) if writer == "fork" else (False, 0))
        changed = made[0] if made else work.path
        written = json.loads((changed.read_bytes() if made else content[len(work.before) :]).splitlines()[0])
        row = Compaction.objects.get()
        assert (row.entry_id, row.run, row.writer) == (written["id"], work.run, writer)
        assert row.created == (str(changed) if made else "")
        assert Path(row.backup.path).read_bytes() == work.before
        assert AuditEntry.objects.get().sha256_after == hashlib.sha256(changed.read_bytes()).hexdigest()
        assert work.state() == RunState.COMMITTED
        if made:
            gone = {target.entry_id for target in approved.targets if target.block_index is None}
            loaded = load_session(changed)
            rebuilt = READERS["pi"].rebuild(loaded.tree.branch(loaded.leaf_id)).messages
            assert {one.entry.id for one in rebuilt} == ({one.id for one in approved.document.log.entries} - gone)
        else:
            assert written["backupPath"] == row.backup.path
            assert len(row.origins) == len(written["deletedTargets"])
        return "after"

    def pages(state: str) -> None:
        if state == "before":
            assert "Back up and" in work.page("/confirm")
            assert work.browser.get(f"/plans/{work.run.pk}/result").status_code == 404
            work.commit()
            assert work.state() == RunState.COMMITTED
            return
        assert Compaction.objects.get().entry_id
        for name in ("/confirm", "/result"):
            page = work.page(name)
            assert "as a new session" in page or "as an edit in this session" in page
            assert "Nothing was written" not in page
        assert "This plan is confirmed" in work.page("")

    work.remember()
    is_first = writer != "fork"
    assert_each_kill_leaves_one_of_two_states(work.world, work.commit, outcome, pages, is_first=is_first)


def test_a_restore_killed_before_any_step_is_completed_or_undone(redline, known_root, browser):
    work = Work(redline, known_root, browser, "context-compaction")
    backup, compacted = work.commit(), work.path.read_bytes()

    def outcome() -> str:
        content = work.settle()
        assert content in (work.before, compacted)
        for listed in list_backups(work.path):
            kept = work.before if listed.file.path == backup else compacted
            assert listed.file.path.read_bytes() == kept
        assert all(Path(row.path).is_file() for row in Backup.objects.all())
        if content == compacted:
            assert work.state() == RunState.COMMITTED
            return "before"
        assert Backup.objects.get(reason=Backup.Reason.RESTORE).size == len(compacted)
        assert work.state() == RunState.RESTORED
        return "after"

    def pages(state: str) -> None:
        page = work.page("/result")
        assert ("Continue" in page) is (state == "before")
        for one in (page, work.page("/log"), work.inbox()):
            assert ("taken back" in one) is (state == "after")
        assert state == "before" or "Every recorded byte is still in the file" not in page

    work.remember()
    act = partial(restore, backup, Confirmations(live=True), timezone.now())
    assert_each_kill_leaves_one_of_two_states(work.world, act, outcome, pages)


def scene_of(redline: Installation, reader: str, writer: str) -> Scene:
    if reader.startswith("codex"):
        return codex_scene(redline, work(paginated="legacy" not in reader), writer)
    if reader == "claude-code":
        return claude_scene(redline, claude_work(), writer)
    return pi_scene(redline, reader, writer, steps=4)


class Kills:
    """A commit by one writer that is done again and again, and the check of what a kill has left of it."""

    def __init__(self, redline: Installation, reader: str, writer: str) -> None:
        self.scene = scene_of(redline, reader, writer)
        self.path, self.content, self.before = self.scene.path, self.scene.path.read_bytes(), self.scene.ids()
        index_file(self.path)
        self.approved = approved_plan(self.path, reader=self.scene.reader, writer=writer)
        self.world = World(redline.data, self.path.parent)

    def act(self) -> None:
        commit(self.approved, Confirmations(live=True, below_target=True), datetime.now(UTC))

    def outcome(self) -> str:
        """Whether the commit is made, with all its records, or not at all, once Redline has started again."""
        settle_interrupted()
        made = [one for one in self.path.parent.glob("*.jsonl") if one != self.path]
        self.world.assert_the_next_locks_leave_nothing_over(self.path, *made)
        found = self.path.read_bytes()
        assert found.startswith(self.content)
        assert found.endswith(b"\n")
        for listed in list_backups(self.path):
            assert listed.file.path.read_bytes() == self.content
            assert listed.recorded == hashlib.sha256(self.content).hexdigest()
        is_made = bool(made) or found != self.content
        assert AuditEntry.objects.count() == is_made
        if not is_made:
            assert (Compaction.objects.count(), Backup.objects.count()) == (0, 0)
            return "before"
        writer = self.scene.writer
        assert (found == self.content, len(made)) == ((True, 1) if writer == "fork" else (False, 0))
        changed, row = made[0] if made else self.path, Compaction.objects.get()
        assert (row.writer, row.created) == (writer, str(changed) if made else "")
        assert AuditEntry.objects.get().sha256_after == hashlib.sha256(changed.read_bytes()).hexdigest()
        gone = {target.entry_id for target in self.approved.targets if target.block_index is None}
        assert self.scene.ids(changed) == [entry_id for entry_id in self.before if entry_id not in gone]
        return "after"


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        pytest.param("pi", "context-edit", id="several lines by one write"),
        pytest.param("codex", "compacted", id="a line, under a lock of the agent's"),
        pytest.param("codex, legacy", "compacted", id="a line of a legacy thread", marks=pytest.mark.long),
        pytest.param("codex", "fork", id="a fork for Codex", marks=pytest.mark.long),
        pytest.param("codex, legacy", "fork", id="a fork of a legacy thread", marks=pytest.mark.long),
        pytest.param("claude-code", "boundary", id="a boundary", marks=pytest.mark.long),
        pytest.param("claude-code", "fork", id="a fork for Claude Code", marks=pytest.mark.long),
    ],
)
def test_a_commit_by_each_writer_killed_before_any_step_is_completed_or_leaves_nothing(redline, reader, writer):
    kills = Kills(redline, reader, writer)
    assert_each_kill_leaves_one_of_two_states(kills.world, kills.act, kills.outcome, is_first=False)

"""A commit and a restore, killed before each of their steps: the next start completes or undoes them and shows which.

`test_kill` and `test_kill_commands` kill at random moments; here no step is left out (`stepping`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from compaction_app.backups.service import RestoreConfirmations, list_backups, restore
from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import approval, commit_run, preflight_of
from compaction_app.core.states import RunState
from compaction_app.models import AuditEntry, Backup, Compaction, Run
from compaction_app.session_page.reader_selection import select_reader
from sessions_app.agents.registry import READERS
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session, settle_interrupted
from sessions_app.storage.session_loader import load_session
from tests.factories import session_bytes, working_session
from tests.files import backdate, place, snapshot
from tests.html import text_of
from tests.installation import Installation
from tests.kill_steps import killed_before
from tests.runs import approve_proposals, plan_session

MOST: Final = 2_000
"""More steps than any commit or restore has."""


class World:
    """A session with its run and its database, which can be put back to how it was."""

    def __init__(self, redline: Installation, path: Path, browser: Client, run: Run) -> None:
        self.redline, self.path, self.browser, self.run = redline, path, browser, run
        self.database = redline.data / "redline.sqlite3"

    def remember(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        self.rows, self.files = self.database.read_bytes(), snapshot(self.path.parent)

    def put_back(self) -> None:
        """Restore database and files. Sessions keep their inode, which identifies them."""
        connection.close()
        for beside in self.redline.data.glob("redline.sqlite3-*"):
            beside.unlink()
        self.database.write_bytes(self.rows)
        for there in self.path.parent.iterdir():
            if there.name not in self.files:
                there.unlink()
        for name, content in self.files.items():
            assert isinstance(content, bytes)
            with self.path.with_name(name).open(
                "r+b" if self.path.with_name(name).exists() else "wb"
            ) as file:
                file.write(content)
                file.truncate()
            backdate(self.path.with_name(name))
        self.run.refresh_from_db()

    def page(self, name: str) -> str:
        """The text of a page of the run; without a name, of the list of runs."""
        answer = self.browser.get(f"/runs/{self.run.pk}/{name}" if name else "/runs/", follow=True)
        assert answer.status_code == 200, (name, answer.content)
        return text_of(answer)

    def state(self) -> str:
        self.run.refresh_from_db()
        assert self.run.committing_since is None
        return str(self.run.state)

    def assert_the_next_lock_leaves_nothing_over(self) -> None:
        with lock_session(self.path):
            pass
        assert not [name for name in snapshot(self.path.parent) if name.startswith(".")]
        left = [path.suffix for path in (self.redline.data / "locks").iterdir()]
        assert set(left) <= {".lock"}


@pytest.fixture
def world(redline: Installation, known_root: Path, browser: Client) -> World:
    """A run with every proposal approved."""
    path = known_root / "work.jsonl"
    path.write_bytes(session_bytes(working_session(steps=4)))
    run = approve_proposals(plan_session(index_file(backdate(path))))
    return World(redline, path, browser, run)


def each_step(world: World, act: Callable[[], object], check: Callable[[], str]) -> dict[str, int]:
    """What `check` found, and how often, after `act` was killed before each step and Redline restarted."""
    found: dict[str, int] = {}
    for step in range(1, MOST):
        world.put_back()
        was_killed = killed_before(step, act)
        settle_interrupted()
        outcome = check()
        found[outcome] = found.get(outcome, 0) + 1
        if not was_killed:
            return found
    raise AssertionError(f"more than {MOST} steps")


def test_a_commit_killed_before_any_step_is_completed_or_undone(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    before = world.path.read_bytes()

    def commit() -> None:
        now = timezone.now()
        commit_run(world.run, Confirmations(), preflight_of(approval(world.run), now).digest(), now)

    def check() -> str:
        content = world.path.read_bytes()
        assert content.startswith(before)
        world.assert_the_next_lock_leaves_nothing_over()
        for listed in list_backups(world.path):
            assert listed.file.path.read_bytes() == before
            assert listed.recorded == hashlib.sha256(before).hexdigest()
        if content == before:
            assert world.state() == RunState.TARGET_MET
            assert (Compaction.objects.count(), Backup.objects.count()) == (0, 0)
            assert "Back up and append" in world.page("commit")
            assert world.browser.get(f"/runs/{world.run.pk}/result").status_code == 404
            commit()
            assert world.state() == RunState.COMMITTED
            return "before"
        written = json.loads(content[len(before) :])
        compaction = Compaction.objects.get()
        assert (compaction.entry_id, compaction.run, compaction.backup.path) == (
            written["id"],
            world.run,
            written["backupPath"],
        )
        assert len(compaction.origins) == len(written["deletedTargets"])
        assert world.state() == RunState.COMMITTED
        for name in ("commit", "result"):
            page = world.page(name)
            assert f"Compaction {written['id']}" in page
            assert "recorded by context-compaction" in page
            assert "Nothing was written" not in page
        assert written["id"] in world.page("result")
        assert "This run is committed" in world.page("review")
        return "after"

    world.remember()
    found = each_step(world, commit, check)
    with capsys.disabled():
        print(f"\na commit killed before each of its steps: the session was {found}")
    assert min(found["before"], found["after"]) > 5


@pytest.mark.parametrize("writer", ["context-edit", "fork"])
def test_a_commit_by_another_writer_killed_before_any_step_is_completed_or_undone(
    redline: Installation, known_root: Path, browser: Client, capsys: pytest.CaptureFixture[str], writer: str
) -> None:
    path = known_root / "work.jsonl"
    session = index_file(place(path, session_bytes(working_session(steps=4))))
    select_reader(session, "pi")
    session.refresh_from_db()
    world = World(redline, path, browser, approve_proposals(plan_session(session)))
    before = path.read_bytes()
    approved = approval(world.run)

    def commit() -> None:
        now = timezone.now()
        seen = preflight_of(approval(world.run), now, writer).digest()
        commit_run(world.run, Confirmations(), seen, now, writer)

    def assert_written(changed: Path, written: bytes) -> None:
        """The change is whole, and recorded."""
        assert written.endswith(b"\n")
        compaction = Compaction.objects.get()
        assert (compaction.writer, compaction.run) == (writer, world.run)
        assert Path(compaction.backup.path).read_bytes() == before
        lines = [json.loads(line) for line in written.splitlines()]
        named = lines[0]["id"] if changed != path else lines[-1]["id"]
        assert (compaction.entry_id, compaction.created) == (named, "" if changed == path else str(changed))
        loaded = load_session(changed)
        left = {
            message.entry.id for message in READERS["pi"].rebuild(loaded.tree.branch(loaded.leaf_id)).messages
        }
        gone = {target.entry_id for target in approved.targets if target.block_index is None}
        assert left == {entry.id for entry in approved.loaded.log.entries} - gone
        assert AuditEntry.objects.get().sha256_after == hashlib.sha256(changed.read_bytes()).hexdigest()

    def check() -> str:
        content = path.read_bytes()
        assert content.startswith(before)
        world.assert_the_next_lock_leaves_nothing_over()
        made = [one for one in path.parent.glob("*.jsonl") if one != path]
        if content == before and not made:
            assert world.state() == RunState.TARGET_MET
            assert (Compaction.objects.count(), Backup.objects.count()) == (0, 0)
            commit()
            assert world.state() == RunState.COMMITTED
            return "before"
        assert (content == before, len(made)) == ((True, 1) if writer == "fork" else (False, 0))
        assert_written(*((made[0], made[0].read_bytes()) if made else (path, content[len(before) :])))
        assert world.state() == RunState.COMMITTED
        assert f"recorded by {writer}" in world.page("result") or "in a new session" in world.page("result")
        return "after"

    world.remember()
    found = each_step(world, commit, check)
    with capsys.disabled():
        print(f"\na commit by {writer} killed before each of its steps: the session was {found}")
    assert min(found["before"], found["after"]) > 5


def test_a_restore_killed_before_any_step_is_completed_or_undone(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    before = world.path.read_bytes()
    now = timezone.now()
    committed = commit_run(world.run, Confirmations(), preflight_of(approval(world.run), now).digest(), now)
    after = world.path.read_bytes()

    def check() -> str:
        content = world.path.read_bytes()
        assert content in (before, after)
        world.assert_the_next_lock_leaves_nothing_over()
        for listed in list_backups(world.path):
            kept = listed.file.path.read_bytes()
            assert kept == (before if listed.file.path == committed.backup.path else after)
            assert listed.recorded == hashlib.sha256(kept).hexdigest()
        assert all(Path(row.path).is_file() for row in Backup.objects.all())
        page = world.page("result")
        if content == after:
            assert world.state() == RunState.COMMITTED
            assert "recorded by context-compaction" in page
            return "not restored"
        assert Backup.objects.get(reason=Backup.Reason.RESTORE).size == len(after)
        assert world.state() == RunState.RESTORED
        assert "taken back" in page
        assert "every recorded byte is still in the file" not in page
        assert "recorded by context-compaction" not in page
        assert "taken back" in world.page("review")
        assert "taken back" in world.page("")
        return "restored"

    world.remember()
    found = each_step(
        world, partial(restore, committed.backup.path, RestoreConfirmations(live=True), timezone.now()), check
    )
    with capsys.disabled():
        print(f"\na restore killed before each of its steps: it was {found}")
    assert min(found.values()) > 5
    assert len(found) == 2

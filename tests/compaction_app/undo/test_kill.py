"""An undo, killed before each of its steps and at any moment: the next start completes it, or nothing of it is left."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connection

from compaction_app.backups.service import list_backups
from compaction_app.core.states import RunState
from compaction_app.core.undo_ways import UndoWay
from compaction_app.models import AuditEntry, Compaction, Run, Undo
from compaction_app.undo.plan import UndoConfirmations
from compaction_app.undo.service import planned, undo
from sessions_app.index.index_store import session_row
from sessions_app.index.session_locks import lock_session, settle_interrupted
from sessions_app.sessionlog.errors import Conflict
from tests.compaction_app.commit.test_kill_commands import ROUNDS, SEED, killed
from tests.files import backdate, snapshot
from tests.installation import Installation
from tests.kill_steps import killed_before
from tests.sessions_app.agents.codex.rollouts import work

from .scenes import Scene, codex_scene, deleted_by, scene

MOST = 2_000
"""More steps than any undo has."""


class World:
    """The files beside a session and the database, which can be put back to how they were."""

    def __init__(self, redline: Installation, directory: Path) -> None:
        self.data, self.directory = redline.data, directory
        self.database = redline.data / "redline.sqlite3"
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        self.rows, self.files = self.database.read_bytes(), snapshot(directory)

    def put_back(self) -> None:
        """Restore database and files. Files that are still there keep their inode, which identifies them."""
        connection.close()
        for beside in self.data.glob("redline.sqlite3-*"):
            beside.unlink()
        self.database.write_bytes(self.rows)
        (self.data / "audit-head.json").unlink(missing_ok=True)
        for there in self.directory.iterdir():
            if there.name not in self.files:
                there.unlink()
        for name, content in self.files.items():
            assert isinstance(content, bytes)
            path = self.directory / name
            with path.open("r+b" if path.exists() else "wb") as file:
                file.write(content)
                file.truncate()
            backdate(path)

    def assert_the_next_locks_leave_nothing_over(self, *sessions: Path) -> None:
        for path in sessions:
            with lock_session(path):
                pass
        assert not [name for name in snapshot(self.directory) if name.startswith(".")]
        assert {path.suffix for path in (self.data / "locks").iterdir()} <= {".lock"}


WAYS = [
    pytest.param("pi", "context-edit", (), False, UndoWay.LEAF, id="leaf"),
    pytest.param("pi", "context-edit", (), True, UndoWay.EDITS, id="edits"),
    pytest.param("atomic-0.8", "context-compaction", ("e5",), False, UndoWay.SMALLER, id="smaller"),
    pytest.param("atomic-0.8", "context-compaction", (), True, UndoWay.FORK, id="fork"),
    pytest.param("pi", "fork", (), False, UndoWay.REMOVAL, id="removal"),
    pytest.param("codex", "compacted", (), False, UndoWay.EDITS, id="fuller list"),
    pytest.param("codex", "compacted", ("7",), False, UndoWay.EDITS, id="fuller list with one entry"),
    pytest.param("codex", "fork", (), False, UndoWay.REMOVAL, id="removal of a thread"),
]


class Kills:
    """An undo that is done again and again, and the check of what a kill has left of it."""

    def __init__(
        self,
        redline: Installation,
        reader: str,
        writer: str,
        entries: tuple[str, ...],
        continued: bool,
        way: UndoWay,
    ) -> None:
        self.scene = (
            codex_scene(redline, work(), writer)
            if reader == "codex"
            else scene(redline, reader, writer, steps=4)
        )
        self.entries, self.way = entries, way
        self.committed = self.scene.compact()
        assert set(entries) <= {target.entry_id for target in deleted_by(self.committed)}
        self.made = [self.committed.created] if self.committed.created is not None else []
        for path in self.made:
            backdate(path)
        self.run = Run.objects.create(
            session=Compaction.objects.get().session,
            planner="embedded",
            created_at=datetime.now(UTC),
            state=RunState.COMMITTED,
        )
        Compaction.objects.update(run=self.run)
        if continued:
            self.scene.continue_with("Go on.")
        self.compacted, self.context = self.scene.path.read_bytes(), self.scene.context()
        self.request = self.scene.request(*entries)
        self.world = World(redline, self.scene.path.parent)

    def act(self) -> None:
        undone = undo(self.request, UndoConfirmations(live=True), datetime.now(UTC))
        assert undone.plan.way is self.way

    def act_and_wait(self, begin: Callable[[str], object]) -> None:
        begin("undo")
        self.act()
        begin("done")
        time.sleep(60)

    def outcome(self) -> str:
        """Whether the undo is made, with all its records, or not at all, once Redline has started again."""
        settle_interrupted()
        self.world.assert_the_next_locks_leave_nothing_over(self.scene.path, *self.made)
        path = self.scene.path
        assert path.read_bytes().startswith(self.compacted)
        for listed in list_backups(path):
            assert listed.recorded == hashlib.sha256(listed.file.path.read_bytes()).hexdigest()
        self.run.refresh_from_db()
        row = Undo.objects.first()
        is_made = was_made(self.scene, self.committed.created, self.compacted)
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
            with pytest.raises(Conflict) as caught:
                planned(self.scene.request(name=self.committed.entry_id), datetime.now(UTC))
            assert caught.value.code == "undone_already"
        return "after"


@pytest.mark.parametrize(("reader", "writer", "entries", "continued", "way"), WAYS)
def test_an_undo_killed_before_any_step_is_completed_or_not_made(
    redline: Installation, reader: str, writer: str, entries: tuple[str, ...], continued: bool, way: UndoWay
) -> None:
    kills = Kills(redline, reader, writer, entries, continued, way)
    found: Counter[str] = Counter()
    for step in range(1, MOST):
        kills.world.put_back()
        was_killed = killed_before(step, kills.act)
        found[kills.outcome()] += 1
        if not was_killed:
            break
    else:
        raise AssertionError(f"more than {MOST} steps")
    assert found.keys() == {"before", "after"}
    assert min(found.values()) > 3


@pytest.mark.parametrize(("reader", "writer", "entries", "continued", "way"), WAYS)
def test_an_undo_killed_at_any_moment_is_completed_or_not_made(
    redline: Installation,
    capsys: pytest.CaptureFixture[str],
    reader: str,
    writer: str,
    entries: tuple[str, ...],
    continued: bool,
    way: UndoWay,
) -> None:
    dice = random.Random(SEED)
    kills = Kills(redline, reader, writer, entries, continued, way)
    began = time.perf_counter()
    kills.act()
    longest_us = int(1.5e6 * (time.perf_counter() - began))
    found: Counter[str] = Counter()
    for _ in range(ROUNDS):
        kills.world.put_back()
        killed(kills.act_and_wait, dice.randrange(longest_us))
        found[kills.outcome()] += 1
    with capsys.disabled():
        print(f"\n{ROUNDS} kills of an undo by {way}, seed {SEED}: it was {dict(found)}")


def was_made(written: Scene, created: Path | None, compacted: bytes) -> bool:
    """Whether the files show the undo: lines were appended, a session was deleted, or another one made."""
    sessions = {path for path in written.path.parent.glob("*.jsonl") if path != written.path}
    return written.path.read_bytes() != compacted or sessions != ({created} if created is not None else set())

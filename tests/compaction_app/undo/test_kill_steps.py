"""An undo, killed before each of its steps: the next start completes it or nothing of it is left."""

from __future__ import annotations

import hashlib
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
from tests.files import backdate, snapshot
from tests.installation import Installation
from tests.kill_steps import killed_before

from .scenes import Scene, deleted_by, scene

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


WAYS = [
    pytest.param("pi", "context-edit", (), False, UndoWay.LEAF, id="leaf"),
    pytest.param("pi", "context-edit", (), True, UndoWay.EDITS, id="edits"),
    pytest.param("atomic-0.8", "context-compaction", ("e5",), False, UndoWay.SMALLER, id="smaller"),
    pytest.param("atomic-0.8", "context-compaction", (), True, UndoWay.FORK, id="fork"),
    pytest.param("pi", "fork", (), False, UndoWay.REMOVAL, id="removal"),
]


@pytest.mark.parametrize(("reader", "writer", "entries", "continued", "way"), WAYS)
def test_an_undo_killed_before_any_step_is_completed_or_not_made(
    redline: Installation, reader: str, writer: str, entries: tuple[str, ...], continued: bool, way: UndoWay
) -> None:
    written = scene(redline, reader, writer, steps=4)
    committed = written.compact()
    assert set(entries) <= {target.entry_id for target in deleted_by(committed)}
    if committed.created is not None:
        backdate(committed.created)
    compaction = Compaction.objects.get()
    run = Run.objects.create(
        session=compaction.session, planner="embedded", created_at=datetime.now(UTC), state=RunState.COMMITTED
    )
    Compaction.objects.update(run=run)
    if continued:
        written.continue_with("Go on.")
    compacted = written.path.read_bytes()
    context = written.context()
    request = written.request(*entries)

    def act() -> None:
        undone = undo(request, UndoConfirmations(live=True), datetime.now(UTC))
        assert undone.plan.way is way

    def check() -> str:
        made = [committed.created] if committed.created is not None else []
        world.assert_the_next_locks_leave_nothing_over(written.path, *made)
        assert written.path.read_bytes().startswith(compacted)
        for listed in list_backups(written.path):
            assert listed.recorded == hashlib.sha256(listed.file.path.read_bytes()).hexdigest()
        run.refresh_from_db()
        is_made = was_made(written, committed.created, compacted)
        row = Undo.objects.first()
        assert (row is not None) is is_made
        audited = AuditEntry.objects.exclude(action=AuditEntry.Action.COMMIT).count()
        assert audited == (1 if is_made else 0)
        backups = len(list_backups(written.path))
        if row is None:
            assert written.context() == context
            assert run.state == RunState.COMMITTED
            assert backups in (1, 2)  # one that was complete before the step was announced is kept
            return "before"
        assert row.way == way
        assert run.state == (RunState.COMMITTED if entries else RunState.RESTORED)
        assert backups == (1 if way is UndoWay.REMOVAL else 2)
        if row.created:
            assert Path(row.created).exists()
        if way.appends:
            assert written.path.stat().st_mtime_ns == session_row(written.path).own_write_ns
        if not entries and way is not UndoWay.FORK:
            with pytest.raises(Conflict) as caught:
                planned(written.request(name=committed.entry_id), datetime.now(UTC))
            assert caught.value.code == "undone_already"
        return "after"

    world = World(redline, written.path.parent)
    found = each_step(world, act, check)
    assert found.keys() == {"before", "after"}
    assert min(found.values()) > 3


def was_made(written: Scene, created: Path | None, compacted: bytes) -> bool:
    """Whether the files show the undo: lines were appended, a session was deleted, or another one made."""
    sessions = {path for path in written.path.parent.glob("*.jsonl") if path != written.path}
    return written.path.read_bytes() != compacted or sessions != ({created} if created is not None else set())

"""A killed change of rows leaves the database as it was or as it was to be, and the next lock knows which."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from sessions_app.sessionlog.targets import Target
from sessions_app.storage import rows
from sessions_app.storage.locks import LockedSession, RecoveryKind, session_lock
from tests.installation import refusal
from tests.opencode_plans import WrittenRows, every_row, put_rows_back, write_rows
from tests.opencode_stores import OpenCodeStore, worked_session

TARGETS = (Target("prt_0007.call"), Target("prt_0007"))


class Change:
    """A session in a database, and a place for locks and backups."""

    def __init__(self, directory: Path) -> None:
        self.store, self.data = OpenCodeStore(directory / "opencode"), directory / "data"
        self.path = worked_session(self.store)
        self.before = self.rows()

    def make(self, writer: str = "delete", *targets: str) -> WrittenRows:
        return write_rows(self.path, writer, (*TARGETS, *map(Target, targets)), self.data)

    def kill(self, owner: Any, name: str, writer: str = "delete", *targets: str, how: Any = None) -> None:
        """Make it in a process that ends where this function is called."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, how(getattr(owner, name)) if how else die)
            if name == "back_up_rows":
                patch.setattr("tests.opencode_plans.back_up_rows", die)
            killed(lambda: self.make(writer, *targets))

    def recovered(self) -> RecoveryKind:
        return recovered(self.path, self.data)

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return every_row(self.store.database)


@pytest.fixture
def change(tmp_path):
    return Change(tmp_path)


def killed(step: Callable[[], object]) -> None:
    """Run a step in a process that ends where `die` is called."""
    child = os.fork()
    if child == 0:
        try:
            step()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9


def die(*_: object, **__: object) -> None:
    os._exit(9)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file can be written beyond this size, in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _after(function: Callable[..., Any]) -> Callable[..., Any]:
    def and_die(*arguments: Any) -> None:
        function(*arguments)
        die()

    return and_die


def recovered(path: Path, data: Path) -> RecoveryKind:
    with session_lock(data, path, 1) as locked:
        return locked.recovery.kind


KILLS: Final = [
    (rows, "back_up_rows", None, RecoveryKind.NOT_NEEDED),
    (rows, "apply_step", None, RecoveryKind.NOT_NEEDED),
    (LockedSession, "announce", None, RecoveryKind.NOT_NEEDED),
    (LockedSession, "announce", _after, RecoveryKind.NOT_MADE),
    (rows, "_commit", None, RecoveryKind.NOT_MADE),
    (rows, "_commit", _after, RecoveryKind.MADE),
    (LockedSession, "withdraw", None, RecoveryKind.MADE),
]
"""What the next lock holder finds after an end before a function, or after it."""


@pytest.mark.parametrize("writer", ["delete", "prune", "fork"])
def test_a_kill_leaves_one_of_two_states(tmp_path, writer):
    wrong = []
    for number, (owner, name, how, recovery) in enumerate(KILLS):
        change = Change(tmp_path / str(number))
        change.kill(owner, name, writer, how=how)
        found = change.recovered(), change.rows() != change.before, change.recovered()
        if found != (recovery, recovery is RecoveryKind.MADE, RecoveryKind.NOT_NEEDED):
            wrong.append((name, how, found))
    assert wrong == []


def test_a_commit_that_fails_on_the_disk_is_settled_by_the_next_lock(change, monkeypatch):
    change.store.part("msg_0002", "x" * 100_000)
    before, commit = change.rows(), rows._commit

    def on_a_full_disk(*arguments: Any) -> None:
        with largest_file(64):
            commit(*arguments)

    monkeypatch.setattr(rows, "_commit", on_a_full_disk)
    assert refusal(change.make) == "6 outcome_unknown"
    assert change.recovered() is RecoveryKind.NOT_MADE
    assert change.rows() == before


def test_a_commit_that_a_reader_prevents_is_not_made(change):
    change.store.run("PRAGMA journal_mode = DELETE")
    with closing(change.store.connect()) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM part").fetchone()
        assert refusal(change.make) == "6 database_busy"
    assert change.recovered() is RecoveryKind.NOT_NEEDED
    assert change.rows() == change.before


def test_a_row_that_others_changed_since_is_not_decisive_if_another_shows_the_change(change):
    change.kill(LockedSession, "withdraw")
    change.store.run("UPDATE message SET data = '{}'")
    assert change.recovered() is RecoveryKind.MADE


def test_a_change_that_no_row_shows_any_more_is_set_aside(change):
    change.kill(LockedSession, "withdraw", "prune")
    change.store.run("UPDATE message SET data = '{}'")
    change.store.run("UPDATE part SET data = '{}'")
    assert change.recovered() is RecoveryKind.UNRESOLVED


def test_a_row_that_the_agent_deleted_does_not_pass_for_a_deletion_that_was_not_made(change):
    change.kill(rows, "_commit", "delete", "prt_0006")
    change.store.run("DELETE FROM part WHERE id = 'prt_0006'")
    assert change.recovered() is RecoveryKind.NOT_MADE


@pytest.mark.parametrize("writer", ["delete", "prune", "fork"])
def test_a_trigger_is_refused_and_nothing_is_written(change, writer):
    for when in ("DELETE", "UPDATE", "INSERT"):
        change.store.run(
            f"CREATE TRIGGER on_{when} AFTER {when} ON part BEGIN DELETE FROM message; END"  # noqa: S608  # ours
        )
    assert refusal(lambda: change.make(writer)) == "2 not_a_database"
    assert change.rows() == change.before


def test_a_database_that_is_gone_leaves_the_record(change):
    change.kill(LockedSession, "withdraw")
    change.store.database.unlink()
    assert change.recovered() is RecoveryKind.UNRESOLVED


def test_columns_of_every_type_survive_a_backup(change):
    run = change.store.run
    run("ALTER TABLE part ADD COLUMN more")
    run("UPDATE part SET more = x'00ff' WHERE id = 'prt_0007'")
    run("UPDATE part SET more = 1.5 WHERE id = 'prt_0005'")
    not_unicode = "CAST(x'7b2274797065223a2274657874222c2274657874223a22ff227d' AS TEXT)"
    run(f"UPDATE part SET data = {not_unicode} WHERE id = 'prt_0006'")  # noqa: S608  # a constant
    content = "SELECT id, CAST(data AS BLOB), more, typeof(more), typeof(data) FROM part ORDER BY id"
    before = run(content)
    written = change.make("delete", "prt_0005", "prt_0006")
    put_rows_back(change.path, written.backup, change.data)
    assert run(content) == before

"""A killed change of rows leaves the database as it was or as it was to be, and the next lock knows which.

It is made in the database itself, or through a server, where the next lock holder puts an unfinished one in order.
"""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.agents.opencode.edge import server as server_module
from sessions_app.agents.opencode.edge.server import is_same_row
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage import row_steps, rows
from sessions_app.storage.locks import LockedSession, RecoveryKind, session_lock
from sessions_app.storage.row_steps import RowStep
from sessions_app.storage.rows import ReviewedRows, back_up_rows
from tests.installation import refusal
from tests.opencode_plans import UNCHECKED, WrittenRows, every_row, put_rows_back, write_rows
from tests.opencode_server import opencode_server
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.processes import holding
from tests.wait import wait_until

TARGETS = (Target("prt_0007.call"), Target("prt_0007"))


class WorkedStore:
    """A session in a database, and a place for locks and backups."""

    def __init__(self, directory: Path) -> None:
        self.store, self.data = OpenCodeStore(directory / "opencode"), directory / "data"
        self.path = worked_session(self.store)
        self.before = self.rows()

    def recovered(self) -> RecoveryKind:
        with session_lock(self.data, self.path, 1) as locked:
            return locked.recovery.kind

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return every_row(self.store.database)


class Change(WorkedStore):
    """Deletions of a writer, made in the database."""

    def make(self, writer: str = "delete", *targets: str) -> WrittenRows:
        return write_rows(self.path, writer, (*TARGETS, *map(Target, targets)), self.data)

    def kill(self, owner: Any, name: str, writer: str = "delete", *targets: str, is_over: bool = False) -> None:
        """Make it in a process that ends where this function is called."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), is_over=is_over))
            if name == "back_up_rows":
                patch.setattr("tests.opencode_plans.back_up_rows", die)
            killed(lambda: self.make(writer, *targets))


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


def dying(function: Callable[..., Any], number: int = 1, is_over: bool = False) -> Callable[..., Any]:
    """The function, whose call with this number ends the process, before it or when it is over."""
    calls = 0

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not is_over:
            die()
        done = function(*arguments, **named)
        if calls == number:
            die()
        return done

    return call


KILLS: Final = [
    (rows, "back_up_rows", False, RecoveryKind.NOT_NEEDED),
    (rows, "apply_step", False, RecoveryKind.NOT_NEEDED),
    (LockedSession, "announce", False, RecoveryKind.NOT_NEEDED),
    (LockedSession, "announce", True, RecoveryKind.NOT_MADE),
    (rows, "_commit", False, RecoveryKind.NOT_MADE),
    (rows, "_commit", True, RecoveryKind.MADE),
    (LockedSession, "withdraw", False, RecoveryKind.MADE),
]
"""What the next lock holder finds after an end before a function, or after it."""


@pytest.mark.parametrize("writer", ["delete", "prune", "fork"])
def test_a_kill_leaves_one_of_two_states(tmp_path, writer):
    wrong = []
    for number, (owner, name, is_over, recovery) in enumerate(KILLS):
        change = Change(tmp_path / str(number))
        change.kill(owner, name, writer, is_over=is_over)
        found = change.recovered(), change.rows() != change.before, change.recovered()
        if found != (recovery, recovery is RecoveryKind.MADE, RecoveryKind.NOT_NEEDED):
            wrong.append((name, is_over, found))
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


@pytest.mark.parametrize("gone", ["every row", "the database"])
def test_a_change_that_nothing_shows_any_more_is_set_aside(change, gone):
    change.kill(LockedSession, "withdraw", "prune")
    if gone == "the database":
        change.store.database.unlink()
    else:
        change.store.run("UPDATE message SET data = '{}'")
        change.store.run("UPDATE part SET data = '{}'")
    assert change.recovered() is RecoveryKind.UNRESOLVED


def test_a_row_that_the_agent_deleted_does_not_pass_for_a_deletion_that_was_not_made(change):
    change.kill(rows, "_commit", "delete", "prt_0006")
    change.store.run("DELETE FROM part WHERE id = 'prt_0006'")
    assert change.recovered() is RecoveryKind.NOT_MADE


@pytest.mark.parametrize("writer", ["delete", "prune", "fork"])
def test_a_trigger_is_refused_and_nothing_is_written(change, writer):
    does = "BEGIN DELETE FROM message; END"
    for when in ("DELETE", "UPDATE", "INSERT"):
        change.store.run(f"CREATE TRIGGER on_{when} AFTER {when} ON part {does}")
    assert refusal(lambda: change.make(writer)) == "2 not_a_database"
    assert change.rows() == change.before


def test_columns_of_every_type_survive_a_backup(change):
    run = change.store.run
    run("ALTER TABLE part ADD COLUMN more")
    run("UPDATE part SET more = x'00ff' WHERE id = 'prt_0007'")
    run("UPDATE part SET more = 1.5 WHERE id = 'prt_0005'")
    not_unicode = "CAST(x'7b2274797065223a2274657874222c2274657874223a22ff227d' AS TEXT)"
    run(f"UPDATE part SET data = {not_unicode} WHERE id = 'prt_0006'")  # noqa: S608  # a constant
    content = "SELECT id, CAST(data AS BLOB), more, typeof(more), typeof(data) FROM part ORDER BY id"
    before = run(content)
    put_rows_back(change.path, change.make("delete", "prt_0005", "prt_0006").backup, change.data)
    assert run(content) == before


PARTS: Final = ("prt_0005", "prt_0007", "prt_0008")
Call = tuple[Any, str, int, bool]
"""A function, as its owner and its name, the number of a call of it, counted from 1, and whether it is over."""
SECOND_WRITE: Final[Call] = (row_steps, "_write", 2, True)
IS_RECORDED: Final[Call] = (LockedSession, "announce", 2, True)
SERVED_KILLS: Final[list[tuple[Call, RecoveryKind]]] = [
    ((rows, "_apply_all", 1, True), RecoveryKind.NOT_NEEDED),
    ((LockedSession, "announce", 1, False), RecoveryKind.NOT_NEEDED),
    ((LockedSession, "announce", 1, True), RecoveryKind.NOT_MADE),
    ((row_steps, "_write", 1, True), RecoveryKind.NOT_MADE),
    ((row_steps, "_write", 2, False), RecoveryKind.NOT_MADE),
    (SECOND_WRITE, RecoveryKind.NOT_MADE),
    ((row_steps, "_write", 3, True), RecoveryKind.NOT_MADE),
    ((rows, "change_through", 1, True), RecoveryKind.NOT_MADE),
    ((LockedSession, "announce", 2, False), RecoveryKind.NOT_MADE),
    (IS_RECORDED, RecoveryKind.MADE),
    ((LockedSession, "withdraw", 1, False), RecoveryKind.MADE),
    ((LockedSession, "withdraw", 1, True), RecoveryKind.NOT_NEEDED),
]
"""What the next lock holder finds after an end there. Before the second record the rows are put back."""
KINDS: Final = ["deleted", "edited", "made again"]


class ServedChange(WorkedStore):
    """Steps of one kind, made through a server, and the rows before them."""

    def of(self, kind: str) -> None:
        found = [row for row in self.store.parts() if row["id"] in PARTS]
        if kind == "made again":
            for row in found:
                self.store.run("DELETE FROM part WHERE id = ?", row["id"])
            self.steps = [RowStep("part", row["id"], None, row) for row in found]
        else:
            longer = [{**row, "data": row["data"].removesuffix("}") + ', "metadata": {"a": 1}}'} for row in found]
            afters = [None] * len(found) if kind == "deleted" else longer
            self.steps = [RowStep("part", row["id"], row, after) for row, after in zip(found, afters, strict=True)]
        self.before = self.rows()

    def make(self) -> None:
        server = OPENCODE.store.server(self.path, self.served.url)
        assert server is not None
        with session_lock(self.data, self.path, 1) as locked:
            backup = back_up_rows(locked, self.steps, datetime.now(UTC)).path
            ReviewedRows(locked, self.path.parent, self.steps, **UNCHECKED).change_through(server, backup)

    def kill(self, call: Call = SECOND_WRITE) -> None:
        owner, name, number, is_over = call
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), number, is_over))
            killed(self.make)

    def is_as_before(self) -> bool:
        now = self.rows()
        return all(
            len(now[table]) == len(was) and all(map(is_same_row, now[table], was)) for table, was in self.before.items()
        )

    def is_made(self) -> bool:
        found = {row["id"]: row for row in self.store.parts()}
        return all(is_same_row(found.get(step.row_id), step.after) for step in self.steps)

    def put_back(self) -> None:
        self.store.run("DELETE FROM part")
        for row in self.before["part"]:
            self.store.run("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", *row.values())

    def backup(self) -> Path:
        (found,) = (self.data / "rows").glob("*.bak")
        return found


@pytest.fixture
def served_change(tmp_path):
    found = ServedChange(tmp_path)
    with opencode_server(found.store.database) as found.served:
        yield found


def wrong_after(change: ServedChange, call: Call, recovery: RecoveryKind) -> str:
    """What is wrong after the recovery from a kill."""
    is_changed = recovery is RecoveryKind.MADE or call[1::2] == ("withdraw", True)
    found = change.recovered(), change.is_made(), change.is_as_before(), change.recovered()
    expected = recovery, is_changed, not is_changed, RecoveryKind.NOT_NEEDED
    return "" if found == expected else f"{call[1:]}: {found} instead of {expected}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_during_a_change_through_a_server_leaves_one_of_two_states(served_change, kind):
    served_change.of(kind)
    wrong = []
    for call, recovery in SERVED_KILLS:
        served_change.kill(call)
        wrong.append(wrong_after(served_change, call, recovery))
        served_change.put_back()
    assert list(filter(None, wrong)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_put_back_exactly_if_the_server_has_ended(served_change, kind):
    served_change.of(kind)
    served_change.kill()
    served_change.served.end()
    assert served_change.recovered() is RecoveryKind.NOT_MADE
    assert served_change.rows() == served_change.before


def test_a_change_that_is_recorded_stays_if_the_server_has_ended(served_change):
    served_change.of("edited")
    served_change.kill(IS_RECORDED)
    served_change.served.end()
    assert wrong_after(served_change, IS_RECORDED, RecoveryKind.MADE) == ""


def test_beside_another_process_the_lock_is_refused_and_says_what_is_in_which_state(served_change):
    served_change.of("deleted")
    served_change.kill()
    now = served_change.rows()
    with holding(served_change.store.database):
        for _ in range(2):
            words = ("changed: prt_0005, prt_0007; as before: prt_0008", str(served_change.backup()))
            assert refusal(served_change.recovered, *words) == "6 left_between"
            assert served_change.rows() == now
    assert served_change.recovered() is RecoveryKind.NOT_MADE
    assert served_change.is_as_before()


def test_rows_that_others_have_changed_since_are_left_as_they_are(served_change):
    served_change.of("edited")
    served_change.kill()
    served_change.store.run("UPDATE part SET data = '{}' WHERE id = ?", PARTS[0])
    now = served_change.rows()
    assert served_change.recovered() is RecoveryKind.UNRESOLVED
    assert served_change.rows() == now


def test_a_call_that_is_made_late_is_taken_back(served_change):
    served_change.of("deleted")
    served_change.served.behave(stop_at=1)
    with patch.object(server_module, "SECONDS", 0.3), pytest.raises(RedlineError) as raised:
        served_change.make()
    assert raised.value.code == "left_between"
    served_change.served.process.send_signal(signal.SIGCONT)
    wait_until(lambda: not served_change.is_as_before())
    assert served_change.recovered() is RecoveryKind.NOT_MADE
    assert served_change.is_as_before()


@pytest.mark.parametrize("gone", ["database", "backup"])
def test_without_the_database_or_the_backup_the_record_is_set_aside(served_change, gone):
    served_change.of("edited")
    served_change.kill()
    (served_change.store.database if gone == "database" else served_change.backup()).unlink()
    assert served_change.recovered() is RecoveryKind.UNRESOLVED

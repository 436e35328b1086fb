"""A kill during a change through a server leaves one of two states, once the next lock holder has put it in order."""

import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from sessions_app.agents.opencode import server as server_module
from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.agents.opencode.server import is_same_row
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage import rows, served_rows
from sessions_app.storage.locks import LockedSession, RecoveryKind, session_lock
from sessions_app.storage.row_steps import RowStep
from sessions_app.storage.rows import back_up_rows, change_served_rows
from tests.opencode_plans import every_row
from tests.opencode_server import opencode_server
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.wait import wait_until

from .test_rows import die, killed, recovered

PARTS: Final = ("prt_0005", "prt_0007", "prt_0008")
Call = tuple[Any, str, int, bool]
"""A function, as its owner and its name, the number of a call of it, counted from 1, and whether it is over."""
SECOND_WRITE: Final[Call] = (served_rows, "_write", 2, True)
IS_RECORDED: Final[Call] = (LockedSession, "announce", 2, True)
KILLS: Final[list[tuple[Call, RecoveryKind]]] = [
    ((rows, "_apply_all", 1, True), RecoveryKind.NOT_NEEDED),
    ((LockedSession, "announce", 1, False), RecoveryKind.NOT_NEEDED),
    ((LockedSession, "announce", 1, True), RecoveryKind.NOT_MADE),
    ((served_rows, "_write", 1, True), RecoveryKind.NOT_MADE),
    ((served_rows, "_write", 2, False), RecoveryKind.NOT_MADE),
    (SECOND_WRITE, RecoveryKind.NOT_MADE),
    ((served_rows, "_write", 3, True), RecoveryKind.NOT_MADE),
    ((rows, "change_through", 1, True), RecoveryKind.NOT_MADE),
    ((LockedSession, "announce", 2, False), RecoveryKind.NOT_MADE),
    (IS_RECORDED, RecoveryKind.MADE),
    ((LockedSession, "withdraw", 1, False), RecoveryKind.MADE),
    ((LockedSession, "withdraw", 1, True), RecoveryKind.NOT_NEEDED),
]
"""What the next lock holder finds after an end there. Before the second record the rows are put back."""
KINDS: Final = ["deleted", "edited", "made again"]


class Change:
    """Steps of one kind, made through a server, and the rows before them."""

    def __init__(self, directory: Path) -> None:
        self.store, self.data = OpenCodeStore(directory / "opencode"), directory / "data"
        self.path = worked_session(self.store)

    def of(self, kind: str) -> None:
        found = [row for row in self.store.parts() if row["id"] in PARTS]
        if kind == "made again":
            for row in found:
                self.store.run("DELETE FROM part WHERE id = ?", row["id"])
            self.steps = [RowStep("part", row["id"], None, row) for row in found]
        else:
            afters = [None if kind == "deleted" else _longer(row) for row in found]
            self.steps = [RowStep("part", row["id"], row, after) for row, after in zip(found, afters, strict=True)]
        self.before = every_row(self.store.database)

    def make(self) -> None:
        server = OPENCODE.server(self.path, self.served.url)
        assert server is not None
        with session_lock(self.data, self.path, 1) as locked:
            backup = back_up_rows(locked, self.steps, datetime.now(UTC))
            change_served_rows(
                locked,
                self.path.parent,
                self.steps,
                server=server,
                backup=backup.path,
                require_unchanged=lambda _: None,
                prove=lambda _: 0,
                note=lambda _: "",
                record=lambda _: None,
            )

    def kill(self, call: Call = SECOND_WRITE) -> None:
        owner, name, number, is_over = call
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), number, is_over))
            killed(self.make)

    def recovered(self) -> RecoveryKind:
        return recovered(self.path, self.data)

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return every_row(self.store.database)

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


def _longer(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "data": row["data"].removesuffix("}") + ', "metadata": {"a": 1}}'}


def dying(function: Callable[..., Any], number: int, is_over: bool) -> Callable[..., Any]:
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


@pytest.fixture
def change(tmp_path):
    found = Change(tmp_path)
    with opencode_server(found.store.database) as found.served:
        yield found


def wrong_after(change: Change, call: Call, recovery: RecoveryKind) -> str:
    """What is wrong after the recovery from a kill."""
    is_changed = recovery is RecoveryKind.MADE or call[1::2] == ("withdraw", True)
    found = change.recovered(), change.is_made(), change.is_as_before(), change.recovered()
    expected = recovery, is_changed, not is_changed, RecoveryKind.NOT_NEEDED
    return "" if found == expected else f"{call[1:]}: {found} instead of {expected}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_leaves_one_of_two_states(change, kind):
    change.of(kind)
    wrong = []
    for call, recovery in KILLS:
        change.kill(call)
        wrong.append(wrong_after(change, call, recovery))
        change.put_back()
    assert list(filter(None, wrong)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_put_back_exactly_if_the_server_has_ended(change, kind):
    change.of(kind)
    change.kill()
    change.served.end()
    assert change.recovered() is RecoveryKind.NOT_MADE
    assert change.rows() == change.before


def test_a_change_that_is_recorded_stays_if_the_server_has_ended(change):
    change.of("edited")
    change.kill(IS_RECORDED)
    change.served.end()
    assert wrong_after(change, IS_RECORDED, RecoveryKind.MADE) == ""


def test_beside_another_process_the_lock_is_refused_and_says_what_is_in_which_state(change):
    change.of("deleted")
    change.kill()
    now = change.rows()
    with opencode_server(change.store.database):
        for _ in range(2):
            with pytest.raises(RedlineError) as raised:
                change.recovered()
            assert raised.value.code == "left_between"
            assert "changed: prt_0005, prt_0007; as before: prt_0008" in raised.value.message
            assert str(change.backup()) in raised.value.message
            assert change.rows() == now
    assert change.recovered() is RecoveryKind.NOT_MADE
    assert change.is_as_before()


def test_rows_that_others_have_changed_since_are_left_as_they_are(change):
    change.of("edited")
    change.kill()
    change.store.run("UPDATE part SET data = '{}' WHERE id = ?", PARTS[0])
    now = change.rows()
    assert change.recovered() is RecoveryKind.UNRESOLVED
    assert change.rows() == now


def test_a_call_that_is_made_late_is_taken_back(change, monkeypatch):
    change.of("deleted")
    change.served.behave(stop_at=1)
    with monkeypatch.context() as patch:
        patch.setattr(server_module, "SECONDS", 0.3)
        with pytest.raises(RedlineError) as raised:
            change.make()
    assert raised.value.code == "left_between"
    change.served.process.send_signal(signal.SIGCONT)
    wait_until(lambda: not change.is_as_before())
    assert change.recovered() is RecoveryKind.NOT_MADE
    assert change.is_as_before()


@pytest.mark.parametrize("gone", ["database", "backup"])
def test_without_the_database_or_the_backup_the_record_is_set_aside(change, gone):
    change.of("edited")
    change.kill()
    (change.store.database if gone == "database" else change.backup()).unlink()
    assert change.recovered() is RecoveryKind.UNRESOLVED

"""A kill during a change through a server leaves one of two states, once the next lock holder has put it in order."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
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
from tests.opencode_server import ServedDatabase, opencode_server
from tests.opencode_stores import OpenCodeStore, worked_session

from .test_rows import die, killed, recovered

PARTS: Final = ("prt_0005", "prt_0007", "prt_0008")


@pytest.fixture
def store(tmp_path: Path) -> OpenCodeStore:
    return OpenCodeStore(tmp_path / "opencode")


@pytest.fixture
def path(store: OpenCodeStore) -> Path:
    return worked_session(store)


@pytest.fixture
def served(store: OpenCodeStore, path: Path) -> Iterator[ServedDatabase]:
    with opencode_server(store.database) as server:
        yield server


def deletion(row: dict[str, Any]) -> RowStep:
    return RowStep("part", row["id"], row, None)


def steps_of(store: OpenCodeStore, kind: str) -> list[RowStep]:
    found = [row for row in store.parts() if row["id"] in PARTS]
    if kind == "made again":
        for row in found:
            store.run("DELETE FROM part WHERE id = ?", row["id"])
        return [deletion(row).reversed for row in found]
    return [
        deletion(row) if kind == "deleted" else RowStep("part", row["id"], row, _longer(row)) for row in found
    ]


def _longer(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "data": row["data"].removesuffix("}") + ', "metadata": {"a": 1}}'}


def change(path: Path, steps: Sequence[RowStep], url: str, data: Path) -> None:
    server = OPENCODE.server(path, url)
    assert server is not None
    with session_lock(data, path, 1) as locked:
        backup = back_up_rows(locked, steps, datetime.now(UTC))
        change_served_rows(
            locked,
            path.parent,
            steps,
            server=server,
            backup=backup.path,
            require_unchanged=lambda _: None,
            prove=lambda _: 0,
            note=lambda _: "",
            record=lambda _: None,
        )


def is_as(store: OpenCodeStore, before: dict[str, list[dict[str, Any]]]) -> bool:
    now = every_row(store.database)
    return all(
        len(now[table]) == len(before[table]) and all(map(is_same_row, now[table], before[table]))
        for table in before
    )


def is_made(store: OpenCodeStore, steps: Sequence[RowStep]) -> bool:
    found = {row["id"]: row for row in store.parts()}
    return all(is_same_row(found.get(step.row_id), step.after) for step in steps)


class Boundary:
    """The end of a process before or after the call of a function with this number, counted from 1."""

    def __init__(self, owner: Any, name: str, number: int, *, after: bool) -> None:
        self.owner, self.name, self.number, self.after = owner, name, number, after

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.name} {self.number}"

    def dying(self) -> Callable[..., Any]:
        function, calls = getattr(self.owner, self.name), 0

        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == self.number and not self.after:
                die()
            done = function(*arguments, **named)
            if calls == self.number:
                die()
            return done

        return call


KINDS: Final = ["deleted", "edited", "made again"]
BOUNDARIES: Final = [
    (Boundary(rows, "_apply_all", 1, after=True), RecoveryKind.NOT_NEEDED),
    (Boundary(LockedSession, "announce", 1, after=False), RecoveryKind.NOT_NEEDED),
    (Boundary(LockedSession, "announce", 1, after=True), RecoveryKind.NOT_MADE),
    (Boundary(served_rows, "_write", 1, after=True), RecoveryKind.NOT_MADE),
    (Boundary(served_rows, "_write", 2, after=False), RecoveryKind.NOT_MADE),
    (Boundary(served_rows, "_write", 2, after=True), RecoveryKind.NOT_MADE),
    (Boundary(served_rows, "_write", 3, after=True), RecoveryKind.NOT_MADE),
    (Boundary(rows, "change_through", 1, after=True), RecoveryKind.NOT_MADE),
    (Boundary(LockedSession, "announce", 2, after=False), RecoveryKind.NOT_MADE),
    (Boundary(LockedSession, "announce", 2, after=True), RecoveryKind.MADE),
    (Boundary(LockedSession, "withdraw", 1, after=False), RecoveryKind.MADE),
    (Boundary(LockedSession, "withdraw", 1, after=True), RecoveryKind.NOT_NEEDED),
]
"""What the next lock holder finds after an end there. Before the second record the rows are put back."""


@pytest.mark.parametrize("is_served", [True, False], ids=["served", "ended"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("boundary", "recovery"), BOUNDARIES, ids=lambda one: str(getattr(one, "name", one)))
def test_a_kill_leaves_one_of_two_states(
    store: OpenCodeStore,
    path: Path,
    served: ServedDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    boundary: Boundary,
    recovery: RecoveryKind,
    kind: str,
    is_served: bool,
) -> None:
    steps, data = steps_of(store, kind), tmp_path / "data"
    before = every_row(store.database)
    with monkeypatch.context() as patch:
        patch.setattr(boundary.owner, boundary.name, boundary.dying())
        killed(lambda: change(path, steps, served.url, data))
    if not is_served:
        served.end()
    assert recovered(path, data) is recovery
    is_changed = recovery is RecoveryKind.MADE or (boundary.name, boundary.after) == ("withdraw", True)
    assert is_made(store, steps) is is_changed
    assert is_as(store, before) is not is_changed
    assert recovered(path, data) is RecoveryKind.NOT_NEEDED


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_put_back_exactly_if_the_server_has_ended(
    store: OpenCodeStore,
    path: Path,
    served: ServedDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    steps, data = steps_of(store, kind), tmp_path / "data"
    before = every_row(store.database)
    kill_between(path, steps, served, data, monkeypatch)
    served.end()
    assert recovered(path, data) is RecoveryKind.NOT_MADE
    assert every_row(store.database) == before


def test_beside_another_process_the_lock_is_refused_and_says_what_is_in_which_state(
    store: OpenCodeStore,
    path: Path,
    served: ServedDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, data = steps_of(store, "deleted"), tmp_path / "data"
    before = every_row(store.database)
    kill_between(path, steps, served, data, monkeypatch)
    now = every_row(store.database)
    with opencode_server(store.database):
        for _ in range(2):
            with pytest.raises(RedlineError) as raised:
                recovered(path, data)
            assert raised.value.code == "left_between"
            assert "changed: prt_0005, prt_0007; as before: prt_0008" in raised.value.message
            (backup,) = (data / "rows").glob("*.bak")
            assert str(backup) in raised.value.message
            assert every_row(store.database) == now
    assert recovered(path, data) is RecoveryKind.NOT_MADE
    assert is_as(store, before)


def test_rows_that_others_have_changed_since_are_left_as_they_are(
    store: OpenCodeStore,
    path: Path,
    served: ServedDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, data = steps_of(store, "edited"), tmp_path / "data"
    kill_between(path, steps, served, data, monkeypatch)
    store.run("UPDATE part SET data = '{}' WHERE id = ?", PARTS[0])
    now = every_row(store.database)
    assert recovered(path, data) is RecoveryKind.UNRESOLVED
    assert every_row(store.database) == now


def test_a_call_that_is_made_late_is_taken_back(
    store: OpenCodeStore,
    path: Path,
    served: ServedDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, data = steps_of(store, "deleted"), tmp_path / "data"
    before = every_row(store.database)
    served.behave(stop_at=1)
    with monkeypatch.context() as patch:
        patch.setattr(server_module, "SECONDS", 0.3)
        with pytest.raises(RedlineError) as raised:
            change(path, steps, served.url, data)
    assert raised.value.code == "left_between"
    served.process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 10
    while is_as(store, before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_as(store, before)
    assert recovered(path, data) is RecoveryKind.NOT_MADE
    assert is_as(store, before)


@pytest.mark.parametrize("gone", ["database", "backup"])
def test_without_the_database_or_the_backup_the_record_is_set_aside(
    store: OpenCodeStore,
    path: Path,
    served: ServedDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gone: str,
) -> None:
    data = tmp_path / "data"
    kill_between(path, steps_of(store, "edited"), served, data, monkeypatch)
    (backup,) = (data / "rows").glob("*.bak")
    (store.database if gone == "database" else backup).unlink()
    assert recovered(path, data) is RecoveryKind.UNRESOLVED


def kill_between(
    path: Path, steps: Sequence[RowStep], served: ServedDatabase, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End a process that changes these rows after its second call."""
    with monkeypatch.context() as patch:
        patch.setattr(served_rows, "_write", Boundary(served_rows, "_write", 2, after=True).dying())
        killed(lambda: change(path, steps, served.url, data))

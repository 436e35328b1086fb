"""A killed change of rows leaves the database as it was or as it was to be, and the next lock knows which."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sessions_app.sessionlog.errors import BadInput, SystemFailure
from sessions_app.sessionlog.targets import Target
from sessions_app.storage import rows
from sessions_app.storage.locks import LockedSession, RecoveryKind, session_lock
from tests.opencode_plans import every_row, put_rows_back, write_rows
from tests.opencode_stores import OpenCodeStore, worked_session

TARGETS = (Target("prt_0007.call"), Target("prt_0007"))


@pytest.fixture
def store(tmp_path: Path) -> OpenCodeStore:
    return OpenCodeStore(tmp_path / "opencode")


@pytest.fixture
def path(store: OpenCodeStore) -> Path:
    return worked_session(store)


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


@pytest.mark.parametrize("writer", ["delete", "prune", "fork"])
@pytest.mark.parametrize(
    ("owner", "name", "how", "kind"),
    [
        (rows, "back_up_rows", die, RecoveryKind.NOT_NEEDED),
        (rows, "apply_step", die, RecoveryKind.NOT_NEEDED),
        (LockedSession, "announce", die, RecoveryKind.NOT_NEEDED),
        (LockedSession, "announce", _after, RecoveryKind.NOT_MADE),
        (rows, "_commit", die, RecoveryKind.NOT_MADE),
        (rows, "_commit", _after, RecoveryKind.MADE),
        (LockedSession, "withdraw", die, RecoveryKind.MADE),
    ],
    ids=lambda one: getattr(one, "__name__", None) or str(getattr(one, "name", one)),
)
def test_a_kill_leaves_one_of_two_states(
    store: OpenCodeStore,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    writer: str,
    owner: Any,
    name: str,
    how: Any,
    kind: RecoveryKind,
) -> None:
    before = every_row(store.database)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, how if how is die else how(getattr(owner, name)))
        if name == "back_up_rows":
            patch.setattr("tests.opencode_plans.back_up_rows", die)
        killed(lambda: write_rows(path, writer, TARGETS, tmp_path / "data"))
    assert recovered(path, tmp_path / "data") is kind
    assert (every_row(store.database) != before) is (kind is RecoveryKind.MADE)
    assert recovered(path, tmp_path / "data") is RecoveryKind.NOT_NEEDED


def test_a_commit_that_fails_on_the_disk_is_settled_by_the_next_lock(
    store: OpenCodeStore, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.part("msg_0002", "x" * 100_000)
    before, data = every_row(store.database), tmp_path / "data"
    commit = rows._commit

    def on_a_full_disk(*arguments: Any) -> None:
        with largest_file(64):
            commit(*arguments)

    monkeypatch.setattr(rows, "_commit", on_a_full_disk)
    with pytest.raises(SystemFailure) as raised:
        write_rows(path, "delete", TARGETS, data)
    assert raised.value.code == "outcome_unknown"
    assert recovered(path, data) is RecoveryKind.NOT_MADE
    assert every_row(store.database) == before


def test_a_commit_that_a_reader_prevents_is_not_made(
    store: OpenCodeStore, path: Path, tmp_path: Path
) -> None:
    store.run("PRAGMA journal_mode = DELETE")
    before, data = every_row(store.database), tmp_path / "data"
    with closing(store.connect()) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM part").fetchone()
        with pytest.raises(SystemFailure) as raised:
            write_rows(path, "delete", TARGETS, data)
    assert raised.value.code == "database_busy"
    assert recovered(path, data) is RecoveryKind.NOT_NEEDED
    assert every_row(store.database) == before


def test_a_row_that_others_changed_since_is_not_decisive_if_another_shows_the_change(
    store: OpenCodeStore, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LockedSession, "withdraw", die)
        killed(lambda: write_rows(path, "delete", TARGETS, tmp_path / "data"))
    store.run("UPDATE message SET data = '{}'")
    assert recovered(path, tmp_path / "data") is RecoveryKind.MADE


def test_a_change_that_no_row_shows_any_more_is_set_aside(
    store: OpenCodeStore, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LockedSession, "withdraw", die)
        killed(lambda: write_rows(path, "prune", TARGETS, tmp_path / "data"))
    store.run("UPDATE message SET data = '{}'")
    store.run("UPDATE part SET data = '{}'")
    assert recovered(path, tmp_path / "data") is RecoveryKind.UNRESOLVED


def test_a_row_that_the_agent_deleted_does_not_pass_for_a_deletion_that_was_not_made(
    store: OpenCodeStore, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rows, "_commit", die)
        killed(lambda: write_rows(path, "delete", (*TARGETS, Target("prt_0006")), tmp_path / "data"))
    store.run("DELETE FROM part WHERE id = 'prt_0006'")
    assert recovered(path, tmp_path / "data") is RecoveryKind.NOT_MADE


@pytest.mark.parametrize("writer", ["delete", "prune", "fork"])
def test_a_trigger_is_refused_and_nothing_is_written(
    store: OpenCodeStore, path: Path, tmp_path: Path, writer: str
) -> None:
    store.run("CREATE TRIGGER more AFTER DELETE ON part BEGIN DELETE FROM message; END")
    store.run("CREATE TRIGGER most AFTER UPDATE ON part BEGIN DELETE FROM message; END")
    store.run("CREATE TRIGGER new AFTER INSERT ON part BEGIN DELETE FROM message; END")
    before = every_row(store.database)
    with pytest.raises(BadInput) as refused:
        write_rows(path, writer, TARGETS, tmp_path / "data")
    assert refused.value.code == "not_a_database"
    assert every_row(store.database) == before


def test_a_database_that_is_gone_leaves_the_record(
    store: OpenCodeStore, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LockedSession, "withdraw", die)
        killed(lambda: write_rows(path, "delete", TARGETS, tmp_path / "data"))
    store.database.unlink()
    assert recovered(path, tmp_path / "data") is RecoveryKind.UNRESOLVED


def test_columns_of_every_type_survive_a_backup(store: OpenCodeStore, path: Path, tmp_path: Path) -> None:
    store.run("ALTER TABLE part ADD COLUMN more")
    store.run("UPDATE part SET more = x'00ff' WHERE id = 'prt_0007'")
    store.run("UPDATE part SET more = 1.5 WHERE id = 'prt_0005'")
    not_unicode = "CAST(x'7b2274797065223a2274657874222c2274657874223a22ff227d' AS TEXT)"
    store.run(f"UPDATE part SET data = {not_unicode} WHERE id = 'prt_0006'")  # noqa: S608  # a constant
    before = store.run("SELECT id, CAST(data AS BLOB), more, typeof(more), typeof(data) FROM part")
    targets = (*TARGETS, Target("prt_0005"), Target("prt_0006"))
    written = write_rows(path, "delete", targets, tmp_path / "data")
    put_rows_back(path, written.backup, tmp_path / "data")
    assert (
        store.run("SELECT id, CAST(data AS BLOB), more, typeof(more), typeof(data) FROM part ORDER BY id")
        == before
    )

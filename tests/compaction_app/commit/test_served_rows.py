"""While OpenCode's own server has the database open, a plan is written through it if its address is configured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compaction_app.commit.service import Approved
from compaction_app.models import AuditEntry, Compaction, Undo
from sessions_app.agents.opencode.server import is_same_row
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.locks import RecoveryKind, session_lock
from sessions_app.storage.row_steps import backed_up_steps
from tests.compaction_app.commit.test_row_change import (
    CALL,
    PLACEHOLDER,
    RESULT,
    THINKING,
    approved,
    done,
    everything,
    sent,
)
from tests.compaction_app.undo.test_row_undo import undone
from tests.installation import Installation, override_configuration
from tests.opencode_server import ServedDatabase, opencode_server
from tests.opencode_stores import OpenCodeStore, worked_session

DELETED = (CALL, RESULT, THINKING)
PRUNED = (CALL, RESULT, "prt_0008.call", "prt_0008")
WRITERS = pytest.mark.parametrize(
    ("writer", "targets"), [("delete", DELETED), ("prune", PRUNED)], ids=["delete", "prune"]
)


@pytest.fixture
def store(redline: Installation) -> OpenCodeStore:
    return OpenCodeStore(redline.home / ".local" / "share" / "opencode")


@pytest.fixture
def path(store: OpenCodeStore) -> Path:
    return worked_session(store)


@pytest.fixture
def served(store: OpenCodeStore, path: Path) -> Iterator[ServedDatabase]:
    with opencode_server(store.database) as server, override_configuration(servers={"opencode": server.url}):
        yield server


def refused(plan: Approved) -> RedlineError:
    with pytest.raises(RedlineError) as raised:
        done(plan)
    return raised.value


def is_as(now: dict[str, list[dict[str, Any]]], before: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether the rows mean the same as before."""
    tables = ("session", "message", "part")
    rows = [(one, other) for table in tables for one, other in zip(now[table], before[table], strict=True)]
    return all(is_same_row(one, other) for one, other in rows)


def leftovers(redline: Installation) -> list[str]:
    """The intent records and the backups of rows."""
    files = [*(redline.data / "locks").glob("*.intent*"), *(redline.data / "rows").glob("*.bak")]
    return [file.name for file in files]


def test_delete_removes_the_parts_and_nothing_else(
    store: OpenCodeStore, path: Path, served: ServedDatabase
) -> None:
    before, messages = everything(store), sent(path)
    done(approved(path, "delete", *DELETED))
    gone = [row["id"] for row in before["part"] if row not in everything(store)["part"]]
    assert gone == [THINKING, RESULT]
    assert {**everything(store), "part": before["part"]} == before
    del messages[1]["reasoning_content"], messages[1]["tool_calls"][0], messages[2]
    assert sent(path) == messages


def test_prune_marks_the_outputs_and_keeps_the_rest(
    store: OpenCodeStore, path: Path, served: ServedDatabase
) -> None:
    before, messages = everything(store), sent(path)
    done(approved(path, "prune", *PRUNED))
    messages[2]["content"] = messages[3]["content"] = PLACEHOLDER
    assert sent(path) == messages
    after = everything(store)
    for row in after["part"]:
        data = json.loads(row["data"])
        data.get("state", {}).get("time", {}).pop("compacted", None)
        row["data"] = json.dumps(data)
    assert is_as(after, before)
    assert after["message"] == before["message"]


@WRITERS
def test_an_undo_through_the_server_gives_the_context_before(
    store: OpenCodeStore, path: Path, served: ServedDatabase, writer: str, targets: tuple[str, ...]
) -> None:
    before, messages = everything(store), sent(path)
    done(approved(path, writer, *targets))
    undone(path, [RESULT])
    assert sent(path) != messages
    undone(path)
    assert sent(path) == messages
    assert is_as(everything(store), before)
    assert [undo.server for undo in Undo.objects.all()] == [served.url] * 2


@WRITERS
def test_an_undo_when_the_server_has_ended_gives_the_exact_rows(
    store: OpenCodeStore, path: Path, served: ServedDatabase, writer: str, targets: tuple[str, ...]
) -> None:
    before = everything(store)
    done(approved(path, writer, *targets))
    served.end()
    undone(path)
    assert everything(store) == before
    assert Undo.objects.get().server == ""


@WRITERS
def test_what_a_transaction_wrote_is_undone_through_the_server(
    store: OpenCodeStore, path: Path, writer: str, targets: tuple[str, ...]
) -> None:
    before, messages = everything(store), sent(path)
    done(approved(path, writer, *targets))
    with opencode_server(store.database) as server, override_configuration(servers={"opencode": server.url}):
        undone(path)
    assert sent(path) == messages
    now = everything(store)
    # A server cannot change messages.
    assert json.loads(now["message"][-1]["data"])["tokens"]["total"] == 0
    assert is_as({**now, "message": before["message"]}, before)


def test_the_records_name_the_server(path: Path, served: ServedDatabase) -> None:
    written = done(approved(path, "delete", *DELETED))
    assert {step.table for step in backed_up_steps(written.backup.path)} == {"part"}
    assert Compaction.objects.get().server == served.url
    undone(path)
    words = f"delete, through the server at {served.url}"
    assert [entry.writer for entry in AuditEntry.objects.order_by("number")] == [words, words]


def test_the_command_says_what_the_server_does_not_do(
    redline: Installation, store: OpenCodeStore, served: ServedDatabase
) -> None:
    longer = worked_session(store, turns=8, session_id="ses_2")
    shown = redline.call("compact", longer, "--dry-run", "--writer", "delete")
    assert f"through the OpenCode server at {served.url}" in shown.out
    assert "OpenCode may compact at the next prompt" in shown.out
    made = redline.call("compact", longer, "--yes", "--live", "--writer", "delete")
    assert made.code == 0, made
    back = redline.call("undo", longer, "--yes", "--live")
    assert f"through the server at {served.url}" in back.out


def test_a_fork_is_made_in_the_database_and_stays_while_it_is_open(
    store: OpenCodeStore, path: Path, served: ServedDatabase
) -> None:
    made = done(approved(path, "fork", CALL, RESULT)).created
    assert made is not None
    now = everything(store)
    with pytest.raises(RedlineError) as raised:
        undone(path)
    assert raised.value.code == "open_in_agent"
    assert everything(store) == now


@pytest.mark.parametrize("servers", [{}, {"opencode": "http://127.0.0.1:9"}])
def test_without_the_servers_address_nothing_is_written(
    store: OpenCodeStore, path: Path, served: ServedDatabase, servers: dict[str, str]
) -> None:
    now = everything(store)
    with override_configuration(servers=servers):
        failure = refused(approved(path, "delete", *DELETED))
    assert failure.code == "open_in_agent"
    assert all(address in failure.message for address in servers.values())
    assert everything(store) == now


def test_a_process_at_another_address_is_not_called_the_configured_server(
    store: OpenCodeStore, path: Path, redline: Installation
) -> None:
    before = everything(store)
    configured = override_configuration(servers={"opencode": "http://127.0.0.1:9"})
    with opencode_server(store.database), configured:
        failure = refused(approved(path, "delete", *DELETED))
    assert "which is not, or not alone, the server configured at http://127.0.0.1:9." in failure.message
    assert everything(store) == before


def test_beside_another_process_nothing_is_written(
    store: OpenCodeStore, path: Path, served: ServedDatabase
) -> None:
    now = everything(store)
    with opencode_server(store.database):
        assert refused(approved(path, "delete", *DELETED)).code == "open_in_agent"
    assert everything(store) == now


def test_a_busy_session_is_left_alone(
    redline: Installation, store: OpenCodeStore, path: Path, served: ServedDatabase
) -> None:
    now = everything(store)
    served.behave(busy=True)
    assert refused(approved(path, "delete", *DELETED)).code == "session_busy"
    assert everything(store) == now
    assert leftovers(redline) == []


@WRITERS
def test_a_part_that_the_server_would_write_without_some_fields_is_refused(
    redline: Installation,
    store: OpenCodeStore,
    path: Path,
    served: ServedDatabase,
    writer: str,
    targets: tuple[str, ...],
) -> None:
    store.run("UPDATE part SET data = json_set(data, '$.more', 1) WHERE id = ?", RESULT)
    now = everything(store)
    assert refused(approved(path, writer, *targets)).code == "not_kept"
    assert everything(store) == now
    assert leftovers(redline) == []
    served.end()
    done(approved(path, writer, *targets))
    assert everything(store) != now


@WRITERS
@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ({"fail_at": 1}, "server_failed"),
        ({"fail_at": 2}, "server_failed"),
        ({"lose_at": 2}, "not_as_sent"),
        ({"spoil_at": 2}, "not_as_sent"),
    ],
)
def test_a_call_that_fails_takes_all_of_them_back(
    redline: Installation,
    store: OpenCodeStore,
    path: Path,
    served: ServedDatabase,
    writer: str,
    targets: tuple[str, ...],
    behaviour: dict[str, int],
    code: str,
) -> None:
    before, messages = everything(store), sent(path)
    served.behave(**behaviour)
    assert refused(approved(path, writer, *targets)).code == code
    assert is_as(everything(store), before)
    assert sent(path) == messages
    assert leftovers(redline) == []
    assert not Compaction.objects.exists()


@WRITERS
def test_a_server_that_dies_between_two_calls_leaves_the_rows_as_before(
    redline: Installation,
    store: OpenCodeStore,
    path: Path,
    served: ServedDatabase,
    writer: str,
    targets: tuple[str, ...],
) -> None:
    before = everything(store)
    served.behave(die_at=2)
    assert refused(approved(path, writer, *targets)).code == "server_unreachable"
    assert everything(store) == before
    assert leftovers(redline) == []


@WRITERS
def test_what_the_result_does_not_prove_is_taken_back(
    store: OpenCodeStore, path: Path, served: ServedDatabase, writer: str, targets: tuple[str, ...]
) -> None:
    before = everything(store)
    served.behave(add_at=2)
    assert refused(approved(path, writer, *targets)).code == "not_proven"
    now = everything(store)
    assert [row["id"] for row in now["part"][-1:]] == ["prt_9"]
    assert is_as({**now, "part": now["part"][:-1]}, before)


@WRITERS
def test_rows_that_cannot_be_put_back_now_are_put_back_with_the_next_lock(
    redline: Installation,
    store: OpenCodeStore,
    path: Path,
    served: ServedDatabase,
    writer: str,
    targets: tuple[str, ...],
) -> None:
    before = everything(store)
    served.behave(fail_from=2)
    failure = refused(approved(path, writer, *targets))
    assert failure.code == "left_between"
    (backup,) = (redline.data / "rows").glob("*.bak")
    assert str(backup) in failure.message
    assert not is_same_everywhere(store, before)
    served.behave()
    with session_lock(redline.data, path, 1) as locked:
        assert locked.recovery.kind is RecoveryKind.NOT_MADE
    assert is_as(everything(store), before)


def is_same_everywhere(store: OpenCodeStore, before: dict[str, list[dict[str, Any]]]) -> bool:
    now = everything(store)
    return len(now["part"]) == len(before["part"]) and is_as(now, before)

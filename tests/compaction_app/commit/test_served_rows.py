"""While OpenCode's own server has the database open, a plan is written through it if its address is configured."""

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from compaction_app.models import AuditEntry, Compaction, Undo
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.locks import RecoveryKind, session_lock
from sessions_app.storage.row_steps import backed_up_steps
from tests.installation import Installation, override_configuration
from tests.opencode_server import opencode_server
from tests.opencode_stores import worked_session

from .rows import CALL, PLACEHOLDER, RESULT, THINKING, RowScene, row_scene

TARGETS = {"delete": (CALL, RESULT, THINKING), "prune": (CALL, RESULT, "prt_0008.call", "prt_0008")}
each_writer = pytest.mark.parametrize("writer", TARGETS)
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def scene(redline):
    return row_scene(redline)


@pytest.fixture
def served(scene):
    with opencode_server(scene.store.database) as server, configured(server.url):
        yield server


def configured(url: str) -> AbstractContextManager[None]:
    return override_configuration(servers={"opencode": url} if url else {})


def change(scene: RowScene, writer: str) -> None:
    scene.delete(writer, *TARGETS[writer])


def refused(scene: RowScene, writer: str = "delete") -> RedlineError:
    with pytest.raises(RedlineError) as raised:
        change(scene, writer)
    return raised.value


def leftovers(redline: Installation) -> list[str]:
    """The intent records and the backups of rows."""
    files = [*(redline.data / "locks").glob("*.intent*"), *(redline.data / "rows").glob("*.bak")]
    return [file.name for file in files]


def test_delete_removes_the_parts_and_nothing_else(scene, served):
    change(scene, "delete")
    now, messages = scene.rows(), scene.messages
    assert [row["id"] for row in scene.before["part"] if row not in now["part"]] == [THINKING, RESULT]
    assert {**now, "part": scene.before["part"]} == scene.before
    del messages[1]["reasoning_content"], messages[1]["tool_calls"][0], messages[2]
    assert scene.sent() == messages
    compaction = Compaction.objects.get()
    assert {step.table for step in backed_up_steps(Path(compaction.backup.path))} == {"part"}
    assert compaction.server == served.url
    scene.undo()
    words = f"delete, through the server at {served.url}"
    assert [entry.writer for entry in AuditEntry.objects.order_by("number")] == [words, words]


def test_prune_marks_the_outputs_and_keeps_the_rest(scene, served):
    change(scene, "prune")
    scene.messages[2]["content"] = scene.messages[3]["content"] = PLACEHOLDER
    assert scene.sent() == scene.messages
    after = scene.rows()
    for row in after["part"]:
        data = json.loads(row["data"])
        data.get("state", {}).get("time", {}).pop("compacted", None)
        row["data"] = json.dumps(data)
    assert scene.is_as_before(part=after["part"])
    assert after["message"] == scene.before["message"]


@each_writer
def test_an_undo_through_the_server_gives_the_context_before(scene, served, writer):
    change(scene, writer)
    scene.undo(RESULT)
    assert scene.sent() != scene.messages
    scene.undo()
    assert scene.sent() == scene.messages
    assert scene.is_as_before()
    assert [undo.server for undo in Undo.objects.all()] == [served.url] * 2


@each_writer
def test_an_undo_when_the_server_has_ended_gives_the_exact_rows(scene, served, writer):
    change(scene, writer)
    served.end()
    scene.undo()
    assert scene.rows() == scene.before
    assert Undo.objects.get().server == ""


@each_writer
def test_what_a_transaction_wrote_is_undone_through_the_server(scene, writer):
    change(scene, writer)
    with opencode_server(scene.store.database) as server, configured(server.url):
        scene.undo()
    assert scene.sent() == scene.messages
    # A server cannot change messages.
    assert json.loads(scene.rows()["message"][-1]["data"])["tokens"]["total"] == 0
    assert scene.is_as_before(message=scene.before["message"])


def test_the_command_says_what_the_server_does_not_do(redline, scene, served):
    longer = worked_session(scene.store, turns=8, session_id="ses_2")
    shown = redline.call("compact", longer, "--dry-run", "--writer", "delete")
    assert f"through the OpenCode server at {served.url}" in shown.out
    assert "OpenCode may compact at the next prompt" in shown.out
    made = redline.call("compact", longer, "--yes", "--live", "--writer", "delete")
    assert made.code == 0, made
    back = redline.call("undo", longer, "--yes", "--live")
    assert f"through the server at {served.url}" in back.out


def test_a_fork_is_made_in_the_database_and_stays_while_it_is_open(scene, served):
    assert scene.delete("fork", CALL, RESULT) is not None
    now = scene.rows()
    with pytest.raises(RedlineError) as raised:
        scene.undo()
    assert raised.value.code == "open_in_agent"
    assert scene.rows() == now


def test_without_the_servers_address_or_beside_another_process_nothing_is_written(scene, served):
    for url in ("", NOWHERE):
        with configured(url):
            failure = refused(scene)
        assert (failure.code, url in failure.message) == ("open_in_agent", True)
    assert "which is not, or not alone, the server configured at http://127.0.0.1:9." in failure.message
    with opencode_server(scene.store.database):
        assert refused(scene).code == "open_in_agent"
    assert scene.rows() == scene.before


def test_a_busy_session_is_left_alone(redline, scene, served):
    served.behave(busy=True)
    assert refused(scene).code == "session_busy"
    assert scene.rows() == scene.before
    assert leftovers(redline) == []


@each_writer
def test_a_part_that_the_server_would_write_without_some_fields_is_refused(redline, scene, served, writer):
    scene.store.run("UPDATE part SET data = json_set(data, '$.more', 1) WHERE id = ?", RESULT)
    now = scene.rows()
    assert refused(scene, writer).code == "not_kept"
    assert scene.rows() == now
    assert leftovers(redline) == []
    served.end()
    change(scene, writer)
    assert scene.rows() != now


@each_writer
def test_a_call_that_fails_takes_all_of_them_back(redline, scene, served, writer):
    for behaviour, number, code in (
        ("fail_at", 1, "server_failed"),
        ("fail_at", 2, "server_failed"),
        ("lose_at", 2, "not_as_sent"),
        ("spoil_at", 2, "not_as_sent"),
    ):
        served.behave(**{behaviour: number})
        assert refused(scene, writer).code == code, (behaviour, number)
        assert scene.is_as_before(), (behaviour, number)
        assert scene.sent() == scene.messages, (behaviour, number)
        assert leftovers(redline) == [], (behaviour, number)
    assert not Compaction.objects.exists()


@each_writer
def test_a_server_that_dies_between_two_calls_leaves_the_rows_as_before(redline, scene, served, writer):
    served.behave(die_at=2)
    assert refused(scene, writer).code == "server_unreachable"
    assert scene.rows() == scene.before
    assert leftovers(redline) == []


@each_writer
def test_what_the_result_does_not_prove_is_taken_back(scene, served, writer):
    served.behave(add_at=2)
    assert refused(scene, writer).code == "not_proven"
    *parts, added = scene.rows()["part"]
    assert added["id"] == "prt_9"
    assert scene.is_as_before(part=parts)


@each_writer
def test_rows_that_cannot_be_put_back_now_are_put_back_with_the_next_lock(redline, scene, served, writer):
    served.behave(fail_from=2)
    failure = refused(scene, writer)
    assert failure.code == "left_between"
    (backup,) = (redline.data / "rows").glob("*.bak")
    assert str(backup) in failure.message
    assert not scene.is_as_before()
    served.behave()
    with session_lock(redline.data, scene.path, 1) as locked:
        assert locked.recovery.kind is RecoveryKind.NOT_MADE
    assert scene.is_as_before()

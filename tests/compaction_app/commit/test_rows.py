"""A plan for a session of OpenCode changes exactly the approved rows, in one transaction, or nothing; an undo puts them
back as they were, whole or in part. While OpenCode's own server has the database open, both are done through it if its
address is configured."""

import json
import sqlite3
import time
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from compaction_app.changes.entries import fork_session
from compaction_app.changes.undo import latest_state
from compaction_app.models import AuditEntry, Compaction, Undo
from sessions_app.disk.open_files import Writer
from sessions_app.index.index_store import session_row
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage import rows
from sessions_app.storage.locks import RecoveryKind, session_lock
from sessions_app.storage.row_steps import RowStep, backed_up_steps
from sessions_app.storage.session_loader import load_session
from tests.budget import long_except
from tests.html import missing
from tests.installation import Installation, override_configuration, refusal
from tests.opencode_server import opencode_server
from tests.opencode_stores import documents, text, worked_session
from tests.processes import holding

from .rows import CALL, PLACEHOLDER, RESULT, THINKING, RowScene, row_scene


@pytest.fixture
def scene(redline):
    return row_scene(redline)


def test_delete_removes_the_parts_and_the_tokens_of_the_last_reply_and_nothing_else(scene):
    written = scene.commit(scene.approved("delete", CALL, RESULT, THINKING))
    before, after = scene.before, scene.rows()
    gone = [row for row in before["part"] if row not in after["part"]]
    assert [row["id"] for row in gone] == [THINKING, RESULT]
    assert after["part"] == [row for row in before["part"] if row not in gone]
    assert after["session"] == before["session"]
    messages = scene.messages
    del messages[1]["reasoning_content"], messages[1]["tool_calls"][0], messages[2]
    assert scene.sent() == messages

    *others, last = after["message"]
    assert others == before["message"][:-1]
    recorded, data = (json.loads(row["data"]) for row in (before["message"][-1], last))
    assert recorded["tokens"] == {"total": 900}
    assert data["tokens"]["total"] == data["tokens"]["input"] == 0
    assert {**data, "tokens": None} == {**recorded, "tokens": None}

    steps = {step.row_id: step for step in backed_up_steps(written.backup.path)}
    assert steps[RESULT].before == next(row for row in before["part"] if row["id"] == RESULT)
    assert steps[RESULT].after is None
    assert steps[last["id"]].before == before["message"][-1]
    assert Compaction.objects.get().backup.path == str(written.backup.path)


@pytest.mark.parametrize(
    ("taken_over", "phase", "words"),
    [
        (["ses_1"], "completed", "has taken this session over"),
        ([], "completed", "imports nothing more"),
        ([], "sessions", "is to import this session"),
    ],
)
def test_nothing_is_written_once_opencode_2_uses_the_database(scene, redline, taken_over, phase, words):
    scene.delete("delete", CALL, RESULT)
    scene.store.take_over(*taken_over, phase=phase)
    before, (last, *_) = scene.rows(), reversed(load_session(scene.path).log.entries)
    attempts = [partial(scene.delete, writer, THINKING) for writer in ("", "delete", "prune", "fork")]
    attempts += [scene.undo, lambda: fork_session(index_file(scene.path).real_path(), last.id, datetime.now(UTC))]
    for attempt in attempts:
        assert refusal(attempt, words) == "2 read_only_agent"
    assert scene.rows() == before
    for command in ("context", "tree", "health", "timeline", "check"):
        done = redline.call(command, scene.path, "--json")
        assert (done.code, words in done.err) == (0, True), command
    assert scene.rows() == before


def test_prune_puts_the_placeholder_in_the_place_of_completed_outputs_only(scene):
    assert refusal(lambda: scene.delete("prune", THINKING)).partition(" ")[2] in {"not_writable", "plan_refused"}
    scene.delete("prune", CALL, RESULT)
    scene.messages[2]["content"] = PLACEHOLDER
    assert scene.sent() == scene.messages
    (changed,) = [row for row in scene.rows()["part"] if row not in scene.before["part"]]
    (old,) = [row for row in scene.before["part"] if row["id"] == RESULT]
    state = json.loads(changed["data"])["state"]
    assert state["time"].pop("compacted") > 0
    assert state == json.loads(old["data"])["state"]


def test_a_fork_is_a_new_session_in_the_same_database(scene):
    made = scene.delete("fork", CALL, RESULT)
    assert made.parent == scene.path.parent
    assert all(row in scene.rows()[table] for table, found in scene.before.items() for row in found)
    messages = scene.messages
    assert scene.sent() == messages
    del messages[1]["tool_calls"][0], messages[2]
    assert scene.sent(made) == messages
    assert load_session(made).log.header.cwd == "/home/dev/project"
    assert {row["id"]: row["title"] for row in scene.rows()["session"]}[made.name] == "A title (curated)"
    fork = Session.objects.get(relative_path__endswith=made.name)
    original = Session.objects.parent_of(fork)
    assert original.path == scene.path
    assert list(Session.objects.children_of(original)) == [fork]
    assert fork not in Session.objects.originals()


def test_the_copies_of_a_fork_name_each_other(scene):
    store = scene.store
    path, asked = store.session("ses_2"), store.user("Go.", session_id="ses_2")
    reply = store.assistant("Done.", parentID=asked, session_id="ses_2")
    (words,) = store.run("SELECT id FROM part WHERE message_id = ?", reply)
    store.user("More.", session_id="ses_2")
    made = scene.commit(scene.approved("fork", words["id"], path=path)).made.created
    copies = store.run("SELECT id, data FROM message WHERE session_id = ? ORDER BY id", made.name)
    assert json.loads(copies[1]["data"])["parentID"] == copies[0]["id"] != asked


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE part SET data = replace(data, 'output', 'other') WHERE id = 'prt_0007'",
        "DELETE FROM part WHERE id = 'prt_0006'",
        "UPDATE part SET data = '{}' WHERE id = 'prt_0011'",
    ],
)
def test_a_session_that_changed_since_the_review_is_refused(scene, statement):
    plan = scene.approved("delete", CALL, RESULT)
    scene.store.run(statement)
    now = scene.rows()
    with pytest.raises(RedlineError):
        scene.commit(plan)
    assert scene.rows() == now


def test_a_database_that_another_process_has_open_is_changed_by_a_fork_only(scene, monkeypatch):
    client = (Writer(4711, "opencode"),)
    for module in ("agents.opencode.edge.store", "storage.rows"):
        monkeypatch.setattr(f"sessions_app.{module}.writers_of", lambda _: client)
    failure = refused(scene)
    assert (failure.code, "process 4711" in failure.message) == ("open_in_agent", True)
    assert scene.rows() == scene.before
    assert scene.delete("fork", CALL, RESULT) is not None


def test_documents_of_the_older_store_are_only_read(scene, tmp_path):
    older = documents(tmp_path / "older", scene.store)
    act = partial(scene.commit, scene.approved("delete", CALL, RESULT, path=older))
    assert refusal(act, "Download the session") == "2 read_only_agent"
    assert scene.sent(older) == scene.messages


def test_what_the_transaction_would_not_prove_is_not_written(scene, monkeypatch):
    apply = rows.apply_step

    def apply_and_delete_more(connection: sqlite3.Connection, step: RowStep) -> None:
        apply(connection, step)
        connection.execute("DELETE FROM part WHERE id = 'prt_0006'")

    monkeypatch.setattr(rows, "apply_step", apply_and_delete_more)
    assert refusal(lambda: scene.delete("delete", CALL, RESULT)) == "6 not_proven"
    assert scene.rows() == scene.before


def test_a_session_is_indexed_like_any_other(scene):
    session = index_file(scene.path)
    assert (session.title, session.cwd, session.read_as) == ("A title", "/home/dev/project", "opencode")
    assert (session.context_tokens, session.model) == (900, "model")
    assert not session.broken


@pytest.mark.parametrize("writer", ["delete", "prune", "fork"])
def test_what_redline_wrote_does_not_count_as_live(scene, writer):
    scene.store.run("UPDATE session SET time_updated = ?", int(time.time() * 1000))
    plan = scene.approved(writer, RESULT, CALL)
    assert index_file(scene.path).is_live(datetime.now(UTC))
    written = scene.commit(plan).made.created or scene.path
    assert not index_file(written).is_live(datetime.now(UTC))
    scene.store.user("More.", session_id=written.name)
    scene.store.run("UPDATE message SET time_updated = ?", int(time.time() * 1000))
    assert index_file(written).is_live(datetime.now(UTC))


@pytest.fixture
def long_scene(redline):
    return row_scene(redline, turns=8)


def test_commands_that_read_take_the_path_of_a_session(redline, long_scene):
    for command in ("context", "tree", "check", "timeline", "health", "backups"):
        assert redline.call(command, long_scene.path).code == 0, command
    assert redline.call("index", long_scene.path.parents[1]).code == 0
    assert "A title" in redline.call("sessions").out


@pytest.mark.parametrize("writer", ["delete", "fork"])
def test_a_plan_is_committed_and_undone(redline, long_scene, writer):
    done = redline.call("compact", long_scene.path, "--yes", "--save-as", writer).ok()
    assert long_scene.rows() != long_scene.before
    assert "must reload" not in done.out
    undone = redline.call("undo", long_scene.path, "--yes").ok()
    changed = "Deleted " if writer == "fork" else f"Changed the rows of {long_scene.path} back."
    assert changed in undone.out
    assert missing(undone.out, "Appended", "must reload") == ["Appended", "must reload"]
    assert long_scene.rows() == long_scene.before


@pytest.mark.parametrize("writer", ["delete", "prune"])
def test_the_rows_are_as_before(scene, writer):
    scene.delete(writer, CALL, RESULT)
    assert scene.rows() != scene.before
    scene.undo()
    assert scene.rows() == scene.before
    assert Undo.objects.get().is_whole
    assert refusal(scene.undo).endswith(" no_compaction")


def test_a_preview_waits_for_nobody_and_writes_nothing(scene):
    scene.delete("prune", CALL, RESULT)
    now = scene.rows()
    with closing(scene.store.connect()) as writer:
        writer.execute("BEGIN IMMEDIATE")
        state = latest_state(session_row(scene.path), load_session(scene.path))
        writer.execute("ROLLBACK")
    assert [entry.id for entry in state.branch if entry.id in (CALL, RESULT)] == [CALL, RESULT]
    assert scene.rows() == now
    assert scene.sent() != scene.messages


def test_what_was_said_since_stays(scene):
    scene.delete("delete", CALL, RESULT)
    scene.store.user("And then?")
    scene.store.assistant(text("Then nothing."))
    scene.undo()
    said = [{"role": "user", "content": "And then?"}, {"role": "assistant", "content": "Then nothing."}]
    assert scene.sent() == [*scene.messages, *said]


def test_single_entries_are_put_back(scene):
    scene.delete("delete", CALL, RESULT, THINKING)
    scene.undo(THINKING)
    assert [row["id"] for row in scene.before["part"] if row not in scene.rows()["part"]] == [RESULT]
    scene.undo()
    assert scene.rows() == scene.before


def continue_the_fork(scene: RowScene, made: Path | None) -> None:
    scene.store.user("More.", session_id=made.name)


def change_a_row(scene: RowScene, _: Path | None) -> None:
    scene.store.run("UPDATE part SET data = replace(data, 'output', 'other') WHERE id = ?", RESULT)


def lose_the_backup(scene: RowScene, _: Path | None) -> None:
    Path(Compaction.objects.get().backup.path).unlink()


@pytest.mark.parametrize(
    ("writer", "change", "words", "code"),
    [
        ("fork", continue_the_fork, "was continued", "fork_continued"),
        ("prune", change_a_row, "changed again since", "rows_changed"),
        ("prune", lose_the_backup, "has these rows, unless", "backup_gone"),
    ],
)
def test_what_was_changed_since_or_has_no_backup_is_not_undone(scene, writer, change, words, code):
    change(scene, scene.delete(writer, CALL, RESULT))
    now = scene.rows()
    with pytest.raises(RedlineError, match=words) as raised:
        scene.undo()
    assert (raised.value.code, scene.rows()) == (code, now)
    assert Compaction.objects.count() == 1


def test_compactions_of_the_same_rows_are_undone_one_by_one(scene):
    scene.delete("prune", CALL, RESULT)
    pruned = scene.rows()
    scene.delete("delete", CALL, RESULT)
    scene.undo()
    assert scene.rows() == pruned
    scene.undo()
    assert scene.rows() == scene.before


TARGETS = {"delete": (CALL, RESULT, THINKING), "prune": (CALL, RESULT, "prt_0008.call", "prt_0008")}
each_writer = pytest.mark.parametrize("writer", TARGETS)
either_writer = pytest.mark.parametrize("writer", long_except(("delete",), TARGETS))
"""What follows does not depend on the calls by which a writer changes the rows."""


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
    shown = redline.call("compact", longer, "--dry-run", "--save-as", "delete")
    assert f"through the OpenCode server at {served.url}" in shown.out
    assert "OpenCode may compact at the next prompt" in shown.out
    redline.call("compact", longer, "--yes", "--live", "--save-as", "delete").ok()
    assert f"through the server at {served.url}" in redline.call("undo", longer, "--yes", "--live").out


def test_a_fork_is_made_in_the_database_and_stays_while_it_is_open(scene, served):
    assert scene.delete("fork", CALL, RESULT) is not None
    now = scene.rows()
    assert refusal(scene.undo) == "4 open_in_agent"
    assert scene.rows() == now


def test_without_the_servers_address_or_beside_another_process_nothing_is_written(scene, served):
    for url in ("", "http://127.0.0.1:9"):
        with configured(url):
            failure = refused(scene)
        assert (failure.code, url in failure.message) == ("open_in_agent", True)
    assert "which is not, or not alone, the server configured at http://127.0.0.1:9." in failure.message
    with holding(scene.store.database):
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


@either_writer
def test_a_server_that_dies_between_two_calls_leaves_the_rows_as_before(redline, scene, served, writer):
    served.behave(die_at=2)
    assert refused(scene, writer).code == "server_unreachable"
    assert served.process.wait() == 9
    assert scene.rows() == scene.before
    assert leftovers(redline) == []


@each_writer
def test_what_the_result_does_not_prove_is_taken_back(scene, served, writer):
    served.behave(add_at=2)
    assert refused(scene, writer).code == "not_proven"
    *parts, added = scene.rows()["part"]
    assert added["id"] == "prt_9"
    assert scene.is_as_before(part=parts)


@either_writer
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

"""A plan for a session of OpenCode changes exactly the approved rows, in one transaction, or nothing."""

import json
import sqlite3
import time
from datetime import UTC, datetime

import pytest

from compaction_app.models import Compaction
from compaction_app.navigation.fork import fork_session
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage import rows
from sessions_app.storage.open_files import Writer
from sessions_app.storage.row_steps import RowStep, backed_up_steps
from sessions_app.storage.session_loader import load_session
from tests.installation import refusal
from tests.opencode_stores import documents

from .rows import CALL, PLACEHOLDER, RESULT, THINKING, row_scene


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


def test_prune_puts_the_placeholder_in_the_place_of_the_output(scene):
    scene.delete("prune", CALL, RESULT)
    scene.messages[2]["content"] = PLACEHOLDER
    assert scene.sent() == scene.messages
    (changed,) = [row for row in scene.rows()["part"] if row not in scene.before["part"]]
    (old,) = [row for row in scene.before["part"] if row["id"] == RESULT]
    state = json.loads(changed["data"])["state"]
    assert state["time"].pop("compacted") > 0
    assert state == json.loads(old["data"])["state"]


@pytest.mark.parametrize("writer", ["", "delete", "prune", "fork"])
def test_nothing_is_written_for_a_session_of_which_a_part_is_not_read(scene, writer):
    scene.store.newer_message()
    before = scene.rows()
    with pytest.raises(RedlineError, match="in a newer form") as raised:
        scene.delete(writer, CALL, RESULT)
    assert raised.value.code == "refused_writer"
    with pytest.raises(RedlineError, match="in a newer form"):
        fork_session(index_file(scene.path).real_path(), RESULT, datetime.now(UTC))
    assert scene.rows() == before


def test_prune_touches_nothing_but_completed_outputs(scene):
    with pytest.raises(RedlineError) as raised:
        scene.delete("prune", THINKING)
    assert raised.value.code in {"not_writable", "plan_refused"}


def test_a_fork_is_a_new_session_in_the_same_database(scene):
    made = scene.delete("fork", CALL, RESULT)
    assert made is not None
    assert made.parent == scene.path.parent
    assert all(row in scene.rows()[table] for table, found in scene.before.items() for row in found)
    messages = scene.messages
    assert scene.sent() == messages
    del messages[1]["tool_calls"][0], messages[2]
    assert scene.sent(made) == messages
    header = load_session(made).log.header
    assert header is not None
    assert header.cwd == "/home/dev/project"
    titles = {row["id"]: row["title"] for row in scene.rows()["session"]}
    assert titles[made.name] == "A title (curated with Redline)"
    assert Session.objects.filter(relative_path__endswith=made.name).exists()


def test_the_copies_of_a_fork_name_each_other(scene):
    store = scene.store
    path = store.session("ses_2")
    asked = store.user("Go.", session_id="ses_2")
    reply = store.assistant("Done.", parentID=asked, session_id="ses_2")
    (words,) = store.run("SELECT id FROM part WHERE message_id = ?", reply)
    store.user("More.", session_id="ses_2")
    made = scene.commit(scene.approved("fork", words["id"], path=path)).created
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
    for module in ("agents.opencode.agent", "storage.rows"):
        monkeypatch.setattr(f"sessions_app.{module}.writers_of", lambda _: client)
    with pytest.raises(RedlineError, match="process 4711") as raised:
        scene.delete("delete", CALL, RESULT)
    assert raised.value.code == "open_in_agent"
    assert scene.rows() == scene.before
    assert scene.delete("fork", CALL, RESULT) is not None


def test_documents_of_the_older_store_are_only_read(scene, tmp_path):
    older = documents(tmp_path / "older", scene.store)
    with pytest.raises(RedlineError, match="Download the session") as raised:
        scene.commit(scene.approved("delete", CALL, RESULT, path=older))
    assert raised.value.code == "read_only_agent"
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
    written = scene.commit(plan).created or scene.path
    assert not index_file(written).is_live(datetime.now(UTC))
    scene.store.user("More.", session_id=written.name)
    scene.store.run("UPDATE message SET time_updated = ?", int(time.time() * 1000))
    assert index_file(written).is_live(datetime.now(UTC))

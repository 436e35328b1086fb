"""A plan for a session of OpenCode changes exactly the approved rows, in one transaction, or nothing."""

from __future__ import annotations

import json
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from compaction_app.commit.service import Approved, Committed, Confirmations, commit
from compaction_app.core.loop import Origin
from compaction_app.core.parameters import Parameters
from compaction_app.models import Compaction
from compaction_app.navigation.fork import fork_session
from sessions_app.agents.registry import agent_at
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.targets import Target
from sessions_app.storage import rows
from sessions_app.storage.row_steps import RowStep, backed_up_steps
from sessions_app.storage.session_loader import load_session
from tests.installation import Installation
from tests.opencode_stores import OpenCodeStore, documents, worked_session

PLACEHOLDER = "[Old tool result content cleared]"
RESULT = "prt_0007"
CALL = "prt_0007.call"
THINKING = "prt_0005"


@pytest.fixture
def store(redline: Installation) -> OpenCodeStore:
    return OpenCodeStore(redline.home / ".local" / "share" / "opencode")


@pytest.fixture
def path(store: OpenCodeStore) -> Path:
    return worked_session(store)


def approved(path: Path, writer: str, *entry_ids: str) -> Approved:
    loaded = load_session(path)
    targets = tuple(map(Target, entry_ids))
    return Approved(
        loaded=loaded,
        leaf_id=loaded.leaf_id,
        parameters=Parameters(compression_ratio=1.0, preserve_recent=0, query="the step"),
        targets=targets,
        planner="embedded",
        origins={target: Origin(0, "", "", by_repair=False) for target in targets},
        writer=writer,
    )


def done(plan: Approved) -> Committed:
    return commit(plan, Confirmations(live=True, below_target=True), datetime.now(UTC))


def sent(path: Path) -> list[dict[str, Any]]:
    loaded, agent = load_session(path), agent_at(path)
    context = agent.generations[0].reader.rebuild(loaded.tree.branch(loaded.leaf_id))
    with agent.open(path) as reader:
        lines = (lambda entry: reader.read_at(entry.offset, entry.length),)
        return [dict(message) for message in agent.sent_messages(context, *lines)]


def everything(store: OpenCodeStore) -> dict[str, list[dict[str, Any]]]:
    tables = ("session", "message", "part")
    return {table: store.run(f"SELECT * FROM {table} ORDER BY id") for table in tables}  # noqa: S608  # ours


def test_delete_removes_the_parts_and_nothing_else(store: OpenCodeStore, path: Path) -> None:
    before, messages = everything(store), sent(path)
    done(approved(path, "delete", CALL, RESULT, THINKING))
    after = everything(store)
    gone = [row for row in before["part"] if row not in after["part"]]
    assert [row["id"] for row in gone] == [THINKING, RESULT]
    assert after["part"] == [row for row in before["part"] if row not in gone]
    assert after["session"] == before["session"]
    del messages[1]["reasoning_content"], messages[1]["tool_calls"][0], messages[2]
    assert sent(path) == messages


def test_the_tokens_of_the_last_reply_become_zero(store: OpenCodeStore, path: Path) -> None:
    before = everything(store)["message"]
    done(approved(path, "delete", THINKING))
    *others, last = everything(store)["message"]
    assert others == before[:-1]
    assert json.loads(before[-1]["data"])["tokens"] == {"total": 900}
    data = json.loads(last["data"])
    assert data["tokens"]["total"] == data["tokens"]["input"] == 0
    assert {**data, "tokens": None} == {**json.loads(before[-1]["data"]), "tokens": None}


def test_prune_puts_the_placeholder_in_the_place_of_the_output(store: OpenCodeStore, path: Path) -> None:
    before, messages = everything(store), sent(path)
    done(approved(path, "prune", CALL, RESULT))
    messages[2]["content"] = PLACEHOLDER
    assert sent(path) == messages
    (changed,) = [row for row in everything(store)["part"] if row not in before["part"]]
    (old,) = [row for row in before["part"] if row["id"] == RESULT]
    state = json.loads(changed["data"])["state"]
    assert state["time"].pop("compacted") > 0
    assert state == json.loads(old["data"])["state"]


@pytest.mark.parametrize("writer", ["", "delete", "prune", "fork"])
def test_nothing_is_written_for_a_session_of_which_a_part_is_not_read(
    store: OpenCodeStore, path: Path, writer: str
) -> None:
    store.newer_message()
    before = everything(store)
    with pytest.raises(RedlineError, match="in a newer form") as raised:
        done(approved(path, writer, CALL, RESULT))
    assert raised.value.code == "refused_writer"
    with pytest.raises(RedlineError, match="in a newer form"):
        fork_session(index_file(path).real_path(), RESULT, datetime.now(UTC))
    assert everything(store) == before


def test_prune_touches_nothing_but_completed_outputs(path: Path) -> None:
    with pytest.raises(RedlineError) as raised:
        done(approved(path, "prune", THINKING))
    assert raised.value.code in {"not_writable", "plan_refused"}


def test_a_fork_is_a_new_session_in_the_same_database(store: OpenCodeStore, path: Path) -> None:
    before, messages = everything(store), sent(path)
    made = done(approved(path, "fork", CALL, RESULT)).created
    assert made is not None
    assert made.parent == path.parent
    assert all(row in everything(store)[table] for table, rows in before.items() for row in rows)
    assert sent(path) == messages
    del messages[1]["tool_calls"][0], messages[2]
    assert sent(made) == messages
    header = load_session(made).log.header
    assert header is not None
    assert header.cwd == "/home/dev/project"
    titles = {row["id"]: row["title"] for row in everything(store)["session"]}
    assert titles[made.name] == "A title (curated with Redline)"
    assert Session.objects.filter(relative_path__endswith=made.name).exists()


def test_the_copies_of_a_fork_name_each_other(store: OpenCodeStore) -> None:
    path = store.session()
    asked = store.user("Go.")
    store.assistant("Done.", parentID=asked)
    store.user("More.")
    made = done(approved(path, "fork", "prt_0004")).created
    assert made is not None
    copies = store.run("SELECT id, data FROM message WHERE session_id = ? ORDER BY id", made.name)
    assert json.loads(copies[1]["data"])["parentID"] == copies[0]["id"] != asked


def test_the_backup_has_the_rows_as_they_were(store: OpenCodeStore, path: Path) -> None:
    before = everything(store)
    written = done(approved(path, "delete", CALL, RESULT))
    steps = {step.row_id: step for step in backed_up_steps(written.backup.path)}
    assert steps[RESULT].before == next(row for row in before["part"] if row["id"] == RESULT)
    assert steps[RESULT].after is None
    last = before["message"][-1]
    assert steps[last["id"]].before == last
    assert Compaction.objects.get().backup.path == str(written.backup.path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE part SET data = replace(data, 'output', 'other') WHERE id = 'prt_0007'",
        "DELETE FROM part WHERE id = 'prt_0006'",
        "UPDATE part SET data = '{}' WHERE id = 'prt_0011'",
    ],
)
def test_a_session_that_changed_since_the_review_is_refused(
    store: OpenCodeStore, path: Path, statement: str
) -> None:
    plan = approved(path, "delete", CALL, RESULT)
    store.run(statement)
    now = everything(store)
    with pytest.raises(RedlineError):
        done(plan)
    assert everything(store) == now


def test_a_database_that_another_process_has_open_is_changed_by_a_fork_only(
    store: OpenCodeStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sessions_app.storage.open_files import Writer

    client = (Writer(4711, "opencode"),)
    for module in ("agents.opencode.agent", "storage.rows"):
        monkeypatch.setattr(f"sessions_app.{module}.writers_of", lambda _: client)
    now = everything(store)
    with pytest.raises(RedlineError, match="process 4711") as raised:
        done(approved(path, "delete", CALL, RESULT))
    assert raised.value.code == "open_in_agent"
    assert everything(store) == now
    assert done(approved(path, "fork", CALL, RESULT)).created is not None


def test_documents_of_the_older_store_are_only_read(store: OpenCodeStore, path: Path, tmp_path: Path) -> None:
    older = documents(tmp_path / "older", store)
    with pytest.raises(RedlineError, match="Download the session") as raised:
        done(approved(older, "delete", CALL, RESULT))
    assert raised.value.code == "read_only_agent"
    assert sent(older) == sent(path)


def test_what_the_transaction_would_not_prove_is_not_written(
    store: OpenCodeStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = approved(path, "delete", CALL, RESULT)
    now = everything(store)

    def apply_and_delete_more(connection: sqlite3.Connection, step: RowStep) -> None:
        apply(connection, step)
        connection.execute("DELETE FROM part WHERE id = 'prt_0006'")

    apply = rows.apply_step
    monkeypatch.setattr(rows, "apply_step", apply_and_delete_more)
    with pytest.raises(RedlineError) as raised:
        done(plan)
    assert raised.value.code == "not_proven"
    assert everything(store) == now


def test_a_session_is_indexed_like_any_other(path: Path) -> None:
    session = index_file(path)
    assert (session.title, session.cwd, session.read_as) == ("A title", "/home/dev/project", "opencode")
    assert (session.context_tokens, session.model) == (900, "model")
    assert not session.broken


@pytest.mark.parametrize("writer", ["delete", "prune", "fork"])
def test_what_redline_wrote_does_not_count_as_live(store: OpenCodeStore, path: Path, writer: str) -> None:
    store.run("UPDATE session SET time_updated = ?", int(time.time() * 1000))
    plan = approved(path, writer, RESULT, CALL)
    assert index_file(path).is_live(datetime.now(UTC))
    written = done(plan).created or path
    session = index_file(written)
    assert not session.is_live(datetime.now(UTC))
    store.user("More.", session_id=written.name)
    store.run("UPDATE message SET time_updated = ?", int(time.time() * 1000))
    assert index_file(written).is_live(datetime.now(UTC))

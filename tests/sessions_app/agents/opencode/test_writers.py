"""Random accepted plans: each writer gives exactly the approved context, and an undo the old rows."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from devtools.bench.written_plans import notes_on, random_plan
from sessions_app.agents.notes import note_text
from sessions_app.sessionlog.protection import Protection
from sessions_app.storage.session_loader import load_session
from tests.budget import seeds
from tests.opencode_plans import (
    GENERATION,
    WRITERS,
    every_row,
    exported,
    fork_export,
    put_rows_back,
    sent_of,
    with_notes,
    write_rows,
)
from tests.opencode_stores import OpenCodeStore, reasoning, text, tool, worked_session

STATES: tuple[dict[str, Any], ...] = (
    *({}, {}, {}),
    {"status": "error", "error": "It failed."},
    {"status": "running"},
    {"time": {"start": 1, "end": 2, "compacted": 3}},
    {"attachments": [{"mime": "image/png", "url": "data:image/png;base64,aGk="}]},
    {"time": {}},
)


def random_session(store: OpenCodeStore, chance: random.Random) -> Path:
    """A session with everything that the client records, compactions and reverts among it."""
    path = store.session()
    users = []
    for turn in range(chance.randrange(2, 6)):
        users.append(store.user(f"Do {turn}.", *[text("More.", synthetic=True)] * chance.randrange(2)))
        for step in range(chance.randrange(1, 4)):
            parts: list[Any] = [{"type": "step-start"}]
            parts += [reasoning(f"Hm {turn} {step}.")] * chance.randrange(2)
            parts += [text(f"So {turn} {step}.")] * chance.randrange(2)
            parts += [
                tool(f"c{turn}{step}{number}", f"output {number}\n" * 9, **chance.choice(STATES))
                for number in range(chance.randrange(3))
            ]
            error = {"error": {"name": "MessageAbortedError"}} if chance.random() < 0.1 else {}
            store.assistant(*parts, **error)
        if chance.random() < 0.3:
            tail = {"tail_start_id": chance.choice(users)} if chance.random() < 0.5 else {}
            asked = store.user({"type": "compaction", "auto": True, **tail})
            store.assistant(text("A summary."), summary=True, parentID=asked)
    if chance.random() < 0.2:
        store.run("UPDATE session SET revert = ?", json.dumps({"messageID": users[-1]}))
    return path


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("seed", seeds(3))
def test_the_written_session_has_the_approved_context(tmp_path, writer, seed):
    chance = random.Random(seed)
    store = OpenCodeStore(tmp_path / "opencode")
    path = random_session(store, chance)
    before = every_row(store.database)
    for _ in range(3):
        plan = random_plan(load_session(path), GENERATION, WRITERS[writer], chance, chance.randrange(1, 9))
        if plan is None:
            continue
        written = write_rows(path, writer, plan.targets, tmp_path / "data")
        assert sent_of(load_session(written.path)) == written.approved
        put_rows_back(path, written.backup, tmp_path / "data")
        assert every_row(store.database) == before


@pytest.mark.parametrize("seed", seeds(3))
def test_a_fork_has_the_approved_context_and_the_notes(tmp_path, seed):
    chance = random.Random(seed)
    path = random_session(OpenCodeStore(tmp_path / "opencode"), chance)
    session = load_session(path)
    plan = random_plan(session, GENERATION, WRITERS["fork"], chance, chance.randrange(3, 30))
    assert plan is not None
    notes = notes_on(plan.targets)
    written = write_rows(path, "fork", plan.targets, tmp_path / "data", notes)
    sent = json.dumps(with_notes(session, plan.targets, written.path, notes))
    assert [sent.count(note_text(words)) for words in notes.values()] == [1] * len(notes)
    exported(path, tmp_path / "own.json")
    own = load_session(tmp_path / "own.json")
    with_notes(own, plan.targets, fork_export(own, plan.targets, notes), notes)


def test_only_outputs_of_completed_calls_can_be_pruned(tmp_path):
    store = OpenCodeStore(tmp_path / "opencode")
    path = store.session()
    failed = tool("c2", status="error", error="It failed.")
    store.assistant(text("I try."), tool("c1"), failed, tool("c3", status="running"))
    found = [WRITERS["prune"].protection(entry) for entry in load_session(path).log.entries[2:]]
    editable, kept = None, Protection.NOT_EDITABLE
    assert found == [kept, editable, editable, editable, kept, editable, kept]


def test_the_rows_of_a_fork_have_ids_of_their_kind_that_nothing_else_has(tmp_path):
    store = OpenCodeStore(tmp_path / "opencode")
    path = worked_session(store)
    before = {row["id"] for rows in every_row(store.database).values() for row in rows}
    forked = write_rows(path, "fork", (), tmp_path / "data").path.name
    rows = every_row(store.database)
    for table, prefix in (("message", "msg_"), ("part", "prt_")):
        ids = [row["id"] for row in rows[table] if row["session_id"] == forked]
        assert ids
        assert all(one.startswith(prefix) and one not in before for one in ids)


def test_a_fork_names_its_own_messages_and_leaves_other_references(tmp_path):
    store = OpenCodeStore(tmp_path / "opencode")
    path = store.session()
    asked = store.user("Go.")
    for parent in (asked, "msg_elsewhere", 5, None):
        store.assistant(text("Done."), parentID=parent)
    forked = write_rows(path, "fork", (), tmp_path / "data").path.name
    rows = [row for row in every_row(store.database)["message"] if row["session_id"] == forked]
    named = [json.loads(row["data"]).get("parentID", "none") for row in rows]
    assert named == ["none", rows[0]["id"], "msg_elsewhere", 5, None]

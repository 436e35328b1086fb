"""Random accepted plans: each writer gives exactly the approved context, and an undo the old rows.

Exports are read like the session in the database, and written as the client imports them.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from devtools.bench.written_plans import notes_on, random_plan
from sessions_app.agents.opencode.pure.lines import ExportRow, export_of, lines_of_export, with_ids
from sessions_app.agents.pure.formats import note_text
from sessions_app.agents.registry import agent_of
from sessions_app.sessionlog.entries import Protection
from sessions_app.sessionlog.errors import BadInput
from sessions_app.storage.session_loader import load_session
from tests.budget import seeds
from tests.files import backdate, place
from tests.opencode_plans import (
    GENERATION,
    WRITERS,
    approved_by,
    context_of,
    every_row,
    exported,
    fork_export,
    put_rows_back,
    sent_of,
    with_notes,
    write_rows,
)
from tests.opencode_stores import PICTURE, START, OpenCodeStore, documents, reasoning, text, tool, worked_session

STATES: tuple[dict[str, Any], ...] = (
    *({}, {}, {}, {"time": {}}, {"status": "running"}, {"status": "error", "error": "It failed."}),
    *({"time": {"start": 1, "end": 2, "compacted": 3}}, {"attachments": [{"mime": "image/png", "url": PICTURE}]}),
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


def in_order(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a random session says only once, in the order in which it is sent: texts, thinking, calls, and results."""
    spoken = r'Do \d\.|Hm \d \d\.|So \d \d\.|"(?:tool_call_)?id": "c\d{3}"'
    return list(dict.fromkeys(re.findall(spoken, json.dumps(messages))))


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("seed", seeds(3))
def test_the_written_session_has_the_approved_context(store, tmp_path, writer, seed):
    chance = random.Random(seed)
    path = random_session(store, chance)
    before = every_row(store.database)
    for _ in range(3):
        plan = random_plan(load_session(path), GENERATION, WRITERS[writer], chance, chance.randrange(1, 9))
        if plan is None:
            continue
        written = write_rows(path, writer, plan.targets, tmp_path / "data")
        assert sent_of(load_session(written.path)) == written.approved
        left = in_order(written.approved)
        assert left == [one for one in in_order(sent_of(load_session(path))) if one in left]
        put_rows_back(path, written.backup, tmp_path / "data")
        assert every_row(store.database) == before


@pytest.mark.parametrize("seed", seeds(3))
def test_a_fork_has_the_approved_context_and_the_notes(store, tmp_path, seed):
    chance = random.Random(seed)
    path = random_session(store, chance)
    session = load_session(path)
    plan = random_plan(session, GENERATION, WRITERS["fork"], chance, chance.randrange(3, 30))
    notes = notes_on(plan.targets)
    written = write_rows(path, "fork", plan.targets, tmp_path / "data", notes)
    sent = json.dumps(with_notes(session, plan.targets, written.path, notes))
    assert [sent.count(note_text(words)) for words in notes.values()] == [1] * len(notes)
    own = load_session(exported(path, tmp_path / "own.json"))
    with_notes(own, plan.targets, fork_export(own, plan.targets, notes), notes)


def test_only_outputs_of_completed_calls_can_be_pruned(store):
    path = store.session()
    failed = tool("c2", status="error", error="It failed.")
    store.assistant(text("I try."), tool("c1"), failed, tool("c3", status="running"))
    found = [WRITERS["prune"].protection(entry) for entry in load_session(path).log.entries[2:]]
    editable, kept = None, Protection.NOT_EDITABLE
    assert found == [kept, editable, editable, editable, kept, editable, kept]


def test_the_rows_of_a_fork_have_ids_of_their_kind_that_nothing_else_has(store, tmp_path):
    path = worked_session(store)
    before = {row["id"] for rows in every_row(store.database).values() for row in rows}
    forked = write_rows(path, "fork", (), tmp_path / "data").path.name
    rows = every_row(store.database)
    for table, prefix in (("message", "msg_"), ("part", "prt_")):
        ids = [row["id"] for row in rows[table] if row["session_id"] == forked]
        assert ids
        assert all(one.startswith(prefix) and one not in before for one in ids)


def test_a_fork_names_its_own_messages_and_leaves_other_references(store, tmp_path):
    path = store.session()
    for parent in (store.user("Go."), "msg_elsewhere", 5, None):
        store.assistant(text("Done."), parentID=parent)
    forked = write_rows(path, "fork", (), tmp_path / "data").path.name
    rows = [row for row in every_row(store.database)["message"] if row["session_id"] == forked]
    named = [json.loads(row["data"]).get("parentID", "none") for row in rows]
    assert named == ["none", rows[0]["id"], "msg_elsewhere", 5, None]


def test_an_export_says_what_the_rows_say(store, tmp_path):
    session = store.session(slug="a-name", parent_id="ses_0", title="Work")
    asked = store.user("Look.")
    replied = store.assistant(text("I look."), tool("c1"))
    found = json.loads(exported(session, tmp_path / "export.json").read_text())
    names = {"id": "ses_1", "slug": "a-name", "parentID": "ses_0", "projectID": "project", "title": "Work"}
    time = {"created": START, "updated": START + 5}
    assert found["info"] == {**names, "directory": "/home/dev/project", "version": "1.18.33", "time": time}
    assert [message["info"]["id"] for message in found["messages"]] == [asked, replied]
    recorded = {row["id"]: row for rows in every_row(store.database).values() for row in rows}
    for message in found["messages"]:
        ids = {"id": message["info"]["id"], "sessionID": "ses_1"}
        assert message["info"] == {**json.loads(recorded[ids["id"]]["data"]), **ids}
        for part in message["parts"]:
            own = {"id": part["id"], "sessionID": "ses_1", "messageID": ids["id"]}
            assert part == {**json.loads(recorded[part["id"]]["data"]), **own}
    assert [len(message["parts"]) for message in found["messages"]] == [1, 2]


def test_the_context_of_an_export_is_that_of_its_session(store, tmp_path):
    session = worked_session(store)
    users = store.run("SELECT id FROM message WHERE json_extract(data, '$.role') = 'user' ORDER BY id")
    tail = {"type": "compaction", "auto": True, "tail_start_id": users[1]["id"]}
    store.assistant(text("A summary."), summary=True, parentID=store.user(tail))
    store.user("Go on.")
    store.run("UPDATE session SET revert = ?", json.dumps({"messageID": store.user("Not this.")}))
    before = sent_of(load_session(session))
    assert "A summary." in str(before)
    assert "Not this." not in str(before)
    for other in (session, documents(tmp_path, store)):
        made = exported(other, tmp_path / "export.json")
        assert agent_of(made) == "opencode"
        expected = before if other is session else [*before, {"role": "user", "content": "Not this."}]
        assert sent_of(load_session(made)) == expected


def test_values_keep_their_recorded_bytes_and_a_row_that_is_not_readable_is_left_out_of_an_export(store, tmp_path):
    session, asked = store.session(), store.user("Look.")
    recorded = r'{ "text":"\u00e9\ud83d","type" : "text", "cost":1.50, "big":12345678901234567890 }'
    for data in (recorded, '{"type": "text", "text": ', "[1]"):
        store.part(asked, data)
    made = exported(session, tmp_path / "export.json")
    assert recorded[:-1].encode() in made.read_bytes()
    assert [part["text"] for part in json.loads(made.read_bytes())["messages"][0]["parts"]] == ["Look.", "é\ud83d"]
    assert load_session(made).log.damage == []


@given(st.dictionaries(st.sampled_from(["id", "sessionID", "messageID", "type", "a"]), st.integers() | st.text()))
def test_ids_are_set_and_nothing_else_is_changed(recorded):
    ids = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"}
    assert json.loads(with_ids(json.dumps(recorded, indent=1).encode(), **ids)) == {**recorded, **ids}


def test_a_document_of_any_shape_of_messages_is_one_document():
    rows = {"p": ExportRow("part", "prt_1", b'{"type":"text"}'), "m": ExportRow("message", "msg_1", b"{}")}
    for shape in ("", "m", "mm", "mppmp"):
        found = json.loads(b"".join(export_of({"id": "ses_1"}, [rows[letter] for letter in shape])))
        assert [len(one["parts"]) for one in found["messages"]] == list(map(len, shape.split("m")[1:])), shape


@pytest.mark.parametrize(
    "document",
    [
        *(b"", b"[]", b'{"info":{"id":"ses_1"}}', b'{"info":[],"messages":[]}', b'{"info":{"id":5},"messages":[]}'),
        *(b'{"info":{"id":"ses_1"},"messages":%s' % (b"[" * depth) for depth in (1, 100_000)),
    ],
    ids=range(7),
)
def test_another_document_is_not_an_export(document):
    assert lines_of_export(document) is None


@pytest.mark.parametrize(
    "messages", ["null", '"text"', "[5]", "[{}]", '[{"info":7}]', '[{"info":{"id":"m"},"parts":{"id":"p"}}]', "[[]]"]
)
def test_a_damaged_message_is_reported_or_has_no_entries(tmp_path, messages):
    document = f'{{"info":{{"id":"ses_1"}},"messages":{messages},"after":{{"id":"a"}}}}'
    loaded = load_session(place(tmp_path / "export.json", document.encode()))
    assert [entry.id for entry in loaded.log.entries if entry.id not in ("ses_1", "m")] == []


@pytest.mark.parametrize(
    "rest", ["", '"messages":[{"id":"msg_1","type":"user","text":"Hi.","time":{"created":1}}]}'], ids=["torn", "second"]
)
def test_a_file_that_only_begins_like_an_export_of_opencode_1_is_refused(tmp_path, rest):
    with pytest.raises(BadInput, match="is not an export of OpenCode 1"):
        load_session(place(tmp_path / "export.json", f'{{"info":{{"id":"ses_1"}},{rest}'.encode()))


@pytest.mark.parametrize("seed", seeds(4))
def test_a_fork_of_an_export_is_an_export_with_the_approved_context(store, tmp_path, seed):
    chance = random.Random(seed)
    made = exported(random_session(store, chance), tmp_path / "export.json")
    loaded = load_session(made)
    plan = random_plan(loaded, GENERATION, WRITERS["fork"], chance, chance.randrange(1, 9))
    forked = fork_export(loaded, plan.targets)
    assert sent_of(load_session(forked)) == approved_by(loaded, WRITERS["fork"], plan.targets)
    old, new = (json.loads(path.read_bytes()) for path in (made, forked))
    assert new["info"]["id"] == forked.stem != old["info"]["id"]
    assert _ids(old).isdisjoint(_ids(new))


def _ids(document: Any) -> set[str]:
    messages = document["messages"]
    return {one["id"] for message in messages for one in (message["info"], *message["parts"])}


def test_an_export_is_compacted_in_a_new_one_and_that_is_undone(redline, store, tmp_path):
    made = backdate(exported(worked_session(store, turns=6), tmp_path / "export.json"))
    before = made.read_bytes()
    refused = redline.call("compact", made, "--yes", "--save-as", "delete")
    assert "This is an export, not a session in OpenCode's database" in refused.err
    done = redline.call("compact", made, "--yes")
    (forked,) = tmp_path.glob("ses_*.json")
    assert f"opencode import {forked}" in done.out
    assert made.read_bytes() == before
    assert len(context_of(load_session(forked)).messages) < len(context_of(load_session(made)).messages)
    assert redline.call("check", forked).code == 0
    assert redline.call("undo", made, "--yes").code == 0
    assert not forked.exists()
    assert made.read_bytes() == before


def test_a_deeply_nested_description_is_kept(redline, store, tmp_path):
    made = exported(worked_session(store, turns=6), tmp_path / "export.json")
    more = b'"more":%s1%s' % (b"[" * 900, b"]" * 900)
    made.write_bytes(made.read_bytes().replace(b'},"messages":', b',%s},"messages":' % more, 1))
    redline.call("compact", backdate(made), "--yes").ok()
    (forked,) = tmp_path.glob("ses_*.json")
    assert more in forked.read_bytes()
    assert redline.call("index", tmp_path).code == 0

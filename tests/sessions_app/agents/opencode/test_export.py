"""Exports of OpenCode: read like the session in the database, written as the client imports them."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.bench.written_plans import random_plan
from sessions_app.agents.opencode.export import ExportRow, export_of, lines_of_export, with_ids
from sessions_app.agents.registry import agent_of
from sessions_app.sessionlog.errors import BadInput
from sessions_app.storage.session_loader import load_session
from tests.budget import seeds
from tests.files import backdate
from tests.opencode_plans import GENERATION, WRITERS, approved_by, context_of, exported, fork_export, sent_of
from tests.opencode_stores import OpenCodeStore, documents, text, tool, worked_session

from .test_writers import random_session


@pytest.fixture
def store(tmp_path):
    return OpenCodeStore(tmp_path / "opencode")


def test_an_export_says_what_the_rows_say(store, tmp_path):
    session = store.session(slug="a-name", parent_id="ses_0", title="Work")
    asked = store.user("Look.")
    replied = store.assistant(text("I look."), tool("c1"))
    found = json.loads(exported(session, tmp_path / "export.json").read_text())
    assert found["info"] == {
        "id": "ses_1",
        "slug": "a-name",
        "parentID": "ses_0",
        "projectID": "project",
        "directory": "/home/dev/project",
        "title": "Work",
        "version": "1.18.33",
        "time": {"created": 1_790_000_000_000, "updated": 1_790_000_000_005},
    }
    assert [message["info"]["id"] for message in found["messages"]] == [asked, replied]
    for message in found["messages"]:
        recorded = store.run("SELECT data FROM message WHERE id = ?", message["info"]["id"])[0]["data"]
        assert message["info"] == {**json.loads(recorded), "id": message["info"]["id"], "sessionID": "ses_1"}
        for part in message["parts"]:
            row = store.run("SELECT data FROM part WHERE id = ?", part["id"])[0]
            ids = {"id": part["id"], "sessionID": "ses_1", "messageID": message["info"]["id"]}
            assert part == {**json.loads(row["data"]), **ids}
    assert [len(message["parts"]) for message in found["messages"]] == [1, 2]


def test_the_context_of_an_export_is_that_of_its_session(store, tmp_path):
    session = worked_session(store)
    users = store.run("SELECT id FROM message WHERE json_extract(data, '$.role') = 'user' ORDER BY id")
    tail = {"type": "compaction", "auto": True, "tail_start_id": users[1]["id"]}
    store.assistant(text("A summary."), summary=True, parentID=store.user(tail))
    store.user("Go on.")
    reverted = store.user("Not this.")
    store.run("UPDATE session SET revert = ?", json.dumps({"messageID": reverted}))
    before = sent_of(load_session(session))
    assert "A summary." in str(before)
    assert "Not this." not in str(before)
    for other in (session, documents(tmp_path, store)):
        made = exported(other, tmp_path / "export.json")
        assert agent_of(made) == "opencode"
        expected = before if other is session else [*before, {"role": "user", "content": "Not this."}]
        assert sent_of(load_session(made)) == expected


def test_a_row_that_is_not_readable_is_left_out_of_an_export(store, tmp_path):
    session = store.session()
    asked = store.user("Look.")
    store.part(asked, '{"type": "text", "text": ')
    store.part(asked, "[1]")
    found = json.loads(exported(session, tmp_path / "export.json").read_text())
    assert [part["text"] for part in found["messages"][0]["parts"]] == ["Look."]


def test_values_keep_their_recorded_bytes(store, tmp_path):
    session = store.session()
    recorded = r'{ "text":"\u00e9\ud83d","type" : "text", "cost":1.50, "big":12345678901234567890 }'
    store.part(store.user(), recorded)
    made = exported(session, tmp_path / "export.json")
    assert recorded[:-1].encode() in made.read_bytes()
    assert load_session(made).log.damage == []


@given(st.dictionaries(st.sampled_from(["id", "sessionID", "messageID", "type", "a"]), st.integers() | st.text()))
def test_ids_are_set_and_nothing_else_is_changed(recorded):
    ids = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"}
    assert json.loads(with_ids(json.dumps(recorded, indent=1).encode(), **ids)) == {**recorded, **ids}


def test_a_document_of_any_shape_of_messages_is_one_document():
    part, message = ExportRow("part", "prt_1", b'{"type":"text"}'), ExportRow("message", "msg_1", b"{}")
    for rows in ([], [message], [message, message], [message, part, part, message, part]):
        found = json.loads(b"".join(export_of({"id": "ses_1"}, rows)))
        assert [len(one["parts"]) for one in found["messages"]] == [
            sum(row is part for row in group) for group in _groups(rows, message)
        ]


def _groups(rows: list[ExportRow], message: ExportRow) -> list[list[ExportRow]]:
    groups: list[list[ExportRow]] = []
    for row in rows:
        if row is message:
            groups.append([])
        groups[-1].append(row)
    return groups


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b'{"info":{"id":"ses_1"}}',
        b'{"info":[],"messages":[]}',
        b'{"info":{"id":5},"messages":[]}',
        b'{"info":{"id":"ses_1"},"messages":[',
        b'{"info":{"id":"ses_1"},"messages":%s' % (b"[" * 100_000),
    ],
)
def test_another_document_is_not_an_export(document):
    assert lines_of_export(document) is None


@pytest.mark.parametrize(
    "messages", ["null", '"text"', "[5]", "[{}]", '[{"info":7}]', '[{"info":{"id":"m"},"parts":{"id":"p"}}]', "[[]]"]
)
def test_a_damaged_message_is_reported_or_has_no_entries(tmp_path, messages):
    path = tmp_path / "export.json"
    path.write_text('{"info":{"id":"ses_1"},"messages":MESSAGES,"after":{"id":"a"}}'.replace("MESSAGES", messages))
    loaded = load_session(path)
    assert [entry.id for entry in loaded.log.entries if entry.id not in ("ses_1", "m")] == []


def test_a_file_that_only_begins_like_an_export_is_refused(tmp_path):
    path = tmp_path / "export.json"
    path.write_text('{"info":{"id":"ses_1"},')
    with pytest.raises(BadInput, match="is not an export of OpenCode"):
        load_session(path)


# ---- curated -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(4))
def test_a_fork_of_an_export_is_an_export_with_the_approved_context(store, tmp_path, seed):
    chance = random.Random(seed)
    made = exported(random_session(store, chance), tmp_path / "export.json")
    loaded = load_session(made)
    plan = random_plan(loaded, GENERATION, WRITERS["fork"], chance, chance.randrange(1, 9))
    assert plan is not None
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
    refused = redline.call("compact", made, "--yes", "--writer", "delete")
    assert "This is an export, not a session in OpenCode's database" in refused.err
    done = redline.call("compact", made, "--yes")
    (forked,) = tmp_path.glob("ses_*.json")
    assert f"opencode import {forked}" in done.out
    assert made.read_bytes() == before
    assert len(context_of(load_session(forked)).messages) < len(context_of(load_session(made)).messages)
    assert redline.call("certify", forked).code == 0
    assert redline.call("undo", made, "--yes").code == 0
    assert not forked.exists()
    assert made.read_bytes() == before


def test_a_deeply_nested_description_is_kept(redline, store, tmp_path):
    made = exported(worked_session(store, turns=6), tmp_path / "export.json")
    more = b'"more":%s1%s' % (b"[" * 900, b"]" * 900)
    made.write_bytes(made.read_bytes().replace(b'},"messages":', b',%s},"messages":' % more, 1))
    done = redline.call("compact", backdate(made), "--yes")
    assert done.code == 0, done.err
    (forked,) = tmp_path.glob("ses_*.json")
    assert more in forked.read_bytes()
    assert redline.call("index", tmp_path).code == 0

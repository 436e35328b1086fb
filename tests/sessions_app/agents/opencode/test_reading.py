"""What OpenCode's model sees of a session: each rule of the reader, on stores of our own."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.sessionlog.controls import BoundaryControl
from sessions_app.sessionlog.entries import BlockType, Role
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.provider_rules import violations
from sessions_app.storage.session_loader import LoadedSession, load_session
from tests.opencode_stores import MODEL, START, OpenCodeStore, documents, reasoning, text, tool, worked_session

PLACEHOLDER = "[Old tool result content cleared]"
QUESTION = {"role": "user", "content": "What did we do so far?"}


@pytest.fixture
def store(tmp_path):
    return OpenCodeStore(tmp_path / "opencode")


@pytest.fixture
def path(store):
    return store.session()


def sent(path: Path) -> list[Mapping[str, Any]]:
    """What the client would send of a session, without its own system message."""
    loaded = load_session(path)
    context = OPENCODE.generations[0].reader.rebuild(loaded.tree.branch(loaded.leaf_id))
    with OPENCODE.open(path) as reader:
        return list(OPENCODE.sent_messages(context, lambda entry: reader.read_at(entry.offset, entry.length)))


def said(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def replied(words: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": words, **fields}


def called(*call_ids: str) -> list[dict[str, Any]]:
    return [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": "bash", "arguments": json.dumps({"command": f"run {call_id}"}, separators=(",", ":"))},
        }
        for call_id in call_ids
    ]


def resulted(call_id: str, words: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": words}


def test_a_reply_is_one_message_followed_by_its_results(store, path):
    store.user("Go.")
    store.assistant(reasoning("Hm."), text("I will."), tool("c1", "one"), tool("c2", "two"))
    assert sent(path) == [
        said("Go."),
        replied("I will.", reasoning_content="Hm.", tool_calls=called("c1", "c2")),
        resulted("c1", "one"),
        resulted("c2", "two"),
    ]


def test_each_step_of_a_message_is_a_reply_of_its_own(store, path):
    store.user("Go.")
    step = {"type": "step-start"}
    store.assistant(step, text("First."), tool("c1", "one"), step, text("Second."))
    assert sent(path) == [
        said("Go."),
        replied("First.", tool_calls=called("c1")),
        resulted("c1", "one"),
        replied("Second."),
    ]


def test_reverted_messages_are_on_another_branch(store, path):
    store.user("One.")
    store.assistant(text("Done one."))
    second = store.user("Two.")
    store.assistant(text("Done two."))
    store.run("UPDATE session SET revert = ?", json.dumps({"messageID": second}))
    assert sent(path) == [said("One."), replied("Done one.")]
    tree = load_session(path).tree
    assert {"Two.", "Done two."} <= {found.joined(None) for found in texts_of(path).values()}
    assert tree.leaf.type == "revert"


def test_a_revert_to_a_part_keeps_the_parts_before_it(store, path):
    store.user("One.")
    reply = store.assistant(text("Kept."), tool("c1", "one"))
    first = store.parts()[1]["id"]
    last = store.part(reply, text("Gone."))
    store.user("Gone as well.")
    store.run("UPDATE session SET revert = ?", json.dumps({"messageID": reply, "partID": last}))
    assert first
    assert sent(path) == [said("One."), replied("Kept.", tool_calls=called("c1")), resulted("c1", "one")]


def test_a_revert_of_a_missing_message_changes_nothing(store):
    path = store.session(revert=json.dumps({"messageID": "msg_none"}))
    store.user("One.")
    assert sent(path) == [said("One.")]


def texts_of(path: Path) -> Mapping[str, Any]:
    loaded = load_session(path)
    return loaded.texts(loaded.log.entries)


def compacted(store: OpenCodeStore, *, tail: str = "", **data: Any) -> str:
    """A compaction at the end of a session; returns the id of its question."""
    asked = store.user({"type": "compaction", "auto": False, **({"tail_start_id": tail} if tail else {})})
    store.assistant(text("The summary."), **{"summary": True, "parentID": asked, **data})
    return asked


def test_a_compaction_ends_the_past(store, path):
    store.user("One.")
    store.assistant(text("Done one."))
    compacted(store)
    store.user("Two.")
    assert sent(path) == [QUESTION, replied("The summary."), said("Two.")]
    assert load_session(path).log.entries[-3].role == Role.COMPACTION_SUMMARY


@pytest.mark.parametrize(("auto", "trigger"), [(True, "auto"), (False, "manual"), (None, "manual")])
def test_a_compaction_says_what_asked_for_it(store, auto, trigger):
    path = store.session()
    asked = store.user({"type": "compaction", "auto": auto})
    store.assistant(text("The summary."), summary=True, parentID=asked)
    controls = [entry.control for entry in load_session(path).log.entries]
    assert [one.trigger for one in controls if isinstance(one, BoundaryControl)] == [trigger]


def test_a_summary_that_no_compaction_asked_for_is_a_reply(store, path):
    asked = store.user("Sum it up.")
    store.assistant(text("So far."), summary=True, parentID=asked)
    store.assistant(text("And on."), summary=True)
    assert sent(path) == [said("Sum it up."), replied("So far."), replied("And on.")]


def test_a_part_is_as_old_as_it_says_or_as_its_message_and_a_result_is_from_when_its_tool_ended(store, path):
    at = {"time": {"start": START + 60_000, "end": START + 120_000}}
    store.assistant(reasoning("Hm.", **at), tool("c1", **at), text("Done."), time={"created": START})
    _, _, thought, *called, done = (entry.timestamp[14:19] for entry in load_session(path).log.entries)
    begun, ended = called
    assert begun == thought
    minutes = [int(moment[:2]) for moment in (done, begun, ended)]
    assert minutes == [(minutes[0] + after) % 60 for after in range(3)]


def test_a_file_is_named_and_its_content_is_not_shown(store, path):
    data = "data:image/png;base64,aGk="
    store.user({"type": "file", "mime": "image/png", "url": data, "filename": "a.png"})
    store.user({"type": "file", "mime": "application/pdf", "url": data})
    loaded = load_session(path)
    files = [entry for entry in loaded.log.entries if entry.blocks]
    assert [entry.blocks[0].type for entry in files if entry.blocks] == [BlockType.IMAGE, "file"]
    shown = [texts.block(0) for texts in loaded.texts(files).values()]
    assert shown == ["[image/png: a.png]", "[application/pdf: file]"]


def test_the_tail_of_a_compaction_follows_its_summary(store, path):
    store.user("One.")
    store.assistant(text("Done one."))
    tail = store.user("Two.")
    store.assistant(text("Done two."))
    compacted(store, tail=tail)
    store.user("Three.")
    expected = [QUESTION, replied("The summary."), said("Two."), replied("Done two."), said("Three.")]
    assert sent(path) == expected


@pytest.mark.parametrize("data", [{"error": {"name": "APIError"}}, {"finish": None}, {"summary": False}])
def test_a_compaction_without_a_finished_summary_removes_nothing(store, path, data):
    store.user("One.")
    compacted(store, **data)
    assert sent(path)[:2] == [said("One."), QUESTION]


def test_the_newest_completed_compaction_counts(store, path):
    store.user("One.")
    compacted(store)
    store.user("Two.")
    compacted(store)
    assert sent(path) == [QUESTION, replied("The summary.")]


def test_a_tail_whose_start_is_gone_keeps_everything(store, path):
    store.user("One.")
    compacted(store, tail="msg_gone")
    assert sent(path) == [said("One."), QUESTION, replied("The summary.")]


def test_what_users_add_is_sent_unless_it_is_ignored_or_empty(store, path):
    store.user("Said.", text("Added.", synthetic=True), text("Ignored.", ignored=True), text(""))
    store.user(text("Nothing.", ignored=True))
    store.user({"type": "subtask", "prompt": "x"})
    blocks = [{"type": "text", "text": words} for words in ("Said.", "Added.")]
    expected = [{"role": "user", "content": blocks}, said("The following tool was executed by the user")]
    assert sent(path) == expected


def test_the_content_of_a_text_file_is_sent_as_the_text_beside_it(store, path):
    image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,aGk="}
    store.user("See.", image, {"type": "file", "mime": "text/plain", "url": "file:///a.txt"})
    (found,) = sent(path)
    assert [block["type"] for block in found["content"]] == ["text", "image_url"]


def test_a_failed_reply_is_left_out(store, path):
    store.user("One.")
    store.assistant(text("Half."), error={"name": "APIError"})
    assert sent(path) == [said("One.")]


def test_an_aborted_reply_stays_if_it_is_more_than_thinking(store, path):
    aborted = {"error": {"name": "MessageAbortedError"}}
    store.user("One.")
    store.assistant(reasoning("Hm."), **aborted)
    store.assistant(reasoning("So."), text("Half."), **aborted)
    assert sent(path) == [said("One."), replied("Half.", reasoning_content="So.")]


def test_ignored_text_of_an_assistant_is_sent(store, path):
    store.user("One.")
    store.assistant(text("Said.", ignored=True))
    assert sent(path) == [said("One."), replied("Said.")]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"time": {"start": 1, "end": 2, "compacted": 3}}, PLACEHOLDER),
        ({"status": "error", "error": "It failed."}, "It failed."),
        ({"status": "error", "error": "x", "metadata": {"interrupted": True, "output": "half"}}, "half"),
        ({"status": "running"}, "[Tool execution was interrupted]"),
        ({"status": "pending"}, "[Tool execution was interrupted]"),
    ],
)
def test_what_is_sent_of_a_result_depends_on_its_state(store, path, state, words):
    store.user("One.")
    store.assistant(tool("c1", "whole", **state))
    assert sent(path)[-1] == resulted("c1", words)


def test_the_reasoning_of_another_model_is_a_text(store, path):
    store.user("One.")
    store.assistant(reasoning("Hm."), reasoning(" "), text("So."), modelID="other")
    store.user("Two.", model=MODEL)
    assert sent(path)[1] == replied("Hm.So.")


def test_the_media_of_a_result_follow_as_a_message_of_the_user(store, path):
    store.user("One.")
    image = {"mime": "image/png", "url": "data:image/png;base64,aGk="}
    store.assistant(tool("c1", "seen", attachments=[image]))
    attached = sent(path)[-1]
    assert attached["role"] == "user"
    assert [block["type"] for block in attached["content"]] == ["text", "image_url"]


def test_a_pdf_is_sent_as_a_file(store, path):
    pdf = {"type": "file", "mime": "application/pdf", "url": "data:application/pdf;base64,JVBERg=="}
    store.user("Read.", {**pdf, "filename": "a.pdf"}, pdf)
    names = ("a.pdf", "document.pdf")
    files = [{"type": "file", "file": {"filename": name, "file_data": pdf["url"]}} for name in names]
    assert sent(path) == [{"role": "user", "content": [{"type": "text", "text": "Read."}, *files]}]


def test_a_message_without_parts_is_not_sent(store, path):
    store.user("One.")
    store.assistant()
    store.user()
    assert sent(path) == [said("One.")]


def test_providers_accept_a_session_with_several_calls(store):
    path = worked_session(store)
    loaded = load_session(path)
    context = OPENCODE.generations[0].reader.rebuild(loaded.tree.branch(loaded.leaf_id))
    assert not violations(context)
    assert context.usage.usage_tokens == 900


def test_the_older_store_reads_as_the_database_does(store, tmp_path):
    path = worked_session(store)
    older = documents(tmp_path / "older" / "opencode", store)
    assert sent(older) == sent(path)
    assert load_session(older).log.damaged == 0


def test_users_summaries_and_what_the_client_adds_are_protected(store, path):
    store.user("Said.", text("Added.", synthetic=True))
    compacted(store)
    store.assistant(reasoning("Hm."), text("Half."), tool("c1", status="error", error="No."), tool("c2"))
    rules = OPENCODE.generations[0].rules
    entries = load_session(path).log.entries
    assert [rules.protection(entry) for entry in entries if entry.is_message] == [
        Protection.USER,
        Protection.CUSTOM,
        Protection.CUSTOM,
        Protection.SUMMARY,
        *(None, None, None, Protection.TOOL_ERROR, None, None),
    ]


def hostile_rows() -> Iterator[object]:
    yield from ("", "not json", "[1]", '"text"', "null", "{", '{"type":3}', '{"type":"tool","state":7}')
    yield from ('{"type":"text","text":["x"]}', '{"type":"text"}\n', '{"type":"nonsense","x":1}')
    yield '{"type":"tool","tool":{},"callID":[],"state":{"status":"completed","time":"x","output":{}}}'
    yield '{"type":"text","text":"\\ud800"}'
    yield '{"type":"text","text":"x"},"id":"prt_forged","message":"msg_forged"'


@pytest.mark.parametrize("data", [pytest.param(data, id=str(at)) for at, data in enumerate(hostile_rows())])
def test_damaged_rows_are_reported_and_the_rest_is_read(store, path, data):
    message = store.user("Before.")
    store.part(message, data)
    store.user("After.")
    found = sent(path)
    assert "Before." in json.dumps(found[0])
    assert found[-1] == said("After.")
    assert all(entry.id != "prt_forged" for entry in load_session(path).log.entries)


@pytest.mark.parametrize("data", ["", "[]", "7", '{"role":"user","time":"x","model":4}', '{"role":5}'])
def test_damaged_messages_do_not_hide_others(store, path, data):
    store.user("Before.")
    store.assistant(text("Lost."))
    store.run("UPDATE message SET data = ? WHERE id = 'msg_0003'", data)
    store.user("After.")
    found = sent(path)
    assert (found[0], found[-1]) == (said("Before."), said("After."))


def loaded_texts(loaded: LoadedSession) -> list[str]:
    texts = loaded.texts(loaded.log.entries)
    return [texts[entry.id].joined(entry.blocks) for entry in loaded.log.entries if entry.has_text]


def test_texts_are_read_again_by_their_position(store):
    loaded = load_session(worked_session(store, turns=1))
    words = loaded_texts(loaded)
    assert words[0] == "Do step 0."
    assert words[4] == "output 0 a\n" * 40
    assert words[3].startswith("toolCall prt_0007 bash")

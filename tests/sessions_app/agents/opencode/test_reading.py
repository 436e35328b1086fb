"""What OpenCode's model sees of a session: each rule of the reader, on stores of our own."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.sessionlog.diagnosis import violations
from sessions_app.sessionlog.entries import BlockType, BoundaryControl, Protection, Role
from sessions_app.storage.session_loader import load_session
from tests.opencode_stores import MODEL, PICTURE, START, OpenCodeStore, documents, reasoning, text, tool, worked_session

PLACEHOLDER = "[Old tool result content cleared]"
QUESTION = {"role": "user", "content": "What did we do so far?"}


@pytest.fixture
def path(store):
    return store.session()


def sent(path: Path) -> list[Mapping[str, Any]]:
    """What the client would send of a session, without its own system message."""
    loaded = load_session(path)
    context = OPENCODE.format.generations[0].reader.rebuild(loaded.tree.branch(loaded.leaf_id))
    with OPENCODE.store.open(path) as reader:
        return list(OPENCODE.format.sent_messages(context, lambda entry: reader.read_at(entry.offset, entry.length)))


def texts_of(path: Path) -> list[str]:
    loaded = load_session(path)
    texts = loaded.texts(loaded.log.entries)
    return [texts[entry.id].joined(entry.blocks) for entry in loaded.log.entries if entry.has_text]


def said(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def replied(words: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": words, **fields}


def called(*call_ids: str) -> list[dict[str, Any]]:
    return [
        {"id": one, "type": "function", "function": {"name": "bash", "arguments": f'{{"command":"run {one}"}}'}}
        for one in call_ids
    ]


def resulted(call_id: str, words: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": words}


def compacted(store: OpenCodeStore, *, tail: str = "", **data: Any) -> str:
    """A compaction at the end of a session; returns the id of its question."""
    asked = store.user({"type": "compaction", "auto": False, **({"tail_start_id": tail} if tail else {})})
    store.assistant(text("The summary."), **{"summary": True, "parentID": asked, **data})
    return asked


Row = tuple[str, tuple[Any, ...], dict[str, Any]]


def asks(*parts: Any, **data: Any) -> Row:
    return "user", parts, data


def replies(*parts: Any, **data: Any) -> Row:
    return "assistant", parts, data


def sums_up(**data: Any) -> Row:
    return "compacted", (), data


def record(store: OpenCodeStore, rows: list[Row]) -> None:
    for kind, parts, data in rows:
        make = partial(compacted, store) if kind == "compacted" else getattr(store, kind)
        make(*parts, **data)


SUMMARY = replied("The summary.")
STEP = {"type": "step-start"}
FAILED, ABORTED = ({"error": {"name": name}} for name in ("APIError", "MessageAbortedError"))
PDF = {"type": "file", "mime": "application/pdf", "url": "data:application/pdf;base64,JVBERg=="}


def sent_file(name: str) -> dict[str, Any]:
    return {"type": "file", "file": {"filename": name, "file_data": PDF["url"]}}


HALF = {"interrupted": True, "output": "half"}
STATES = {
    "that was cleared": ({"time": {"start": 1, "end": 2, "compacted": 3}}, PLACEHOLDER),
    "of an error": ({"status": "error", "error": "It failed."}, "It failed."),
    "of a stopped tool": ({"status": "error", "error": "x", "metadata": HALF}, "half"),
    "of a running tool": ({"status": "running"}, "[Tool execution was interrupted]"),
    "of a tool that waits": ({"status": "pending"}, "[Tool execution was interrupted]"),
}
SENT: dict[str, tuple[list[Row], list[Any]]] = {
    "a reply is one message followed by its results": (
        [asks("Go."), replies(reasoning("Hm."), "I will.", tool("c1", "one"), tool("c2", "two"))],
        [
            *(said("Go."), replied("I will.", reasoning_content="Hm.", tool_calls=called("c1", "c2"))),
            *(resulted("c1", "one"), resulted("c2", "two")),
        ],
    ),
    "each step of a message is a reply of its own": (
        [asks("Go."), replies(STEP, "First.", tool("c1", "one"), STEP, "Second.")],
        [said("Go."), replied("First.", tool_calls=called("c1")), resulted("c1", "one"), replied("Second.")],
    ),
    "a compaction ends the past": (
        [asks("One."), replies("So."), sums_up(), asks("Two.")],
        [QUESTION, SUMMARY, said("Two.")],
    ),
    "a summary that no compaction asked for is a reply": (
        [
            *(asks("Sum it up."), replies("So far.", summary=True, parentID="msg_0001")),
            replies("And on.", summary=True),
        ],
        [said("Sum it up."), replied("So far."), replied("And on.")],
    ),
    "the tail of a compaction follows its summary": (
        [
            *(asks("One."), replies("Done one."), asks("Two."), replies("Done two.")),
            *(sums_up(tail="msg_0005"), asks("Three.")),
        ],
        [QUESTION, SUMMARY, said("Two."), replied("Done two."), said("Three.")],
    ),
    "the newest completed compaction counts": ([asks("One."), sums_up(), asks("Two."), sums_up()], [QUESTION, SUMMARY]),
    "a tail without its start keeps all": ([asks("One."), sums_up(tail="gone")], [said("One."), QUESTION, SUMMARY]),
    "what users add is sent unless it is ignored or empty": (
        [
            asks("Said.", text("Added.", synthetic=True), text("Ignored.", ignored=True), ""),
            *(asks(text("Nothing.", ignored=True)), asks({"type": "subtask", "prompt": "x"})),
        ],
        [
            {"role": "user", "content": [{"type": "text", "text": words} for words in ("Said.", "Added.")]},
            said("The following tool was executed by the user"),
        ],
    ),
    "a failed reply is left out": ([asks("One."), replies("Half.", **FAILED)], [said("One.")]),
    "an aborted reply stays if it is more than thinking": (
        [asks("One."), replies(reasoning("Hm."), **ABORTED), replies(reasoning("So."), "Half.", **ABORTED)],
        [said("One."), replied("Half.", reasoning_content="So.")],
    ),
    "ignored text of a reply is sent": (
        [asks("One."), replies(text("So.", ignored=True))],
        [said("One."), replied("So.")],
    ),
    "the reasoning of another model is a text": (
        [*(asks("One."), replies(reasoning("Hm."), reasoning(" "), "So.", modelID="other")), asks("Two.", model=MODEL)],
        [said("One."), replied("Hm.So."), said("Two.")],
    ),
    "a message without parts is not sent": ([asks("One."), replies(), asks()], [said("One.")]),
    "a PDF is sent as a file": (
        [asks("Read.", {**PDF, "filename": "a.pdf"}, PDF)],
        [{"role": "user", "content": [{"type": "text", "text": "Read."}, *map(sent_file, ("a.pdf", "document.pdf"))]}],
    ),
    **{
        f"the result {name}": (
            [asks("One."), replies(tool("c1", "whole", **state))],
            [said("One."), replied("", tool_calls=called("c1")), resulted("c1", words)],
        )
        for name, (state, words) in STATES.items()
    },
}


@pytest.mark.parametrize("name", SENT)
def test_what_is_sent(store, path, name):
    rows, expected = SENT[name]
    record(store, rows)
    assert sent(path) == expected


def test_reverted_messages_are_on_another_branch_and_a_revert_of_a_missing_one_changes_nothing(store):
    path = store.session(revert=json.dumps({"messageID": "msg_none"}))
    record(store, [asks("One."), replies(text("Done one."))])
    second = store.user("Two.")
    expected = [said("One."), replied("Done one."), said("Two.")]
    assert sent(path) == expected
    store.assistant(text("Done two."))
    store.run("UPDATE session SET revert = ?", json.dumps({"messageID": second}))
    assert sent(path) == expected[:-1]
    assert {"Two.", "Done two."} <= set(texts_of(path))
    assert load_session(path).tree.leaf.type == "revert"


def test_a_revert_to_a_part_keeps_the_parts_before_it(store, path):
    store.user("One.")
    reply = store.assistant(text("Kept."), tool("c1", "one"))
    last = store.part(reply, text("Gone."))
    store.user("Gone as well.")
    store.run("UPDATE session SET revert = ?", json.dumps({"messageID": reply, "partID": last}))
    assert sent(path) == [said("One."), replied("Kept.", tool_calls=called("c1")), resulted("c1", "one")]


@pytest.mark.parametrize(("auto", "trigger"), [(True, "auto"), (False, "manual"), (None, "manual")])
def test_a_compaction_says_what_asked_for_it(store, auto, trigger):
    path = store.session()
    asked = store.user({"type": "compaction", "auto": auto})
    store.assistant(text("The summary."), summary=True, parentID=asked)
    entries = load_session(path).log.entries
    assert entries[-1].role == Role.COMPACTION_SUMMARY
    assert [one.control.trigger for one in entries if isinstance(one.control, BoundaryControl)] == [trigger]


def test_a_part_is_as_old_as_it_says_or_as_its_message_and_a_result_is_from_when_its_tool_ended(store, path):
    at = {"time": {"start": START + 60_000, "end": START + 120_000}}
    store.assistant(reasoning("Hm.", **at), tool("c1", **at), text("Done."), time={"created": START})
    _, _, thought, *called, done = (entry.timestamp[14:19] for entry in load_session(path).log.entries)
    begun, ended = called
    assert begun == thought
    minutes = [int(moment[:2]) for moment in (done, begun, ended)]
    assert minutes == [(minutes[0] + after) % 60 for after in range(3)]


def test_a_file_is_named_and_its_content_is_not_shown(store, path):
    store.user({"type": "file", "mime": "image/png", "url": PICTURE, "filename": "a.png"})
    store.user({"type": "file", "mime": "application/pdf", "url": PICTURE})
    loaded = load_session(path)
    files = [entry for entry in loaded.log.entries if entry.blocks]
    assert [entry.blocks[0].type for entry in files if entry.blocks] == [BlockType.IMAGE, "file"]
    shown = [texts.block(0) for texts in loaded.texts(files).values()]
    assert shown == ["[image/png: a.png]", "[application/pdf: file]"]


@pytest.mark.parametrize("data", [FAILED, {"finish": None}, {"summary": False}])
def test_a_compaction_without_a_finished_summary_removes_nothing(store, path, data):
    store.user("One.")
    compacted(store, **data)
    assert sent(path)[:2] == [said("One."), QUESTION]


def test_media_of_a_result_follow_as_a_message_and_text_files_are_only_the_text_beside_them(store, path):
    image = {"type": "file", "mime": "image/png", "url": PICTURE}
    store.user("See.", image, {"type": "file", "mime": "text/plain", "url": "file:///a.txt"})
    store.assistant(tool("c1", "seen", attachments=[image]))
    found = sent(path)
    for message in (found[0], found[-1]):
        assert message["role"] == "user"
        assert [block["type"] for block in message["content"]] == ["text", "image_url"]


def test_providers_accept_a_session_with_several_calls(store):
    loaded = load_session(worked_session(store))
    context = OPENCODE.format.generations[0].reader.rebuild(loaded.tree.branch(loaded.leaf_id))
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
    rules = OPENCODE.format.generations[0].rules
    entries = load_session(path).log.entries
    assert [rules.protection(entry) for entry in entries if entry.is_message] == [
        *(Protection.USER, Protection.CUSTOM, Protection.CUSTOM, Protection.SUMMARY),
        *(None, None, None, Protection.TOOL_ERROR, None, None),
    ]


HOSTILE: Final = (
    *("", "not json", "[1]", '"text"', "null", "{", '{"type":3}', '{"type":"tool","state":7}'),
    *('{"type":"text","text":["x"]}', '{"type":"text"}\n', '{"type":"nonsense","x":1}'),
    '{"type":"text","text":"\\ud800"}',
    '{"type":"tool","tool":{},"callID":[],"state":{"status":"completed","time":"x","output":{}}}',
    '{"type":"text","text":"x"},"id":"prt_forged","message":"msg_forged"',
)


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_damaged_rows_are_reported_and_the_rest_is_read(store, path, data):
    store.part(store.user("Before."), data)
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


def test_texts_are_read_again_by_their_position(store):
    words = texts_of(worked_session(store, turns=1))
    assert words[0] == "Do step 0."
    assert words[4] == "output 0 a\n" * 40
    assert words[3].startswith("toolCall prt_0007 bash")

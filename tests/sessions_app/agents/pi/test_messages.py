"""Messages as pi rebuilds them from recorded lines. The hashes are of messages that pi 0.87.1 rebuilt itself."""

from typing import Any

import msgspec
import pytest

from sessions_app.agents.pi.messages import fields_of, message_hash, message_json
from sessions_app.sessionlog.context import Message, keep
from tests.factories import (
    assistant,
    bash,
    branch_of,
    branch_summary,
    call,
    chain,
    context_edit,
    result,
    summary_compaction,
    text,
    user,
)

USAGE = {"input": 10, "output": 5, "totalTokens": 15}


def rebuilt(recorded: dict[str, Any], edit: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """`message_json` of one recorded message or entry, with these fields of its `Message` changed."""
    line = chain(recorded)[1]
    message = keep(branch_of(chain(recorded))[0])
    assert message is not None
    return message_json(msgspec.structs.replace(message, **changed), line, edit)


@pytest.mark.parametrize(
    ("recorded", "agents_hash"),
    [
        ({"role": "system", "content": None}, "31020bc854d08dcf"),
        ({"role": "user", "content": None}, "fb296c5e1d944682"),
        ({"role": "assistant", "stopReason": "stop", "usage": USAGE}, "9977c74d5929f54e"),
        (assistant(text("a1"), call("c1", "bash", command="ls c1"), usage=USAGE), "860ad79649e1294f"),
        (result("c1", "out c1", name="bash"), "c18707f5ad1700c0"),
        (bash("ls", "o", excludeFromContext=True), "40f445df39301605"),
        ({"type": "custom_message", "customType": "x", "display": True}, "eadbd777cebcc054"),
        (branch_summary("the branch"), "d9a7b11baf70d3c3"),
        (summary_compaction("S", None), "d085fefd9791d77e"),
    ],
)
def test_a_message_is_the_one_that_the_agent_rebuilds(recorded, agents_hash):
    assert message_hash(rebuilt(recorded)) == agents_hash


def test_only_fields_that_decide_what_the_model_receives_count():
    assert rebuilt(user("x") | {"timestamp": 5, "toolName": None}) == {"role": "user", "content": "x"}
    assert rebuilt({"role": "hookMessage", "content": "x"})["role"] == "custom"
    assert rebuilt({"type": "custom_message"}) == {"role": "custom", "content": []}
    assert rebuilt({"role": "custom", "content": None}) == {"role": "custom"}


def test_a_repeated_system_message_without_content_has_none():
    line = chain(summary_compaction("S", None) | {"systemMessage": {"role": "system", "content": None}})[1]
    (entry,) = branch_of([chain()[0], line])
    assert message_json(Message(entry, "system", None, 0), line) == {"role": "system"}


def test_a_message_contains_only_the_blocks_that_remain():
    recorded = assistant(text("one"), call("c1"), text("two"))
    blocks = branch_of(chain(recorded))[0].blocks or ()
    assert rebuilt(recorded, blocks=(blocks[0], blocks[2]))["content"] == [text("one"), text("two")]


@pytest.mark.parametrize(
    ("recorded", "replacement", "content"),
    [
        (user("x"), {"content": "y"}, "y"),
        (assistant(text("x")), {"content": "y"}, [text("y")]),
        (result("c1"), {"content": "y"}, [text("y")]),
        (assistant(text("x")), {"content": [text("y"), text("z")]}, [text("y"), text("z")]),
    ],
)
def test_an_edit_takes_the_place_of_the_content(recorded, replacement, content):
    found = rebuilt(recorded, context_edit("e1", replacement), blocks=None)
    assert found == fields_of(recorded) | {"content": content}


def test_an_edit_without_content_leaves_none():
    assert rebuilt(user("x"), context_edit("e1", {}), blocks=None) == {"role": "user"}
    assert rebuilt(user("x"), context_edit("e1", "text"), blocks=None) == {"role": "user"}


def test_the_instructions_of_a_compaction_are_a_message_of_their_own():
    recorded = {**summary_compaction("S", None), "systemMessage": {"role": "system", "content": "be kind"}}
    assert rebuilt(recorded, role="system") == {"role": "system", "content": "be kind"}
    assert rebuilt(recorded) == {"role": "compactionSummary", "summary": "S"}


def test_any_recorded_values_can_be_rebuilt():
    message = Message(branch_of(chain(user("x")))[0], "user", None, 1)
    assert message_json(message, {"type": "message", "message": 7}) == {"role": "user", "content": []}
    assert message_json(message, {}, {"replacement": None}) == {"role": "user"}

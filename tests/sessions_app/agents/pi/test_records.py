"""The digest of any line with the agent's token estimates, the messages that pi rebuilds, and what it was charged."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from sessions_app.agents.pi.pure.format import fields_of, message_hash, message_json
from sessions_app.agents.pi.pure.parser import describe, recorded_prices
from sessions_app.sessionlog.context import Message, keep
from sessions_app.sessionlog.entries import Entry, LabelControl, Texts, tokens_of
from tests.factories import (
    assistant,
    bash,
    branch_of,
    branch_summary,
    call,
    chain,
    compaction,
    context_edit,
    message,
    result,
    summary_compaction,
    text,
    thinking,
    user,
)

IMAGE = {"type": "image", "data": "A" * 100_000, "mimeType": "image/png"}


def described(recorded: dict[str, Any]) -> tuple[Entry, Texts]:
    """The digest of an entry, or of a message if it has a role."""
    data = message("e1", None, recorded) if "role" in recorded else recorded
    return describe(data, number=2, offset=0, length=1, entry_id="e1", parent_id=None)


def system(content: object, **more: object) -> dict[str, Any]:
    return {"role": "system", "content": content, **more}


@pytest.mark.parametrize(("units", "estimate"), [(0, 0), (1, 1), (4, 1), (5, 2), (4800, 1200), (10**9, 25 * 10**7)])
def test_four_utf16_units_are_a_token_and_the_rest_is_rounded_up(units, estimate):
    assert tokens_of(units) == estimate


SPACED = {"type": "toolCall", "id": "c", "name": "", "arguments": {"b": 1e21, "1": [1.0, "\ud800"]}}
PRINTED = r'{"1":[1,"\ud800"],"b":1e+21}'
UNCOUNTED = [thinking("x" * 400), call("c1", "n", a="x" * 400), {"type": "odd", "text": "x" * 400}]
ESTIMATES = {
    # Of messages of users, extensions and tools: the content and its tokens.
    **{
        f"{role}: {name}": ({"role": role, "content": content}, tokens)
        for role in ("user", "custom", "toolResult")
        for name, content, tokens in (
            ("text", "12345", 2),
            ("texts, which are added up before they are rounded", [text("1234"), text("5")], 2),
            ("image", [IMAGE], 1200),
            ("text and images", [text("12345"), IMAGE, IMAGE], 2402),
            *((f"uncounted {content!r:.12}", content, 0) for content in (UNCOUNTED, [], None, 7, {})),
        )
    },
    # A system message counts its content, its sections and its tools as JSON; fields of other types count nothing.
    "system: text": (system("12345"), 2),
    "system: an image": (system([text("1234"), IMAGE]), 1201),
    "system: sections": (system("", sections={"tone": "1234", "none": None, "rules": "5678"}), 2),
    'system: tools, [{"name":"bash"}] has 17 units': (system("", toolsAdded=[{"name": "bash"}]), 5),
    "system: everything": (system("1234", sections={"tone": "1234"}, toolsAdded=[{"name": "bash"}]), 7),
    "system: no tools": (system("", toolsAdded=[]), 1),
    "system: a text as sections": (system(None, sections="12345", toolsAdded=True), 0),
    "system: a list as sections": (system({}, sections=[7], toolsAdded=None), 0),
    # An assistant counts texts, thinking and calls, but no images.
    "assistant: text": (assistant(text("12345678")), 2),
    "assistant: thinking": (assistant(thinking("12345678")), 2),
    'assistant: a call, read{"path":"a"} without its id': (assistant(call("c" * 1000, "read", path="a")), 4),
    "assistant: everything": (assistant(text("123"), thinking("123"), call("c", "read", path="a")), 6),
    "assistant: uncounted": (assistant(IMAGE, {"type": "redacted_thinking", "data": "x" * 400}), 0),
    "assistant: content as a text": ({"role": "assistant", "content": "12345"}, 2),
    "assistant: arguments as JavaScript prints them": (assistant(SPACED), tokens_of(len(PRINTED))),
    # An emoji counts two units.
    "emojis of a user": (user("😀" * 4), 2),
    "letters of Latin": (user("é" * 4), 1),
    "letters of Chinese": (user("漢" * 4), 1),
    "emojis of an assistant": (assistant(text("😀" * 4)), 2),
    "emojis of a command": (bash("😀😀", "😀😀"), 2),
    "lone surrogates, which are one unit each": (user("\ud83d" * 5), 2),
    "a command with its output, without the added words": (bash("1234", "5"), 2),
}


@pytest.mark.parametrize("name", ESTIMATES)
def test_what_a_message_counts(name):
    recorded, tokens = ESTIMATES[name]
    assert described(recorded)[0].tokens == tokens


def test_the_text_of_a_system_message_is_its_content_or_else_its_sections():
    sections = {"tone": "Be brief.", "rules": "Be kind."}
    assert described(system("so", sections=sections))[1].whole == "so"
    assert described(system("", sections=sections))[1].whole == "Be brief.\n\nBe kind."
    assert described(system([text("so")], sections=sections))[1].blocks == ("so",)


@pytest.mark.parametrize(
    ("recorded", "by_pi"),
    [
        ({"role": "system", "content": "so"}, True),
        ({"type": "usage", "kind": "summary"}, True),
        (context_edit("e1", None), True),
        ({**assistant(text("so")), "thinkingLevel": "off"}, True),
        *(({**said, "thinkingLevel": level}, False) for said, level in ((assistant(), None), (user("so"), "high"))),
        ({"type": "thinking_level_change", "thinkingLevel": "high"}, False),
        *((summary_compaction("s", None), False), (compaction(), False)),
    ],
)
def test_entries_that_only_pi_writes_are_marked(recorded, by_pi):
    assert described(recorded)[0].sole_agent == ("pi" if by_pi else "")


def test_calls_and_commands_are_shown_as_texts():
    assert described(assistant(SPACED))[1].block(0) == f"toolCall c  {PRINTED}"
    assert described(bash("1234", "5"))[1].whole == "Ran 1234\n5"


def test_a_branch_summary_counts_its_summary_and_a_custom_message_counts_like_a_message():
    entry, texts = described({"type": "branch_summary", "summary": "12345"})
    assert (entry.role, entry.tokens, entry.empty, texts.whole) == ("branchSummary", 2, False, "12345")
    for nothing in ({}, {"summary": ""}, {"summary": None}, {"summary": ["x"]}):
        entry, _ = described({"type": "branch_summary", **nothing})
        assert (entry.is_message, entry.empty, entry.tokens) == (True, True, 0)
    entry, _ = described({"type": "custom_message", "customType": "x", "content": [text("12345"), IMAGE]})
    assert (entry.is_message, entry.role, entry.tokens) == (True, "custom", 1202)


@pytest.mark.parametrize(
    ("block", "estimate", "shown"),
    [
        (text("12345"), 2, "12345"),
        (text(""), 1, ""),
        (thinking("123456789"), 3, "123456789"),
        (IMAGE, 1200, "[image]"),
        (call("c1", "read", path="a"), 8, 'toolCall c1 read {"path":"a"}'),
        ({"type": "toolCall"}, 10, "toolCall undefined undefined undefined"),
        ({"type": "toolCall", "id": "", "name": "", "arguments": ""}, 4, 'toolCall   ""'),
        ({"type": "redacted_thinking", "data": "x"}, 10, '{"type":"redacted_thinking","data":"x"}'),
        ({"type": "odd", "1": 1.0}, 5, '{"1":1,"type":"odd"}'),
        ("just text", 3, '"just text"'),
        (None, 1, "null"),
        ([1.0, 2], 2, "[1,2]"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_block_has_its_own_text_and_estimate(block, estimate, shown):
    entry, texts = described({"role": "user", "content": [text("first"), block]})
    assert entry.blocks is not None
    assert texts.block(1) == shown
    assert (entry.blocks[1].index, entry.blocks[1].tokens) == (1, estimate)
    assert texts.joined(entry.blocks) == f"first\n{shown}"
    assert texts.joined(entry.blocks[1:]) == shown
    assert texts.joined(()) == ""


def test_calls_and_results_are_known_by_their_ids():
    def called(*blocks: dict[str, Any]) -> list[str]:
        return list(described(assistant(*blocks))[0].call_ids())

    assert called(text("x"), call("c1"), call("c2"), call("c1")) == ["c1", "c2", "c1"]
    assert called({"type": "toolCall", "id": 7, "name": "n", "arguments": {}}) == []
    entry, _ = described(result("c1", "x", name="grep"))
    assert (entry.result_for, entry.tool_name) == ("c1", "grep")
    entry, _ = described({**result("c1"), "toolCallId": 7, "toolName": None})
    assert (entry.result_for, entry.tool_name) == (None, "")
    answer, _ = described(result("c\ud800"))
    assert called(call("c\ud800")) == [answer.result_for], "they match even if the id is not well formed"


@pytest.mark.parametrize(
    ("recorded", "failed"),
    [
        (assistant(text("x"), stopReason="error"), True),
        (assistant(text("x"), stopReason="aborted"), False),
        (result("c", error=True), True),
        ({**result("c"), "isError": "yes"}, False),
        *((bash("x", "", code), True) for code in (1, -15)),
        *((bash("x", "", code), False) for code in (0, 0.0, None, "1")),
        (user("error"), False),
    ],
    ids=str,
)
def test_only_failures_are_marked_as_failed(recorded, failed):
    assert described(recorded)[0].failed is failed


def test_exclusion_is_read_from_the_agents_field():
    for own in (bash("x", ""), {"role": "custom", "content": "x"}, {"type": "custom_message", "content": "x"}):
        assert described({**own, "excludeFromContext": True})[0].excluded
    for other in (user("x"), assistant(text("x")), result("c")):
        assert not described({**other, "excludeFromContext": True})[0].excluded
    for untrue in (1, "true", None):
        assert not described(bash("x", "", excludeFromContext=untrue))[0].excluded


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        ({"totalTokens": 1000, "input": 1}, 1000),
        ({"input": 1, "output": 20, "cacheRead": 300, "cacheWrite": 4000}, 4321),
        ({"totalTokens": "many", "input": 5, "output": None}, 5),
        *(({"totalTokens": total, "input": 5}, 5) for total in (0, True, 1e400)),
        *(({"totalTokens": 1234.0}, 1234), ({}, 0), (None, None), ("many", None), ([1], None)),
    ],
)
def test_the_context_a_provider_reports_is_its_total_or_the_sum_of_its_parts(usage, total):
    assert described(assistant(text("x"), usage=usage))[0].usage == total
    assert described({**user("x"), "usage": usage})[0].usage is None


def test_a_model_needs_both_its_names_and_every_name_can_be_stored():
    assert described(assistant(provider="p", model="m"))[0].model == ("p", "m")
    assert described({"type": "model_change", "provider": "p", "modelId": "m"})[0].model == ("p", "m")
    assert described(assistant(model="m"))[0].model is None
    assert described({"type": "model_change", "provider": "p", "modelId": 7})[0].model is None
    lone = "x\ud800"
    said = assistant({"type": lone}, call(lone), provider=lone, model=lone, stopReason=lone)
    answer = {**result(lone), "toolName": lone}
    for recorded in (said, answer, {"role": lone}, {"type": lone, "timestamp": lone}):
        assert "�" in msgspec.json.encode(described(recorded)[0]).decode()


def test_both_kinds_of_thinking_blocks_count_as_thinking():
    thoughts = [thinking("x"), {"type": "redacted_thinking", "data": "x"}]
    said = [*map(assistant, thoughts), assistant(text("thinking")), user("x")]
    assert [described(one)[0].bears_thinking for one in said] == [True, True, False, False]


def test_control_entries_are_kept_but_no_large_content():
    recorded = {"type": "label", "targetId": "e1", "label": "x", "extra": [1]}
    assert described(recorded)[0].control == LabelControl("e1", "x")
    assert described(user("x" * 1000))[0].control is None
    assert described({"type": "custom", "data": "x" * 1000})[0].control is None


FIELDS = ["type", "role", "content", "message", "text", "id", "name", "arguments", "usage"]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()), max_size=4)
    | st.sampled_from(["message", "assistant", "user", "bashExecution", "toolResult", "toolCall", "thinking"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=25,
)


@given(st.dictionaries(st.sampled_from(["type", "message", "content", "summary", "timestamp"]), json_values))
def test_any_line_has_a_digest_with_consistent_sums(data):
    before = repr(data)
    entry, texts = described({"role-less": True, **data})
    assert repr(data) == before, "what is described stays as it is"
    assert entry.tokens >= 0
    entry.type.encode()
    entry.timestamp.encode()
    if entry.blocks is not None:
        assert [block.index for block in entry.blocks] == list(range(len(texts.blocks)))
        assert entry.tokens == tokens_of(sum(block.units for block in entry.blocks))
        assert all(block.tokens >= 1 for block in entry.blocks)
        assert texts.joined(entry.blocks) == "\n".join(texts.blocks)


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


def test_only_fields_that_decide_what_the_model_receives_count_and_any_values_can_be_rebuilt():
    assert rebuilt(user("x") | {"timestamp": 5, "toolName": None}) == {"role": "user", "content": "x"}
    assert rebuilt({"role": "hookMessage", "content": "x"})["role"] == "custom"
    assert rebuilt({"type": "custom_message"}) == {"role": "custom", "content": []}
    assert rebuilt({"role": "custom", "content": None}) == {"role": "custom"}
    message = Message(branch_of(chain(user("x")))[0], "user", None, 1)
    assert message_json(message, {"type": "message", "message": 7}) == {"role": "user", "content": []}
    assert message_json(message, {}, {"replacement": None}) == {"role": "user"}


def test_only_the_blocks_that_remain_are_sent_and_an_edit_without_content_leaves_none():
    recorded = assistant(text("one"), call("c1"), text("two"))
    blocks = branch_of(chain(recorded))[0].blocks or ()
    assert rebuilt(recorded, blocks=(blocks[0], blocks[2]))["content"] == [text("one"), text("two")]
    assert rebuilt(user("x"), context_edit("e1", {}), blocks=None) == {"role": "user"}
    assert rebuilt(user("x"), context_edit("e1", "text"), blocks=None) == {"role": "user"}


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


def test_the_instructions_of_a_compaction_are_a_message_of_their_own_also_without_content():
    recorded = {**summary_compaction("S", None), "systemMessage": {"role": "system", "content": "be kind"}}
    assert rebuilt(recorded, role="system") == {"role": "system", "content": "be kind"}
    assert rebuilt(recorded) == {"role": "compactionSummary", "summary": "S"}
    line = chain(summary_compaction("S", None) | {"systemMessage": {"role": "system", "content": None}})[1]
    (entry,) = branch_of([chain()[0], line])
    assert message_json(Message(entry, "system", None, 0), line) == {"role": "system"}


def charge(usage: object, model: str = "m") -> bytes:
    return json.dumps({"type": "message", "message": {"role": "assistant", "model": model, "usage": usage}}).encode()


def charged(tokens: Any, cost: Any) -> dict[str, Any]:
    return {"input": tokens, "cacheRead": tokens, "cost": {"input": cost, "cacheRead": cost}}


def test_each_price_is_the_latest_that_was_charged_by_this_model():
    lines = [
        charge({"input": 5, "cacheRead": 0, "cacheWrite": 2_887, "cost": {"input": 1.5e-05, "cacheWrite": 0.01082625}}),
        charge({"input": 5, "cacheRead": 16_728, "cost": {"input": 1, "cacheRead": 0.0050184}}),
    ]
    assert recorded_prices(lines, "m") == (3, 0.3, 3.75)
    assert recorded_prices([charge(charged(10, 1), "other")], "m") is None


@pytest.mark.parametrize(
    ("tokens", "cost"),
    [(10, 0), (10, -1), (10, True), (10, "1"), (True, 1), (0, 1), (10, 11), (10, 10**400), (None, 1), (10, None)],
)
def test_what_is_no_charge_gives_no_price(tokens, cost):
    assert recorded_prices([charge(charged(tokens, cost))], "m") is None


@pytest.mark.parametrize("hostile", [b"", b"{", b"[]", b"7", b'{"message": 7}', charge(7), charge({"cost": 7})])
def test_any_line_is_read(hostile):
    assert recorded_prices([hostile], "m") is None

"""The digest: the agent's token estimates, and an entry for any line."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.agents.pi.records import describe
from sessions_app.sessionlog.controls import LabelControl
from sessions_app.sessionlog.entries import Entry, Texts, tokens_of
from tests.factories import assistant, bash, call, message, result, text, thinking, user

IMAGE = {"type": "image", "data": "A" * 100_000, "mimeType": "image/png"}


def described(recorded: dict[str, Any]) -> tuple[Entry, Texts]:
    """The digest of an entry, or of a message if it has a role."""
    data = message("e1", None, recorded) if "role" in recorded else recorded
    return describe(data, number=2, offset=0, length=1, entry_id="e1", parent_id=None)


def tokens(recorded: dict[str, Any]) -> int:
    return described(recorded)[0].tokens


# ---- estimates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("units", "estimate"), [(0, 0), (1, 1), (4, 1), (5, 2), (4800, 1200), (10**9, 25 * 10**7)])
def test_four_utf16_units_are_a_token_and_the_rest_is_rounded_up(units, estimate):
    assert tokens_of(units) == estimate


@pytest.mark.parametrize("role", ["user", "custom", "toolResult"])
def test_user_and_tool_messages_count_texts_and_images(role):
    def of(content: object) -> int:
        return tokens({"role": role, "content": content})

    assert of("12345") == 2
    assert of([text("1234"), text("5")]) == 2, "texts are added up before they are rounded"
    assert of([IMAGE]) == 1200
    assert of([text("12345"), IMAGE, IMAGE]) == 2402
    assert of([thinking("x" * 400), call("c1", "n", a="x" * 400), {"type": "odd", "text": "x" * 400}]) == 0
    assert of([]) == of(None) == of(7) == of({}) == 0


def test_a_system_message_counts_its_content_its_sections_and_its_tools_as_json():
    """As pi counts it; fields of other types count nothing."""

    def of(content: object, **more: object) -> int:
        return tokens({"role": "system", "content": content, **more})

    assert of("12345") == 2
    assert of([text("1234"), IMAGE]) == 1201
    assert of("", sections={"tone": "1234", "none": None, "rules": "5678"}) == 2
    # [{"name":"bash"}] has 17 units.
    assert of("", toolsAdded=[{"name": "bash"}]) == 5
    assert of("1234", sections={"tone": "1234"}, toolsAdded=[{"name": "bash"}]) == 7
    assert of("", toolsAdded=[]) == 1
    assert of(None, sections="12345", toolsAdded=True) == of({}, sections=[7], toolsAdded=None) == 0


def test_the_text_of_a_system_message_is_its_content_or_else_its_sections():
    sections = {"tone": "Be brief.", "rules": "Be kind."}
    assert described({"role": "system", "content": "so", "sections": sections})[1].whole == "so"
    assert described({"role": "system", "content": "", "sections": sections})[1].whole == "Be brief.\n\nBe kind."
    assert described({"role": "system", "content": [text("so")], "sections": sections})[1].blocks == ("so",)


@pytest.mark.parametrize(
    ("recorded", "by_pi"),
    [
        ({"role": "system", "content": "so"}, True),
        ({"type": "usage", "kind": "summary"}, True),
        ({"type": "context_edit", "targetId": "e1", "replacement": None}, True),
        ({**assistant(text("so")), "thinkingLevel": "off"}, True),
        ({**assistant(text("so")), "thinkingLevel": None}, False),
        ({**user("so"), "thinkingLevel": "high"}, False),
        ({"type": "thinking_level_change", "thinkingLevel": "high"}, False),
        ({"type": "compaction", "summary": "s"}, False),
        ({"type": "context_compaction", "deletedTargets": []}, False),
    ],
)
def test_entries_that_only_pi_writes_are_marked(recorded, by_pi):
    assert described(recorded)[0].sole_agent == ("pi" if by_pi else "")


def test_an_assistant_counts_text_thinking_and_calls_but_no_images():
    assert tokens(assistant(text("12345678"))) == 2
    assert tokens(assistant(thinking("12345678"))) == 2
    # read{"path":"a"} has 4 + 12 units; the id of the call counts nothing.
    assert tokens(assistant(call("c" * 1000, "read", path="a"))) == 4
    assert tokens(assistant(text("123"), thinking("123"), call("c", "read", path="a"))) == 6
    assert tokens(assistant(IMAGE, {"type": "redacted_thinking", "data": "x" * 400})) == 0
    assert tokens({"role": "assistant", "content": "12345"}) == 2


def test_arguments_count_as_javascript_prints_them():
    spaced = {"type": "toolCall", "id": "c", "name": "", "arguments": {"b": 1e21, "1": [1.0, "\ud800"]}}
    printed = r'{"1":[1,"\ud800"],"b":1e+21}'
    entry, texts = described(assistant(spaced))
    assert entry.tokens == tokens_of(len(printed))
    assert texts.block(0) == f"toolCall c  {printed}"


def test_an_emoji_counts_two_units():
    assert tokens(user("😀" * 4)) == 2
    assert tokens(user("é" * 4)) == tokens(user("漢" * 4)) == 1
    assert tokens(assistant(text("😀" * 4))) == 2
    assert tokens(bash("😀😀", "😀😀")) == 2
    assert tokens(user("\ud83d" * 5)) == 2, "a lone surrogate is one unit"


def test_a_command_counts_with_its_output_but_without_the_added_words():
    entry, texts = described(bash("1234", "5"))
    assert entry.tokens == 2
    assert texts.whole == "Ran 1234\n5"


def test_a_branch_summary_counts_its_summary():
    entry, texts = described({"type": "branch_summary", "summary": "12345"})
    assert (entry.role, entry.tokens, entry.empty, texts.whole) == ("branchSummary", 2, False, "12345")
    for nothing in ({}, {"summary": ""}, {"summary": None}, {"summary": ["x"]}):
        entry, _ = described({"type": "branch_summary", **nothing})
        assert (entry.is_message, entry.empty, entry.tokens) == (True, True, 0)


def test_a_custom_message_counts_like_a_message_and_has_the_custom_role():
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


# ---- other fields -------------------------------------------------------------------------------------------


def test_calls_and_results_are_known_by_their_ids():
    entry, _ = described(assistant(text("x"), call("c1"), call("c2"), call("c1")))
    assert list(entry.call_ids()) == ["c1", "c2", "c1"]
    entry, _ = described(result("c1", "x", name="grep"))
    assert (entry.result_for, entry.tool_name) == ("c1", "grep")
    entry, _ = described({**result("c1"), "toolCallId": 7, "toolName": None})
    assert (entry.result_for, entry.tool_name) == (None, "")
    entry, _ = described(assistant({"type": "toolCall", "id": 7, "name": "n", "arguments": {}}))
    assert list(entry.call_ids()) == []


def test_a_call_and_its_result_match_even_if_the_id_is_not_well_formed():
    entry, _ = described(assistant(call("c\ud800")))
    answer, _ = described(result("c\ud800"))
    assert list(entry.call_ids()) == [answer.result_for]


@pytest.mark.parametrize(
    ("recorded", "failed"),
    [
        (assistant(text("x"), stopReason="error"), True),
        (assistant(text("x"), stopReason="aborted"), False),
        (result("c", error=True), True),
        ({**result("c"), "isError": "yes"}, False),
        (bash("x", "", 1), True),
        (bash("x", "", -15), True),
        (bash("x", "", 0), False),
        ({**bash("x", ""), "exitCode": 0.0}, False),
        ({**bash("x", ""), "exitCode": None}, False),
        ({**bash("x", ""), "exitCode": "1"}, False),
        (user("error"), False),
    ],
    ids=str,
)
def test_only_failures_are_marked_as_failed(recorded, failed):
    assert described(recorded)[0].failed is failed


def test_exclusion_is_read_from_the_agents_field():
    assert described(bash("x", "", excludeFromContext=True))[0].excluded
    assert described({"role": "custom", "content": "x", "excludeFromContext": True})[0].excluded
    assert described({"type": "custom_message", "content": "x", "excludeFromContext": True})[0].excluded
    for other in (user("x"), assistant(text("x")), result("c")):
        assert not described({**other, "excludeFromContext": True})[0].excluded
    for untrue in (1, "true", None):
        assert not described(bash("x", "", excludeFromContext=untrue))[0].excluded


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        ({"totalTokens": 1000, "input": 1}, 1000),
        ({"input": 1, "output": 20, "cacheRead": 300, "cacheWrite": 4000}, 4321),
        ({"totalTokens": 0, "input": 5}, 5),
        ({"totalTokens": "many", "input": 5, "output": None}, 5),
        ({"totalTokens": True, "input": 5}, 5),
        ({"totalTokens": 1e400, "input": 5}, 5),
        ({"totalTokens": 1234.0}, 1234),
        ({}, 0),
        (None, None),
        ("many", None),
        ([1], None),
    ],
)
def test_the_context_a_provider_reports_is_its_total_or_the_sum_of_its_parts(usage, total):
    assert described(assistant(text("x"), usage=usage))[0].usage == total
    assert described({**user("x"), "usage": usage})[0].usage is None


def test_a_model_needs_both_its_names():
    assert described(assistant(provider="p", model="m"))[0].model == ("p", "m")
    assert described({"type": "model_change", "provider": "p", "modelId": "m"})[0].model == ("p", "m")
    assert described(assistant(model="m"))[0].model is None
    assert described({"type": "model_change", "provider": "p", "modelId": 7})[0].model is None


def test_every_name_can_be_stored():
    lone = "x\ud800"
    said = assistant({"type": lone}, call(lone), provider=lone, model=lone, stopReason=lone)
    answer = {**result(lone), "toolName": lone}
    for recorded in (said, answer, {"role": lone}, {"type": lone, "timestamp": lone}):
        assert "�" in msgspec.json.encode(described(recorded)[0]).decode()


def test_both_kinds_of_thinking_blocks_count_as_thinking():
    assert described(assistant(thinking("x")))[0].bears_thinking
    assert described(assistant({"type": "redacted_thinking", "data": "x"}))[0].bears_thinking
    assert not described(assistant(text("thinking")))[0].bears_thinking
    assert not described(user("x"))[0].bears_thinking


def test_control_entries_are_kept_but_no_large_content():
    recorded = {"type": "label", "targetId": "e1", "label": "x", "extra": [1]}
    assert described(recorded)[0].control == LabelControl("e1", "x")
    assert described(user("x" * 1000))[0].control is None
    assert described({"type": "custom", "data": "x" * 1000})[0].control is None


# ---- hostile input ------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()), max_size=4)
    | st.sampled_from(["message", "assistant", "user", "bashExecution", "toolResult", "toolCall", "thinking"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "message", "text", "id", "name", "arguments", "usage"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(st.dictionaries(st.sampled_from(["type", "message", "content", "summary", "timestamp"]), json_values))
def test_any_line_has_a_digest_with_consistent_sums(data):
    entry, texts = described({"role-less": True, **data})
    assert entry.tokens >= 0
    entry.type.encode()
    entry.timestamp.encode()
    if entry.blocks is not None:
        assert [block.index for block in entry.blocks] == list(range(len(texts.blocks)))
        assert entry.tokens == tokens_of(sum(block.units for block in entry.blocks))
        assert all(block.tokens >= 1 for block in entry.blocks)
        assert texts.joined(entry.blocks) == "\n".join(texts.blocks)


@given(st.dictionaries(st.sampled_from(["type", "message", "content", "summary"]), json_values))
def test_describing_does_not_change_its_argument(data):
    before = repr(data)
    described({"role-less": True, **data})
    assert repr(data) == before

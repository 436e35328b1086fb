"""The Anthropic dialect: what is sent, to the letter, and what is read, by its bytes."""

import json
from typing import Any

import pytest

from compaction_app.core.messages import (
    AssistantMessage,
    CallPart,
    CallResult,
    Message,
    TextPart,
    ThinkingPart,
    ToolResults,
    UserMessage,
)
from compaction_app.providers.anthropic import body_of, headers_for
from compaction_app.providers.error_mapping import Reported, Unreadable
from compaction_app.providers.types import CallBegun, Endpoint, ReportedUsage
from tests.compaction_app.providers.streams import (
    answered,
    block,
    call_block,
    calls,
    message,
    read,
    reader_of,
    shown,
    small_request,
    sse,
    text_block,
)

SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "sig=="}
REDACTED = {"type": "redacted_thinking", "data": "opaque=="}
CACHED = {"type": "ephemeral"}
EMPTY_THOUGHT = {"type": "thinking", "thinking": ""}
SIGNATURE = {"type": "signature_delta", "signature": "sig=="}


def thinking_delta(text: str) -> dict[str, Any]:
    return {"type": "thinking_delta", "thinking": text}


def sent(*messages: Message) -> list[dict[str, Any]]:
    return body_of(small_request(*messages))["messages"]


def test_a_request_follows_the_dialect_and_the_key_is_only_in_its_header():
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    said = {"type": "text", "text": "Look.", "cache_control": CACHED}
    assert body_of(small_request(UserMessage("Look."))) == {
        "model": "m-1",
        "max_tokens": 4_000,
        "stream": True,
        "system": [{"type": "text", "text": "Act.", "cache_control": CACHED}],
        "tools": [{"name": "look", "description": "Look at something.", "input_schema": schema}],
        "messages": [{"role": "user", "content": [said]}],
    }
    with_key = Endpoint("p", "anthropic", "https://h", "sk-1")
    assert headers_for(with_key) == {"anthropic-version": "2023-06-01", "x-api-key": "sk-1"}
    assert headers_for(Endpoint("p", "anthropic", "https://h")) == {"anthropic-version": "2023-06-01"}


def test_all_results_of_a_turn_and_a_nudge_are_one_user_message():
    asked = [CallPart("t1", "look", '{"at": 1}'), CallPart("t2", "look", "")]
    turns = sent(
        UserMessage("Plan."),
        AssistantMessage([TextPart("I look."), *asked]),
        ToolResults([CallResult("t1", "look", "found"), CallResult("t2", "look", "nothing", is_error=True)]),
        UserMessage("Go on."),
    )
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[1]["content"] == [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
        {"type": "tool_use", "id": "t2", "name": "look", "input": {}},
    ]
    assert turns[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "t1", "content": "found"},
        {"type": "tool_result", "tool_use_id": "t2", "content": "nothing", "is_error": True},
        {"type": "text", "text": "Go on.", "cache_control": CACHED},
    ]


def test_the_ends_of_the_last_two_user_messages_are_cached():
    """The end of the last request is found again in the cache after any number of blocks; four marks are allowed."""
    again = [AssistantMessage([CallPart(f"t{n}", "look", "{}")]) for n in range(3)]
    results = [ToolResults([CallResult(f"t{n}", "look", "x")]) for n in range(3)]
    turns = sent(UserMessage("a"), *(one for pair in zip(again, results, strict=True) for one in pair))
    marked = [part for turn in turns for part in turn["content"] if "cache_control" in part]
    assert marked == [turns[4]["content"][-1], turns[6]["content"][-1]]


def test_reasoning_goes_back_unchanged_in_its_place():
    thoughts = [ThinkingPart("Hm.", SIGNED), ThinkingPart("", REDACTED)]
    answer = AssistantMessage([*thoughts, TextPart("Now."), CallPart("t1", "look", "{}")])
    assert sent(UserMessage("a"), answer)[1]["content"][:2] == [SIGNED, REDACTED]


def test_an_empty_response_is_left_out_and_empty_text_never_sent():
    blank, thought = TextPart(" \n"), ThinkingPart("Hm.", SIGNED)
    for parts in ([], [TextPart("")], [blank], [thought], [thought, blank]):
        turns = sent(UserMessage("a"), AssistantMessage(parts), UserMessage("b"))
        assert [part["text"] for part in turns[0]["content"]] == ["a", "b"]
        assert len(turns) == 1
    body = body_of(small_request(UserMessage(" "), UserMessage("a"), system=" ", tools=[]))
    assert "system" not in body
    assert "tools" not in body
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": CACHED}]}]
    results = sent(
        UserMessage("a"), AssistantMessage([CallPart("t", "look", "")]), ToolResults([CallResult("t", "look", "")])
    )[2]["content"]
    assert "content" not in results[0]


def test_arguments_that_are_no_object_go_back_as_text_and_an_invented_tool_under_a_valid_name():
    values = ("[1]", "3", '"x"', "null", '{"a": NaN}', '{"a": 1e999}')
    for arguments in (*values, '{"a": [1, ', "[" * 100_000, "{}{}", "\ud800"):
        turn = sent(UserMessage("a"), AssistantMessage([CallPart("t", "look", arguments)]))[1]
        assert turn["content"][0]["input"] == {"unparsed": arguments}
        json.dumps(turn, allow_nan=False)
    parts = [CallPart("t", name, "{}") for name in ("a.b c", "", "ü" * 100, "look")]
    names = [part["name"] for part in sent(UserMessage("a"), AssistantMessage(parts))[1]["content"]]
    assert names == ["a_b_c", "unnamed", "_" * 64, "look"]


@pytest.mark.parametrize(
    ("level", "limit", "thinking"),
    [
        ("", 64_000, None), ("minimal", 64_000, 1_024), ("low", 64_000, 2_048), ("medium", 64_000, 8_192),
        ("high", 64_000, 16_384), ("xhigh", 64_000, 32_768), ("xhigh", 32_768, 31_744),
        ("high", 4_096, 3_072), ("high", 2_048, 1_024), ("high", 2_047, None), ("minimal", 1_024, None),
    ],
)  # fmt: skip
def test_a_budget_for_thinking_leaves_room_for_an_answer(level, limit, thinking):
    body = body_of(small_request(thinking=level, output_limit=limit))
    expected = None if thinking is None else {"type": "enabled", "budget_tokens": thinking}
    assert body.get("thinking") == expected
    assert "output_config" not in body


@pytest.mark.parametrize(
    ("level", "model", "effort"),
    [
        ("minimal", "claude-opus-4-7", "low"),
        *((level, "claude-opus-4-7", level) for level in ("low", "medium", "high", "xhigh")),
        ("xhigh", "claude-sonnet-5", "xhigh"),
        ("xhigh", "claude-opus-4-6", "max"),
        ("xhigh", "anthropic/claude-sonnet-4.6", "max"),
    ],
)
def test_adaptive_thinking_is_requested_by_effort_and_streamed(level, model, effort):
    body = body_of(small_request(model=model, thinking=level, thinking_style="adaptive"))
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": effort}
    assert "thinking" not in body_of(small_request(thinking="", thinking_style="adaptive"))


def test_parallel_calls_may_be_interleaved_and_are_reported_as_soon_as_their_names_are_known():
    one, two = call_block(1, "t1", "look", '{"a"', ": 1}"), call_block(2, "t2", "seek", '{"b": ', "2}")
    mixed = [one[0], two[0], two[1], one[1], {"type": "ping"}, one[2], two[2], two[3], one[3]]
    pieces = read("anthropic", message(text_block(0, "Both."), mixed))
    assert answered(pieces).answer == AssistantMessage(
        [TextPart("Both."), CallPart("t1", "look", '{"a": 1}'), CallPart("t2", "seek", '{"b": 2}')]
    )
    assert shown(pieces)["calls"] == {0: ["look", '{"a": 1}'], 1: ["seek", '{"b": 2}']}
    assert answered(pieces).characters == len("Both.") + 4 + 8 + 4 + 8
    reader = reader_of("anthropic")
    start = call_block(0, "t1", "look")[0]
    assert reader.feed("content_block_start", json.dumps(start)) == [CallBegun(0, "look")]


def test_thinking_is_kept_with_its_signature_shown_or_not_and_redacted_thinking_whole():
    deltas = [*(thinking_delta(one) for one in ("H", "m.")), SIGNATURE]
    thinking = block(0, {**EMPTY_THOUGHT, "signature": ""}, *deltas)
    pieces = read("anthropic", message(thinking, block(1, REDACTED), call_block(2, "t1", "look", "{}")))
    thoughts = [ThinkingPart("Hm.", SIGNED), ThinkingPart("", REDACTED)]
    assert answered(pieces).answer.parts == [*thoughts, CallPart("t1", "look", "{}")]
    assert shown(pieces)["thought"] == "Hm."
    hidden = ThinkingPart("", {"type": "thinking", "thinking": "", "signature": "sig=="})
    for deltas, parts in (([SIGNATURE], [hidden, TextPart("a")]), ([], [TextPart("a")])):
        omitted = block(0, {**EMPTY_THOUGHT, "signature": ""}, *deltas)
        assert answered(read("anthropic", message(omitted, text_block(1, "a")))).answer.parts == parts


@pytest.mark.parametrize(("stop", "kept"), [("max_tokens", ["Hm."]), ("end_turn", ["Hm.", "cut o"])])
def test_a_thought_that_the_output_limit_cut_does_not_go_back_among_signed_ones(stop, kept):
    signed = block(0, EMPTY_THOUGHT, thinking_delta("Hm."), SIGNATURE)
    cut = block(2, EMPTY_THOUGHT, thinking_delta("cut o"))
    pieces = read("anthropic", message(signed, call_block(1, "t1", "look", "{}"), cut, stop=stop))
    again = sent(UserMessage("a"), answered(pieces).answer)[1]["content"]
    assert [part["thinking"] for part in again if part["type"] == "thinking"] == kept


@pytest.mark.parametrize("given", [{"at": [1, "ü"]}, '{"at": [1, "ü"]}'])
def test_complete_input_is_reported_once(given):
    whole = block(0, {"type": "tool_use", "id": "t1", "name": "look", "input": given})
    pieces = read("anthropic", message(whole))
    assert json.loads(calls(pieces)[0].arguments) == {"at": [1, "ü"]}
    assert shown(pieces)["calls"] == {0: ["look", calls(pieces)[0].arguments]}


def test_fragments_win_over_an_input_given_at_the_start_and_no_input_is_empty():
    delta = {"type": "input_json_delta", "partial_json": '{"at": 2}'}
    both = block(0, {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 2}}, delta)
    assert calls(read("anthropic", message(both))) == [CallPart("t1", "look", '{"at": 2}')]
    assert calls(read("anthropic", message(call_block(0, "t1", "look", "")))) == [CallPart("t1", "look", "")]


@pytest.mark.parametrize(
    ("reason", "has_calls", "stop"),
    [
        ("end_turn", False, "end"), ("end_turn", True, "calls"), ("tool_use", True, "calls"),
        ("stop_sequence", False, "end"), ("max_tokens", True, "length"), ("refusal", False, "refusal"),
        ("pause_turn", False, "pause_turn"), ("x" * 1_000, False, "x" * 50),
    ],
)  # fmt: skip
def test_why_it_stopped(reason, has_calls, stop):
    blocks = [text_block(0, "a"), *([call_block(1, "t", "look", "{}")] if has_calls else [])]
    assert answered(read("anthropic", message(*blocks, stop=reason))).stop == stop


def test_tokens_are_cumulative_known_at_either_end_and_used_if_believable():
    first = {"input_tokens": 7, "cache_read_input_tokens": 90, "output_tokens": 1}
    last = {"input_tokens": 0, "output_tokens": 12, "cache_creation_input_tokens": 30}
    start = {"type": "message_start", "message": {"usage": first}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last}
    answer = answered(read("anthropic", sse(start, *text_block(0, "a"), end, {"type": "message_stop"})))
    assert answer.usage == ReportedUsage(input=7, output=12, cache_read=90, cache_write=30)
    for usage in ({}, {"output_tokens": -1}, *[{"input_tokens": count} for count in (0, "9", True, 2**70)]):
        assert answered(read("anthropic", message(text_block(0, "a"), usage=usage))).usage is None, usage


def test_unknown_events_are_ignored():
    fragment, told = {"type": "input_json_delta", "partial_json": "{}"}, {"type": "text_delta", "text": "a"}
    new = block(0, {"type": "server_tool_use", "id": "s", "input": {}}, fragment)
    odd = block(1, {"type": "text", "text": ""}, {"type": "citations_delta", "citation": {}}, told)
    events = [{"type": "session_started"}, {"type": "ping"}, *new, *odd]
    assert answered(read("anthropic", message(events))).answer == AssistantMessage([TextPart("a")])


def test_a_response_with_a_stop_reason_is_complete_unless_an_error_is_inside():
    events = [*text_block(0, "a"), {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}]
    assert answered(read("anthropic", sse(*events))).stop == "end"
    with pytest.raises(Unreadable, match="ended too early"):
        read("anthropic", sse(*text_block(0, "a")))
    with pytest.raises(Unreadable, match="ended too early"):
        read("anthropic", b"")
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(Reported) as caught:
        read("anthropic", sse(*text_block(0, "a"), error, named=True))
    assert (caught.value.fault.status, caught.value.fault.words) == (529, "Overloaded")


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (b"data: {\n\n", "not a JSON object"),
        (b"data: [1]\n\n", "not a JSON object"),
        (b"data: " + b'{"a":' * 100_000 + b"\n\n", "not a JSON object"),
        (sse({"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": "a"}}),
            "no block"),
        (sse({"type": "content_block_start", "index": "0", "content_block": {"type": "text"}}), "index"),
        (b'data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":' + b'{"a":' *
            60 + b"1" + b"}" * 60 + b"}}\n\n", "nested"),
    ],
)  # fmt: skip
def test_a_stream_of_another_dialect_is_reported(events, why):
    with pytest.raises(Unreadable, match=why):
        read("anthropic", events)


def test_no_form_of_a_value_crashes_the_reader():
    """Any other value in place of an object is ignored, or reported as unreadable."""
    for junk in (None, 3, "x", [], {}, {"type": 3}, [{"type": "text"}], True):
        starts = [
            junk,
            {"type": "text", "text": junk},
            {"type": "tool_use", "id": junk, "name": junk},
            {"type": "thinking", "thinking": junk},
        ]
        deltas = [
            (1, junk),
            (2, {"type": "input_json_delta", "partial_json": junk}),
            (3, {"type": "signature_delta", "signature": junk}),
        ]
        events = [
            {"type": "message_start", "message": junk},
            *({"type": "content_block_start", "index": at, "content_block": one} for at, one in enumerate(starts)),
            *({"type": "content_block_delta", "index": at, "delta": one} for at, one in deltas),
            {"type": "message_delta", "delta": junk, "usage": junk},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": junk}},
            {"type": "message_stop"},
        ]
        pieces = read("anthropic", sse(*events))
        body_of(small_request(UserMessage("a"), answered(pieces).answer))


def test_ids_that_are_missing_or_used_before_are_made_unique():
    before = AssistantMessage([CallPart("t1", "look", "{}"), CallPart("call_3", "look", "{}")])
    blocks = [call_block(place, one, "look", "{}") for place, one in enumerate(["t1", "", "t2", "t2"])]
    pieces = read("anthropic", message(*blocks), conversation=[UserMessage("a"), before])
    assert [call.call_id for call in calls(pieces)] == ["call_4", "call_5", "t2", "call_6"]

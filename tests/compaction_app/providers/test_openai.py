"""The OpenAI dialect: what is sent, to the letter, and what is read, by its bytes, as its many servers send it."""

import json
from collections.abc import Sequence
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
from compaction_app.providers.error_mapping import Reported, Unreadable
from compaction_app.providers.openai import body_of, headers_for
from compaction_app.providers.types import Endpoint, Piece, ReportedUsage
from tests.compaction_app.providers.streams import (
    USED,
    answered,
    calls,
    chunk,
    fragment,
    read,
    reader_of,
    shown,
    small_request,
    sse,
)

DONE = "[DONE]"


def sent(*messages: Message) -> list[dict[str, Any]]:
    return body_of(small_request(*messages))["messages"]


def read_chunks(*deltas: dict[str, Any], finish: str = "stop", conversation: Sequence[Message] = ()) -> list[Piece]:
    """The pieces of an answer in these deltas."""
    return read("openai", sse(*map(chunk, deltas), chunk(finish=finish)), conversation=conversation)


def test_a_request_follows_the_dialect_and_the_key_is_only_in_its_header():
    parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    look = {"name": "look", "description": "Look at something.", "parameters": parameters}
    assert body_of(small_request(UserMessage("Look."))) == {
        "model": "m-1",
        "max_tokens": 4_000,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": look}],
        "messages": [{"role": "system", "content": "Act."}, {"role": "user", "content": "Look."}],
    }
    assert headers_for(Endpoint("p", "openai", "https://h/v1", "sk-1")) == {"authorization": "Bearer sk-1"}
    assert headers_for(Endpoint("p", "openai", "https://h/v1")) == {}


def test_openai_gets_the_limit_under_its_own_name_and_a_level_as_an_effort():
    body = body_of(small_request(), "api.openai.com")
    assert body["max_completion_tokens"] == 4_000
    assert "max_tokens" not in body
    assert "max_completion_tokens" not in body_of(small_request(), "api.openai.com.evil.example")
    assert body_of(small_request(thinking="xhigh"))["reasoning_effort"] == "xhigh"
    assert "reasoning_effort" not in body_of(small_request())


def test_each_result_answers_its_call_and_a_nudge_follows():
    asked = [CallPart("t1", "look", '{"at":  1}'), CallPart("t2", "look", "")]
    said = sent(
        UserMessage("Plan."),
        AssistantMessage([TextPart("I look."), *asked]),
        ToolResults([CallResult("t1", "look", "found"), CallResult("t2", "look", "wrong", is_error=True)]),
        UserMessage("Go on."),
        UserMessage("Now."),
    )
    called = [
        {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}
        for call_id, arguments in (("t1", '{"at":  1}'), ("t2", "{}"))
    ]
    assert said[2:] == [
        {"role": "assistant", "content": "I look.", "tool_calls": called},
        {"role": "tool", "tool_call_id": "t1", "content": "found"},
        {"role": "tool", "tool_call_id": "t2", "content": "wrong"},
        {"role": "user", "content": "Go on.\n\nNow."},
    ]


def test_reasoning_goes_back_under_the_names_it_came_by():
    details = [{"type": "reasoning.encrypted", "data": "x", "index": 0}]
    answer = AssistantMessage(
        [ThinkingPart("Hm.", {"reasoning": "Hm.", "reasoning_details": details}), CallPart("t", "look", "{}")]
    )
    said = sent(UserMessage("a"), answer)[2]
    assert (said["reasoning"], said["reasoning_details"], said["content"]) == ("Hm.", details, None)


@pytest.mark.parametrize("parts", [[], [TextPart(" ")], [ThinkingPart("Hm.", {"reasoning": "Hm."})]])
def test_an_empty_response_is_left_out(parts):
    said = sent(UserMessage("a"), AssistantMessage(parts), UserMessage("b"))
    assert [one["role"] for one in said] == ["system", "user"]


@pytest.mark.parametrize("arguments", ['{"a": [1, ', "[1]", "3", '{"a": NaN}', "[" * 100_000, "{}{}"])
def test_arguments_that_are_not_an_object_are_returned_as_text(arguments):
    """Servers parse the arguments of earlier calls, and fail on what is not JSON."""
    call = sent(UserMessage("a"), AssistantMessage([CallPart("t", "look", arguments)]))[2]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"unparsed": arguments}


def test_fragments_are_put_together_by_index():
    deltas = [
        {"role": "assistant", "content": None}, {"content": "Both."},
        fragment(0, "", call_id="t1", name="look"), fragment(0, '{"a"'),
        fragment(1, "", call_id="t2", name="seek"), fragment(1, '{"b": '), fragment(0, ": 1}"),
        fragment(1, "2}"),
    ]  # fmt: skip
    pieces = read("openai", sse(*map(chunk, deltas), chunk(finish="tool_calls"), USED, DONE))
    assert answered(pieces).answer == AssistantMessage(
        [TextPart("Both."), CallPart("t1", "look", '{"a": 1}'), CallPart("t2", "seek", '{"b": 2}')]
    )
    assert shown(pieces)["calls"] == {0: ["look", '{"a": 1}'], 1: ["seek", '{"b": 2}']}
    assert answered(pieces).usage == ReportedUsage(input=10, output=5)
    assert answered(pieces).characters == len("Both.") + 4 + 8 + 4 + 8


ONE, TWO = '{"a": 1}', '{"b": 2}'
WHOLE = {
    "no index, no id": [{"tool_calls": [fragment(None, one, name="look")["tool_calls"][0] for one in (ONE, TWO)]}],
    "in two chunks": [fragment(None, ONE, name="look"), fragment(None, TWO, name="look")],
    "always the first index": [fragment(0, ONE, call_id="x", name="look"), fragment(0, TWO, call_id="y", name="look")],
    "first index, no id": [fragment(0, ONE, name="look"), fragment(0, TWO, name="look")],
    "one id for all": [fragment(0, ONE, call_id="x", name="look"), fragment(1, TWO, call_id="x", name="look")],
    "no index, by id": [
        fragment(None, None, call_id="x", name="look"),
        fragment(None, '{"a": ', call_id="x"),
        fragment(None, "1}", call_id="x"),
        fragment(None, None, call_id="y", name="look"),
        fragment(None, TWO),
    ],
    "name and id in every fragment": [
        fragment(index, part, call_id=call_id, name="look")
        for index, call_id, parts in ((0, "x", ('{"a"', ": 1}")), (1, "y", ('{"b"', ": 2}")))
        for part in parts
    ],
    "name after the arguments": [
        fragment(0, ONE, call_id="x"),
        fragment(0, name="look"),
        fragment(1, TWO, name="look"),
    ],
}


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
@pytest.mark.parametrize("deltas", WHOLE.values(), ids=WHOLE)
def test_calls_are_distinguished_however_a_server_numbers_them(deltas, finish):
    pieces = read_chunks(*deltas, finish=finish)
    found = calls(pieces)
    assert [(call.name, json.loads(call.arguments)) for call in found] == [("look", {"a": 1}), ("look", {"b": 2})]
    assert len({call.call_id for call in found}) == 2
    assert all(call.call_id for call in found)
    assert [seen[1] for seen in shown(pieces)["calls"].values()] == [call.arguments for call in found]
    assert answered(pieces).stop == "calls"


def test_calls_at_one_index_are_told_apart_by_ids_made_up_ids_are_new_and_a_call_needs_no_name():
    assert len(calls(read_chunks(*(fragment(0, "", call_id=one, name="look") for one in ("x", "y"))))) == 2
    before = AssistantMessage([CallPart("call_1", "look", "{}"), CallPart("call_2", "look", "{}")])
    pieces = read_chunks(fragment(None, "{}", name="look"), conversation=[UserMessage("a"), before])
    assert calls(pieces)[0].call_id == "call_3"
    pieces = read_chunks(fragment(0, "{}", call_id="t"))
    assert calls(pieces) == [CallPart("t", "", "{}")]
    assert shown(pieces)["calls"] == {0: ["", "{}"]}


def test_arguments_may_come_as_an_object_or_as_halves_of_a_character_around_the_name():
    delta = {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "look", "arguments": {"at": "ü"}}}]}
    assert calls(read_chunks(delta))[0].arguments == '{"at": "ü"}'
    deltas = [fragment(0, '{"a\ud83d', call_id="t"), fragment(0, name="look"), fragment(0, '\ude00": 1}')]
    pieces = read_chunks(*deltas)
    assert calls(pieces) == [CallPart("t", "look", '{"a\U0001f600": 1}')]
    assert shown(pieces)["calls"] == {0: ["look", '{"a\U0001f600": 1}']}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_is_shown_and_kept_under_its_name(name):
    pieces = read_chunks({name: "H"}, {name: "m."}, {"content": "a"})
    assert answered(pieces).answer.parts == [ThinkingPart("Hm.", {name: "Hm."}), TextPart("a")]
    assert shown(pieces)["thought"] == "Hm."


def test_reasoning_under_two_names_goes_back_under_both_and_encrypted_reasoning_alone_is_kept():
    both = {"reasoning_content": "Hm.", "reasoning": "Hm."}
    assert answered(read_chunks(both, {"content": "a"})).answer.parts[0] == ThinkingPart("Hm.", both)
    details = {"reasoning_details": [{"type": "reasoning.encrypted", "data": "e"}]}
    assert answered(read_chunks(details, {"content": "a"})).answer.parts == [ThinkingPart("", details), TextPart("a")]


def test_reasoning_details_are_put_together_in_their_order():
    def detail(kind: str, **values: Any) -> dict[str, Any]:
        return {"format": "f", "type": f"reasoning.{kind}", **values}

    came = [
        detail("text", text="H", index=0, id=None), detail("text", text="m.", index=0, id="r1"),
        detail("text", signature="sig==", index=0), detail("text", text="Next.", index=0),
        detail("encrypted", data="e1", index=1), detail("encrypted", data="e2", index=1),
        detail("summary", summary="S", index=2), detail("summary", summary="um.", index=2),
    ]  # fmt: skip
    deltas = [{"reasoning_details": [one]} for one in came]
    thought = answered(read_chunks(*deltas, fragment(0, "{}", call_id="t", name="look"))).answer.parts[0]
    assert thought.text == "Hm.Next.Sum."
    assert thought.block == {
        "reasoning_details": [
            detail("text", text="Hm.", index=0, id="r1", signature="sig=="),
            detail("text", text="Next.", index=0),
            detail("encrypted", data="e1", index=1),
            detail("encrypted", data="e2", index=1),
            detail("summary", summary="Sum.", index=2),
        ]
    }


def test_thinking_blocks_are_put_together_and_kept_with_their_signature():
    came = [
        {"type": "thinking", "thinking": "H", "signature": None},
        {"type": "thinking", "thinking": "m.", "signature": ""},
        {"type": "thinking", "thinking": "", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "sealed"},
    ]
    deltas = [{"thinking_blocks": [one]} for one in came]
    thought = answered(read_chunks(*deltas, fragment(0, "{}", call_id="t", name="look"))).answer.parts[0]
    assert thought.text == "Hm."
    assert thought.block == {
        "thinking_blocks": [
            {"type": "thinking", "signature": "sig==", "thinking": "Hm."},
            {"type": "redacted_thinking", "data": "sealed"},
        ]
    }


COUNTED = {"prompt_tokens": 10, "completion_tokens": 5}


@pytest.mark.parametrize(
    ("usage", "read_as"),
    [
        (COUNTED, ReportedUsage(10, 5)),
        ({**COUNTED, "prompt_tokens_details": {"cached_tokens": 8}}, ReportedUsage(2, 5, 8)),
        ({**COUNTED, "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4}, "cost": 0.0125},
            ReportedUsage(3, 5, 3, 4, 0.0125)),
        ({**COUNTED, "prompt_cache_hit_tokens": 4}, ReportedUsage(6, 5, 4)),
        ({**COUNTED, "prompt_tokens_details": {"cached_tokens": 19}}, ReportedUsage(0, 5, 19)),
        ({**COUNTED, "cost": float("nan")}, ReportedUsage(10, 5)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        (None, None),
        ({"prompt_tokens": "10"}, None),
    ],
)  # fmt: skip
def test_tokens_are_counted_without_what_was_cached(usage, read_as):
    events = sse(chunk({"content": "a"}), chunk(finish="stop"), {"choices": [], "usage": usage}, DONE)
    assert answered(read("openai", events)).usage == read_as


def test_usage_may_be_in_any_chunk():
    in_last = sse(chunk({"content": "a"}), chunk(finish="stop", usage=COUNTED))
    choice = chunk(finish="stop")
    choice["choices"][0]["usage"] = COUNTED
    for events in (in_last, sse(choice)):
        assert answered(read("openai", events)).usage == ReportedUsage(10, 5)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", "end"), ("eos", "end"), ("length", "length"), ("content_filter", "refusal"), ("odd", "odd")],
)
def test_why_it_stopped(reason, stop):
    assert answered(read_chunks({"content": "a"}, finish=reason)).stop == stop


def test_the_end_may_come_without_a_word_and_a_refusal_is_text_marked_as_such():
    assert answered(read_chunks({"content": "a"})).answer == AssistantMessage([TextPart("a")])
    for events in (sse(chunk({"content": "a"})), sse(chunk({"content": "a"}), DONE)):
        with pytest.raises(Unreadable, match="ended too early"):
            read("openai", events)
    answer = answered(read_chunks({"refusal": "I will not."}))
    assert (answer.answer.parts, answer.stop) == ([TextPart("I will not.")], "refusal")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        ({"error": {"message": "down", "type": "server_error", "code": None}}, 500, "down"),
        ({"error": {"message": "slow", "type": "requests", "code": "rate_limit_exceeded"}}, 429, "slow"),
        (
            {"error": {"code": 502, "message": "Provider returned error", "metadata": {"raw": "odd"}}},
            502,
            "Provider returned error odd",
        ),
        ({"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}, 400, "bad"),
        ({"error": "just words"}, 0, "just words"),
    ],
)
def test_an_error_in_a_chunk_is_reported(error, status, words):
    with pytest.raises(Reported) as caught:
        read("openai", sse(chunk({"content": "a"}), error, DONE))
    assert (caught.value.fault.status, caught.value.fault.words) == (status, words)


def test_an_event_named_error_is_an_error_and_a_chunk_whose_error_is_null_is_none():
    for data in ('{"error": {"message": "n_ctx"}}', '{"message": "n_ctx"}', "n_ctx"):
        with pytest.raises(Reported) as caught:
            read("openai", f"event: error\ndata: {data}\n\n".encode())
        assert "n_ctx" in caught.value.fault.words
    events = sse(chunk({"content": "a"}, error=None), chunk(finish="stop"))
    assert answered(read("openai", events)).answer.parts == [TextPart("a")]


def test_a_whole_answer_is_read_as_well():
    reader = reader_of("openai")
    said = {"role": "assistant", "content": "a", "reasoning_content": "Hm."}
    tools = [{"id": "t", "type": "function", "function": {"name": "look", "arguments": "{}"}}] * 2
    choice = {"index": 0, "message": {**said, "tool_calls": tools}, "finish_reason": "tool_calls"}
    pieces = reader.feed_whole({**USED, "choices": [choice]})
    *rest, answer = reader.finish()
    assert shown([*pieces, *rest])["calls"] == {0: ["look", "{}"], 1: ["look", "{}"]}
    assert answer.answer.parts == [
        ThinkingPart("Hm.", {"reasoning_content": "Hm."}),
        TextPart("a"),
        CallPart("t", "look", "{}"),
        CallPart("call_1", "look", "{}"),
    ]
    assert answer.usage == ReportedUsage(10, 5)


def test_no_form_of_a_value_crashes_the_reader():
    for junk in (None, 3, "x", [], {}, [3], {"type": 3}, True, [{"index": {}, "function": 3}]):
        counted = {"prompt_tokens": junk, "completion_tokens": 1, "prompt_tokens_details": junk, "cost": junk}
        call = {"index": junk, "id": junk, "function": {"name": junk, "arguments": junk}}
        thought = {"type": "reasoning.text", "text": junk, "index": junk, "signature": junk}
        events: list[dict[str, Any]] = [
            {"choices": junk}, {"choices": [junk]},
            {"choices": [{"delta": junk, "finish_reason": junk if not isinstance(junk, str) else None}]},
            {"choices": [], "usage": junk}, {"choices": [], "usage": counted}, chunk({"tool_calls": junk}),
            chunk({"tool_calls": [call]}),
            chunk({"content": junk, "refusal": junk, "reasoning": junk, "reasoning_details": junk}),
            chunk({"reasoning_details": [thought]}), chunk(finish="stop"),
        ]  # fmt: skip
        pieces = read("openai", sse(*events, DONE))
        body_of(small_request(UserMessage("a"), answered(pieces).answer))


def test_a_stream_of_another_dialect_is_reported():
    deep = b'{"a":' * 60 + b"1" + b"}" * 60
    nested = b'data: {"choices":[{"index":0,"delta":{"reasoning_details":[' + deep + b"]}}]}\n\n"
    for events, why in (
        (b"data: {\n\n", "not a JSON object"),
        (b"data: 3\n\n", "not a JSON object"),
        (nested, "nested"),
    ):
        with pytest.raises(Unreadable, match=why):
            read("openai", events)

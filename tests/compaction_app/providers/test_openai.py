"""The OpenAI dialect: what is sent, to the letter, and what is read, by its bytes, as its many servers send it."""

from __future__ import annotations

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
from compaction_app.providers.error_mapping import Reported, Unreadable
from compaction_app.providers.openai import body_of, headers_for
from compaction_app.providers.types import Endpoint, ReportedUsage
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
    said: list[dict[str, Any]] = body_of(small_request(*messages))["messages"]
    return said


# ---- what is sent ---------------------------------------------------------------------------------------


def test_a_request_follows_the_dialect() -> None:
    assert body_of(small_request(UserMessage("Look."))) == {
        "model": "m-1",
        "max_tokens": 4_000,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": "Look at something.",
                    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
                },
            }
        ],
        "messages": [{"role": "system", "content": "Act."}, {"role": "user", "content": "Look."}],
    }


def test_openai_gets_the_limit_under_its_own_name() -> None:
    body = body_of(small_request(), "api.openai.com")
    assert body["max_completion_tokens"] == 4_000
    assert "max_tokens" not in body
    assert "max_completion_tokens" not in body_of(small_request(), "api.openai.com.evil.example")


def test_a_level_is_an_effort_and_none_is_left_out() -> None:
    assert body_of(small_request(thinking="xhigh"))["reasoning_effort"] == "xhigh"
    assert "reasoning_effort" not in body_of(small_request())


def test_the_key_is_only_in_its_header() -> None:
    assert headers_for(Endpoint("p", "openai", "https://h/v1", "sk-1")) == {"authorization": "Bearer sk-1"}
    assert headers_for(Endpoint("p", "openai", "https://h/v1")) == {}


def test_each_result_answers_its_call_and_a_nudge_follows() -> None:
    said = sent(
        UserMessage("Plan."),
        AssistantMessage(
            [TextPart("I look."), CallPart("t1", "look", '{"at":  1}'), CallPart("t2", "look", "")]
        ),
        ToolResults([CallResult("t1", "look", "found"), CallResult("t2", "look", "wrong", is_error=True)]),
        UserMessage("Go on."),
        UserMessage("Now."),
    )
    assert said[2:] == [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at":  1}'}},
                {"id": "t2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "found"},
        {"role": "tool", "tool_call_id": "t2", "content": "wrong"},
        {"role": "user", "content": "Go on.\n\nNow."},
    ]


def test_reasoning_goes_back_under_the_names_it_came_by() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x", "index": 0}]
    answer = AssistantMessage(
        [ThinkingPart("Hm.", {"reasoning": "Hm.", "reasoning_details": details}), CallPart("t", "look", "{}")]
    )
    said = sent(UserMessage("a"), answer)[2]
    assert (said["reasoning"], said["reasoning_details"], said["content"]) == ("Hm.", details, None)


@pytest.mark.parametrize("parts", [[], [TextPart(" ")], [ThinkingPart("Hm.", {"reasoning": "Hm."})]])
def test_an_empty_response_is_left_out(parts: list[TextPart | ThinkingPart]) -> None:
    assert [one["role"] for one in sent(UserMessage("a"), AssistantMessage(parts), UserMessage("b"))] == [
        "system",
        "user",
    ]


@pytest.mark.parametrize("arguments", ['{"a": [1, ', "[1]", "3", '{"a": NaN}', "[" * 100_000, "{}{}"])
def test_arguments_that_are_not_an_object_are_returned_as_text(arguments: str) -> None:
    """Servers parse the arguments of earlier calls, and fail on what is not JSON."""
    call = sent(UserMessage("a"), AssistantMessage([CallPart("t", "look", arguments)]))[2]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"unparsed": arguments}


# ---- what is read ---------------------------------------------------------------------------------------


def test_fragments_are_put_together_by_index() -> None:
    pieces = read(
        "openai",
        sse(
            chunk({"role": "assistant", "content": None}),
            chunk({"content": "Both."}),
            chunk(fragment(0, "", call_id="t1", name="look")),
            chunk(fragment(0, '{"a"')),
            chunk(fragment(1, "", call_id="t2", name="seek")),
            chunk(fragment(1, '{"b": ')),
            chunk(fragment(0, ": 1}")),
            chunk(fragment(1, "2}")),
            chunk(finish="tool_calls"),
            USED,
            DONE,
        ),
    )
    assert answered(pieces).answer == AssistantMessage(
        [TextPart("Both."), CallPart("t1", "look", '{"a": 1}'), CallPart("t2", "seek", '{"b": 2}')]
    )
    assert shown(pieces)["calls"] == {0: ["look", '{"a": 1}'], 1: ["seek", '{"b": 2}']}
    assert answered(pieces).usage == ReportedUsage(input=10, output=5)
    assert answered(pieces).characters == len("Both.") + 4 + 8 + 4 + 8


def several(*fragments: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [one["tool_calls"][0] for one in fragments]}


WHOLE = [
    pytest.param(
        [several(fragment(None, '{"a": 1}', name="look"), fragment(None, '{"b": 2}', name="look"))],
        id="no index, no id",
    ),
    pytest.param(
        [fragment(None, '{"a": 1}', name="look"), fragment(None, '{"b": 2}', name="look")], id="in two chunks"
    ),
    pytest.param(
        [
            fragment(0, '{"a": 1}', call_id="x", name="look"),
            fragment(0, '{"b": 2}', call_id="y", name="look"),
        ],
        id="always the first index",
    ),
    pytest.param(
        [fragment(0, '{"a": 1}', name="look"), fragment(0, '{"b": 2}', name="look")], id="first index, no id"
    ),
    pytest.param(
        [
            fragment(0, '{"a": 1}', call_id="x", name="look"),
            fragment(1, '{"b": 2}', call_id="x", name="look"),
        ],
        id="one id for all",
    ),
    pytest.param(
        [
            fragment(None, None, call_id="x", name="look"),
            fragment(None, '{"a": ', call_id="x"),
            fragment(None, "1}", call_id="x"),
            fragment(None, None, call_id="y", name="look"),
            fragment(None, '{"b": 2}'),
        ],
        id="no index, by id",
    ),
    pytest.param(
        [
            fragment(0, '{"a"', call_id="x", name="look"),
            fragment(0, ": 1}", call_id="x", name="look"),
            fragment(1, '{"b"', call_id="y", name="look"),
            fragment(1, ": 2}", call_id="y", name="look"),
        ],
        id="name and id in every fragment",
    ),
    pytest.param(
        [
            fragment(0, '{"a": 1}', call_id="x"),
            fragment(0, name="look"),
            fragment(1, '{"b": 2}', name="look"),
        ],
        id="name after the arguments",
    ),
]


@pytest.mark.parametrize("deltas", WHOLE)
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_calls_are_distinguished_however_a_server_numbers_them(
    deltas: list[dict[str, Any]], finish: str
) -> None:
    pieces = read("openai", sse(*map(chunk, deltas), chunk(finish=finish), DONE))
    assert [(call.name, json.loads(call.arguments)) for call in calls(pieces)] == [
        ("look", {"a": 1}),
        ("look", {"b": 2}),
    ]
    assert len({call.call_id for call in calls(pieces)}) == 2
    assert all(call.call_id for call in calls(pieces))
    assert [seen[1] for seen in shown(pieces)["calls"].values()] == [call.arguments for call in calls(pieces)]
    assert answered(pieces).stop == "calls"


def test_calls_without_arguments_at_one_index_are_distinguished_by_their_ids() -> None:
    deltas = [fragment(0, "", call_id=call_id, name="look") for call_id in ("x", "y")]
    assert len(calls(read("openai", sse(*map(chunk, deltas), chunk(finish="tool_calls"))))) == 2


def test_made_up_ids_are_new_in_the_conversation() -> None:
    before = [
        UserMessage("a"),
        AssistantMessage([CallPart("call_1", "look", "{}"), CallPart("call_2", "look", "{}")]),
    ]
    pieces = read(
        "openai", sse(chunk(fragment(None, "{}", name="look")), chunk(finish="stop")), conversation=before
    )
    assert calls(pieces)[0].call_id == "call_3"


def test_arguments_may_come_as_an_object() -> None:
    delta = {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "look", "arguments": {"at": "ü"}}}]}
    assert calls(read("openai", sse(chunk(delta), chunk(finish="stop"))))[0].arguments == '{"at": "ü"}'


def test_half_a_character_before_the_name_is_joined_with_its_other_half_after_it() -> None:
    deltas = [fragment(0, '{"a\ud83d', call_id="t"), fragment(0, name="look"), fragment(0, '\ude00": 1}')]
    pieces = read("openai", sse(*map(chunk, deltas), chunk(finish="tool_calls")))
    assert calls(pieces) == [CallPart("t", "look", '{"a\U0001f600": 1}')]
    assert shown(pieces)["calls"] == {0: ["look", '{"a\U0001f600": 1}']}


def test_a_call_that_never_got_a_name_is_still_a_call() -> None:
    pieces = read("openai", sse(chunk(fragment(0, "{}", call_id="t")), chunk(finish="tool_calls")))
    assert calls(pieces) == [CallPart("t", "", "{}")]
    assert shown(pieces)["calls"] == {0: ["", "{}"]}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_is_shown_and_kept_under_its_name(name: str) -> None:
    pieces = read(
        "openai", sse(chunk({name: "H"}), chunk({name: "m."}), chunk({"content": "a"}), chunk(finish="stop"))
    )
    assert answered(pieces).answer.parts == [ThinkingPart("Hm.", {name: "Hm."}), TextPart("a")]
    assert shown(pieces)["thought"] == "Hm."


def test_reasoning_under_two_names_is_shown_once_and_goes_back_under_both() -> None:
    both = {"reasoning_content": "Hm.", "reasoning": "Hm."}
    pieces = read("openai", sse(chunk(both), chunk({"content": "a"}), chunk(finish="stop")))
    assert answered(pieces).answer.parts[0] == ThinkingPart("Hm.", both)


def test_reasoning_details_are_put_together_in_their_order() -> None:
    def detail(**values: Any) -> dict[str, Any]:
        return {"reasoning_details": [{"format": "f", **values}]}

    pieces = read(
        "openai",
        sse(
            chunk(detail(type="reasoning.text", text="H", index=0, id=None)),
            chunk(detail(type="reasoning.text", text="m.", index=0, id="r1")),
            chunk(detail(type="reasoning.text", signature="sig==", index=0)),
            chunk(detail(type="reasoning.text", text="Next.", index=0)),
            chunk(detail(type="reasoning.encrypted", data="e1", index=1)),
            chunk(detail(type="reasoning.encrypted", data="e2", index=1)),
            chunk(detail(type="reasoning.summary", summary="S", index=2)),
            chunk(detail(type="reasoning.summary", summary="um.", index=2)),
            chunk(fragment(0, "{}", call_id="t", name="look")),
            chunk(finish="tool_calls"),
        ),
    )
    thought = answered(pieces).answer.parts[0]
    assert isinstance(thought, ThinkingPart)
    assert thought.text == "Hm.Next.Sum."
    assert thought.block == {
        "reasoning_details": [
            {
                "format": "f",
                "type": "reasoning.text",
                "text": "Hm.",
                "index": 0,
                "id": "r1",
                "signature": "sig==",
            },
            {"format": "f", "type": "reasoning.text", "text": "Next.", "index": 0},
            {"format": "f", "type": "reasoning.encrypted", "data": "e1", "index": 1},
            {"format": "f", "type": "reasoning.encrypted", "data": "e2", "index": 1},
            {"format": "f", "type": "reasoning.summary", "summary": "Sum.", "index": 2},
        ]
    }


def test_thinking_blocks_are_put_together_and_kept_with_their_signature() -> None:
    def block(**values: Any) -> dict[str, Any]:
        return {"thinking_blocks": [{"type": "thinking", **values}]}

    pieces = read(
        "openai",
        sse(
            chunk(block(thinking="H", signature=None)),
            chunk(block(thinking="m.", signature="")),
            chunk(block(thinking="", signature="sig==")),
            chunk({"thinking_blocks": [{"type": "redacted_thinking", "data": "sealed"}]}),
            chunk(fragment(0, "{}", call_id="t", name="look")),
            chunk(finish="tool_calls"),
        ),
    )
    thought = answered(pieces).answer.parts[0]
    assert isinstance(thought, ThinkingPart)
    assert thought.text == "Hm."
    assert thought.block == {
        "thinking_blocks": [
            {"type": "thinking", "signature": "sig==", "thinking": "Hm."},
            {"type": "redacted_thinking", "data": "sealed"},
        ]
    }


def test_encrypted_reasoning_alone_is_kept_for_the_way_back() -> None:
    detail = {"type": "reasoning.encrypted", "data": "e"}
    pieces = read(
        "openai", sse(chunk({"reasoning_details": [detail]}), chunk({"content": "a"}), chunk(finish="stop"))
    )
    assert answered(pieces).answer.parts == [ThinkingPart("", {"reasoning_details": [detail]}), TextPart("a")]


@pytest.mark.parametrize(
    ("usage", "read_as"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, ReportedUsage(10, 5)),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}},
            ReportedUsage(2, 5, 8),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
                "cost": 0.0125,
            },
            ReportedUsage(3, 5, 3, 4, 0.0125),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4}, ReportedUsage(6, 5, 4)),
        (
            {"prompt_tokens": 1, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 9}},
            ReportedUsage(0, 0, 9),
        ),
        ({"prompt_tokens": 1, "completion_tokens": 1, "cost": float("nan")}, ReportedUsage(1, 1)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        (None, None),
        ({"prompt_tokens": "10"}, None),
    ],
)
def test_tokens_are_counted_without_what_was_cached(
    usage: dict[str, Any] | None, read_as: ReportedUsage | None
) -> None:
    last = {"choices": [], "usage": usage}
    assert (
        answered(read("openai", sse(chunk({"content": "a"}), chunk(finish="stop"), last, DONE))).usage
        == read_as
    )


def test_usage_may_be_in_any_chunk() -> None:
    counted = {"prompt_tokens": 10, "completion_tokens": 5}
    in_last = sse(chunk({"content": "a"}), chunk(finish="stop", usage=counted))
    choice = chunk(finish="stop")
    choice["choices"][0]["usage"] = counted
    assert (
        answered(read("openai", in_last)).usage
        == answered(read("openai", sse(choice))).usage
        == ReportedUsage(10, 5)
    )


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", "end"), ("eos", "end"), ("length", "length"), ("content_filter", "refusal"), ("odd", "odd")],
)
def test_why_it_stopped(reason: str, stop: str) -> None:
    assert answered(read("openai", sse(chunk({"content": "a"}), chunk(finish=reason), DONE))).stop == stop


def test_a_refusal_is_text_marked_as_such() -> None:
    answer = answered(read("openai", sse(chunk({"refusal": "I will not."}), chunk(finish="stop"), DONE)))
    assert (answer.answer.parts, answer.stop) == ([TextPart("I will not.")], "refusal")


def test_the_end_may_come_without_a_word() -> None:
    assert answered(
        read("openai", sse(chunk({"content": "a"}), chunk(finish="stop")))
    ).answer == AssistantMessage([TextPart("a")])
    with pytest.raises(Unreadable, match="ended too early"):
        read("openai", sse(chunk({"content": "a"})))
    with pytest.raises(Unreadable, match="ended too early"):
        read("openai", sse(chunk({"content": "a"}), DONE))


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        ({"error": {"message": "down", "type": "server_error", "code": None}}, 500, "down"),
        (
            {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}},
            429,
            "slow down",
        ),
        (
            {"error": {"code": 502, "message": "Provider returned error", "metadata": {"raw": "odd"}}},
            502,
            "Provider returned error odd",
        ),
        ({"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}, 400, "bad"),
        ({"error": "just words"}, 0, "just words"),
    ],
)
def test_an_error_in_a_chunk_is_reported(error: dict[str, Any], status: int, words: str) -> None:
    with pytest.raises(Reported) as caught:
        read("openai", sse(chunk({"content": "a"}), error, DONE))
    assert (caught.value.fault.status, caught.value.fault.words) == (status, words)


def test_an_event_named_error_is_an_error() -> None:
    for data in ('{"error": {"message": "n_ctx"}}', '{"message": "n_ctx"}', "n_ctx"):
        with pytest.raises(Reported) as caught:
            read("openai", f"event: error\ndata: {data}\n\n".encode())
        assert "n_ctx" in caught.value.fault.words


def test_a_chunk_whose_error_is_null_is_not_an_error() -> None:
    assert answered(
        read("openai", sse(chunk({"content": "a"}, error=None), chunk(finish="stop")))
    ).answer.parts == [TextPart("a")]


def test_a_whole_answer_is_read_as_well() -> None:
    reader = reader_of("openai")
    said = {"role": "assistant", "content": "a", "reasoning_content": "Hm."}
    tools = [{"id": "t", "type": "function", "function": {"name": "look", "arguments": "{}"}}] * 2
    choice = {"index": 0, "message": {**said, "tool_calls": tools}, "finish_reason": "tool_calls"}
    pieces = reader.feed_whole({**USED, "choices": [choice]})
    rest, answer = reader.finish()
    assert shown([*pieces, *rest])["calls"] == {0: ["look", "{}"], 1: ["look", "{}"]}
    assert answer.answer.parts == [
        ThinkingPart("Hm.", {"reasoning_content": "Hm."}),
        TextPart("a"),
        CallPart("t", "look", "{}"),
        CallPart("call_1", "look", "{}"),
    ]
    assert answer.usage == ReportedUsage(10, 5)


@pytest.mark.parametrize(
    "junk", [None, 3, "x", [], {}, [3], {"type": 3}, True, [{"index": {}, "function": 3}]]
)
def test_no_form_of_a_value_crashes_the_reader(junk: object) -> None:
    events: list[dict[str, Any]] = [
        {"choices": junk},
        {"choices": [junk]},
        {"choices": [{"delta": junk, "finish_reason": junk if not isinstance(junk, str) else None}]},
        {"choices": [], "usage": junk},
        {
            "choices": [],
            "usage": {
                "prompt_tokens": junk,
                "completion_tokens": 1,
                "prompt_tokens_details": junk,
                "cost": junk,
            },
        },
        chunk({"tool_calls": junk}),
        chunk({"tool_calls": [{"index": junk, "id": junk, "function": {"name": junk, "arguments": junk}}]}),
        chunk({"content": junk, "refusal": junk, "reasoning": junk, "reasoning_details": junk}),
        chunk(
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "text": junk, "index": junk, "signature": junk}
                ]
            }
        ),
        chunk(finish="stop"),
    ]
    pieces = read("openai", sse(*events, DONE))
    body_of(small_request(UserMessage("a"), answered(pieces).answer))


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (b"data: {\n\n", "not a JSON object"),
        (b"data: 3\n\n", "not a JSON object"),
        (
            b'data: {"choices":[{"index":0,"delta":{"reasoning_details":['
            + b'{"a":' * 60
            + b"1"
            + b"}" * 60
            + b"]}}]}\n\n",
            "nested",
        ),
    ],
)
def test_a_stream_of_another_dialect_is_reported(events: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read("openai", events)

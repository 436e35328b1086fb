"""The official clients read every script as intended: answers, usage, endings and errors."""

import contextlib
import itertools
import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from compaction_app.scripted.openai import COST
from compaction_app.scripted.request import (
    CallTool,
    Dialect,
    OfferedTool,
    Play,
    Say,
    ScriptedRequest,
    Sealed,
    Think,
    sealed,
    signature_of,
)
from compaction_app.scripted.scripts import SCRIPTS, script_named
from compaction_app.scripted.server import ScriptedProvider
from tests.compaction_app.scripted.official_clients import (
    DIALECTS,
    KEY,
    TOOLS,
    anthropic_client,
    ask,
    openai_client,
    parsed,
    read_chunks,
)

BEGIN = [{"role": "user", "content": "Begin."}]
STOPS = {
    "anthropic": {"calls": "tool_use", "end": "end_turn", "length": "max_tokens", "refusal": "refusal"},
    "openai": {"calls": "tool_calls", "end": "stop", "length": "length", "refusal": "content_filter"},
}
ERRORS: dict[str, tuple[str, int, str, int]] = {
    **dict.fromkeys(("overloaded", "overloaded-twice"), ("OverloadedError", 529, "InternalServerError", 503)),
    **dict.fromkeys(("rate-limited", "rate-limited-long"), ("RateLimitError", 429, "RateLimitError", 429)),
    "server-error": ("InternalServerError", 500, "InternalServerError", 500),
    "quota-used": ("BadRequestError", 400, "RateLimitError", 429),
    **dict.fromkeys(("wrong-key", "echoes-key"), ("AuthenticationError", 401, "AuthenticationError", 401)),
    **dict.fromkeys(("unknown-model", "no-script-at-all"), ("NotFoundError", 404, "NotFoundError", 404)),
    **dict.fromkeys(("overflow", "overflow-later"), ("BadRequestError", 400, "BadRequestError", 400)),
    "too-large": ("ContentTooLargeError", 413, "APIStatusError", 413),
}
"""Exception class and status in Anthropic's client, then in OpenAI's."""
WITHIN_STREAM = {"error-inside": 0, "error-inside-once": 0, "error-midway": 2, "cut-inside": 1, "cut-after": 2}
"""The number of calls that are complete before the stream breaks."""
SILENT = {"stalls", "stalls-before"}
ELSEWHERE = {"not-streamed", "web-page", "redirects", "cut-before", "cut-always"}
"""Scripts with their own tests below."""
LASTING = {"long-thinking", "slow-calls"}
BROKEN_ARGUMENTS = ("nonsense-arguments", "cut-by-limit")
ANSWERS = [
    *(name for name in SCRIPTS if name not in {*ERRORS, *WITHIN_STREAM, *SILENT, *ELSEWHERE, *LASTING}),
    "calls-3",
]


@pytest.fixture(scope="module")
def provider():
    with ScriptedProvider() as serving:
        yield serving
        assert serving.faults == []


def meant(name: str) -> Play:
    """The script's move for a first request without a manifest."""
    script = script_named(name)
    assert script is not None
    tools = [OfferedTool(tool["name"], tool["input_schema"]) for tool in TOOLS["anthropic"]]
    move = script.move(ScriptedRequest(name, "Begin.", (), tools, 400))
    assert isinstance(move, Play)
    return move


def texts(play: Play, kind: type[Say] | type[Think]) -> str:
    return "".join(part.text for part in play.parts if isinstance(part, kind))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in BROKEN_ARGUMENTS])
def test_an_answer_is_read_as_intended(provider, dialect, name):
    play = meant(name)
    calls = [(part.name, json.loads(part.arguments)) for part in play.parts if isinstance(part, CallTool)]
    for streams in (True, False):
        read = ask(provider, dialect, name, streams=streams)
        assert read.text == texts(play, Say)
        assert read.calls == calls
        assert read.thoughts == texts(play, Think)
        assert read.seals == [sealed(part.text) for part in play.parts if isinstance(part, Sealed)]
        assert len(set(read.ids)) == len(read.ids) == len(calls)
        whole_calls = name == "whole-calls" and dialect == "openai" and streams
        assert read.stop == ("stop" if whole_calls else STOPS[dialect][play.stop])


def streamed(provider: ScriptedProvider, dialect: Dialect, name: str, *, raw: bool = False, **options: Any) -> Any:
    """The events of the official client; or its response while it streams, as the lines that it receives."""
    if dialect == "openai":
        asked: Any = openai_client(provider).chat.completions
    else:
        asked, options = anthropic_client(provider).messages, {"max_tokens": 100, **options}
    create = asked.with_streaming_response.create if raw else asked.create
    return create(model=name, messages=BEGIN, tools=TOOLS[dialect], stream=True, **options)


def ask_raw(provider: ScriptedProvider, dialect: Dialect, name: str) -> Any:
    return streamed(provider, dialect, name, raw=True)


def raw_arguments(provider: ScriptedProvider, dialect: Dialect, name: str) -> list[str]:
    """The arguments of an answer's calls in the official client's events, unparsed."""
    found: dict[int, str] = defaultdict(str)
    for event in streamed(provider, dialect, name):
        if dialect == "openai":
            for fragment in event.choices[0].delta.tool_calls or ():
                found[fragment.index] += fragment.function.arguments or ""
        elif event.type == "content_block_start" and event.content_block.type == "tool_use":
            found[event.index] = ""
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            found[event.index] += event.delta.partial_json
    return list(found.values())


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", BROKEN_ARGUMENTS)
def test_broken_arguments_arrive_unchanged(provider, dialect, name):
    expected = [part.arguments for part in meant(name).parts if isinstance(part, CallTool)]
    assert raw_arguments(provider, dialect, name) == expected


def test_a_thought_is_signed(provider):
    thought = ask(provider, "anthropic", "thinking-signed").message["content"][0]
    assert thought["signature"] == signature_of(thought["thinking"])
    details = ask(provider, "openai", "thinking-signed").message["reasoning_details"]
    text = "".join(detail.get("text", "") for detail in details)
    assert [detail["signature"] for detail in details if "signature" in detail] == [signature_of(text)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_arguments_are_split_at_every_character(provider, dialect):
    play = meant("split-bytes")
    characters = sum(len(part.arguments) for part in play.parts if isinstance(part, CallTool))
    assert raw_arguments(provider, dialect, "split-bytes")[0] == play.parts[1].arguments
    with ask_raw(provider, dialect, "split-bytes") as stream:
        count = sum(1 for line in stream.iter_lines() if "partial_json" in line or '"arguments"' in line)
    assert count >= characters - len("{}")


def test_events_are_in_anthropics_order(provider):
    found = [*streamed(provider, "anthropic", "good-plan")]
    order = "message_start content_block_start content_block_delta content_block_stop message_delta message_stop"
    assert [event.type for event in found] == order.split()
    assert found[2].delta.partial_json == ""
    with ask_raw(provider, "anthropic", "good-plan") as stream:
        assert "event: ping" in list(stream.iter_lines())


def test_chunks_are_in_openais_order(provider):
    chunks = [*streamed(provider, "openai", "good-plan", stream_options={"include_usage": True})]
    first, *more, last, usage = chunks
    assert first.choices[0].delta.role == "assistant"
    begun = first.choices[0].delta.tool_calls[0]
    assert (begun.function.arguments, begun.type, begun.index) == ("", "function", 0)
    for chunk in more:
        (fragment,) = chunk.choices[0].delta.tool_calls or ()
        assert (fragment.id, fragment.type, fragment.index) == (None, None, 0)
    assert last.choices[0].finish_reason == "tool_calls"
    assert (usage.choices, [chunk.usage for chunk in chunks[:-1]]) == ([], [None] * (len(chunks) - 1))
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    with ask_raw(provider, "openai", "good-plan") as stream:
        assert [line for line in stream.iter_lines() if line][-1] == "data: [DONE]"
    with ask_raw(provider, "openai", "no-done") as stream:
        assert "[DONE]" not in "".join(stream.iter_lines())


def test_openais_own_accumulation_reads_parallel_calls(provider):
    with openai_client(provider).chat.completions.stream(
        model="fifty-searches", messages=BEGIN, tools=TOOLS["openai"]
    ) as stream:
        message = stream.get_final_completion().choices[0].message
    patterns = [parsed(call.function.arguments)["pattern"] for call in message.tool_calls or ()]
    assert patterns == [f"line_{number}" for number in range(50)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_calls_arrive_one_by_one(dialect):
    with ScriptedProvider() as provider, ask_raw(provider, dialect, "slow-calls") as stream:
        provider.wait_for(lambda: len(provider.requests[0].calls_at) >= 3)
        times = provider.requests[0].calls_at[:3]
        stream.close()
    # A sleep between two calls is never shorter than it should be.
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.04
    assert sum(isinstance(part, CallTool) for part in meant("slow-calls").parts) == 100


def usage_of(provider: ScriptedProvider, dialect: Dialect, name: str) -> tuple[Mapping[str, Any], int]:
    """What is reported, and the tokens of the request."""
    usage = ask(provider, dialect, name).usage
    assert usage is not None
    return usage, len(provider.requests[-1].raw.decode()) // 4


def test_usage_matches_the_request_and_the_answer_or_is_missing_and_may_include_a_cost(provider):
    usage, sent = usage_of(provider, "anthropic", "good-plan")
    assert usage["input_tokens"] + usage["cache_creation_input_tokens"] == sent
    assert usage["cache_read_input_tokens"] == 0
    assert usage["output_tokens"] > 1
    usage, sent = usage_of(provider, "openai", "good-plan")
    assert usage["prompt_tokens"] == sent
    assert usage["total_tokens"] == sent + usage["completion_tokens"]
    assert "cost" not in usage
    assert ask(provider, "openai", "no-usage").usage is None
    nothing, _ = usage_of(provider, "anthropic", "no-usage")
    assert (nothing["input_tokens"], nothing["output_tokens"]) == (0, 0)
    assert usage_of(provider, "openai", "thinking-signed")[0]["cost"] == COST


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_the_intended_one(provider, dialect, name):
    package = anthropic if dialect == "anthropic" else openai
    kind, status = ERRORS[name][:2] if dialect == "anthropic" else ERRORS[name][2:]
    for streams in (True, False):
        with pytest.raises(package.APIStatusError) as caught:
            ask(provider, dialect, name, streams=streams)
        assert (type(caught.value).__name__, caught.value.status_code) == (kind, status)
        assert caught.value.request_id
        assert (KEY in str(caught.value)) == (name == "echoes-key")


def test_openais_errors_carry_their_codes(provider):
    for name, code in {
        "quota-used": "insufficient_quota",
        "overflow": "context_length_exceeded",
        "wrong-key": "invalid_api_key",
        "unknown-model": "model_not_found",
        "rate-limited-long": "rate_limit_exceeded",
    }.items():
        with pytest.raises(openai.APIStatusError) as caught:
            ask(provider, "openai", name)
        assert caught.value.code == code


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", WITHIN_STREAM)
def test_a_stream_breaks_at_the_intended_place(provider, dialect, name):
    with ask_raw(provider, dialect, name) as stream:
        lines = []
        breaks: Any = pytest.raises(httpx2.RemoteProtocolError) if name.startswith("cut-") else contextlib.nullcontext()
        with breaks:
            lines.extend(stream.iter_lines())
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    complete = len(provider.requests[-1].calls_at)
    assert complete == WITHIN_STREAM[name]
    assert ("error" in events[-1]) == name.startswith("error-")
    ends = [event for event in events if event.get("type") in ("message_delta", "message_stop")]
    ends += [event for event in events if any(one["finish_reason"] for one in event.get("choices", ()))]
    assert ends == []
    kind: Any = anthropic.APIStatusError if dialect == "anthropic" else openai.APIError
    if name.startswith("error-"):
        with pytest.raises(kind, match=r"[Oo]verloaded"):
            ask(provider, dialect, name)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("name", "requests", "seconds"),
    [("overloaded-twice", 3, 0.0), ("rate-limited", 2, 1.0), ("cut-before", 2, 0.0), ("server-error", 3, 0.0)],
)
def test_the_official_client_retries(dialect, name, requests, seconds):
    with ScriptedProvider() as provider:
        if name == "server-error":
            with pytest.raises((anthropic.InternalServerError, openai.InternalServerError)):
                ask(provider, dialect, name, max_retries=2)
        else:
            assert ask(provider, dialect, name, max_retries=3).calls == [("context_compaction_budget", {})]
            # The next conversation gets the same errors again.
            with pytest.raises((anthropic.APIError, openai.APIError)):
                ask(provider, dialect, name)
            requests += 1
        assert len(provider.requests) == requests
        times = [request.at for request in provider.requests]
        assert times[1] - times[0] >= seconds


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stall_lasts_until_the_client_leaves(dialect):
    with ScriptedProvider() as provider:
        with ask_raw(provider, dialect, "stalls") as stream:
            provider.wait_for(lambda: provider.requests[0].calls_at)
            assert provider.closed == []
            stream.close()
        assert len(provider.wait_until_closed().calls_at) == 1
    with ScriptedProvider() as provider:
        with pytest.raises((anthropic.APITimeoutError, openai.APITimeoutError)):
            ask(provider, dialect, "stalls-before", timeout=0.5)
        assert provider.wait_until_closed().calls_at == []


def test_a_document_can_be_sent_instead_of_a_stream(provider):
    with ask_raw(provider, "openai", "not-streamed") as response:
        assert response.headers["content-type"] == "application/json"
        assert json.loads(response.read())["choices"][0]["finish_reason"] == "tool_calls"
    with ask_raw(provider, "anthropic", "not-streamed") as response:
        assert json.loads(response.read())["stop_reason"] == "tool_use"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_page_is_not_a_response_and_a_redirect_leads_elsewhere(provider, dialect):
    with ask_raw(provider, dialect, "web-page") as response:
        assert response.headers["content-type"].startswith("text/html")
    with pytest.raises((anthropic.NotFoundError, openai.NotFoundError)):
        ask(provider, dialect, "redirects")
    assert provider.requests[-1].path == "/elsewhere"


def test_the_models_are_the_scripts(provider):
    assert [model.id for model in anthropic_client(provider).models.list()] == list(SCRIPTS)
    assert [model.id for model in openai_client(provider).models.list()] == list(SCRIPTS)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_a_configured_key_no_other_key_is_accepted(dialect):
    refused = (anthropic.AuthenticationError, openai.AuthenticationError)
    with ScriptedProvider(key="another") as provider, pytest.raises(refused):
        ask(provider, dialect, "good-plan")
    with ScriptedProvider(key=KEY) as provider:
        assert ask(provider, dialect, "good-plan").calls


def test_every_script_is_tested_here():
    tried = {*ANSWERS, *ERRORS, *WITHIN_STREAM, *SILENT, *ELSEWHERE, *LASTING}
    assert SCRIPTS.keys() <= tried


def test_one_script_can_be_played_for_all_names():
    with ScriptedProvider(script="overflow") as provider, pytest.raises(anthropic.BadRequestError):
        ask(provider, "anthropic", "whatever")


def test_chunks_without_index_are_separate_calls(provider):
    found = [*streamed(provider, "openai", "whole-calls")]
    fragments = [one for chunk in found for choice in chunk.choices for one in choice.delta.tool_calls or ()]
    assert [(one.id, getattr(one, "index", None)) for one in fragments] == [(None, None)]
    assert read_chunks(found).calls == [("context_compaction_budget", {})]

"""Anthropic's Messages API, server side: a script's moves as events, as one message, and as errors.

    message_start · ping · (content_block_start · content_block_delta … · content_block_stop) … ·
    message_delta · message_stop

Each call's arguments start with an empty fragment, which is the only one if there are no arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .request import EarlierAnswer, EarlierCall, OfferedTool, ScriptedRequest
from .response import (
    CallTool,
    Frame,
    Kind,
    Part,
    Play,
    Refuse,
    Say,
    Sealed,
    Stop,
    Think,
    fragments,
    sealed,
    shown_until,
    signature_of,
)

STOPS: Final[Mapping[Stop, str]] = {
    "calls": "tool_use",
    "end": "end_turn",
    "length": "max_tokens",
    "refusal": "refusal",
}
ERRORS: Final[Mapping[Kind, tuple[int, str, str]]] = {
    "invalid": (400, "invalid_request_error", "The request is not valid."),
    "key": (401, "authentication_error", "invalid x-api-key"),
    "model": (404, "not_found_error", "model: {model}"),
    "path": (404, "not_found_error", "Not found"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "limited": (
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of 50 requests per minute.",
    ),
    "quota": (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or "
        "purchase credits.",
    ),
    "overflow": (400, "invalid_request_error", "prompt is too long: {tokens} tokens > {window} maximum"),
    "too-large": (413, "request_too_large", "Request exceeds the maximum size"),
    "broken": (500, "api_error", "Internal server error"),
}


def read_request(body: Mapping[str, Any], characters: int, key: str) -> ScriptedRequest:
    """A validated request, independent of the dialect."""
    prompt = ""
    exchanges: list[EarlierAnswer] = []
    for message in body["messages"]:
        blocks = _blocks(message["content"])
        texts = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        if message["role"] == "assistant":
            calls = [
                EarlierCall(block["id"], block["name"], block["input"])
                for block in blocks
                if block["type"] == "tool_use"
            ]
            exchanges.append(EarlierAnswer(texts, calls))
        elif not exchanges:
            prompt = texts
        else:
            results = {
                block["tool_use_id"]: _text(block.get("content", ""))
                for block in blocks
                if block["type"] == "tool_result"
            }
            last = exchanges[-1]
            answered = [
                EarlierCall(call.call_id, call.name, call.arguments, results.get(call.call_id)) for call in last.calls
            ]
            exchanges[-1] = EarlierAnswer(last.text, answered, texts)
    tools = [OfferedTool(tool["name"], tool["input_schema"]) for tool in body.get("tools", ())]
    return ScriptedRequest(body["model"], prompt, exchanges, tools, characters, key)


def usage_of(request: ScriptedRequest, play: Play, *, at_start: bool = False) -> dict[str, Any]:
    """The reported tokens, four characters each: half of the earlier prompt is read from the cache."""
    if not play.reports_usage:
        return {"input_tokens": 0, "output_tokens": 0}
    tokens = request.characters // 4
    cached = tokens // 2
    words = 1 if at_start else sum(len(_words(part)) for part in play.parts) // 4 + 1
    return {
        "input_tokens": tokens - cached,
        "cache_creation_input_tokens": cached if request.is_first else 0,
        "cache_read_input_tokens": 0 if request.is_first else cached,
        "output_tokens": words,
    }


def frames(request: ScriptedRequest, play: Play, message_id: str) -> Iterator[Frame]:
    """The events of an answer, up to where it breaks off."""
    usage = usage_of(request, play, at_start=True)
    if play.reports_usage:
        written = usage["cache_creation_input_tokens"]
        usage |= {
            "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
            "service_tier": "standard",
        }
    yield _event("message_start", message=_message(request, message_id, [], None, usage))
    parts, is_half = shown_until(play.parts, play.breaks)
    for index, part in enumerate(parts):
        halved = is_half and index == len(parts) - 1
        events = list(_block_events(request, play, part, index))
        for event in events[: len(events) // 2] if halved else events:
            yield event
            if play.pings:
                yield PING
        if index == 0:
            yield PING
    if play.breaks is None:
        delta = {"stop_reason": STOPS[play.stop], "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage=usage_of(request, play))
        yield _event("message_stop")


def whole(request: ScriptedRequest, play: Play, message_id: str) -> dict[str, Any]:
    """The same answer as one message."""
    content = []
    for place, part in enumerate(play.parts):
        block = _started(request, part, place)
        if isinstance(part, Say):
            block["text"] = part.text
        elif isinstance(part, Think):
            block |= {"thinking": part.text, "signature": signature_of(part.text)}
        elif isinstance(part, CallTool):
            block["input"] = _input(part)
        content.append(block)
    return _message(request, message_id, content, STOPS[play.stop], usage_of(request, play))


def error(refusal: Refuse, model: str, request_id: str) -> tuple[int, dict[str, Any]]:
    """Status and body of an HTTP error."""
    status, kind, words = ERRORS[refusal.kind]
    message = refusal.message or words.format(model=model, tokens=208_310, window=200_000)
    return status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def error_frame(request_id: str) -> Frame:
    """An error in the middle of a stream."""
    overloaded = {"type": "overloaded_error", "message": "Overloaded"}
    return _event("error", error=overloaded, request_id=request_id)


def headers(request_id: str) -> dict[str, str]:
    """The headers of every response."""
    return {
        "request-id": request_id,
        "anthropic-organization-id": "00000000-0000-4000-8000-000000000000",
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
    }


def models(names: list[str]) -> dict[str, Any]:
    """The list of models."""
    data = [{"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"} for name in names]
    return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}


def _block_events(request: ScriptedRequest, play: Play, part: Part, index: int) -> Iterator[Frame]:
    block = _started(request, part, index)
    if isinstance(part, CallTool) and play.whole_calls and index % 2 == 0:
        block["input"] = _input(part)
        yield _event("content_block_start", index=index, content_block=block)
    else:
        yield _event("content_block_start", index=index, content_block=block)
        for delta in _deltas(play, part):
            yield _event("content_block_delta", index=index, delta=delta)
    stop = _event("content_block_stop", index=index)
    yield Frame(stop.data, ends_call=isinstance(part, CallTool))


def _deltas(play: Play, part: Part) -> Iterator[dict[str, Any]]:
    if isinstance(part, Say):
        for text in fragments(part.text, play.fragment):
            yield {"type": "text_delta", "text": text}
    elif isinstance(part, Think):
        for text in fragments(part.text, play.fragment):
            yield {"type": "thinking_delta", "thinking": text}
        yield {"type": "signature_delta", "signature": signature_of(part.text)}
    elif isinstance(part, CallTool):
        if play.whole_calls:
            yield {"type": "input_json_delta", "partial_json": part.arguments}
            return
        yield {"type": "input_json_delta", "partial_json": ""}
        for text in fragments("" if part.arguments == "{}" else part.arguments, play.fragment):
            yield {"type": "input_json_delta", "partial_json": text}


def _started(request: ScriptedRequest, part: Part, place: int) -> dict[str, Any]:
    """A content block as in its start event; its position among the parts determines the id of a call."""
    if isinstance(part, Say):
        return {"type": "text", "text": ""}
    if isinstance(part, Think):
        return {"type": "thinking", "thinking": "", "signature": ""}
    if isinstance(part, Sealed):
        return {"type": "redacted_thinking", "data": sealed(part.text)}
    return {"type": "tool_use", "id": request.call_id("toolu_01", place), "name": part.name, "input": {}}


def _input(part: CallTool) -> dict[str, Any]:
    try:
        found = json.loads(part.arguments)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _message(
    request: ScriptedRequest,
    message_id: str,
    content: list[dict[str, Any]],
    stop: str | None,
    usage: dict[str, Any],
) -> dict[str, Any]:
    return {
        "model": request.model,
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }


def _event(event: str, **fields: Any) -> Frame:
    data = json.dumps({"type": event, **fields}, ensure_ascii=False)
    return Frame(f"event: {event}\ndata: {data}\n\n".encode())


PING: Final = _event("ping")


def _words(part: Part) -> str:
    return part.arguments + part.name if isinstance(part, CallTool) else part.text


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(content: str | list[dict[str, Any]]) -> str:
    return "\n".join(block.get("text", "") for block in _blocks(content))

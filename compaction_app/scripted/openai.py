"""OpenAI's Chat Completions, server side: a script's moves as chunks, as one completion, and as errors.

    role · content … · tool_calls … · finish_reason · usage without choices · [DONE]

A call's first chunk has its id and name with empty arguments; the others only its index and more arguments. If the
answer starts with a call, the role's chunk contains it, and content is null.

Reasoning is `reasoning_content`, as in DeepSeek and vLLM, or `reasoning` with `reasoning_details`, as in OpenRouter.
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

CREATED: Final = 1_750_000_000
FORMAT: Final = "anthropic-claude-v1"
COST: Final = 0.0125
STOPS: Final[Mapping[Stop, str]] = {
    "calls": "tool_calls",
    "end": "stop",
    "length": "length",
    "refusal": "content_filter",
}
_Error = tuple[int, str, str, str | None, str | None]
ERRORS: Final[Mapping[Kind, _Error]] = {
    "invalid": (400, "The request is not valid.", "invalid_request_error", None, None),
    "key": (
        401,
        "Incorrect API key provided: {key}. You can find your API key at https://platform.openai.com/account/api-keys.",
        "invalid_request_error",
        None,
        "invalid_api_key",
    ),
    "model": (
        404,
        "The model `{model}` does not exist or you do not have access to it.",
        "invalid_request_error",
        None,
        "model_not_found",
    ),
    "path": (404, "Invalid URL", "invalid_request_error", None, "unknown_url"),
    "overloaded": (
        503,
        "The engine is currently overloaded, please try again later",
        "server_error",
        None,
        None,
    ),
    "limited": (
        429,
        "Rate limit reached for {model} in organization org-scripted on requests per min (RPM): Limit 3, Used 3, "
        "Requested 1. Please try again in 1s.",
        "requests",
        None,
        "rate_limit_exceeded",
    ),
    "quota": (
        429,
        "You exceeded your current quota, please check your plan and billing details. For more information on this "
        "error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
        "insufficient_quota",
        None,
        "insufficient_quota",
    ),
    "overflow": (
        400,
        "This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens. "
        "Please reduce the length of the messages.",
        "invalid_request_error",
        "messages",
        "context_length_exceeded",
    ),
    "too-large": (413, "The request body is too large.", "invalid_request_error", None, None),
    "broken": (
        500,
        "The server had an error while processing your request. Sorry about that!",
        "server_error",
        None,
        None,
    ),
}
DONE: Final = Frame(b"data: [DONE]\n\n")
PING: Final = Frame(b": keep-alive\n\n")


def read_request(body: Mapping[str, Any], characters: int, key: str) -> ScriptedRequest:
    """A validated request, independent of the dialect."""
    prompt = ""
    exchanges: list[EarlierAnswer] = []
    for message in body["messages"]:
        role, text = message["role"], _text(message.get("content"))
        if role == "assistant":
            calls = [
                EarlierCall(call["id"], call["function"]["name"], _parsed(call["function"]["arguments"]))
                for call in message.get("tool_calls") or ()
            ]
            exchanges.append(EarlierAnswer(text, calls))
        elif role == "tool":
            last = exchanges[-1]
            answered = [
                EarlierCall(call.call_id, call.name, call.arguments, text)
                if call.call_id == message["tool_call_id"]
                else call
                for call in last.calls
            ]
            exchanges[-1] = EarlierAnswer(last.text, answered, last.then)
        elif role == "user" and not exchanges:
            prompt = "\n".join(filter(None, (prompt, text)))
        elif role == "user":
            last = exchanges[-1]
            exchanges[-1] = EarlierAnswer(last.text, last.calls, "\n".join(filter(None, (last.then, text))))
    tools = [
        OfferedTool(tool["function"]["name"], tool["function"].get("parameters", {}))
        for tool in body.get("tools") or ()
    ]
    return ScriptedRequest(body["model"], prompt, exchanges, tools, characters, key)


def usage_of(request: ScriptedRequest, play: Play) -> dict[str, Any]:
    """The reported tokens, four characters each; cached ones are part of the prompt's."""
    prompt = request.characters // 4
    words = sum(len(_words(part)) for part in play.parts) // 4 + 1
    thought = sum(len(part.text) for part in play.parts if isinstance(part, Think | Sealed)) // 4
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": words,
        "total_tokens": prompt + words,
        "prompt_tokens_details": {"cached_tokens": 0 if request.is_first else prompt // 2, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": thought,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    return usage | ({"cost": COST} if play.priced else {})


def frames(request: ScriptedRequest, play: Play, message_id: str, *, with_usage: bool) -> Iterator[Frame]:
    """The chunks of an answer, up to where it breaks off."""
    empty: dict[str, Any] = {"usage": None} if with_usage else {}
    parts, is_half = shown_until(play.parts, play.breaks)
    deltas: list[tuple[dict[str, Any], bool]] = []
    calls = 0
    for place, part in enumerate(parts):
        of_part = list(_deltas(request, play, part, calls))
        calls += isinstance(part, CallTool)
        if is_half and place == len(parts) - 1:
            of_part = [(delta, False) for delta, _ in of_part[: len(of_part) // 2]]
        deltas += of_part
    if play.pings:
        yield PING
    for number, (delta, ends_call) in enumerate([*_opening(deltas), *deltas]):
        opened = {"role": "assistant", "content": None, **delta} if number == 0 else delta
        yield _chunk(request, message_id, opened, None, ends_call=ends_call, **empty)
        if play.pings:
            yield PING
    if play.breaks is not None:
        return
    stop = "stop" if play.whole_calls and play.stop == "calls" else STOPS[play.stop]
    yield _chunk(request, message_id, {}, stop, **empty)
    if with_usage and play.reports_usage:
        yield _chunk(request, message_id, None, None, usage=usage_of(request, play))
    if play.marks_end:
        yield DONE


def whole(request: ScriptedRequest, play: Play, message_id: str) -> dict[str, Any]:
    """The same answer as one completion."""
    texts = [part.text for part in play.parts if isinstance(part, Say)]
    calls = [part for part in play.parts if isinstance(part, CallTool)]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None, "refusal": None}
    if calls:
        message["tool_calls"] = [
            {
                **_named(request, play, place),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(calls)
        ]
    for part in play.parts:
        if isinstance(part, Think | Sealed):
            _merge_reasoning(message, play, part)
    answer = {
        "id": message_id,
        "object": "chat.completion",
        "created": CREATED,
        "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": STOPS[play.stop]}],
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }
    return answer | ({"usage": usage_of(request, play)} if play.reports_usage else {})


def error(refusal: Refuse, model: str, key: str) -> tuple[int, dict[str, Any]]:
    """Status and body of an HTTP error; the service quotes the end of a key."""
    status, words, kind, param, code = ERRORS[refusal.kind]
    shown = f"{key[:3]}{'*' * 8}{key[-4:]}" if len(key) > 8 else "***"
    message = refusal.message or words.format(model=model, tokens=130_117, window=128_000, key=shown)
    return status, {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_frame() -> Frame:
    """An error in the middle of a stream."""
    _, words, kind, param, code = ERRORS["overloaded"]
    return _event({"error": {"message": words, "type": kind, "param": param, "code": code}})


def headers(request_id: str) -> dict[str, str]:
    """The headers of every response."""
    return {
        "x-request-id": request_id,
        "openai-organization": "org-scripted",
        "openai-processing-ms": "12",
        "openai-version": "2020-10-01",
    }


def models(names: list[str]) -> dict[str, Any]:
    """The list of models."""
    data = [{"id": name, "object": "model", "created": CREATED, "owned_by": "scripted"} for name in names]
    return {"object": "list", "data": data}


def _opening(deltas: list[tuple[dict[str, Any], bool]]) -> list[tuple[dict[str, Any], bool]]:
    """Add a separate chunk for the role, unless the first part with content is a call."""
    begins_with_call = bool(deltas) and "tool_calls" in deltas[0][0]
    return [] if begins_with_call else [({"role": "assistant", "content": "", "refusal": None}, False)]


def _deltas(request: ScriptedRequest, play: Play, part: Part, place: int) -> Iterator[tuple[dict[str, Any], bool]]:
    if isinstance(part, Say):
        for text in fragments(part.text, play.fragment):
            yield {"content": text}, False
    elif isinstance(part, CallTool):
        named = {**_named(request, play, place), "type": "function"}
        if play.whole_calls:
            yield (
                {"tool_calls": [named | {"function": {"name": part.name, "arguments": part.arguments}}]},
                True,
            )
            return
        begun = {"index": place, **named, "function": {"name": part.name, "arguments": ""}}
        more = fragments(part.arguments, play.fragment)
        yield {"tool_calls": [begun]}, not more
        for number, text in enumerate(more, 1):
            yield {"tool_calls": [{"index": place, "function": {"arguments": text}}]}, number == len(more)
    else:
        for delta in _reasoning(play, part):
            yield delta, False


def _reasoning(play: Play, part: Think | Sealed) -> Iterator[dict[str, Any]]:
    if isinstance(part, Sealed):
        detail = {
            "type": "reasoning.encrypted",
            "data": sealed(part.text),
            "id": None,
            "format": FORMAT,
            "index": 1,
        }
        yield {"content": "", "reasoning_details": [detail]}
        return
    for text in fragments(part.text, play.fragment):
        if play.details:
            detail = {"type": "reasoning.text", "text": text, "format": FORMAT, "index": 0}
            yield {"content": "", "reasoning": text, "reasoning_details": [detail]}
        else:
            yield {"reasoning_content": text}
    if play.details:
        signature = {
            "type": "reasoning.text",
            "signature": signature_of(part.text),
            "format": FORMAT,
            "index": 0,
        }
        yield {"content": "", "reasoning": None, "reasoning_details": [signature]}


def _merge_reasoning(message: dict[str, Any], play: Play, part: Think | Sealed) -> None:
    if not play.details:
        message["reasoning_content"] = part.text
        return
    details = message.setdefault("reasoning_details", [])
    if isinstance(part, Sealed):
        details.append({"type": "reasoning.encrypted", "data": sealed(part.text), "id": None, "format": FORMAT})
        return
    message["reasoning"] = part.text
    signature = signature_of(part.text)
    details.append({"type": "reasoning.text", "text": part.text, "signature": signature, "format": FORMAT})


def _named(request: ScriptedRequest, play: Play, place: int) -> dict[str, str]:
    return {} if play.whole_calls else {"id": request.call_id("call_", place)}


def _chunk(
    request: ScriptedRequest,
    message_id: str,
    delta: dict[str, Any] | None,
    stop: str | None,
    *,
    ends_call: bool = False,
    **more: Any,
) -> Frame:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}]
    chunk = {
        "id": message_id,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": request.model,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
        "choices": choices,
        **more,
    }
    return Frame(_event(chunk).data, ends_call)


def _event(data: dict[str, Any]) -> Frame:
    return Frame(f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode())


def _words(part: Part) -> str:
    return part.arguments + part.name if isinstance(part, CallTool) else part.text


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""

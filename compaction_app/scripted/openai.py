"""OpenAI's Chat Completions, server side: the requests that it refuses, and a script's moves as chunks, as one
completion, and as errors.

    role · content … · tool_calls … · finish_reason · usage without choices · [DONE]

A call's first chunk has its id and name with empty arguments; the others only its index and more arguments. If the
answer starts with a call, the role's chunk contains it, and content is null.

Reasoning is `reasoning_content`, as in DeepSeek and vLLM, or `reasoning` with `reasoning_details`, as in OpenRouter.

A request is refused in the service's own words if they are known. The checks are stricter than the service in one way:
a conversation must not end with an answer.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from .request import (
    CallTool,
    EarlierAnswer,
    EarlierCall,
    Frame,
    Kind,
    OfferedTool,
    Part,
    Play,
    Refuse,
    RequestFault,
    Say,
    ScriptedRequest,
    Sealed,
    Stop,
    Think,
    check_schema,
    check_tool_name,
    fragments,
    is_checked,
    is_sealed,
    is_whole,
    require,
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
    "overloaded": (503, "The engine is currently overloaded, please try again later", "server_error", None, None),
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
                replace(call, result=text) if call.call_id == message["tool_call_id"] else call for call in last.calls
            ]
            exchanges[-1] = replace(last, calls=answered)
        elif role == "user" and not exchanges:
            prompt = "\n".join(filter(None, (prompt, text)))
        elif role == "user":
            last = exchanges[-1]
            exchanges[-1] = replace(last, then="\n".join(filter(None, (last.then, text))))
    tools = [
        OfferedTool(tool["function"]["name"], tool["function"].get("parameters", {}))
        for tool in body.get("tools") or ()
    ]
    return ScriptedRequest(body["model"], prompt, exchanges, tools, characters, key)


def usage_of(request: ScriptedRequest, play: Play) -> dict[str, Any]:
    """The reported tokens, four characters each; cached ones are part of the prompt's."""
    prompt = request.characters // 4
    words = sum(part.length for part in play.parts) // 4 + 1
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


def frames(request: ScriptedRequest, play: Play, message_id: str, body: Mapping[str, Any]) -> Iterator[Frame]:
    """The chunks of an answer, up to its break if it has one; with the tokens, if the body of the request wants
    them.
    """
    with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
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


def error(refusal: Refuse, model: str, request_id: str, *, key: str, param: str | None) -> tuple[int, dict[str, Any]]:
    """Status and body of an HTTP error; the service quotes the end of a key."""
    del request_id
    status, words, kind, own_param, code = ERRORS[refusal.kind]
    shown = f"{key[:3]}{'*' * 8}{key[-4:]}" if len(key) > 8 else "***"
    message = refusal.message or words.format(model=model, tokens=130_117, window=128_000, key=shown)
    return status, {"error": {"message": message, "type": kind, "param": own_param or param, "code": code}}


def error_frame(request_id: str) -> Frame:
    """An error in the middle of a stream."""
    del request_id
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
            yield ({"tool_calls": [named | {"function": {"name": part.name, "arguments": part.arguments}}]}, True)
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
        detail = {"type": "reasoning.encrypted", "data": sealed(part.text), "id": None, "format": FORMAT, "index": 1}
        yield {"content": "", "reasoning_details": [detail]}
        return
    for text in fragments(part.text, play.fragment):
        if play.details:
            detail = {"type": "reasoning.text", "text": text, "format": FORMAT, "index": 0}
            yield {"content": "", "reasoning": text, "reasoning_details": [detail]}
        else:
            yield {"reasoning_content": text}
    if play.details:
        signature = {"type": "reasoning.text", "signature": signature_of(part.text), "format": FORMAT, "index": 0}
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


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""


# ---- what it refuses ----------------------------------------------------------------------------------------

FIELDS: Final = {
    *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls"),
    *("max_tokens", "max_completion_tokens", "reasoning_effort", "temperature", "top_p", "n", "stop", "seed"),
    *("frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "response_format"),
    *("user", "metadata", "store", "service_tier", "modalities", "audio", "prediction", "verbosity"),
    *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "web_search_options", "moderation"),
    *("function_call", "functions"),
}
_MESSAGE_FIELDS: Final[Mapping[str, set[str]]] = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "tool": {"role", "content", "tool_call_id"},
    "assistant": {
        *("role", "content", "name", "refusal", "audio", "tool_calls", "function_call"),
        *("reasoning", "reasoning_content", "reasoning_details"),
    },
}
_EFFORTS: Final = (None, "none", "minimal", "low", "medium", "high", "xhigh")
_UNANSWERED: Final = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The "
    "following tool_call_ids did not have response messages: {ids}"
)
_UNASKED: Final = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
)


def check(body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    """Raise RequestFault if the service would answer 400."""
    del headers
    for name in body:
        require(name in FIELDS, f"Unknown parameter: '{name}'.", name)
    require(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    require("messages" in body, "Missing required parameter: 'messages'.", "messages")
    require(isinstance(body.get("stream", False), bool), "Invalid type for 'stream': expected a boolean.", "stream")
    limits = [name for name in ("max_tokens", "max_completion_tokens") if name in body]
    require(len(limits) < 2, "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    for name in limits:
        is_right = is_whole(body[name]) and body[name] >= 1
        require(is_right, f"Invalid '{name}': integer below minimum value. Expected a value >= 1.", name)
    effort = body.get("reasoning_effort")
    require(effort in _EFFORTS, f"Invalid value: '{effort}'. Supported values are: {_EFFORTS[1:]}", "reasoning_effort")
    _check_stream_options(body)
    _check_tools(body)
    _check_messages(body["messages"])


def check_thoughts(body: Mapping[str, Any], *, is_sealed: bool) -> None:
    """Raise RequestFault unless each answer with calls still has its reasoning, unchanged."""
    for place, message in enumerate(body["messages"]):
        if message["role"] != "assistant" or not message.get("tool_calls"):
            continue
        if is_sealed:
            _check_details(message.get("reasoning_details"), place)
            continue
        text = message.get("reasoning_content")
        words = f"Missing `reasoning_content` field in the assistant message at message index {place}"
        require(isinstance(text, str), words, f"messages.[{place}]")
        changed = f"`reasoning_content` at message index {place} differs from the answer"
        require(is_checked(str(text)), changed, f"messages.[{place}]")


def _check_stream_options(body: Mapping[str, Any]) -> None:
    options = body.get("stream_options")
    if options is None:
        return
    only = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
    require(body.get("stream"), only, "stream_options")
    is_known = isinstance(options, dict) and options.keys() <= {"include_usage", "include_obfuscation"}
    require(is_known, "Unknown parameter in 'stream_options'.", "stream_options")


def _check_tools(body: Mapping[str, Any]) -> None:
    if "tools" not in body:
        for name in ("tool_choice", "parallel_tool_calls"):
            require(name not in body, f"'{name}' is only allowed when 'tools' are specified.", name)
        return
    tools = body["tools"]
    is_list = isinstance(tools, list) and len(tools) > 0
    require(is_list, "Invalid 'tools': empty array. Expected an array with minimum length 1.", "tools")
    for index, tool in enumerate(tools):
        where = f"tools[{index}].function"
        is_function = isinstance(tool, dict) and tool.get("type") == "function" and tool.keys() == {"type", "function"}
        require(is_function and isinstance(tool["function"], dict), f"Missing required parameter: '{where}'.", where)
        function = tool["function"]
        for name in function:
            is_known = name in ("name", "description", "parameters", "strict")
            require(is_known, f"Unknown parameter: '{where}.{name}'.", f"{where}.{name}")
        check_tool_name(function.get("name"), f"{where}.name", 64)
        if "parameters" in function:
            is_strict = function.get("strict") is True
            words = f"Invalid schema for function '{function['name']}': {where}.parameters"
            check_schema(function["parameters"], words, is_strict=is_strict)
            if is_strict:
                _check_all_required(function["parameters"], words)


def _check_all_required(schema: Any, where: str) -> None:
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties", {})
    missing = properties.keys() - set(schema.get("required", ()))
    words = "'required' is required to be supplied and to be an array including every key in properties. Missing"
    require(not missing, f"{where}: {words} {sorted(missing)}.")
    for one in [*properties.values(), schema.get("items")]:
        _check_all_required(one, where)


def _check_messages(messages: object) -> None:
    if not isinstance(messages, list) or not messages:
        raise RequestFault("Invalid 'messages': empty array. Expected an array with minimum length 1.", "messages")
    open_ids: list[str] = []
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        role = message.get("role") if isinstance(message, dict) else None
        require(role in _MESSAGE_FIELDS, f"Invalid value: '{role}'. Supported values are: 'system', …", f"{where}.role")
        for name in message:
            require(name in _MESSAGE_FIELDS[str(role)], f"Unknown parameter: '{where}.{name}'.", f"{where}.{name}")
        if role == "tool":
            call_id = message.get("tool_call_id")
            require(call_id in open_ids, _UNASKED, f"messages.[{place}].role")
            open_ids.remove(str(call_id))
        else:
            require(not open_ids, _UNANSWERED.format(ids=", ".join(open_ids)), f"messages.[{place}].role")
        if role == "assistant":
            open_ids = _check_answer(message, where)
        else:
            _check_content(message.get("content"), where)
    require(not open_ids, _UNANSWERED.format(ids=", ".join(open_ids)), f"messages.[{len(messages)}].role")
    require(messages[-1]["role"] != "assistant", "The conversation must end with a user message.", "messages")
    require(any(message["role"] == "user" for message in messages), "messages: there is no user message", "messages")
    require(
        next(message["role"] for message in messages if message["role"] not in ("system", "developer")) == "user",
        "messages: the first message after the system's must be a user's",
        "messages",
    )


def _check_answer(message: Mapping[str, Any], where: str) -> list[str]:
    """Check an assistant's message; returns the ids of its calls."""
    if "tool_calls" not in message:
        _check_content(message.get("content"), where)
        return []
    calls = message["tool_calls"]
    if not isinstance(calls, list) or not calls:
        raise RequestFault(f"Invalid '{where}.tool_calls': empty array.", f"{where}.tool_calls")
    if message.get("content") is not None:
        _check_content(message["content"], where)
    for index, call in enumerate(calls):
        here = f"{where}.tool_calls[{index}]"
        require(isinstance(call, dict), f"Invalid type for '{here}'.", here)
        require(call.keys() == {"id", "type", "function"}, f"Missing or unknown parameter: '{here}'.", here)
        require(isinstance(call["id"], str) and 0 < len(call["id"]) <= 64, f"Invalid '{here}.id'.", f"{here}.id")
        require(call["type"] == "function", f"Invalid value: '{call['type']}'.", f"{here}.type")
        function = call["function"]
        is_function = isinstance(function, dict) and function.keys() == {"name", "arguments"}
        require(is_function, f"Missing or unknown parameter: '{here}.function'.", f"{here}.function")
        require(isinstance(function["name"], str) and function["name"], f"Invalid '{here}.function.name'.", here)
        words = f"Invalid type for '{here}.function.arguments': expected a string."
        require(isinstance(function["arguments"], str), words, f"{here}.function.arguments")
    ids = [call["id"] for call in calls]
    require(len(set(ids)) == len(ids), f"Duplicate value for 'tool_call_id' in {where}.", f"{where}.tool_calls")
    return ids


def _check_content(content: object, where: str) -> None:
    is_right = isinstance(content, str)
    if isinstance(content, list):
        is_right = bool(content) and all(
            isinstance(part, dict)
            and part.keys() <= {"type", "text", "cache_control"}
            and part.get("type") == "text"
            and isinstance(part.get("text"), str)
            for part in content
        )
    words = f"Invalid value for 'content': expected a string, got {type(content).__name__}."
    require(is_right, words, f"{where}.content")


def _check_details(details: object, place: int) -> None:
    """Check OpenRouter's details, complete or in streamed pieces: pieces of one index belong together."""
    where = f"messages.[{place}].reasoning_details"
    if not isinstance(details, list) or not details:
        raise RequestFault(f"Missing `reasoning_details` in the assistant message at message index {place}", where)
    merged = _merged(details)
    kinds = [detail.get("type") for detail in merged]
    changed = f"`reasoning_details` at message index {place} differ from the answer"
    require(kinds == ["reasoning.text", "reasoning.encrypted"], changed, where)
    text, unseen = merged
    require(text.get("signature") == signature_of(str(text.get("text"))), changed, where)
    require(is_sealed(str(unseen.get("data"))), changed, where)


def _merged(details: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    merged: list[dict[str, Any]] = []
    for detail in details:
        last = merged[-1] if merged else {}
        if last.get("type") == detail.get("type") == "reasoning.text":
            last["text"] = (last.get("text") or "") + (detail.get("text") or "")
            last["signature"] = detail.get("signature") or last.get("signature")
        else:
            merged.append(dict(detail))
    return merged

"""The reasons for which OpenAI's Chat Completions API refuses a request, in its own words if they are known.

Stricter than the service in one way: a conversation must not end with an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .checks import RequestFault, check_schema, check_tool_name, is_whole, require
from .response import is_checked, is_sealed, signature_of

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


def check(body: Mapping[str, Any]) -> None:
    """Raise RequestFault if the service would answer 400."""
    for name in body:
        require(name in FIELDS, f"Unknown parameter: '{name}'.", name)
    require(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    require("messages" in body, "Missing required parameter: 'messages'.", "messages")
    require(
        isinstance(body.get("stream", False), bool),
        "Invalid type for 'stream': expected a boolean.",
        "stream",
    )
    limits = [name for name in ("max_tokens", "max_completion_tokens") if name in body]
    require(len(limits) < 2, "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    for name in limits:
        is_right = is_whole(body[name]) and body[name] >= 1
        require(is_right, f"Invalid '{name}': integer below minimum value. Expected a value >= 1.", name)
    effort = body.get("reasoning_effort")
    require(
        effort in _EFFORTS,
        f"Invalid value: '{effort}'. Supported values are: {_EFFORTS[1:]}",
        "reasoning_effort",
    )
    _check_stream_options(body)
    _check_tools(body)
    _check_messages(body["messages"])


def check_thoughts(body: Mapping[str, Any], *, with_details: bool) -> None:
    """Raise RequestFault unless each answer with calls still has its reasoning, unchanged."""
    for place, message in enumerate(body["messages"]):
        if message["role"] != "assistant" or not message.get("tool_calls"):
            continue
        if with_details:
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
        require(
            is_function and isinstance(tool["function"], dict),
            f"Missing required parameter: '{where}'.",
            where,
        )
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
        require(
            role in _MESSAGE_FIELDS,
            f"Invalid value: '{role}'. Supported values are: 'system', …",
            f"{where}.role",
        )
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
    require(
        any(message["role"] == "user" for message in messages),
        "messages: there is no user message",
        "messages",
    )
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

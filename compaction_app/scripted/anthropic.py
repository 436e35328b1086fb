"""Anthropic's Messages API, server side: the requests that it refuses, and a script's moves as events, as one message,
and as errors.

    message_start · ping · (content_block_start · content_block_delta … · content_block_stop) … ·
    message_delta · message_stop

Each call's arguments start with an empty fragment, which is the only one if there are no arguments.

A request is refused in the service's own words if they are known. The checks are stricter than the service in two ways,
which proxies in front of it require: roles alternate, and a conversation with tool calls defines its tools.
"""

import json
import re
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
    is_sealed,
    is_whole,
    known_only,
    require,
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
            answered = [replace(call, result=results.get(call.call_id)) for call in last.calls]
            exchanges[-1] = replace(last, calls=answered, then=texts)
    tools = [OfferedTool(tool["name"], tool["input_schema"]) for tool in body.get("tools", ())]
    return ScriptedRequest(body["model"], prompt, exchanges, tools, characters, key)


def usage_of(request: ScriptedRequest, play: Play, *, at_start: bool = False) -> dict[str, Any]:
    """The reported tokens, four characters each: half of the earlier prompt is read from the cache."""
    if not play.reports_usage:
        return {"input_tokens": 0, "output_tokens": 0}
    tokens = request.characters // 4
    cached = tokens // 2
    words = 1 if at_start else sum(part.length for part in play.parts) // 4 + 1
    return {
        "input_tokens": tokens - cached,
        "cache_creation_input_tokens": cached if request.is_first else 0,
        "cache_read_input_tokens": 0 if request.is_first else cached,
        "output_tokens": words,
    }


def frames(request: ScriptedRequest, play: Play, message_id: str, body: Mapping[str, Any]) -> Iterator[Frame]:
    """The events of an answer, up to its break if it has one."""
    del body
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


def error(refusal: Refuse, model: str, request_id: str, *, key: str, param: str | None) -> tuple[int, dict[str, Any]]:
    """Status and body of an HTTP error."""
    del key, param
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
    request: ScriptedRequest, message_id: str, content: list[dict[str, Any]], stop: str | None, usage: dict[str, Any]
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


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(content: str | list[dict[str, Any]]) -> str:
    return "\n".join(block.get("text", "") for block in _blocks(content))


# ---- what it refuses ----------------------------------------------------------------------------------------

FIELDS: Final = {
    *("model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "thinking", "output_config"),
    *("temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier", "container", "cache_control"),
    *("inference_geo", "speed", "context_management", "mcp_servers"),
}
_TOOL_FIELDS: Final = {
    *("name", "description", "input_schema", "type", "cache_control", "strict", "input_examples"),
    *("defer_loading", "allowed_callers", "eager_input_streaming"),
}
_BLOCK_FIELDS: Final[Mapping[str, set[str]]] = {
    "text": {"type", "text", "cache_control", "citations"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
_BY_ROLE: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
}
_UNANSWERED: Final = (
    "messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each "
    "`tool_use` block must have a corresponding `tool_result` block in the next message."
)
_UNASKED: Final = (
    "messages.{place}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {ids}. Each "
    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
)
_CHANGED: Final = (
    "messages.{place}.content.{index}: `thinking` or `redacted_thinking` blocks in the latest assistant message "
    "cannot be modified. These blocks must remain as they were in the original response."
)
_MISSING: Final = (
    "messages.{place}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When "
    "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set "
    "of `tool_use` and `tool_result` blocks)."
)


def check(body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    """Raise RequestFault if the service would answer 400."""
    require(headers.get("anthropic-version"), "anthropic-version: header is required")
    known_only(body, FIELDS, "")
    for name in ("model", "messages", "max_tokens"):
        require(name in body, f"{name}: Field required")
    require(isinstance(body["model"], str) and body["model"], "model: String should have at least 1 character")
    require(is_whole(body["max_tokens"]) and body["max_tokens"] >= 1, "max_tokens: Input should be at least 1")
    require(isinstance(body.get("stream", False), bool), "stream: Input should be a valid boolean")
    _check_system(body.get("system", ""))
    _check_tools(body)
    _check_thinking(body)
    _check_messages(body["messages"])
    uses_tools = any(block["type"].startswith("tool_") for block in _all_blocks(body["messages"]))
    require(
        body.get("tools") or not uses_tools,
        "Requests which have `tool_use` or `tool_result` blocks in their `messages` must define tools.",
    )
    marks = str(body.get("system")), str(body.get("tools")), str(body["messages"])
    count = sum(text.count("'cache_control': {") for text in marks)
    require(count <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {count}.")


def check_thoughts(body: Mapping[str, Any], *, is_sealed: bool) -> None:
    """Raise RequestFault unless each answer with calls still starts with its thinking."""
    for place, message in enumerate(body["messages"]):
        blocks = _blocks(message["content"])
        if message["role"] != "assistant" or not any(block["type"] == "tool_use" for block in blocks):
            continue
        kinds = [block["type"] for block in blocks]
        require(kinds[0] == "thinking", _MISSING.format(place=place, found=kinds[0]))
        if is_sealed:
            require(kinds[1] == "redacted_thinking", _CHANGED.format(place=place, index=1))


def _check_system(system: object) -> None:
    if isinstance(system, str):
        return
    if not isinstance(system, list):
        raise RequestFault("system: Input should be a valid list")
    for index, block in enumerate(system):
        is_text = isinstance(block, dict) and block.get("type") == "text"
        require(is_text, f"system.{index}.type: Input should be 'text'")
        known_only(block, _BLOCK_FIELDS["text"], f"system.{index}.")
        _check_text(block, "system")
        _check_cache_mark(block, f"system.{index}")


def _check_tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools", [])
    require(isinstance(tools, list), "tools: Input should be a valid list")
    for index, tool in enumerate(tools):
        where = f"tools.{index}.custom"
        require(isinstance(tool, dict), f"tools.{index}: Input should be a valid dictionary")
        require(tool.get("type", "custom") == "custom", f"tools.{index}: Input tag does not match")
        known_only(tool, _TOOL_FIELDS, f"{where}.")
        check_tool_name(tool.get("name"), f"{where}.name", 128)
        require(isinstance(tool.get("description", ""), str), f"{where}.description: Input should be a valid string")
        check_schema(tool.get("input_schema"), f"{where}.input_schema", is_strict=tool.get("strict") is True)
        _check_cache_mark(tool, where)
    names = [tool["name"] for tool in tools]
    require(len(set(names)) == len(names), "tools: Tool names must be unique.")
    choice = body.get("tool_choice")
    if choice is not None:
        require(isinstance(choice, dict), "tool_choice: Input should be a valid dictionary")
        known_only(choice, {"type", "name", "disable_parallel_tool_use"}, "tool_choice.")
        require(choice.get("type") in ("auto", "any", "tool", "none"), "tool_choice.type: Input tag does not match")
        require(tools, "tool_choice: tool_choice may only be specified while providing tools")
        is_there = choice["type"] != "tool" or choice.get("name") in names
        require(is_there, f"Tool '{choice.get('name')}' not found in provided tools")


def _check_thinking(body: Mapping[str, Any]) -> None:
    effort = body.get("output_config", {})
    require(isinstance(effort, dict), "output_config: Input should be a valid dictionary")
    known_only(effort, {"effort", "format", "task_budget"}, "output_config.")
    levels = (None, "low", "medium", "high", "xhigh", "max")
    require(effort.get("effort") in levels, "output_config.effort: Input should be 'low', 'medium', 'high' or 'max'")
    thinking = body.get("thinking")
    if thinking is None:
        return
    require(isinstance(thinking, dict), "thinking: Input should be a valid dictionary")
    kind = thinking.get("type")
    fields = {"enabled": {"type", "budget_tokens", "display"}, "adaptive": {"type", "display"}, "disabled": {"type"}}
    require(kind in fields, f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    known_only(thinking, fields[kind], f"thinking.{kind}.")
    if kind == "disabled":
        return
    forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    require(not forced, "Thinking may not be enabled when tool_choice forces tool use.")
    require(body.get("temperature", 1) == 1, "`temperature` may only be set to 1 when thinking is enabled.")
    if kind == "enabled":
        tokens = thinking.get("budget_tokens")
        where = "thinking.enabled.budget_tokens"
        require(is_whole(tokens) and tokens >= 1024, f"{where}: Input should be greater than or equal to 1024")
        require(tokens < body["max_tokens"], "`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_messages(messages: object) -> None:
    if not isinstance(messages, list):
        raise RequestFault("messages: Input should be a valid list")
    require(messages, "messages: at least one message is required")
    open_ids: list[str] = []
    seen: set[str] = set()
    role_before = "assistant"
    for place, message in enumerate(messages):
        require(isinstance(message, dict), f"messages.{place}: Input should be a valid dictionary")
        known_only(message, {"role", "content"}, f"messages.{place}.")
        role = message.get("role")
        require(role in _BY_ROLE, f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant".')
        first = 'messages: first message must use the "user" role'
        twice = f'messages: roles must alternate between "user" and "assistant", but found multiple "{role}" roles'
        require(role != role_before, twice if place else first)
        role_before = role
        blocks = _check_blocks(message.get("content"), role, place)
        if role == "user":
            _check_results(blocks, place, open_ids)
            open_ids = []
        else:
            _check_thoughts_in_place(blocks, place)
            open_ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
            require(not seen & set(open_ids), "messages: `tool_use` ids must be unique")
            require(len(set(open_ids)) == len(open_ids), "messages: `tool_use` ids must be unique")
            seen |= set(open_ids)
    require(
        role_before == "user",
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    )


def _check_blocks(content: object, role: str, place: int) -> Sequence[Mapping[str, Any]]:
    where = f"messages.{place}"
    if isinstance(content, str):
        require(content, f"{where}: {role} messages must have non-empty content")
        require(content.strip(), "messages: text content blocks must contain non-whitespace text")
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise RequestFault(f"{where}.content: Input should be a valid list")
    require(content, f"{where}: {role} messages must have non-empty content")
    for index, block in enumerate(content):
        here = f"{where}.content.{index}"
        kind = block.get("type") if isinstance(block, dict) else None
        is_known = isinstance(kind, str) and kind in _BY_ROLE[role]
        require(is_known, f"{here}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
        known_only(block, _BLOCK_FIELDS[str(kind)], f"{here}.{kind}.")
        _check_cache_mark(block, here)
        _CHECKS[str(kind)](block, f"{here}.{kind}")
    return content


def _check_text(block: Mapping[str, Any], where: str) -> None:
    text = block.get("text")
    require(isinstance(text, str), f"{where}.text: Input should be a valid string")
    require(text, "messages: text content blocks must be non-empty")
    require(str(text).strip(), "messages: text content blocks must contain non-whitespace text")


def _check_tool_use(block: Mapping[str, Any], where: str) -> None:
    is_id = isinstance(block.get("id"), str) and re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"])
    require(is_id, f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    name = block.get("name")
    require(isinstance(name, str) and 1 <= len(name) <= 200, f"{where}.name: String should have at least 1 character")
    require(isinstance(block.get("input"), dict), f"{where}.input: Input should be a valid dictionary")


def _check_tool_result(block: Mapping[str, Any], where: str) -> None:
    require(isinstance(block.get("tool_use_id"), str), f"{where}.tool_use_id: Field required")
    require(isinstance(block.get("is_error", False), bool), f"{where}.is_error: Input should be a valid boolean")
    content = block.get("content", "")
    require(isinstance(content, str | list), f"{where}.content: Input should be a valid list")
    require(content or not block.get("is_error"), f"{where}: content cannot be empty if `is_error` is true")
    for index, part in enumerate(content if isinstance(content, list) else ()):
        is_text = isinstance(part, dict) and part.get("type") == "text"
        require(is_text, f"{where}.content.{index}: Input tag does not match any of the expected tags")
        known_only(part, _BLOCK_FIELDS["text"], f"{where}.content.{index}.text.")
        _check_text(part, where)


def _check_thinking_block(block: Mapping[str, Any], where: str) -> None:
    for name in ("thinking", "signature"):
        require(isinstance(block.get(name), str), f"{where}.{name}: Field required")
    is_signed = block["signature"] == signature_of(block["thinking"])
    require(is_signed, f"{where.removesuffix('.thinking')}: Invalid `signature` in `thinking` block")


def _check_sealed_block(block: Mapping[str, Any], where: str) -> None:
    data = block.get("data")
    is_right = isinstance(data, str) and is_sealed(data)
    require(is_right, f"{where.removesuffix('.redacted_thinking')}: Invalid `data` in `redacted_thinking` block")


_CHECKS: Final = {
    "text": _check_text,
    "tool_use": _check_tool_use,
    "tool_result": _check_tool_result,
    "thinking": _check_thinking_block,
    "redacted_thinking": _check_sealed_block,
}


def _check_results(blocks: Sequence[Mapping[str, Any]], place: int, open_ids: list[str]) -> None:
    """Require the results of all calls of the previous answer, first in the message, and no others."""
    answered: list[str] = []
    for index, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        call_id = block["tool_use_id"]
        require(call_id in open_ids, _UNASKED.format(place=place, index=index, ids=call_id))
        twice = f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call_id}"
        require(call_id not in answered, f"messages.{place}.content.{index}: {twice}")
        answered.append(call_id)
    missing = [call_id for call_id in open_ids if call_id not in answered]
    require(not missing, _UNANSWERED.format(place=place - 1, ids=", ".join(missing)))
    leading = [block["type"] for block in blocks[: len(open_ids)]]
    is_first = all(kind == "tool_result" for kind in leading)
    require(is_first, _UNANSWERED.format(place=place - 1, ids=", ".join(open_ids)))


def _check_thoughts_in_place(blocks: Sequence[Mapping[str, Any]], place: int) -> None:
    is_thought = [block["type"].endswith("thinking") for block in blocks]
    index = is_thought.index(False) if False in is_thought else len(blocks)
    require(True not in is_thought[index:], _CHANGED.format(place=place, index=index))


def _check_cache_mark(block: Mapping[str, Any], where: str) -> None:
    mark = block.get("cache_control")
    if mark is None:
        return
    is_known = isinstance(mark, dict) and mark.get("type") == "ephemeral" and mark.get("ttl", "5m") in ("5m", "1h")
    require(is_known, f"{where}.cache_control: Input tag does not match any of the expected tags")
    known_only(mark, {"type", "ttl"}, f"{where}.cache_control.ephemeral.")


def _all_blocks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for message in messages for block in _blocks(message["content"])]

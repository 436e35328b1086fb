"""The reasons for which Anthropic's Messages API refuses a request, in its own words if they are known.

Stricter than the service in two ways, which proxies in front of it require: roles alternate, and a conversation with
tool calls defines its tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .checks import RequestFault, check_schema, check_tool_name, is_whole, known_only, require
from .response import is_sealed, signature_of

FIELDS: Final = {
    *(
        "model",
        "messages",
        "max_tokens",
        "system",
        "tools",
        "tool_choice",
        "stream",
        "thinking",
        "output_config",
    ),
    *(
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "metadata",
        "service_tier",
        "container",
        "cache_control",
    ),
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


def check_thoughts(body: Mapping[str, Any], *, with_sealed: bool) -> None:
    """Raise RequestFault unless each answer with calls still starts with its thinking."""
    for place, message in enumerate(body["messages"]):
        blocks = _blocks(message["content"])
        if message["role"] != "assistant" or not any(block["type"] == "tool_use" for block in blocks):
            continue
        kinds = [block["type"] for block in blocks]
        require(kinds[0] == "thinking", _MISSING.format(place=place, found=kinds[0]))
        if with_sealed:
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
        require(
            isinstance(tool.get("description", ""), str),
            f"{where}.description: Input should be a valid string",
        )
        check_schema(tool.get("input_schema"), f"{where}.input_schema", is_strict=tool.get("strict") is True)
        _check_cache_mark(tool, where)
    names = [tool["name"] for tool in tools]
    require(len(set(names)) == len(names), "tools: Tool names must be unique.")
    choice = body.get("tool_choice")
    if choice is not None:
        require(isinstance(choice, dict), "tool_choice: Input should be a valid dictionary")
        known_only(choice, {"type", "name", "disable_parallel_tool_use"}, "tool_choice.")
        require(
            choice.get("type") in ("auto", "any", "tool", "none"),
            "tool_choice.type: Input tag does not match",
        )
        require(tools, "tool_choice: tool_choice may only be specified while providing tools")
        is_there = choice["type"] != "tool" or choice.get("name") in names
        require(is_there, f"Tool '{choice.get('name')}' not found in provided tools")


def _check_thinking(body: Mapping[str, Any]) -> None:
    effort = body.get("output_config", {})
    require(isinstance(effort, dict), "output_config: Input should be a valid dictionary")
    known_only(effort, {"effort", "format", "task_budget"}, "output_config.")
    levels = (None, "low", "medium", "high", "xhigh", "max")
    require(
        effort.get("effort") in levels,
        "output_config.effort: Input should be 'low', 'medium', 'high' or 'max'",
    )
    thinking = body.get("thinking")
    if thinking is None:
        return
    require(isinstance(thinking, dict), "thinking: Input should be a valid dictionary")
    kind = thinking.get("type")
    fields = {
        "enabled": {"type", "budget_tokens", "display"},
        "adaptive": {"type", "display"},
        "disabled": {"type"},
    }
    require(
        kind in fields,
        f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags",
    )
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
    require(
        isinstance(name, str) and 1 <= len(name) <= 200,
        f"{where}.name: String should have at least 1 character",
    )
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


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _all_blocks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for message in messages for block in _blocks(message["content"])]

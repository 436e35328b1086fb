"""Converts one recorded line or item of Codex to `Entry` and `Texts`.

    line ──parse──▶ object ──describe_line──▶ (Entry, Texts)
    item of a compacted line ──describe_item──▶ (Entry, Texts)

Every object becomes an entry, whatever its fields contain. Only the items of ITEMS that have the fields that Codex
requires make the conversation: it skips a line with any other item, and never sends a ghost snapshot.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.entries import (
    ENCRYPTED,
    NO_TEXTS,
    Block,
    BlockType,
    Entry,
    EntryKind,
    ModelControl,
    Role,
    Texts,
    tokens_of,
)
from sessions_app.sessionlog.jsjson import stringify, utf16_length, well_formed
from sessions_app.sessionlog.opaque import Opaque

KEY: Final = "codex"
SUMMARY_OPENING: Final = (400, "a6684d9425a97ca71def32dc")
"""The length and the digest of the words with which Codex introduces its summaries, by which it knows them again."""
REASONING: Final = "reasoning"
COMPACTED: Final = "compacted"
"""The type of a line that Codex's compaction writes, and of the summary on it if it has no items."""
SPAWN: Final = "spawn_agent"
"""The tool that starts a subagent."""
PASSTHROUGH: Final = "internal_chat_message_metadata_passthrough"
METADATA: Final = frozenset({PASSTHROUGH, "metadata"})
"""The fields of an item that describe it and are not part of it."""
INJECTED_KIND: Final = "environments."
INJECTED_TEXTS: Final = (
    "# AGENTS.md instructions",
    "<environment_context>",
    "<skill>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_instructions>",
    "<user_shell_command>",
)
"""How the texts begin that Codex adds in the role of the user, in any case and after blanks. They are no prompts: no
rollback counts them, and no summary without items keeps them."""
_INJECTED_TEXTS: Final = tuple(map(str.lower, INJECTED_TEXTS))
_LONGEST_OPENING: Final = max(map(len, INJECTED_TEXTS))
_TEXTS: Final = frozenset({"input_text", "output_text", "summary_text", "reasoning_text", "text"})


class ItemKind(NamedTuple):
    """A kind of items of the conversation: how it is described, and the fields without which Codex skips it."""

    describe: Callable[[Mapping[str, Any]], _Content]
    required: Mapping[str, type | tuple[type, ...]]


class _Content(NamedTuple):
    """What an item adds to the conversation."""

    role: str
    blocks: tuple[Block, ...] | None
    texts: Texts
    units: int
    result_for: str | None = None
    tool_name: str = ""


def describe_line(data: Mapping[str, Any], common: Mapping[str, Any], provider: str) -> tuple[Entry, Texts]:
    """The entry of a whole line. `common` has its position and ids; `provider` is that of the session's models."""
    recorded_type, content = fields.word(data, "type"), fields.mapping(data, "payload")
    common = {**common, "timestamp": fields.stored_text(data, "timestamp")}
    if recorded_type == "response_item":
        return describe_item(content, common)
    if recorded_type == "event_msg":
        recorded_type = fields.word(content, "type") or recorded_type
    if recorded_type == "turn_context" and (model := fields.model(provider, content.get("model"))) is not None:
        control = ModelControl("", model[1])
        entry = Entry(**common, type=recorded_type, kind=EntryKind.MODEL, model=model, control=control)
        return entry, NO_TEXTS
    kind = LINE_KINDS.get(recorded_type, EntryKind.OFF_BRANCH)
    if kind is EntryKind.OFF_BRANCH:
        common["parent_id"] = None
    return Entry(**common, type=recorded_type, kind=kind), NO_TEXTS


LINE_KINDS: Final = {
    "session_meta": EntryKind.OTHER,
    "world_state": EntryKind.OTHER,
    "turn_context": EntryKind.OTHER,
    "compacted": EntryKind.BOUNDARY,
    "thread_rolled_back": EntryKind.BOUNDARY,
}
"""The kinds of lines that belong to the conversation without being items. All others lie beside it."""
KNOWN_TYPES: Final = frozenset({"session_meta", "response_item", "compacted", "turn_context", "event_msg"})
"""The types of lines that show that a file is a rollout."""


def describe_item(item: Mapping[str, Any], common: Mapping[str, Any]) -> tuple[Entry, Texts]:
    """The entry of a Responses item."""
    recorded_type = fields.word(item, "type")
    known = ITEMS.get(recorded_type)
    if known is None or not all(isinstance(item.get(name), kind) for name, kind in known.required.items()):
        entry = Entry(**common, type=recorded_type or "response_item", kind=EntryKind.OTHER)
        return entry, NO_TEXTS
    found = known.describe(item)
    entry = Entry(
        **common,
        type=recorded_type,
        kind=EntryKind.MESSAGE,
        role=found.role,
        tokens=tokens_of(found.units),
        blocks=found.blocks,
        result_for=found.result_for,
        tool_name=found.tool_name,
    )
    return entry, found.texts


def describe_summary(text: str, common: Mapping[str, Any]) -> tuple[Entry, Texts]:
    """The summary of a compacted line that has no items."""
    tokens = tokens_of(utf16_length(text))
    entry = Entry(**common, type=COMPACTED, kind=EntryKind.MESSAGE, role=Role.COMPACTION_SUMMARY, tokens=tokens)
    return entry, Texts(whole=text, blocks=())


def is_introduced(text: str) -> bool:
    """Whether a text begins as Codex's own summaries do."""
    length, digest = SUMMARY_OPENING
    return digest_of_text(text[:length]) == digest


def digest_of_text(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def summary_item(text: str) -> dict[str, Any]:
    """The item that Codex makes of the summary of a compacted line without items."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def started_agent(payload: Mapping[str, Any]) -> tuple[str, str] | None:
    """The call that started a subagent, and the id of its thread, if an event says so: the output of the call does not
    name the thread in newer versions."""
    item = fields.mapping(payload, "item")
    call_id, thread_id = fields.text_or_none(item, "id"), fields.text_or_none(item, "agent_thread_id")
    if item.get("kind") != "started" or call_id is None or thread_id is None:
        return None
    return call_id, thread_id


def without_metadata(item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an item that the model receives."""
    return {name: value for name, value in item.items() if name not in METADATA}


def spawned_thread(output: str | None) -> str:
    """The id of the thread that the output of SPAWN names; empty if it names none."""
    return fields.stored_text(fields.object_in((output or "").encode("utf-8", "replace")) or {}, "agent_id")


# ---- items -----------------------------------------------------------------------------------------------


def _message(item: Mapping[str, Any]) -> _Content:
    blocks, texts, units = _describe_content(item["content"])
    role = fields.word(item, "role")
    if role == "developer" or (role == "user" and _is_injected(item)):
        return _Content(Role.INJECTED, blocks, texts, units)
    return _Content(role, blocks, texts, units)


def _is_injected(item: Mapping[str, Any]) -> bool:
    """Whether Codex itself added a message in the role of the user."""
    kinds = fields.texts(fields.mapping(item, PASSTHROUGH), "content_item_kinds")
    if any(kind.startswith(INJECTED_KIND) for kind in kinds):
        return True
    text = fields.text(fields.as_mapping(item["content"][0]), "text") if item["content"] else ""
    return text.lstrip()[:_LONGEST_OPENING].lower().startswith(_INJECTED_TEXTS)


def _reasoning(item: Mapping[str, Any]) -> _Content:
    """One block: a summary, or the reasoning itself; or what is only encrypted."""
    text = "\n\n".join([*_texts_in(item, "content"), *_texts_in(item, "summary")])
    encrypted = fields.text_or_none(item, "encrypted_content")
    opaque = () if text or encrypted is None else (Opaque.encrypted(encrypted, 0),)
    units = opaque[0].units if opaque else utf16_length(text)
    block = Block.of(0, BlockType.THINKING if text else BlockType.REDACTED_THINKING, units)
    return _Content(Role.ASSISTANT, (block,), Texts(None, (text,), opaque), units)


def _call(item: Mapping[str, Any], name: str, arguments: str) -> _Content:
    call_id = fields.stored_text(item, "call_id") or None
    block, text = Block.of_call(0, call_id, name, arguments, shown_id=f"{call_id}")
    tool_name = sys.intern(well_formed(name))
    return _Content(Role.ASSISTANT, (block,), Texts(whole=None, blocks=(text,)), block.units, tool_name=tool_name)


def _function_call(item: Mapping[str, Any]) -> _Content:
    return _call(item, item["name"], item["arguments"])


def _custom_call(item: Mapping[str, Any]) -> _Content:
    return _call(item, item["name"], item["input"])


def _shell_call(item: Mapping[str, Any]) -> _Content:
    return _call(item, "local_shell", stringify(item["action"]))


def _search_call(item: Mapping[str, Any]) -> _Content:
    return _call(item, "tool_search", stringify(item.get("arguments")))


def _output(item: Mapping[str, Any]) -> _Content:
    output = item.get("output", item.get("tools"))
    if isinstance(output, list):
        blocks, texts, units = _describe_content(output)
    else:
        text = output if isinstance(output, str) else stringify(output)
        blocks, texts, units = None, Texts(whole=text, blocks=()), utf16_length(text)
    return _Content(Role.TOOL_RESULT, blocks, texts, units, result_for=fields.stored_text(item, "call_id"))


def _step(item: Mapping[str, Any]) -> _Content:
    """Something that the model did and that has no result of its own: a web search, an image."""
    text = stringify({name: value for name, value in without_metadata(item).items() if name != "result"})
    image = (Opaque.image(item["result"], 0, text),) if "result" in item else ()
    units = image[0].units if image else utf16_length(text)
    block = Block.of(0, fields.word(item, "type"), units)
    return _Content(Role.ASSISTANT, (block,), Texts(None, (text,), image), units)


def _compaction(item: Mapping[str, Any]) -> _Content:
    """A compaction that only its provider can read."""
    opaque = Opaque.encrypted(item["encrypted_content"], label=ENCRYPTED)
    return _Content(Role.COMPACTION_SUMMARY, None, Texts(ENCRYPTED, (), (opaque,)), opaque.units)


def _agent_message(item: Mapping[str, Any]) -> _Content:
    blocks, texts, units = _describe_content(item["content"])
    return _Content(Role.CUSTOM, blocks, texts, units)


def _tools(item: Mapping[str, Any]) -> _Content:
    text = stringify(item["tools"])
    return _Content(Role.INJECTED, None, Texts(whole=text, blocks=()), utf16_length(text))


ITEMS: Final[Mapping[str, ItemKind]] = {
    "message": ItemKind(_message, {"role": str, "content": list}),
    "reasoning": ItemKind(_reasoning, {"summary": list}),
    "function_call": ItemKind(_function_call, {"name": str, "arguments": str, "call_id": str}),
    "function_call_output": ItemKind(_output, {"call_id": str, "output": (str, list, dict)}),
    "custom_tool_call": ItemKind(_custom_call, {"name": str, "input": str, "call_id": str}),
    "custom_tool_call_output": ItemKind(_output, {"call_id": str, "output": (str, list, dict)}),
    "local_shell_call": ItemKind(_shell_call, {"action": dict}),
    "tool_search_call": ItemKind(_search_call, {"execution": str}),
    "tool_search_output": ItemKind(_output, {"call_id": str, "tools": list}),
    "web_search_call": ItemKind(_step, {}),
    "image_generation_call": ItemKind(_step, {"result": str}),
    "compaction": ItemKind(_compaction, {"encrypted_content": str}),
    "compaction_summary": ItemKind(_compaction, {"encrypted_content": str}),
    "context_compaction": ItemKind(_compaction, {"encrypted_content": str}),
    "agent_message": ItemKind(_agent_message, {"content": list}),
    "additional_tools": ItemKind(_tools, {"tools": list}),
}
"""The items that Codex sends."""
CONTENT_IN: Final = {
    "message": "content",
    "agent_message": "content",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
    "tool_search_output": "tools",
}
"""The field whose array is divided into blocks, by type of item."""


def _describe_content(content: list[Any]) -> tuple[tuple[Block, ...], Texts, int]:
    """The blocks of an array, their texts, and its total of UTF-16 units."""
    described = [_describe_block(part, index) for index, part in enumerate(content)]
    blocks = tuple(block for block, _, _ in described)
    texts = tuple(text for _, text, _ in described)
    opaque = tuple(found for _, _, found in described if found is not None)
    return blocks, Texts(None, texts, opaque), sum(block.units for block in blocks)


def _describe_block(part: object, index: int) -> tuple[Block, str, Opaque | None]:
    """A part of a content as a block, its text, and what of it is not text."""
    found_part = fields.as_mapping(part)
    kind = fields.word(found_part, "type")
    if kind in _TEXTS and (text := fields.text_or_none(found_part, "text")) is not None:
        return Block.of(index, BlockType.TEXT, utf16_length(text)), text, None
    if kind in ("input_image", "encrypted_content"):
        found = _opaque(found_part, kind, index)
        block_type = BlockType.IMAGE if kind == "input_image" else kind
        return Block.of(index, block_type, found.units), found.label, found
    text = stringify(part)
    return Block.of(index, kind or BlockType.UNKNOWN, utf16_length(text)), text, None


def _opaque(part: Mapping[str, Any], kind: str, index: int) -> Opaque:
    """An image, or what one agent told another and only the provider can read."""
    if kind == "input_image":
        return Opaque.image(fields.text(part, "image_url"), index)
    return Opaque.encrypted(fields.text(part, kind), index, ENCRYPTED)


def _texts_in(item: Mapping[str, Any], name: str) -> Iterator[str]:
    return filter(None, (fields.text(part, "text") for part in fields.objects(item, name)))

"""What the rules need to know of one recorded entry, without its content.

An `Entry` is the digest of one line: who wrote it, what it answers, how its content is cut into blocks and
how much each weighs. Filters, readers, context, protection and pairing are all decided on it, so a session
of 100 MB is held in a few megabytes; the texts are read from the file, by offset, where someone looks at them.

    line ──parse──▶ object ──describe──▶ (Entry, Texts)

Token estimates are written into the session, so they match the agent's: UTF-16 units / 4, rounded up.
Whatever a field holds that it should not hold, an entry is still made: sessions are damaged, and hostile.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from .jsjson import stringify, to_string, trim, utf16_length, well_formed
from .overflow import READ_CHARACTERS, overflown_window

UNITS_PER_TOKEN: Final = 4
IMAGE_UNITS: Final = 4800

THINKING_TYPES: Final = frozenset({"thinking", "redacted_thinking"})
MESSAGE_TYPES: Final = frozenset({"message", "custom_message", "branch_summary"})
# These steer how a branch is read. They are small, and the rules need what they say.
CONTROL_TYPES: Final = frozenset(
    {
        "compaction",
        "context_compaction",
        "context_edit",
        "label",
        "model_change",
        "session_info",
        "thinking_level_change",
    }
)
PI_TYPES: Final = frozenset({"context_edit", "usage"})
"""Types that only pi writes, from 0.86 on."""
ENTRY_TYPES: Final = MESSAGE_TYPES | CONTROL_TYPES | {"custom", "usage"}
"""The types that agents write today. Others are kept and shown as well."""


def tokens_of(units: int) -> int:
    """The agent's estimate of the tokens in a number of UTF-16 code units."""
    return -(-units // UNITS_PER_TOKEN)


class Block(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One content block, at its index in the recorded array."""

    index: int
    type: str
    tokens: int
    """Its own estimate, used where the block alone is deleted."""
    units: int
    """UTF-16 code units it counts in its entry's estimate; some kinds of block count nothing there."""
    call_id: str | None = None
    """The id of the tool call it makes."""

    @property
    def is_thinking(self) -> bool:
        return self.type in THINKING_TYPES


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The digest of one recorded entry. `number` counts the file's lines from 1; `offset` and `length` are bytes."""

    number: int
    offset: int
    length: int
    id: str
    parent_id: str | None
    type: str
    timestamp: str = ""
    role: str = ""
    """The message's role; `custom`, `branchSummary` or `compactionSummary` for entries that become one."""
    tokens: int = 0
    """The estimate of the whole entry as recorded."""
    blocks: tuple[Block, ...] | None = None
    """The recorded content blocks; None where the content is no array."""
    result_for: str | None = None
    """The id of the tool call that a tool result answers."""
    tool_name: str = ""
    failed: bool = False
    """An assistant that stopped with an error, a tool result that is one, a command with a non-zero exit code."""
    excluded: bool = False
    """`excludeFromContext`: rebuilt with the rest, but not sent to the model."""
    empty: bool = False
    """A branch summary without text: compactable, but not rebuilt."""
    stop_reason: str = ""
    usage: int | None = None
    """The context in tokens that the provider reported with an assistant message."""
    model: tuple[str, str] | None = None
    """Provider and model id, where an assistant or a model change names both."""
    overflown: int | None = None
    """The largest window, in tokens, that an assistant says to have been too small: see `overflow`."""
    by_pi: bool = False
    """Whether only pi, from 0.86 on, writes such an entry."""
    control: dict[str, Any] | None = None
    """The recorded object itself, for the types in CONTROL_TYPES; never changed."""

    @property
    def is_message(self) -> bool:
        """Whether entries of this type can be part of a model's context."""
        return self.type in MESSAGE_TYPES

    @property
    def has_text(self) -> bool:
        """Whether some agent puts its text into the context: that of a message, or of a compaction's summary."""
        return self.is_message or self.type == "compaction"

    @property
    def bears_thinking(self) -> bool:
        return self.blocks is not None and any(block.is_thinking for block in self.blocks)

    def call_ids(self) -> Iterator[str]:
        """The ids of the tool calls it makes, in block order, repeats included."""
        for block in self.blocks or ():
            if block.call_id is not None:
                yield block.call_id


class Texts(msgspec.Struct, frozen=True, gc=False):
    """The texts of one entry: one per content block, or the whole where the content is no array."""

    whole: str | None
    blocks: tuple[str, ...]

    def block(self, index: int) -> str:
        """The text of the block at this index of the recorded array."""
        return self.blocks[index]

    def joined(self, blocks: tuple[Block, ...] | None) -> str:
        """The entry's text with only these of its blocks."""
        if self.whole is not None or blocks is None:
            return self.whole or ""
        if len(blocks) == 1:
            return self.blocks[blocks[0].index]
        return "\n".join(self.blocks[block.index] for block in blocks)


NO_TEXTS: Final = Texts(whole="", blocks=())


def describe(
    data: Mapping[str, Any], *, number: int, offset: int, length: int, entry_id: str, parent_id: str | None
) -> tuple[Entry, Texts]:
    """The digest and the texts of one recorded object (at version 3, or read as such)."""
    kind = _label(data.get("type"))
    common: dict[str, Any] = {
        "number": number,
        "offset": offset,
        "length": length,
        "id": entry_id,
        "parent_id": parent_id,
        "type": kind,
        "timestamp": well_formed(_text(data.get("timestamp"))),
        "control": dict(data) if kind in CONTROL_TYPES else None,
        "by_pi": kind in PI_TYPES,
    }
    if kind == "message":
        message = data.get("message")
        return _describe_message(message if isinstance(message, Mapping) else {}, common)
    if kind == "custom_message":
        return _describe_content(data, "custom", common)
    if kind in ("branch_summary", "compaction"):
        summary = _text(data.get("summary"))
        role = "branchSummary" if kind == "branch_summary" else "compactionSummary"
        entry = Entry(
            **common,
            role=role,
            tokens=tokens_of(utf16_length(summary)),
            empty=not summary,
            excluded=data.get("excludeFromContext") is True,
        )
        return entry, Texts(whole=summary, blocks=())
    if kind == "model_change":
        return Entry(**common, model=_model(data.get("provider"), data.get("modelId"))), NO_TEXTS
    return Entry(**common), NO_TEXTS


def _describe_message(message: Mapping[str, Any], common: dict[str, Any]) -> tuple[Entry, Texts]:
    role = _label(message.get("role"))
    if role == "bashExecution":
        command, output = to_string(message.get("command", "")), to_string(message.get("output", ""))
        exit_code = message.get("exitCode")
        entry = Entry(
            **common,
            role=role,
            tokens=tokens_of(utf16_length(command) + utf16_length(output)),
            failed=isinstance(exit_code, int | float) and exit_code != 0,
            excluded=message.get("excludeFromContext") is True,
        )
        return entry, Texts(whole=f"Ran {command}\n{output}", blocks=())
    if role == "hookMessage":
        role = "custom"
    if role == "system":
        return _describe_system(message, common)
    return _describe_content(message, role, common)


def _describe_system(message: Mapping[str, Any], common: dict[str, Any]) -> tuple[Entry, Texts]:
    """pi's instructions and tools. It counts the content, the sections and the tools that were added as JSON."""
    blocks, texts, units = describe_content(message.get("content"), "system")
    recorded, tools = message.get("sections"), message.get("toolsAdded")
    sections = (
        [one for one in recorded.values() if isinstance(one, str)] if isinstance(recorded, dict) else []
    )
    units += sum(map(utf16_length, sections))
    if isinstance(tools, list | dict):
        units += utf16_length(stringify(tools))
    if not texts.whole and blocks is None:
        texts = Texts(whole="\n\n".join(sections), blocks=())
    entry = Entry(**{**common, "by_pi": True}, role="system", tokens=tokens_of(units), blocks=blocks)
    return entry, texts


def _describe_content(message: Mapping[str, Any], role: str, common: dict[str, Any]) -> tuple[Entry, Texts]:
    extra: dict[str, Any] = {}
    if role == "assistant":
        stop_reason = _label(message.get("stopReason"))
        extra = {
            "stop_reason": stop_reason,
            "failed": stop_reason == "error",
            "usage": _usage(message.get("usage")),
            "model": _model(message.get("provider"), message.get("model")),
            "overflown": _overflown(message, stop_reason),
            "by_pi": isinstance(message.get("thinkingLevel"), str),
        }
    elif role == "toolResult":
        call_id = message.get("toolCallId")
        extra = {
            "result_for": well_formed(call_id) if isinstance(call_id, str) else None,
            "tool_name": _label(message.get("toolName")),
            "failed": message.get("isError") is True,
        }
    elif role == "custom":
        extra = {"excluded": message.get("excludeFromContext") is True}
    blocks, texts, units = describe_content(message.get("content"), role)
    fields = {**common, **extra}
    return Entry(**fields, role=role, tokens=tokens_of(units), blocks=blocks), texts


def describe_content(content: object, role: str) -> tuple[tuple[Block, ...] | None, Texts, int]:
    """The blocks of a message's content, their texts, and the UTF-16 units it counts in all."""
    if not isinstance(content, list):
        text = content if isinstance(content, str) else ""
        return None, Texts(whole=text, blocks=()), utf16_length(text)
    blocks = []
    texts = []
    for index, recorded in enumerate(content):
        block, text = _describe_block(recorded, index, role == "assistant")
        blocks.append(block)
        texts.append(text)
    return tuple(blocks), Texts(whole=None, blocks=tuple(texts)), sum(block.units for block in blocks)


def _describe_block(recorded: object, index: int, by_assistant: bool) -> tuple[Block, str]:
    if not isinstance(recorded, dict):
        text = stringify(recorded)
        return Block(index, "unknown", _block_tokens(text), 0), text
    kind = recorded.get("type")
    if kind == "text":
        text = to_string(recorded.get("text", ""))
        length = utf16_length(text)
        return Block(index, "text", max(1, tokens_of(length)), length), text
    if kind == "toolCall":
        return _describe_call(recorded, index, by_assistant)
    if kind == "thinking":
        text = to_string(recorded.get("thinking", ""))
        length = utf16_length(text)
        return Block(index, "thinking", max(1, tokens_of(length)), length if by_assistant else 0), text
    if kind == "image":
        units = 0 if by_assistant else IMAGE_UNITS
        return Block(index, "image", tokens_of(IMAGE_UNITS), units), "[image]"
    text = stringify(recorded)
    return Block(index, _label(kind) or "unknown", _block_tokens(text), 0), text


def _describe_call(recorded: dict[str, Any], index: int, by_assistant: bool) -> tuple[Block, str]:
    call_id = recorded.get("id")
    name = to_string(recorded["name"]) if "name" in recorded else "undefined"
    arguments = stringify(recorded["arguments"]) if "arguments" in recorded else "undefined"
    shown_id = to_string(call_id) if "id" in recorded else "undefined"
    text = trim(f"toolCall {shown_id} {name} {arguments}")
    block = Block(
        index,
        "toolCall",
        _block_tokens(text),
        utf16_length(name) + utf16_length(arguments) if by_assistant else 0,
        well_formed(call_id) if isinstance(call_id, str) else None,
    )
    return block, text


def _block_tokens(text: str) -> int:
    return max(1, tokens_of(utf16_length(text)))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _label(value: object) -> str:
    """A name that Redline keeps: text that can be stored anywhere, or empty. Names recur, so each is kept once."""
    return sys.intern(well_formed(value)) if isinstance(value, str) else ""


def _model(provider: object, model_id: object) -> tuple[str, str] | None:
    if isinstance(provider, str) and isinstance(model_id, str):
        return _model_pair(well_formed(provider), well_formed(model_id))
    return None


@lru_cache(maxsize=256)
def _model_pair(provider: str, model_id: str) -> tuple[str, str]:
    return provider, model_id


def _usage(usage: object) -> int | None:
    if not isinstance(usage, dict):
        return None
    total = _count(usage.get("totalTokens"))
    if total == 0:
        total = sum(_count(usage.get(key)) for key in ("input", "output", "cacheRead", "cacheWrite"))
    return total


def _overflown(message: Mapping[str, Any], stop_reason: str) -> int | None:
    recorded = message.get("usage")
    usage = recorded if isinstance(recorded, dict) else {}
    return overflown_window(
        stop_reason,
        _text(message.get("errorMessage"))[:READ_CHARACTERS],
        sent=_count(usage.get("input")) + _count(usage.get("cacheRead")),
        output=_count(usage.get("output")),
    )


def _count(value: object) -> int:
    """A number of tokens; zero where the file holds something that is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if abs(value) < 2**53 else 0

"""What the rules need to know of one recorded entry, without its content.

An `Entry` is the digest of one line: who wrote it, what it answers, how its content is cut into blocks and
how much each weighs. Filters, readers, context, protection and pairing are all decided on it, so a session
of 100 MB is held in a few megabytes; the texts are read from the file, by offset, where someone looks at them.

An agent's parser makes the digests (see `agents`). They are the same for every agent: nothing here, and nothing
that uses them, knows how an agent names a field.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import msgspec

from .controls import Control

UNITS_PER_TOKEN: Final = 4


def tokens_of(units: int) -> int:
    """The agents' estimate of the tokens in a number of UTF-16 code units."""
    return -(-units // UNITS_PER_TOKEN)


class Role:
    """Whose message an entry is. An entry keeps a role that is none of these as it was recorded."""

    USER: Final = "user"
    ASSISTANT: Final = "assistant"
    TOOL_RESULT: Final = "toolResult"
    COMMAND: Final = "bashExecution"
    """A command that the user ran, with its output."""
    CUSTOM: Final = "custom"
    """Context that an extension added."""
    SYSTEM: Final = "system"
    BRANCH_SUMMARY: Final = "branchSummary"
    COMPACTION_SUMMARY: Final = "compactionSummary"


class BlockType:
    """What a content block is. A block keeps a type that is none of these as it was recorded."""

    TEXT: Final = "text"
    THINKING: Final = "thinking"
    REDACTED_THINKING: Final = "redacted_thinking"
    TOOL_CALL: Final = "toolCall"
    IMAGE: Final = "image"
    UNKNOWN: Final = "unknown"


THINKING_TYPES: Final = frozenset({BlockType.THINKING, BlockType.REDACTED_THINKING})


class EntryKind(IntEnum):
    """What an entry is for. The index keeps the numbers; see `packing.SCHEMA`."""

    OTHER = 0
    MESSAGE = 1
    """It can be part of a model's context."""
    DELETION = 2
    """It hides entries and blocks of its branch."""
    SUMMARY = 3
    """It stands for what precedes it on its branch."""
    EDIT = 4
    """It puts other content in the place of an entry's, or leaves the entry out."""
    LABEL = 5
    MODEL = 6
    """It names the model from here on."""
    NAME = 7
    """It names the session."""
    THINKING_LEVEL = 8
    """It sets how much the model thinks from here on."""


_MESSAGE: Final = EntryKind.MESSAGE
_COMPACTIONS: Final = frozenset({EntryKind.DELETION, EntryKind.SUMMARY})
_REBUILDING: Final = _COMPACTIONS | {EntryKind.EDIT}


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
    """What the agent calls it. Shown as it was recorded; `kind` is what decides."""
    kind: EntryKind = EntryKind.OTHER
    timestamp: str = ""
    role: str = ""
    """A `Role`, or another as it was recorded; empty for an entry that is never a message."""
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
    """Rebuilt with the rest, but not sent to the model."""
    empty: bool = False
    """A summary without text: compactable, but not rebuilt."""
    stop_reason: str = ""
    usage: int | None = None
    """The context in tokens that the provider reported with an assistant message."""
    model: tuple[str, str] | None = None
    """Provider and model id, where an assistant or a model change names both."""
    overflown: int | None = None
    """The largest window, in tokens, that an assistant says to have been too small: see `overflow`."""
    sole_agent: str = ""
    """The key of the agent that alone writes such an entry; empty where several do."""
    control: Control | None = None
    """What an entry of the kinds DELETION to THINKING_LEVEL says."""

    @property
    def is_message(self) -> bool:
        """Whether it can be part of a model's context."""
        return self.kind is _MESSAGE

    @property
    def is_compaction(self) -> bool:
        return self.kind in _COMPACTIONS

    @property
    def rebuilds(self) -> bool:
        """Whether some reader rebuilds its context after it."""
        return self.kind in _REBUILDING

    @property
    def has_control(self) -> bool:
        """Whether it steers how its branch is read, and so has a `control`."""
        return self.kind > _MESSAGE

    @property
    def has_text(self) -> bool:
        """Whether some agent puts its text into the context: that of a message, or of a compaction's summary."""
        return self.kind is _MESSAGE or self.kind is EntryKind.SUMMARY

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

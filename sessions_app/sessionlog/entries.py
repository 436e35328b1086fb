"""Digests of recorded entries, their control contents, and the parts of them that a plan may delete.

Digests contain everything that the rules need, without the content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any, Final, Literal, NamedTuple

import msgspec

from .jsjson import trim, utf16_length
from .opaque import Opaque


class Target(NamedTuple):
    """An entry, or one of its content blocks if `block_index` is given."""

    entry_id: str
    block_index: int | None = None

    def __str__(self) -> str:
        if self.block_index is None:
            return f"entry {self.entry_id}"
        return f"block {self.block_index} of entry {self.entry_id}"

    def to_json(self) -> dict[str, Any]:
        """The target in the form of a deletion request."""
        if self.block_index is None:
            return {"kind": "entry", "entryId": self.entry_id}
        return {"kind": "content_block", "entryId": self.entry_id, "blockIndex": self.block_index}


def request_of(targets: Iterable[Target]) -> dict[str, Any]:
    """A deletion request for these targets, in this order."""
    return {"deletions": [target.to_json() for target in targets]}


def blocks_by_entry(targets: Iterable[Target]) -> Mapping[str, frozenset[int] | None]:
    """For each entry that targets name: the indexes of the named blocks, or None if it is named as a whole."""
    whole: set[str] = set()
    blocks: dict[str, set[int]] = {}
    for target in targets:
        if target.block_index is None:
            whole.add(target.entry_id)
        else:
            blocks.setdefault(target.entry_id, set()).add(target.block_index)
    partly = {entry_id: frozenset(indexes) for entry_id, indexes in blocks.items() if entry_id not in whole}
    return {**dict.fromkeys(whole), **partly}


class DeletionControl(msgspec.Struct, frozen=True):
    """Entries and blocks that are hidden from this point on."""

    targets: tuple[Target, ...]
    percent: float | None
    """The reduction of the context in percent, as counted by the writer: 0 to 100."""
    backup: str
    """The path of the backup made before it. This is data from the file and must not be trusted as a path."""


class SummaryControl(msgspec.Struct, frozen=True):
    """A summary that replaces earlier entries."""

    first_kept_id: str | None
    """The first entry before the summary that is still sent."""
    is_verbatim: bool
    """Whether the summary consists of lines of the conversation itself."""
    system_tokens: int | None = None
    """The estimate of the system message that it repeats; None if it has none."""


class BoundaryControl(msgspec.Struct, frozen=True, gc=False):
    """The entries that replace everything before a boundary: recorded before it, or on the same line."""

    kept: tuple[str, ...] = ()
    """The ids of the entries that remain, in the order in which they are sent."""
    anchor_id: str | None = None
    """The entry that they follow; None for the boundary itself."""
    segment: tuple[str, str] | None = None
    """The first and the last entry kept by versions that do not honour a list."""
    trigger: str = ""
    """Its cause, as recorded."""
    tokens_before: int | None = None
    """The context before it and after it, in tokens, as its writer counted them."""
    tokens_after: int | None = None
    turns: int | None = None
    """The number of the user's last messages that it reverts, with everything after them; None if it does not count
    them."""
    began_id: str | None = None
    """The first entry of the compaction's own question or answer, if they are recorded before the boundary; the
    compacted conversation did not contain them."""


class EditControl(msgspec.Struct, frozen=True):
    """A replacement for an entry's content, or its removal. The new content is in the blocks and texts of the edit."""

    target_id: str | None
    effect: Literal["removes", "replaces", "undefined"]
    """`undefined` if it has no valid replacement."""
    is_text: bool = False
    """Whether the new content is a text instead of an array; as blocks, it is one block of text."""


class LabelControl(msgspec.Struct, frozen=True):
    """A label of an entry; an empty one removes it."""

    target_id: str | None
    text: str


class ModelControl(msgspec.Struct, frozen=True):
    """The model from this point on."""

    provider: str
    model: str


class NameControl(msgspec.Struct, frozen=True):
    """The name of the session."""

    name: str | None


class ThinkingLevelControl(msgspec.Struct, frozen=True):
    """How much the model thinks from this point on."""

    level: str | None


Control = (
    DeletionControl
    | SummaryControl
    | BoundaryControl
    | EditControl
    | LabelControl
    | ModelControl
    | NameControl
    | ThinkingLevelControl
)


UNITS_PER_TOKEN: Final = 4


def tokens_of(units: int) -> int:
    """The agents' token estimate for a number of UTF-16 code units."""
    return -(-units // UNITS_PER_TOKEN)


def block_tokens(units: int) -> int:
    """The estimate of a content block: at least one token."""
    return tokens_of(units) or 1


class Role:
    """The author of an entry's message. Other roles are kept as recorded."""

    USER: Final = "user"
    ASSISTANT: Final = "assistant"
    TOOL_RESULT: Final = "toolResult"
    COMMAND: Final = "bashExecution"
    """A command that the user ran, with its output."""
    CUSTOM: Final = "custom"
    """Context that an extension added."""
    INJECTED: Final = "injected"
    """Context that the agent adds itself, whenever it is missing or has changed."""
    SYSTEM: Final = "system"
    BRANCH_SUMMARY: Final = "branchSummary"
    COMPACTION_SUMMARY: Final = "compactionSummary"


class BlockType:
    """The type of a content block. Other types are kept as recorded."""

    TEXT: Final = "text"
    THINKING: Final = "thinking"
    REDACTED_THINKING: Final = "redacted_thinking"
    TOOL_CALL: Final = "toolCall"
    IMAGE: Final = "image"
    UNKNOWN: Final = "unknown"


THINKING_TYPES: Final = frozenset({BlockType.THINKING, BlockType.REDACTED_THINKING})


class EntryKind(IntEnum):
    """The purpose of an entry. The index stores the numbers; see `session.SCHEMA`."""

    OTHER = 0
    MESSAGE = 1
    """It can be part of a model's context."""
    DELETION = 2
    """It hides entries and blocks of its branch."""
    SUMMARY = 3
    """It replaces what precedes it on its branch."""
    EDIT = 4
    """It replaces an entry's content, or removes the entry."""
    LABEL = 5
    MODEL = 6
    """It names the model from this point on."""
    NAME = 7
    """It names the session."""
    THINKING_LEVEL = 8
    """It sets how much the model thinks from this point on."""
    UNDO = 9
    """It makes the agent continue before a compaction of Redline's, on a branch without it."""
    BOUNDARY = 10
    """It replaces what precedes it by the entries that it lists."""
    OFF_BRANCH = 11
    """It is recorded beside the conversation: no branch contains it."""


def _among(*kinds: EntryKind) -> tuple[bool, ...]:
    """For each kind, by its number, whether it is one of these. Faster than a set, which would hash a kind in Python
    code.
    """
    return tuple(kind in kinds for kind in EntryKind)


_MESSAGE: Final = EntryKind.MESSAGE
_OFF_BRANCH: Final = EntryKind.OFF_BRANCH
_IS_COMPACTION: Final = _among(EntryKind.DELETION, EntryKind.SUMMARY, EntryKind.BOUNDARY)
_HAS_TEXT: Final = _among(EntryKind.MESSAGE, EntryKind.SUMMARY, EntryKind.EDIT)
_REBUILDS: Final = _among(EntryKind.DELETION, EntryKind.SUMMARY, EntryKind.BOUNDARY, EntryKind.EDIT)


class Block(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One content block, at its index in the recorded array."""

    index: int
    type: str
    tokens: int
    """Its own estimate, used if only the block is deleted."""
    units: int
    """The UTF-16 code units that it adds to its entry's estimate; some types of blocks add nothing."""
    call_id: str | None = None
    """The id of its tool call."""

    @staticmethod
    def of(index: int, block_type: str, units: int) -> Block:
        """A block whose own estimate equals its part of the entry's."""
        return Block(index, block_type, block_tokens(units), units)

    @staticmethod
    def of_call(index: int, call_id: str | None, name: str, arguments: str, shown_id: str) -> tuple[Block, str]:
        """The block of a tool call, given its arguments as JSON, and its displayed text, on which its own estimate is
        based.
        """
        text = trim(f"{BlockType.TOOL_CALL} {shown_id} {name} {arguments}")
        units = utf16_length(name) + utf16_length(arguments)
        return Block(index, BlockType.TOOL_CALL, block_tokens(utf16_length(text)), units, call_id), text

    @property
    def is_thinking(self) -> bool:
        return self.type in THINKING_TYPES


def call_parts(text: str, call_id: str) -> tuple[str, str]:
    """The tool and its arguments as recorded, from the text that `Block.of_call` made."""
    tool, _, arguments = text.removeprefix(f"{BlockType.TOOL_CALL} {call_id} ").partition(" ")
    return tool, arguments


def moment_of(timestamp: str) -> datetime | None:
    """The time that an entry records, in UTC; None if it records none. A time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(timestamp)
        if moment.tzinfo is UTC:
            return moment
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The digest of one recorded entry. `number` counts the file's lines from 1; `offset` and `length` are bytes."""

    number: int
    offset: int
    length: int
    id: str
    parent_id: str | None
    """The id of the entry that it follows; for one beside the conversation, that of the entry that it names as the
    end."""
    type: str
    """The agent's name for it. Shown as recorded; decisions depend on `kind`."""
    kind: EntryKind = EntryKind.OTHER
    timestamp: str = ""
    role: str = ""
    """A `Role`, or another as recorded; empty for an entry that is never a message."""
    tokens: int = 0
    """The estimate of the whole entry as recorded."""
    blocks: tuple[Block, ...] | None = None
    """The recorded content blocks; None if the content is not an array. For an edit: the blocks of the new content,
    with the units for the role that usually has such blocks."""
    result_for: str | None = None
    """The id of the tool call that a tool result answers."""
    tool_name: str = ""
    failed: bool = False
    """An assistant message that stopped with an error, a tool error, or a command with a non-zero exit code."""
    excluded: bool = False
    """Part of the context, but not sent to the model."""
    empty: bool = False
    """A summary without text: compactable, but not part of the context."""
    stop_reason: str = ""
    usage: int | None = None
    """The context in tokens that the provider reported with an assistant message."""
    model: tuple[str, str] | None = None
    """Provider and model id, if an assistant message or a model change has both."""
    overflown: int | None = None
    """The largest window, in tokens, that an assistant message reports as too small: see `overflown_window`."""
    sole_agent: str = ""
    """The key of the only agent that writes such entries; empty if several do."""
    reply: str = ""
    """The id of the model's reply that it is a part of, if the agent records one reply as several entries."""
    subagent: str = ""
    """For a tool result: the id of the session of the subagent that the call started, as in its header."""
    control: Control | None = None
    """The content of an entry of the kinds DELETION to THINKING_LEVEL and BOUNDARY."""

    @property
    def moment(self) -> datetime | None:
        """Its time: see `moment_of`."""
        return moment_of(self.timestamp)

    @property
    def is_message(self) -> bool:
        """Whether it can be part of a model's context."""
        return self.kind is _MESSAGE

    @property
    def is_compaction(self) -> bool:
        return _IS_COMPACTION[self.kind]

    @property
    def rebuilds(self) -> bool:
        """Whether it makes some reader rebuild the context."""
        return _REBUILDS[self.kind]

    @property
    def has_control(self) -> bool:
        """Whether it controls how its branch is read, and its `control` is read from its line again."""
        return _MESSAGE < self.kind < EntryKind.UNDO

    @property
    def is_off_branch(self) -> bool:
        """Whether no branch contains it."""
        return self.kind is _OFF_BRANCH

    @property
    def has_text(self) -> bool:
        """Whether some agent includes its text in the context: for messages, summaries of compactions and edits."""
        return _HAS_TEXT[self.kind]

    @property
    def bears_thinking(self) -> bool:
        return self.blocks is not None and any(block.is_thinking for block in self.blocks)

    def position(self) -> dict[str, Any]:
        """The fields that give its place in the file and in the tree."""
        return {name: getattr(self, name) for name in ("number", "offset", "length", "id", "parent_id")}

    def call_ids(self) -> Iterator[str]:
        """The ids of its tool calls, in block order, including repeats."""
        for block in self.blocks or ():
            if block.call_id is not None:
                yield block.call_id


class Texts(msgspec.Struct, frozen=True, gc=False):
    """The texts of one entry: one per content block, or the whole if the content is not an array.

    A compaction that repeats a system message has both: the summary is the whole, the system message is the block. The
    same applies to an edit whose new content is a text.
    """

    whole: str | None
    blocks: tuple[str, ...]
    opaque: tuple[Opaque, ...] = ()
    """The parts of the entry that are not text, in order; in these texts, a label replaces each of them."""

    def block(self, index: int) -> str:
        """The text of the block at this index of the recorded array."""
        return self.blocks[index]

    def joined(self, blocks: tuple[Block, ...] | None) -> str:
        """The text of the entry with only these of its blocks."""
        if self.whole is not None or blocks is None:
            return self.whole or ""
        if len(blocks) == 1:
            return self.blocks[blocks[0].index]
        return "\n".join(self.blocks[block.index] for block in blocks)


ENCRYPTED: Final = "[encrypted]"
"""The text of a summary that only its provider can read."""
NO_TEXTS: Final = Texts(whole="", blocks=())


class Stats(msgspec.Struct, frozen=True, rename="camel"):
    """The effect of a deletion, in objects (entries and blocks) and in estimated tokens."""

    objects_before: int = 0
    objects_after: int = 0
    objects_deleted: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    percent_reduction: float = 0.0

    def to_json(self) -> dict[str, int | float]:
        """The stats by name; a whole percentage is an integer, as JavaScript prints it."""
        recorded: dict[str, int | float] = msgspec.to_builtins(self)
        if self.percent_reduction.is_integer():
            recorded["percentReduction"] = int(self.percent_reduction)
        return recorded


@dataclass(frozen=True, slots=True)
class Deletion:
    """An approved deletion. A commit creates it from a plan that the airlock accepted."""

    targets: tuple[Target, ...]
    protected_entry_ids: tuple[str, ...]
    stats: Stats


class Protection(StrEnum):
    """Why an entry must not be deleted. RECENT may apply together with another reason."""

    USER = "user"
    CUSTOM = "custom"
    INJECTED = "injected"
    BRANCH_SUMMARY = "branch_summary"
    SUMMARY = "summary"
    ASSISTANT_ERROR = "assistant_error"
    TOOL_ERROR = "tool_error"
    FAILED_COMMAND = "failed_command"
    NOT_EDITABLE = "not_editable"
    RECENT = "recent"

    @property
    def label(self) -> str:
        """The reason in one or two words."""
        return _REASONS[self][0]

    @property
    def sentence(self) -> str:
        """The reason as a sentence."""
        return _REASONS[self][1]


_REASONS: Final = {
    Protection.USER: ("user message", "it contains what the user said"),
    Protection.CUSTOM: ("added context", "it was added by an extension as context"),
    Protection.INJECTED: ("agent's context", "the agent adds it again itself, so deleting it saves nothing"),
    Protection.BRANCH_SUMMARY: ("branch summary", "it summarises a branch"),
    Protection.SUMMARY: ("summary", "it summarises what the agent compacted"),
    Protection.ASSISTANT_ERROR: ("error", "the assistant stopped there with an error"),
    Protection.TOOL_ERROR: ("tool error", "it contains a tool's error"),
    Protection.FAILED_COMMAND: ("failed command", "it contains a command that failed"),
    Protection.NOT_EDITABLE: ("not editable", "the agent cannot leave it out of this session, only out of a fork"),
    Protection.RECENT: ("recent", "it is among the most recent entries"),
}
"""Each reason in words, and as a sentence."""

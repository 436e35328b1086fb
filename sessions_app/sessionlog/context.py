"""The active context: what a model is given of a branch, and how full its window is.

A reader (see `readers`) selects the messages; the sums are the same for all of them. Two numbers are told
apart. `usage` is the agent's own: the context reported with the last valid assistant plus an estimate of
what follows. `gauge` is what the page and the triggers use: where that report is older than the branch's
newest compaction it describes a context that is gone, and the estimate of the rebuilt context stands in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from .controls import ThinkingLevelControl
from .entries import Block, Entry, EntryKind, Role, Texts, tokens_of
from .overflow import ANY_WINDOW

USAGE_IS_VOID: Final = frozenset({"error", "aborted"})


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of the active context. `blocks` are those that stay; None where the content is no array."""

    entry: Entry
    role: str
    blocks: tuple[Block, ...] | None
    tokens: int
    replacement: Texts | None = None
    """The texts of what an edit put in the place of the recorded content."""

    @property
    def replaced(self) -> bool:
        """Whether an edit put other content in the place of what was recorded."""
        return self.replacement is not None

    @property
    def sent(self) -> bool:
        """False where the entry is rebuilt with the rest, but held back from the provider."""
        return not self.entry.excluded


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """Context tokens as the agent counts them: what a provider reported, and an estimate of what came after."""

    tokens: int
    usage_tokens: int
    trailing_tokens: int
    reported_by: Entry | None


@dataclass(frozen=True, slots=True)
class Gauge:
    """Context tokens to show and to act on, and where they come from."""

    tokens: int
    source: Literal["usage", "estimate"]


@dataclass(frozen=True, slots=True)
class ActiveContext:
    """The rebuilt messages of a branch, in order, with the reader's name."""

    reader: str
    messages: tuple[Message, ...]
    newest_compaction: Entry | None
    """The newest entry on the branch that made this reader leave something out."""
    open_ended: bool = False
    """Whether an entry that is appended may change what was rebuilt of those before it."""

    @property
    def estimate(self) -> int:
        """Tokens of all messages, estimated."""
        return sum(message.tokens for message in self.messages)

    @property
    def usage(self) -> ContextUsage:
        trailing = 0
        for message in reversed(self.messages):
            entry = message.entry
            if (
                message.role == Role.ASSISTANT
                and entry.usage is not None
                and entry.stop_reason not in USAGE_IS_VOID
            ):
                return ContextUsage(entry.usage + trailing, entry.usage, trailing, entry)
            trailing += message.tokens
        return ContextUsage(trailing, 0, trailing, None)

    @property
    def gauge(self) -> Gauge:
        return Tally.of(self, "").gauge


class Tally(msgspec.Struct):
    """The sums of a context, carried on while plain entries are appended, so that nothing is read again."""

    leaf_id: str | None = None
    """The entry that was counted last; None before the first."""
    estimate: int = 0
    reported: int | None = None
    """What the last valid assistant reported."""
    trailing: int = 0
    """The estimate of what came after it; of everything, where none reported."""
    void: bool = False
    """Whether the report is older than the newest compaction."""
    open_ended: bool = False
    """Whether a later entry can change what was counted: then it is counted anew."""
    overflown: int | None = None
    """The window that the last assistant said to have been too small, where that came after every compaction."""
    answered_by: tuple[str, str] | None = None
    """Provider and id of the model of that assistant."""
    model: tuple[str, str] | None = None
    """The model in use."""

    @classmethod
    def of(cls, context: ActiveContext, leaf_id: str, branch: Sequence[Entry] = ()) -> Tally:
        """The sums of a context; with the branch that it was rebuilt from, what its last assistant said as well."""
        usage = context.usage
        newest = context.newest_compaction
        reporter = usage.reported_by
        last = next((entry for entry in reversed(branch) if _is_answer(entry)), None)
        outdated = last is not None and newest is not None and last.number < newest.number
        return cls(
            leaf_id=leaf_id,
            estimate=context.estimate,
            reported=usage.usage_tokens if reporter is not None else None,
            trailing=usage.trailing_tokens,
            void=reporter is not None and newest is not None and reporter.number < newest.number,
            open_ended=context.open_ended,
            overflown=last.overflown if last is not None and not outdated else None,
            answered_by=last.model if last is not None else None,
            model=model_of(branch),
        )

    def carries(self, entry: Entry) -> bool:
        """Whether an appended entry only adds to the sums."""
        return entry.parent_id == self.leaf_id and not entry.rebuilds and not self.open_ended

    def add(self, entry: Entry) -> None:
        """Count an entry that `carries` accepted."""
        self.leaf_id = entry.id
        if entry.model is not None:
            self.model = entry.model
        if _is_answer(entry):
            self.overflown, self.answered_by = entry.overflown, entry.model
        if not entry.is_message or entry.empty:
            return
        self.estimate += entry.tokens
        if _reports(entry.role, entry):
            self.reported, self.trailing, self.void = entry.usage, 0, False
        else:
            self.trailing += entry.tokens

    @property
    def gauge(self) -> Gauge:
        if self.reported is None or self.void:
            return Gauge(self.estimate, "estimate")
        return Gauge(self.reported + self.trailing, "usage")

    @property
    def overflow(self) -> int | None:
        """The largest window that is known to have been too small for this context.

        What one model said counts for no other: somebody went on with a larger one.
        """
        return self.overflown if self.answered_by in (None, self.model) else None


def _is_answer(entry: Entry) -> bool:
    return entry.is_message and entry.role == Role.ASSISTANT


def _reports(role: str, entry: Entry) -> bool:
    return role == Role.ASSISTANT and entry.usage is not None and entry.stop_reason not in USAGE_IS_VOID


def keep(entry: Entry, hidden: frozenset[int] | None = None) -> Message | None:
    """The entry as a message without its hidden blocks; None where nothing of it would be left."""
    if not hidden or not entry.blocks:
        return Message(entry, entry.role, entry.blocks, entry.tokens)
    blocks = tuple(block for block in entry.blocks if block.index not in hidden)
    if not blocks:
        return None
    return Message(entry, entry.role, blocks, tokens_of(sum(block.units for block in blocks)))


def newest_of(branch: Sequence[Entry], kinds: Iterable[EntryKind]) -> Entry | None:
    """Of the last entry of each of these kinds on the branch, the one that stands last in the file."""
    last = (next((entry for entry in reversed(branch) if entry.kind is kind), None) for kind in kinds)
    return max(filter(None, last), key=lambda entry: entry.number, default=None)


def model_of(branch: Sequence[Entry]) -> tuple[str, str] | None:
    """Provider and id of the model in use at the end of the branch: the latest change, or assistant."""
    return next((entry.model for entry in reversed(branch) if entry.model is not None), None)


def thinking_level_of(branch: Sequence[Entry]) -> str:
    """The thinking level in use at the end of the branch; `off` where none was ever set."""
    for entry in reversed(branch):
        if isinstance(entry.control, ThinkingLevelControl) and entry.control.level is not None:
            return entry.control.level
    return "off"


def is_due(gauge: Gauge, window: int | None, reserve_tokens: int) -> bool:
    """Whether the context is past what the agent keeps free. A window that is not known is never full."""
    return window is not None and gauge.tokens > window - reserve_tokens


def has_overflown(overflow: int | None, window: int | None) -> bool:
    """Whether the context was too long: `overflow` is what `Tally.overflow` gives, in tokens like the window."""
    return overflow is not None and (overflow >= ANY_WINDOW or (window is not None and window <= overflow))


def why_due(
    tokens: int | None, overflow: int | None, window: int | None, reserve_tokens: int
) -> Literal["", "threshold", "overflow"]:
    """Why the agent would compact by itself, in its own word; empty where it would not."""
    if has_overflown(overflow, window):
        return "overflow"
    past = tokens is not None and is_due(Gauge(tokens, "usage"), window, reserve_tokens)
    return "threshold" if past else ""

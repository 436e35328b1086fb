"""The active context: what a model receives of a branch, and how full its window is.

A reader (see `agents`) selects the messages; the totals are computed in the same way for all readers. `usage` is the
agent's own number: the context reported with the last valid assistant message plus an estimate of what follows. Pages,
commands and automatic planning have another one, `Tally.size`, as `measure` explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import msgspec

from .controls import ThinkingLevelControl
from .entries import Block, Entry, EntryKind, Role, Texts, tokens_of
from .measure import NOTHING_MEASURED, ContextSize, InheritedMeasure, Measure, Measured
from .overflow import ANY_WINDOW
from .sending import NO_REPAIRS, Sending

NEVER_FIRST: Final = frozenset({Role.SYSTEM, Role.TOOL_RESULT})
"""The roles of messages with which a kept part never begins: see `ActiveContext.after_first`."""
USAGE_IS_VOID: Final = frozenset({"error", "aborted"})
SAMPLE: Final = 60_000
"""The estimate of the beginning of a branch that is counted."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of the active context. `blocks` are the remaining ones; None if the content is not an array.

    A compaction may contribute two messages: the system message that it repeats, and its summary.
    """

    entry: Entry
    role: str
    blocks: tuple[Block, ...] | None
    tokens: int
    edit: Entry | None = None
    """The edit that replaced the recorded content: `blocks` are blocks of the edit."""
    sent: bool = True
    """False if the message is part of the context but not sent to the provider."""
    as_text: bool = False
    """Whether it is sent as a part of the text of the message before it."""

    @property
    def source(self) -> Entry:
        """The entry whose line contains the content."""
        return self.entry if self.edit is None else self.edit

    def text(self, texts: Texts) -> str:
        """The text of the remaining blocks; `texts` are those of `source`."""
        if self.role == Role.SYSTEM and self.entry.kind is EntryKind.SUMMARY:
            return texts.block(0)
        return texts.joined(self.blocks)


class UnreadableEntry(NamedTuple):
    """An entry because of which the agent cannot open the branch, and what happens."""

    entry: Entry
    reason: str


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """Context tokens as the agent counts them: the provider's report, and an estimate of later entries."""

    tokens: int
    usage_tokens: int
    trailing_tokens: int
    reported_by: Entry | None


@dataclass(frozen=True, slots=True)
class ActiveContext:
    """The rebuilt messages of a branch, in order, with the reader's name."""

    reader: str
    messages: tuple[Message, ...]
    newest_compaction: Entry | None
    """The newest entry on the branch because of which this reader left something out."""
    open_ended: bool = False
    """Whether an appended entry may change how earlier ones are rebuilt."""
    sending: Sending = NO_REPAIRS
    """What the agent changes before it sends the messages."""
    refused: UnreadableEntry | None = None
    """The reason why the agent refuses the branch; the messages are then those without that entry."""
    removed: frozenset[str] = frozenset()
    """The ids of the messages that deletions and edits left out; not of those that a summary replaced."""

    @property
    def estimate(self) -> int:
        """The estimated tokens of all messages."""
        return sum(message.tokens for message in self.messages)

    @property
    def after_first(self) -> int | None:
        """The estimate of the messages after the first one, or after the first one that follows a summary.

        This is what pi can keep while it summarises something. None if there is no such first message.
        """
        tokens = None
        for message in self.messages:
            if message.entry.kind is not EntryKind.SUMMARY:
                tokens = _count_after_first(tokens, message.role, message.tokens)
        return tokens

    @property
    def usage(self) -> ContextUsage:
        trailing = 0
        for message in reversed(self.messages):
            entry = message.entry
            if entry.usage and message.role == Role.ASSISTANT and _reports(entry) and not message.as_text:
                return ContextUsage(entry.usage + trailing, entry.usage, trailing, entry)
            trailing += message.tokens
        return ContextUsage(trailing, 0, trailing, None)


Rebuild = Callable[[Sequence[Entry]], ActiveContext]


class Tally(msgspec.Struct):
    """The totals of a context, updated as plain entries are appended, so that nothing is read again."""

    leaf_id: str | None = None
    """The last counted entry; None before the first."""
    estimate: int = 0
    after_first: int | None = None
    """See `ActiveContext.after_first`."""
    measure: Measure = NOTHING_MEASURED
    is_compacted: bool = False
    """Whether the context was compacted after the last report."""
    at_answer: int = 0
    """The estimate of the context up to the last answer."""
    sampled_at: str = ""
    """The last entry of the branch when its beginning was counted."""
    open_ended: bool = False
    """Whether a later entry can change what was counted; if so, everything is counted again."""
    overflown: int | None = None
    """The window that the last assistant message reported as too small, if it came after every compaction."""
    answered_by: tuple[str, str] | None = None
    """Provider and id of the model of that message."""
    model: tuple[str, str] | None = None
    """The model in use."""

    @classmethod
    def of(
        cls,
        context: ActiveContext,
        branch: Sequence[Entry],
        rebuild: Rebuild,
        inherited: InheritedMeasure | None = None,
    ) -> Tally:
        """The totals of the context that was rebuilt from a branch. `rebuild` does the same with its beginning."""
        newest = context.newest_compaction
        answers = [place for place, entry in enumerate(branch) if _is_answer(entry)]
        last = branch[answers[-1]] if answers else None
        outdated = last is not None and newest is not None and last.number < newest.number
        at_answer = 0
        if answers:
            is_end = answers[-1] == len(branch) - 1
            at_answer = context.estimate if is_end else rebuild(branch[: answers[-1] + 1]).estimate
        since = inherited.size if inherited is not None else 0
        reporter = last_report(branch, since)
        measure = inherited.measure if inherited is not None else NOTHING_MEASURED
        if reporter is not None:
            then = at_answer if reporter == answers[-1] else rebuild(branch[: reporter + 1]).estimate
            measure = Measure(Measured(branch[reporter].usage or 0, then))
        return cls(
            leaf_id=branch[-1].id if branch else "",
            estimate=context.estimate,
            after_first=context.after_first,
            measure=measure,
            is_compacted=newest is not None and (reporter is None or branch[reporter].number < newest.number),
            sampled_at=branch[-1].id if measure.sample is not None else "",
            at_answer=at_answer,
            open_ended=context.open_ended,
            overflown=last.overflown if last is not None and not outdated else None,
            answered_by=last.model if last is not None else None,
            model=model_of(branch),
        )

    def carries(self, entry: Entry) -> bool:
        """Whether an appended entry only adds to the totals."""
        if entry.kind is EntryKind.OFF_BRANCH:
            # One that names the end of the session may name another one.
            return entry.parent_id in (None, self.leaf_id)
        return entry.parent_id == self.leaf_id and not entry.rebuilds and not self.open_ended

    def add(self, entry: Entry) -> None:
        """Count an entry that `carries` accepted."""
        kind, role = entry.kind, entry.role
        if kind is EntryKind.OFF_BRANCH:
            if entry.usage:
                self._report(entry.usage)
            return
        self.leaf_id = entry.id
        if entry.model is not None:
            self.model = entry.model
        if kind is not EntryKind.MESSAGE:
            return
        if not entry.empty:
            self.estimate += entry.tokens
            self.after_first = _count_after_first(self.after_first, role, entry.tokens)
        if role == Role.ASSISTANT:
            self.overflown, self.answered_by = entry.overflown, entry.model
            self.at_answer = self.estimate
            if _reports(entry):
                self._report(entry.usage or 0)

    def _report(self, tokens: int) -> None:
        report = Measured(tokens, self.at_answer)
        self.measure, self.is_compacted = msgspec.structs.replace(self.measure, report=report), False

    @property
    def size(self) -> ContextSize:
        """The size of the context."""
        return self.measure.size_of(self.estimate, is_compacted=self.is_compacted)

    @property
    def wants_sample(self) -> bool:
        """Whether the beginning of the branch is to be counted, or counted again because it is longer now."""
        if not self.measure.needs_sample:
            return False
        known = self.measure.sample
        return known is None or (known.estimate < SAMPLE and self.sampled_at != self.leaf_id)

    def take_sample(self, sample: Measured) -> None:
        self.measure, self.sampled_at = (
            msgspec.structs.replace(self.measure, sample=sample),
            self.leaf_id or "",
        )

    @property
    def overflow(self) -> int | None:
        """The largest window that is known to be too small for this context.

        A report of one model does not count for another: the session may have continued with a larger one.
        """
        return self.overflown if self.answered_by in (None, self.model) else None


def last_report(branch: Sequence[Entry], since: int = 0) -> int | None:
    """The place of the last answer on a branch that reports its context, from this offset on; None if there is none."""
    places = range(len(branch) - 1, -1, -1)
    return next(
        (at for at in places if _is_answer(branch[at]) and _reports(branch[at]) and branch[at].offset >= since),
        None,
    )


def _count_after_first(counted: int | None, role: str, tokens: int) -> int | None:
    if counted is None:
        return None if role in NEVER_FIRST else 0
    return counted + tokens


def _is_answer(entry: Entry) -> bool:
    return entry.is_message and entry.role == Role.ASSISTANT


def _reports(entry: Entry) -> bool:
    """Whether an answer tells the size of its context. Agents do not count a report of zero tokens."""
    return bool(entry.usage) and not entry.empty and entry.stop_reason not in USAGE_IS_VOID


def keep(entry: Entry, hidden: frozenset[int] | None = None) -> Message | None:
    """The entry as a message without its hidden blocks; None if nothing of it would remain."""
    if not hidden or not entry.blocks:
        return Message(entry, entry.role, entry.blocks, entry.tokens, sent=not entry.excluded)
    blocks = tuple(block for block in entry.blocks if block.index not in hidden)
    if not blocks:
        return None
    tokens = tokens_of(sum(block.units for block in blocks))
    return Message(entry, entry.role, blocks, tokens, sent=not entry.excluded)


def newest_of(branch: Sequence[Entry], kinds: Iterable[EntryKind]) -> Entry | None:
    """The latest entry on the branch (in file order) that is of one of these kinds."""
    last = (next((entry for entry in reversed(branch) if entry.kind is kind), None) for kind in kinds)
    return max(filter(None, last), key=lambda entry: entry.number, default=None)


def model_of(branch: Sequence[Entry]) -> tuple[str, str] | None:
    """Provider and id of the model in use at the end of the branch, from the latest model change or assistant."""
    return next((entry.model for entry in reversed(branch) if entry.model is not None), None)


def thinking_level_of(branch: Sequence[Entry]) -> str:
    """The thinking level in use at the end of the branch; `off` if none was ever set."""
    for entry in reversed(branch):
        if isinstance(entry.control, ThinkingLevelControl) and entry.control.level is not None:
            return entry.control.level
    return "off"


def is_due(tokens: int, window: int | None, reserve_tokens: int) -> bool:
    """Whether the context exceeds what the agent allows. An unknown window is never full."""
    return window is not None and tokens > window - reserve_tokens


def has_overflown(overflow: int | None, window: int | None) -> bool:
    """Whether the context was too long. `overflow` is `Tally.overflow`, in tokens like the window."""
    return overflow is not None and (overflow >= ANY_WINDOW or (window is not None and window <= overflow))


def why_due(
    tokens: int | None, overflow: int | None, window: int | None, reserve_tokens: int
) -> Literal["", "threshold", "overflow"]:
    """Why the agent would compact automatically, in its own terms; empty if it would not."""
    if has_overflown(overflow, window):
        return "overflow"
    past = tokens is not None and is_due(tokens, window, reserve_tokens)
    return "threshold" if past else ""

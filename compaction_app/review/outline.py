"""The proposals of a run by turns in transcript order, divided into pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from compaction_app.core.review_fold import Review, ReviewItem, ReviewStatus
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import TranscriptEntry
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.targets import Target

WINDOW: Final = 100
"""Proposals on one page. A turn with more is divided."""


@dataclass(slots=True)
class OutlineTurn:
    """One of the user's messages and what follows it. Positions are in the transcript; the end is excluded."""

    number: int
    """From 1; 0 is what comes before the user's first message."""
    start: int
    end: int
    leads: list[ReviewItem] = field(default_factory=list)
    tokens: int = 0
    cut: int = 0
    """Tokens that are deleted by everything approved and undecided."""

    @property
    def undecided(self) -> int:
        return sum(item.standing is ReviewStatus.UNDECIDED for item in self.leads)

    @property
    def kept(self) -> int:
        return sum(item.standing is ReviewStatus.REJECTED for item in self.leads)


@dataclass(frozen=True, slots=True)
class Hunk:
    """A turn's proposals, or those on one page, with the entries around them."""

    turn: OutlineTurn
    start: int
    end: int
    leads: Sequence[ReviewItem]

    @property
    def is_whole(self) -> bool:
        return (self.start, self.end) == (self.turn.start, self.turn.end)


@dataclass(frozen=True, slots=True)
class Stay:
    """Entries between proposals that stay at least in part: positions, the end excluded, without deleted entries."""

    start: int
    end: int
    entries: Sequence[TranscriptEntry]


class Outline:
    """The turns of a review that have proposals, and the pages that they are divided into."""

    def __init__(self, transcript: Transcript, review: Review) -> None:
        self.transcript = transcript
        self.review = review
        self._starts = [entry.position for entry in transcript.entries if entry.role == Role.USER]
        self.turns: dict[int, OutlineTurn] = {}
        self.unknown: list[ReviewItem] = []
        """Items that are not in the transcript."""
        self.unasked = review.would_go - review.items.keys()
        """What is deleted without a decision of its own: it belongs to a tool call of something that was added."""
        self._covered: set[int] = set()
        before = [0, *accumulate(entry.tokens for entry in transcript.entries)]
        for item in review.leads():
            if item.position < 0:
                self.unknown.append(item)
            else:
                self._turn(self.turn_number(item.position), before).leads.append(item)
        for turn in self.turns.values():
            turn.leads.sort(key=place)
        self.turns = dict(sorted(self.turns.items()))
        self._measure()
        self._cover({*review.items, *review.would_go})
        self.windows = [list(window) for window in self._windows()]

    def turn_number(self, position: int) -> int:
        """The number of the turn that an entry is in."""
        return bisect_right(self._starts, position)

    def window_at(self, position: int) -> int:
        """The page that contains a position, or the next one after it."""
        for number, window in enumerate(self.windows):
            if position < window[-1].end:
                return number
        return max(0, len(self.windows) - 1)

    def stays(self, start: int, end: int) -> Stay:
        """What stays, at least in part, of the entries between two positions."""
        entries = self.transcript.entries[start:end]
        return Stay(start, end, [entry for entry in entries if entry.position not in self._covered])

    def tokens_staying(self, entry: TranscriptEntry) -> int:
        """The tokens of an entry, or of those of its blocks that are neither proposed nor deleted."""
        blocks = [
            block for block in entry.blocks if not self._is_touched(Target(entry.entry_id, block.index))
        ]
        return entry.tokens if len(blocks) == len(entry.blocks) else sum(block.tokens for block in blocks)

    def parts(self, hunk: Hunk) -> Iterator[Stay | ReviewItem]:
        """A hunk from top to bottom: what stays, and what is proposed."""
        at = hunk.start
        for item in hunk.leads:
            stay = self.stays(at, item.position)
            if stay.entries:
                yield stay
            yield item
            at = max(at, item.position)
        stay = self.stays(at, hunk.end)
        if stay.entries:
            yield stay

    def _is_touched(self, target: Target) -> bool:
        return target in self.review.items or target in self.review.would_go

    def _turn(self, number: int, before: Sequence[int]) -> OutlineTurn:
        turn = self.turns.get(number)
        if turn is None:
            start = self._starts[number - 1] if number else 0
            end = self._starts[number] if number < len(self._starts) else len(self.transcript)
            turn = self.turns[number] = OutlineTurn(number, start, end, tokens=before[end] - before[start])
        return turn

    def _measure(self) -> None:
        for target in self.review.would_go:
            entry = self.transcript.entry(target.entry_id)
            turn = self.turns.get(self.turn_number(entry.position)) if entry is not None else None
            if entry is not None and turn is not None:
                turn.cut += tokens_of(entry, target)

    def _cover(self, targets: Iterable[Target]) -> None:
        """The entries that are completely covered: they, or each of their blocks, are proposed or deleted."""
        blocks: dict[str, int] = {}
        for target in targets:
            entry = self.transcript.entry(target.entry_id)
            if entry is None:
                continue
            if target.block_index is None:
                self._covered.add(entry.position)
            elif entry.slot(target.block_index) is not None:
                blocks[target.entry_id] = blocks.get(target.entry_id, 0) + 1
                if blocks[target.entry_id] == len(entry.blocks):
                    self._covered.add(entry.position)

    def _windows(self) -> Iterator[list[Hunk]]:
        window: list[Hunk] = []
        count = 0
        for turn in self.turns.values():
            if window and count + len(turn.leads) > WINDOW:
                yield window
                window, count = [], 0
            for hunk in _cut(turn):
                if count and count + len(hunk.leads) > WINDOW:
                    yield window
                    window, count = [], 0
                window.append(hunk)
                count += len(hunk.leads)
        if window:
            yield window


def _cut(turn: OutlineTurn) -> Iterator[Hunk]:
    """A turn in pieces of at most WINDOW proposals; blocks of one entry stay together."""
    start, first = turn.start, 0
    for number in range(1, len(turn.leads)):
        position = turn.leads[number].position
        if number - first >= WINDOW and position > turn.leads[number - 1].position:
            yield Hunk(turn, start, position, turn.leads[first:number])
            start, first = position, number
    yield Hunk(turn, start, turn.end, turn.leads[first:])


def place(item: ReviewItem) -> tuple[int, int]:
    """The order of the transcript: an entry before its blocks."""
    return item.position, -1 if item.target.block_index is None else item.target.block_index


def tokens_of(entry: TranscriptEntry, target: Target) -> int:
    """The tokens that a target deletes of an entry, by its own estimate."""
    if target.block_index is None:
        return entry.tokens
    slot = entry.slot(target.block_index)
    return entry.blocks[slot].tokens if slot is not None else 0

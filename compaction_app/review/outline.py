"""The positions of a run's proposals: their turns, and the kept entries between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from compaction_app.core.review_fold import Review
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import TranscriptEntry
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.printable import plural
from sessions_app.sessionlog.targets import Target

AROUND: Final = 6
"""The number of kept entries unfolded before and after a proposal, up to the next deletion."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Entries between proposals that are kept at least in part: positions, the end excluded, without deleted
    entries."""

    start: int
    end: int
    entries: Sequence[TranscriptEntry]


class Outline:
    """The turns of a review, and the kept entries between its proposals."""

    def __init__(self, transcript: Transcript, review: Review) -> None:
        self.transcript = transcript
        self.review = review

    @cached_property
    def turn_starts(self) -> Sequence[int]:
        """The positions of the user's messages."""
        return [entry.position for entry in self.transcript.entries if entry.role == Role.USER]

    @cached_property
    def _covered(self) -> set[int]:
        return set(self._covered_positions({*self.review.items, *self.review.would_go}))

    def turn_number(self, position: int) -> int:
        """The number of an entry's turn, from 1; 0 before the user's first message."""
        return bisect_right(self.turn_starts, position)

    def around(self, position: int) -> tuple[Stay, Stay]:
        """The kept entries directly before an entry, and directly after it."""
        start, end = position, position + 1
        while start > max(0, position - AROUND) and start - 1 not in self._covered:
            start -= 1
        while end < min(len(self.transcript), position + 1 + AROUND) and end not in self._covered:
            end += 1
        return self.stays(start, position), self.stays(position + 1, end)

    def stays(self, start: int, end: int) -> Stay:
        """The entries between two positions that are kept, at least in part."""
        entries = self.transcript.entries[start:end]
        return Stay(start, end, [entry for entry in entries if entry.position not in self._covered])

    def tokens_staying(self, entry: TranscriptEntry) -> int:
        """The tokens of an entry, or of those of its blocks that are neither proposed nor deleted."""
        blocks = [block for block in entry.blocks if not self._is_touched(Target(entry.entry_id, block.index))]
        return entry.tokens if len(blocks) == len(entry.blocks) else sum(block.tokens for block in blocks)

    def _is_touched(self, target: Target) -> bool:
        return target in self.review.items or target in self.review.would_go

    def _covered_positions(self, targets: Iterable[Target]) -> Iterator[int]:
        """The entries that are completely covered: they, or each of their blocks, are proposed or deleted."""
        blocks: dict[str, int] = {}
        for target in targets:
            entry = self.transcript.entry(target.entry_id)
            if entry is None:
                continue
            if target.block_index is None:
                yield entry.position
            elif entry.slot(target.block_index) is not None:
                blocks[target.entry_id] = blocks.get(target.entry_id, 0) + 1
                if blocks[target.entry_id] == len(entry.blocks):
                    yield entry.position


def fold_words(entries: Sequence[TranscriptEntry]) -> str:
    """Entries in words: 6 entries stay (2 writes, 1 bash)."""
    counts: dict[str, int] = {}
    for entry in entries:
        name = {Role.COMMAND: "bash", Role.TOOL_RESULT: entry.tool_name}.get(entry.role, "")
        if name:
            counts[name] = counts.get(name, 0) + 1
    among = sorted(counts.items(), key=lambda pair: -pair[1])[:4]
    words = ", ".join(f"{count:,} {_plural(name[:40], count)}" for name, count in among)
    entry_words = f"{plural(len(entries), 'entry')} {'stays' if len(entries) == 1 else 'stay'}"
    return f"{entry_words} ({words})" if words else entry_words


def _plural(name: str, count: int) -> str:
    if count == 1 or not (name.isascii() and name.isalpha() and name.islower()):
        return name
    return f"{name}es" if name.endswith(("s", "x", "ch", "sh")) else f"{name}s"

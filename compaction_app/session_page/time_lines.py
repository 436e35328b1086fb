"""The times of a page's entries: pauses between them, and the duration of each turn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

from django.utils import timezone

from compaction_app.entries.branches import BranchState
from compaction_app.entries.view import EntryView
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.moments import duration_words, moment_of

PAUSE: Final = timedelta(minutes=30)
"""A shorter time between two entries is not mentioned."""
SEARCHED: Final = 50
STOPPED: Final = frozenset({"error", "aborted"})


class TimeSpan(NamedTuple):
    """The times of the first and the last of some entries that record one."""

    first: datetime
    last: datetime

    @property
    def words(self) -> str:
        return duration_words(self.last - self.first)

    @property
    def is_one_day(self) -> bool:
        return day_of(self.first) == day_of(self.last)


class TurnFacts(NamedTuple):
    """The facts about one turn."""

    span: TimeSpan | None
    """None if its entries record no times."""
    tokens: int
    """The tokens of its part in the context."""
    calls: int
    failed: int
    """The number of failed calls."""
    is_troubled: bool
    """Whether an answer stopped or failed."""


def span_of(entries: Sequence[Entry]) -> TimeSpan | None:
    """The span of the entries that record a time; None if none does."""
    first = next((at for entry in entries if (at := moment_of(entry.timestamp)) is not None), None)
    last = next((at for entry in reversed(entries) if (at := moment_of(entry.timestamp)) is not None), None)
    return TimeSpan(first, last) if first is not None and last is not None else None


def turn_facts(state: BranchState, number: int) -> TurnFacts:
    """The facts of a turn of the branch, counted from 1."""
    begin = state.turns[number - 1][0]
    end = state.turns[number][0] if number < len(state.turns) else len(state.branch)
    entries = state.branch[begin:end]
    kept = state.kept
    return TurnFacts(
        span_of(entries),
        sum(kept[one.id].tokens for one in entries if one.id in kept),
        sum(one.result_for is not None for one in entries),
        sum(one.result_for is not None and one.failed for one in entries),
        any(one.role == Role.ASSISTANT and one.stop_reason in STOPPED for one in entries),
    )


def pause_before(listed: Sequence[Entry], position: int, state: BranchState) -> EntryView | None:
    """A line before an entry: the time since the previous one if it is long, and the day if it is another one.

    For the first entry of a branch it is the day, if the branch has several.
    """
    at = moment_of(listed[position].timestamp)
    if at is None:
        return None
    before = _last_moment(listed, position)
    if before is None:
        span = span_of(state.branch)
        return EntryView("time", "", day=at) if span is not None and not span.is_one_day else None
    words = f"{duration_words(at - before)} later" if at - before >= PAUSE else ""
    is_next_day = day_of(at) != day_of(before)
    return EntryView("time", words, day=at if is_next_day else None) if words or is_next_day else None


def turn_line(state: BranchState, entry: Entry) -> EntryView | None:
    """A line below the message that begins a turn: the duration of the turn; None for other entries, or without
    times."""
    place = bisect_left(state.turns, entry.number, key=lambda turn: turn[1].number)
    if place == len(state.turns) or state.turns[place][1].id != entry.id:
        return None
    facts = turn_facts(state, place + 1)
    if facts.span is None or facts.span.first == facts.span.last:
        return None
    words = [f"turn {place + 1:,} took {facts.span.words}"]
    if facts.calls:
        words.append(f"{facts.calls:,} call{'s' if facts.calls > 1 else ''}")
    if facts.failed:
        words.append(f"{facts.failed:,} failed")
    return EntryView("time", ", ".join(words))


def _last_moment(listed: Sequence[Entry], position: int) -> datetime | None:
    """The time of the nearest entry before a position that records one, of the last SEARCHED."""
    for place in range(position - 1, max(-1, position - 1 - SEARCHED), -1):
        at = moment_of(listed[place].timestamp)
        if at is not None:
            return at
    return None


def day_of(at: datetime | None) -> date | None:
    """The day of a time in the zone of this computer."""
    return timezone.localtime(at).date() if at is not None else None

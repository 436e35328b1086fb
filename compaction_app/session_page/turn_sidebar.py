"""The turns of a branch beside its text, with their events: other branches, compactions, labels."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from compaction_app.entries.branches import BranchState, Fork
from compaction_app.entries.words import NAME_CHARACTERS
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.moments import moment_of
from sessions_app.sessionlog.titles import title_of
from sessions_app.storage.files import Fingerprint
from sessions_app.storage.session_loader import read_texts

from .time_lines import day_of, turn_facts

TURNS_SHOWN: Final = 60
EVENTS_SHOWN: Final = 6
"""Branches, labels and compactions that are shown for one turn."""
TITLE_CHARACTERS: Final = 80


@dataclass(frozen=True, slots=True)
class SidebarEvent:
    """An event of a turn, with its own line."""

    kind: str
    """`fork`, `compaction`, `summary` or `label`."""
    words: str
    entry_id: str = ""
    leaf_id: str = ""
    entries: int = 0


@dataclass(frozen=True, slots=True)
class SidebarTurn:
    """A user's message and the entries up to the next one."""

    number: int
    entry_id: str
    title: str
    tokens: int
    at: datetime | None
    """The time of its beginning."""
    begins_day: bool
    """Whether the previous shown turn began on another day."""
    current: bool
    troubled: bool
    events: list[SidebarEvent]
    more: int
    """The number of events that are not shown."""


@dataclass(frozen=True, slots=True)
class TurnSidebar:
    """Some of the turns, around the present one."""

    turns: list[SidebarTurn]
    current: int
    """Counted from 1; 0 before the first turn."""
    total: int
    earlier: str
    """The user's message to link to for earlier turns; empty if there are none."""
    later: str
    before: list[SidebarEvent]
    """Events before the first turn."""
    summary: str
    """The last summary of the branch that has a page of its loss; empty if there is none."""


def rail_of(session: Session, state: BranchState, here: Entry | None) -> TurnSidebar:
    """The turns around an entry of the branch. Raises Conflict if the file was rewritten."""
    numbers = [entry.number for _, entry in state.turns]
    current = bisect_right(numbers, here.number) if here is not None else 0
    first = max(0, min(current - TURNS_SHOWN // 3, len(state.turns) - TURNS_SHOWN))
    shown = state.turns[first : first + TURNS_SHOWN]
    last = first + len(shown)
    titles = _titles(session, state, [entry for _, entry in shown])
    events: dict[int, list[SidebarEvent]] = {}
    for number, event in _events(state, first, last):
        events.setdefault(number, []).append(event)
    days = [day_of(moment_of(entry.timestamp)) for _, entry in shown]
    is_one_day = len(set(days)) < 2
    turns = [
        _turn(
            state,
            first + place + 1,
            titles[entry.id],
            current,
            not is_one_day and (not place or days[place] != days[place - 1]),
            events.get(first + place + 1, []),
        )
        for place, (_, entry) in enumerate(shown)
    ]
    return TurnSidebar(
        turns=turns,
        current=current,
        total=len(state.turns),
        earlier=state.turns[max(0, first - TURNS_SHOWN // 2)][1].id if first else "",
        later=state.turns[last][1].id if last < len(state.turns) else "",
        before=events.get(0, [])[:EVENTS_SHOWN],
        summary=state.last_summary,
    )


def _turn(
    state: BranchState, number: int, title: str, current: int, begins_day: bool, events: list[SidebarEvent]
) -> SidebarTurn:
    entry = state.turns[number - 1][1]
    facts = turn_facts(state, number)
    return SidebarTurn(
        number=number,
        entry_id=entry.id,
        title=title,
        tokens=facts.tokens,
        at=moment_of(entry.timestamp),
        begins_day=begins_day,
        current=number == current,
        troubled=facts.is_troubled,
        events=events[:EVENTS_SHOWN],
        more=max(0, len(events) - EVENTS_SHOWN),
    )


def _events(state: BranchState, first: int, last: int) -> Iterator[tuple[int, SidebarEvent]]:
    """The events of a range of turns, each with the number of its turn."""
    begins = [position for position, _ in state.turns]
    begin = begins[first] if first else 0
    end = begins[last] if last < len(begins) else len(state.branch)
    forks = _by_position(state.forks)
    for position in range(begin, end):
        entry = state.branch[position]
        turn = bisect_right(begins, position)
        if entry.is_compaction:
            ignored = state.reading.reader.ignores(entry)
            yield (
                turn,
                SidebarEvent("compaction", "compaction, ignored" if ignored else "compaction", entry.id),
            )
        elif entry.role == Role.BRANCH_SUMMARY:
            yield turn, SidebarEvent("summary", "branch summary", entry.id)
        if state.labels and entry.id in state.labels:
            yield turn, SidebarEvent("label", state.labels[entry.id][:NAME_CHARACTERS], entry.id)
        for fork in forks.get(position, ()):
            yield turn, SidebarEvent("fork", "", leaf_id=fork.leaf_id, entries=fork.entries)


def _by_position(forks: Iterable[tuple[int, Fork]]) -> Mapping[int, list[Fork]]:
    found: dict[int, list[Fork]] = {}
    for position, fork in forks:
        found.setdefault(position, []).append(fork)
    return found


def _titles(session: Session, state: BranchState, users: list[Entry]) -> dict[str, str]:
    unknown = [entry for entry in users if entry.id not in state.titles]
    fingerprint = msgspec.convert(session.fingerprint, Fingerprint)
    for entry_id, texts in read_texts(session.real_path(), fingerprint, unknown).items():
        blocks = state.tree.entry(entry_id).blocks
        state.titles[entry_id] = title_of(texts.joined(blocks), TITLE_CHARACTERS)
    return {entry.id: state.titles.get(entry.id, "") for entry in users}

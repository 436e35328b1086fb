"""The surroundings of the entries on a session's page: the views, the turns, the token map and its parts.

They change while a session grows, so an open page gets them again with the new entries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final
from urllib.parse import urlencode

import msgspec

from compaction_app.core.stats import percent
from compaction_app.core.token_map import Share
from compaction_app.entries.branch_export import LABELS
from compaction_app.entries.branches import BranchState, Fork
from compaction_app.entries.words import NAME_CHARACTERS, author_of, beginning_of, joined_in_short
from sessions_app.disk.files import Fingerprint
from sessions_app.document.document import indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Block, Entry, Role
from sessions_app.sessionlog.text import spoken, title_of
from sessions_app.storage.session_loader import read_texts
from sessions_app.templatetags.formatting import escape_line, in_measure

from .presenter import TimeSpan, day_of, span_of, turn_facts

# WAS compaction_app/session_page/turn_sidebar: """The turns of a branch beside its text, with their events: other branches, compactions, labels."""
# WAS compaction_app/session_page/map_place: """A place on the token map: its entry of the context, with a name and a link."""


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
    days = [day_of(entry.moment) for _, entry in shown]
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
        at=entry.moment,
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


WORDS: Final = 60
"""The maximum length of an entry's text in its name, in characters."""


@dataclass(frozen=True, slots=True)
class MapPlace:
    """One entry of the context, by its position on the map."""

    number: int
    """Counted from 1."""
    total: int
    entry_id: str
    name: str
    top: int
    height: int
    """Its height on the map."""
    previous_turn: int
    """The numbers of the entries that begin this turn (or the previous one) and the next one: the targets of the page
    keys."""
    next_turn: int


def place_at_point(session: Session, state: BranchState, x: int, y: int) -> MapPlace | None:
    """The place at a point of the map; None if the context is empty."""
    tokens = state.token_map.tokens_at(x, y)
    return place_of(session, state, bisect_right(state.tokens_before, tokens))


def place_of(session: Session, state: BranchState, number: int) -> MapPlace | None:
    """The entry of the context with this number, or the nearest one; None if the context is empty."""
    seen = state.listed["sees"]
    if not seen:
        return None
    number = min(max(number, 1), len(seen))
    entry, before = seen[number - 1], state.tokens_before
    tokens = before[number] - before[number - 1]
    top, height = state.token_map.frame(before[number - 1], tokens)
    turn = bisect_right(state.turns, entry.number, key=lambda one: one[1].number)
    where = f"turn {turn:,}" if turn else "before the first turn"
    begun = _beginning(state, turn, 1)
    return MapPlace(
        number=number,
        total=len(seen),
        entry_id=entry.id,
        name=f"{where}, {_name(session, state, entry)}, about {in_measure(tokens, state.size)} tokens",
        top=top,
        height=height,
        previous_turn=begun if begun < number else _beginning(state, turn - 1, 1),
        next_turn=_beginning(state, turn + 1, len(seen)),
    )


def _beginning(state: BranchState, turn: int, otherwise: int) -> int:
    """The number in the context of the first entry of a turn that the model sees."""
    if not 1 <= turn <= len(state.turns):
        return otherwise
    begin = state.turns[turn - 1][0]
    seen = (state.places[entry.id] + 1 for entry in islice(state.branch, begin, None) if entry.id in state.places)
    return next(seen, otherwise)


def _name(session: Session, state: BranchState, entry: Entry) -> str:
    """The author of the entry and the beginning of its text; for a result, the tool and its arguments."""
    if entry.role == Role.TOOL_RESULT:
        maker = next(iter(state.makers.get(entry.result_for or "", ())), None)
        calls = [block for block in (maker.blocks if maker else None) or () if block.call_id == entry.result_for]
        words = _beginning_of(session, maker, tuple(calls[:1])) if maker is not None and calls else ""
        return " ".join(filter(None, (author_of(entry.role, entry.tool_name), words.partition(" ")[2])))
    message = state.kept[entry.id]
    kind = message.blocks[0].type if message.blocks else ""
    words = _beginning_of(session, message.source, message.blocks)
    return ": ".join(filter(None, (author_of(entry.role, "", kind, entry.type), words)))


def _beginning_of(session: Session, entry: Entry, blocks: tuple[Block, ...] | None) -> str:
    text = spoken(joined_in_short(indexed_texts(session, [entry])[entry.id], blocks)[:4_000], entry.role)
    if session.cwd.strip("/"):
        text = text.replace(f"{session.cwd.rstrip('/')}/", "")
    return escape_line(beginning_of(" ".join(text.split()), WORDS))


@dataclass(frozen=True, slots=True)
class ViewTab:
    """A link to one view of the branch, with the number of its entries."""

    view: str
    label: str
    count: int
    address: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a page of a view."""

    state: BranchState
    version: str
    """Changes whenever they do."""
    view: str
    leaf: str
    """The leaf of the branch; empty for the one from which the session continues."""
    tabs: list[ViewTab]
    rail: TurnSidebar
    place: MapPlace | None
    """The position of the page's beginning on the token map; None if the context is empty."""
    frame: tuple[int, int] | None
    """Top and height of the page on the token map; None if it does not show the context."""
    shares: list[Share]
    """The parts of the context, in its measure."""
    rest: int
    """The tokens that the provider counts and the session lacks."""
    span: TimeSpan | None
    """The time of the branch; None if its entries record no times."""
    at: str
    """The address of an entry in this view, up to its id."""
    all_at: str
    """The same in the full history."""
    branch: str
    """The address of another branch in this view, up to the id of its leaf."""


def surroundings_of(session: Session, state: BranchState, view: str, leaf: str, start: int, end: int) -> Surroundings:
    """The surroundings of the page with these entries of a view, given as positions in it.

    Raises Conflict if the file was rewritten.
    """
    listed = state.listed[view]
    here = listed[start] if start < end else None
    first = here.id if here is not None and start else ""
    shares, rest = _contents(state)
    return Surroundings(
        state=state,
        version=version_of(session, start, end),
        view=view,
        leaf=leaf,
        tabs=[
            ViewTab(name, label, len(state.listed[name]), view_address(session, name, leaf, first), name == view)
            for name, label in LABELS.items()
        ],
        rail=rail_of(session, state, here),
        place=place_of(session, state, _seen_before(state, listed[start:]) + 1),
        frame=_frame(state, start, end) if view == "sees" and here is not None else None,
        shares=shares,
        rest=rest,
        span=span_of(state.branch),
        # In a path, these are followed by an entry's id.
        at=view_address(session, view, leaf) + "&at=",
        all_at=view_address(session, "all", leaf) + "&at=",
        branch=view_address(session, view) + "&leaf=",
    )


def version_of(session: Session, start: int, end: int) -> str:
    """The version of the surroundings of a page, between these positions of a view."""
    return f"{session.entry_count}.{start}.{end}"


def view_address(session: Session, view: str, leaf: str = "", at: str = "") -> str:
    """The address of a view of a branch, from an entry on."""
    parameters = {"view": view, "leaf": leaf, "at": at}
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{session.get_absolute_url()}?{query}"


def _contents(state: BranchState) -> tuple[list[Share], int]:
    """The kinds of content in the measure of the context, and the rest."""
    size, shares = state.size, state.token_map.shares
    tokens, rest = size.contents([share.tokens for share in shares])
    found = [
        Share(share.kind, share.name, part, percent(part, size.tokens))
        for share, part in zip(shares, tokens, strict=True)
    ]
    return found, rest


def _seen_before(state: BranchState, entries: Sequence[Entry]) -> int:
    """The number of entries of the context before a page that begins with these."""
    return next((state.places[entry.id] for entry in entries if entry.id in state.places), len(state.places))


def _frame(state: BranchState, start: int, end: int) -> tuple[int, int]:
    before = state.tokens_before
    return state.token_map.frame(before[start], before[end] - before[start])

"""The page of a session: the entries of a view, and their surroundings.

    entries         one page of a view, with the times between them, damaged lines, and bypassed compactions
    surroundings    the views, the turns beside the text with their events, the token map, the parts of the context
    relatives       the call that started a subagent, and the subagents that calls started

The state of the branch comes from `branches`; the texts of a page are read from the file by offset. The surroundings
change while a session grows, so an open page gets them again with the new entries.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec
from django.utils import timezone

from compaction_app.core.stats import percent
from compaction_app.core.token_map import Share
from compaction_app.entries import view as entry_view
from compaction_app.entries.branches import VIEWS, BranchState, branch_state, map_place
from compaction_app.models import Compaction
from compaction_app.session_activity import Activity, activity_of
from sessions_app.disk.files import Fingerprint, SessionReader
from sessions_app.document.document import indexed_texts
from sessions_app.index.index_store import entries_naming
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Block, Entry, Role
from sessions_app.sessionlog.session import DamageKind
from sessions_app.sessionlog.text import (
    COMMAND_OUTPUT,
    INTERRUPTED,
    command_words,
    duration_words,
    plural,
    spoken,
    title_of,
)
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.session_loader import read_texts
from sessions_app.templatetags.formatting import escape_line, heading, in_measure

WINDOW: Final = 40
"""The number of entries on one page of a branch; WINDOW_BLOCKS limits their blocks."""
WINDOW_BLOCKS: Final = 100
DAMAGED_SHOWN: Final = 20
"""The maximum number of damaged lines that are shown between two entries."""
DAMAGED_BYTES: Final = 300
OF_ENTRIES: Final = frozenset({DamageKind.MISSING_PARENT, DamageKind.CYCLE})
"""The faults of an entry's position in the tree. All others are faults of a line that is on no branch."""


def row_compactions(session: Session) -> list[Compaction]:
    """Redline's compactions that changed rows of a database: the removed content is only in their backups."""
    if session.agent.store.database(session.path) is None:
        return []
    return list(session.compactions.filter(created="").exclude(undos__is_whole=True).order_by("pk"))


def view_session(
    session: Session, *, leaf_id: str, view: str, start_entry: str, as_recorded: bool = False
) -> dict[str, Any]:
    """One page of a branch's entries, by the names that its template uses: it begins at an entry, or with the branch.

    Raises the errors of `branch_state`, and BadInput `unknown_entry` if the session lacks the entry.
    """
    state = branch_state(session, leaf_id)
    listed = state.listed[view]
    start = _start(state, listed, start_entry)
    end = _end(listed, start)
    shown = listed[start:end]
    damage = _Damage(session.damage)
    page = entry_view.EntriesInView.of(
        session, state, view, shown, subagents_of(session, state, shown), as_recorded=as_recorded
    )
    return {
        "state": state,
        "view": view,
        "items": entry_view.tied(list(_items(page, listed, start, end, damage))),
        # The positions of the page in the view.
        "start": start,
        "end": end,
        # The first entries of the pages before and after it, and of the last page.
        "earlier": listed[_start_before(listed, start)].id if start else "",
        "later": listed[end].id if end < len(listed) else "",
        "last": listed[_start_before(listed, len(listed))].id if listed else "",
        "last_entry": listed[-1].id if listed else "",
        "count": len(listed),
        "damaged_at": damage.first_behind(state.branch),
        "bypassed": list(_bypassed(session, state.tree)),
    }


# ---- the page --------------------------------------------------------------------------------------------


def _start(state: BranchState, listed: Sequence[Entry], at: str) -> int:
    """The position of an entry in a view, or of the next one after it; 0 if none is named."""
    if not at or not listed:
        return 0
    for position, entry in enumerate(listed):
        if entry.id == at:
            return position
    number = state.tree.entry(at).number
    behind = next((position for position, entry in enumerate(listed) if entry.number > number), None)
    return behind if behind is not None else _start_before(listed, len(listed))


def _end(listed: Sequence[Entry], start: int) -> int:
    """The end of a page: after WINDOW entries, or before the one whose blocks would be too many."""
    blocks = 0
    for position in range(start, min(start + WINDOW, len(listed))):
        blocks += len(listed[position].blocks or ())
        if blocks > WINDOW_BLOCKS and position > start:
            return position
    return min(start + WINDOW, len(listed))


def _start_before(listed: Sequence[Entry], end: int) -> int:
    """The start of the page that ends before `end`."""
    blocks = 0
    first = max(0, end - WINDOW)
    for position in range(end - 1, first - 1, -1):
        blocks += len(listed[position].blocks or ())
        if blocks > WINDOW_BLOCKS and position < end - 1:
            return position + 1
    return first


def _items(
    page: entry_view.EntriesInView, listed: Sequence[Entry], start: int, end: int, damage: _Damage
) -> Iterator[entry_view.EntryView]:
    session, state = page.session, page.state
    between = damage.between(listed, start, end) if page.view == "all" else {}
    with session.agent.store.open(session.real_path()) as reader:
        position = start
        said_pause = -1
        while position < end:
            entry = listed[position]
            pause = pause_before(listed, position, state)
            if pause is not None and position != said_pause:
                yield pause
            yield from _damaged(reader, between.get(position, ()))
            damaged = frozenset(place - position for place in between)
            commands = entry_view.command_run(page, listed[position:end], damaged)
            if commands:
                position += len(commands)
                after = pause_before(listed, position, state) if position < len(listed) else None
                is_short = after is not None and after.day is None and position not in between
                said_pause = position if is_short else -1
                yield entry_view.command_item(page, commands, after.who if after is not None and is_short else "")
                continue
            minor = entry_view.minor_run(state, listed[position:end], damaged)
            if len(minor) > 1:
                yield entry_view.minor_item(minor)
                position += len(minor)
                continue
            faults = (entry_view.EntryNote(words, icon="broken") for words in damage.faults.get(entry.number, ()))
            yield from page.items(entry, [*faults, *entry_view.summary_notes(session.agent, entry, state.tree, reader)])
            turn = turn_line(state, entry)
            if turn is not None:
                yield turn
            position += 1
        yield from _damaged(reader, between.get(end, ()))


# ---- damage ----------------------------------------------------------------------------------------------


class _Damage:
    """The faults of a session, by the position at which they are shown: at an entry, or between two."""

    def __init__(self, recorded: list[dict[str, Any]]) -> None:
        self.faults: dict[int, list[str]] = {}
        self.lines = []
        for fault in recorded:
            if fault["kind"] in OF_ENTRIES:
                self.faults.setdefault(fault["number"], []).append(fault["detail"])
            else:
                self.lines.append(fault)
        self.lines.sort(key=itemgetter("number"))

    def between(self, listed: Sequence[Entry], start: int, end: int) -> dict[int, list[dict[str, Any]]]:
        """The damaged lines before each entry of a page, by its position; at `end` those after the last."""
        found = {}
        for position in range(start, end + (end == len(listed))):
            after = listed[position - 1].number if position else 0
            until = listed[position].number if position < len(listed) else math.inf
            low, high = (bisect_right(self.lines, number, key=itemgetter("number")) for number in (after, until))
            if low < high:
                found[position] = self.lines[low:high]
        return found

    def first_behind(self, branch: Sequence[Entry]) -> str:
        """The entry after the first damaged line; the branch's last if the line comes after all of them."""
        if not self.lines:
            return ""
        first = self.lines[0]["number"]
        return branch[min(bisect_left(branch, first, key=attrgetter("number")), len(branch) - 1)].id


def _damaged(reader: SessionReader, lines: Sequence[dict[str, Any]]) -> Iterator[entry_view.EntryView]:
    """Damaged lines of the file: the fault, and the beginning of their bytes."""
    for fault in lines[:DAMAGED_SHOWN]:
        raw = reader.read_at(fault["offset"], min(fault["length"], DAMAGED_BYTES))
        left = fault["length"] - len(raw)
        yield entry_view.EntryView(
            "damage",
            f"line {fault['number']:,}",
            shown=entry_view.ShownText(
                entry_view.clamp(raw.decode("utf-8", "backslashreplace"))[0],
                f"{plural(fault['length'], 'byte')} in all" if left else "",
            ),
            remarks=[entry_view.EntryNote(fault["detail"], icon="broken")],
        )
    if len(lines) > DAMAGED_SHOWN:
        more = len(lines) - DAMAGED_SHOWN
        yield entry_view.EntryView(
            "damage", "", remarks=[entry_view.EntryNote(f"{more:,} more damaged lines lie here", icon="broken")]
        )


# ---- bypassed compactions --------------------------------------------------------------------------------


def _bypassed(session: Session, tree: SessionTree) -> Iterator[dict[str, Any]]:
    """Redline's compactions that have no effect on the branch that continues from the entry before them.

    An agent that has the session open has its own copy: its next line continues from there, past our entry. Each has
    the entry `at` which it did, the run whose plan can be applied again, and the host that receives requests for that.
    """
    leaf = tree.leaf.id
    written = session.compactions.order_by("pk").values_list("entry_id", "leaf_id", "run_id", "run__base_url")
    undos = frozenset(session.undos.values_list("entry_id", flat=True))
    for entry_id, before, run_id, base_url in written:
        if entry_id not in tree or before not in tree or tree.descends(leaf, entry_id):
            continue
        if tree.children.get(tree.position(entry_id)) or leaf == before or not tree.descends(leaf, before):
            continue
        branch = tree.branch(leaf)
        child = branch[next(place for place, one in enumerate(branch) if one.id == before) + 1]
        if child.number > tree.entry(entry_id).number and child.id not in undos:
            yield {"entry_id": entry_id, "at": child.id, "run": run_id, "host": urlsplit(base_url or "").netloc}


# ---- title ----------------------------------------------------------------------------------------------


def page_title(session: Session, activity: Activity) -> str:
    """The title of its page: the session and its states."""
    states = {"almost full": session.due, "live": activity.is_live}
    return ", ".join([heading(session), *(state for state, applies in states.items() if applies)])


def live_signs(session: Session, now: datetime) -> Activity:
    """The known activity of others in the session, without a search of all processes.

    Raises the errors of opening it.
    """
    return activity_of(session, session.agent.store.state(session.real_path()), now, with_writers=False)


# ---- times ----------------------------------------------------------------------------------------------

PAUSE: Final = timedelta(minutes=30)
"""The minimum time between two entries that is mentioned."""
SEARCHED: Final = 50
"""Entries before one that are searched for a time."""
STOPPED: Final = frozenset({"error", "aborted"})


class TimeSpan(NamedTuple):
    """The times of the first and the last entry that record one."""

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
    """The time of the turn; None if its entries record no times."""
    tokens: int
    """The tokens of its part in the context."""
    calls: int
    failed: int
    """The number of failed calls."""
    is_troubled: bool
    """Whether an answer stopped or failed."""


def span_of(entries: Sequence[Entry]) -> TimeSpan | None:
    """The span of the entries that record a time; None if none does."""
    first = next((at for entry in entries if (at := entry.moment) is not None), None)
    last = next((at for entry in reversed(entries) if (at := entry.moment) is not None), None)
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


def pause_before(listed: Sequence[Entry], position: int, state: BranchState) -> entry_view.EntryView | None:
    """A line before an entry: the time since the previous one if it is long, and the day if it is another one.

    For the first entry of a branch it is the day, if the branch has several.
    """
    at = listed[position].moment
    if at is None:
        return None
    earlier = (listed[place].moment for place in range(position - 1, max(-1, position - 1 - SEARCHED), -1))
    before = next((moment for moment in earlier if moment is not None), None)
    if before is None:
        span = span_of(state.branch)
        return entry_view.EntryView("time", "", day=at) if span is not None and not span.is_one_day else None
    words = f"{duration_words(at - before)} later" if at - before >= PAUSE else ""
    is_next_day = day_of(at) != day_of(before)
    return entry_view.EntryView("time", words, day=at if is_next_day else None) if words or is_next_day else None


def turn_line(state: BranchState, entry: Entry) -> entry_view.EntryView | None:
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
    return entry_view.EntryView("time", ", ".join(words))


def day_of(at: datetime | None) -> date | None:
    """The day of a time in the zone of this computer."""
    return timezone.localtime(at).date() if at is not None else None


# ---- relatives ------------------------------------------------------------------------------------------


def starting_call(session: Session) -> dict[str, Any] | None:
    """The call that started a subagent, with its session; None if the session is none, or if the call is not known."""
    if not session.is_subagent or not session.header_id:
        return None
    shown = Session.objects.shown().for_display()
    parent = shown.parent_of(session)
    if parent is None:
        return None
    for found, result in entries_naming(
        [parent, *shown.children_of(parent).filter(is_subagent=True)], session.header_id
    ):
        if result.subagent == session.header_id and result.result_for is not None:
            naming = (entry for _, entry in entries_naming([found], result.result_for))
            call = next((entry for entry in naming if result.result_for in entry.call_ids()), result)
            return {"session": found, "entry_id": call.id, "tool": result.tool_name}
    return None


def subagents_of(session: Session, state: BranchState, shown: Sequence[Entry]) -> dict[str, Session]:
    """The sessions that calls of these entries started, by `Entry.subagent`."""
    results = (result for entry in shown for call_id in entry.call_ids() for result in state.answers.get(call_id, ()))
    ids = {result.subagent for result in results if result.subagent}
    return Session.objects.shown().for_display().started_by(session, ids) if ids else {}


# ---- the turns beside the text --------------------------------------------------------------------------

TURNS_SHOWN: Final = 60
EVENTS_SHOWN: Final = 6
"""The maximum number of branches, labels and compactions that are shown for one turn."""
TITLE_CHARACTERS: Final = 80


@dataclass(frozen=True, slots=True)
class SidebarEvent:
    """An event of a turn, shown on its own line."""

    kind: str
    """`fork`, `compaction`, `summary` or `label`."""
    words: str
    entry_id: str = ""
    leaf_id: str = ""
    entries: int = 0


def rail_of(session: Session, state: BranchState, here: Entry | None) -> dict[str, Any]:
    """The turns around an entry of the branch, beside the text. Raises Conflict if the file was rewritten."""
    numbers = [entry.number for _, entry in state.turns]
    current = bisect_right(numbers, here.number) if here is not None else 0
    first = max(0, min(current - TURNS_SHOWN // 3, len(state.turns) - TURNS_SHOWN))
    shown = state.turns[first : first + TURNS_SHOWN]
    last = first + len(shown)
    titles = _titles(session, state, [entry for _, entry in shown])
    events: defaultdict[int, list[SidebarEvent]] = defaultdict(list)
    for number, event in _events(state, first, last):
        events[number].append(event)
    days = [day_of(entry.moment) for _, entry in shown]
    is_one_day = len(set(days)) < 2
    turns = [
        {
            "number": number,
            "entry": entry,
            "title": titles[entry.id],
            "facts": turn_facts(state, number),
            # What it is about, if it only has commands of the agent.
            "command": state.commands.get(entry.id, ""),
            "is_interruption": state.commands.get(entry.id) == INTERRUPTED,
            # Whether the previous shown turn began on another day.
            "begins_day": not is_one_day and (not place or days[place] != days[place - 1]),
            "events": events[number][:EVENTS_SHOWN],
            "more": max(0, len(events[number]) - EVENTS_SHOWN),
        }
        for place, (number, (_, entry)) in enumerate(enumerate(shown, first + 1))
        # The output of a command has no line of its own beside that of the command.
        if state.commands.get(entry.id) != COMMAND_OUTPUT or number == current or events[number]
    ]
    return {
        "turns": turns,
        # Counted from 1; 0 before the first turn.
        "current": current,
        # The user's messages to link to for earlier and later turns.
        "earlier": state.turns[max(0, first - TURNS_SHOWN // 2)][1].id if first else "",
        "later": state.turns[last][1].id if last < len(state.turns) else "",
        # Events before the first turn.
        "before": events[0][:EVENTS_SHOWN],
    }


def _events(state: BranchState, first: int, last: int) -> Iterator[tuple[int, SidebarEvent]]:
    """The events of a range of turns, each with the number of its turn."""
    begins = [position for position, _ in state.turns]
    begin = begins[first] if first else 0
    end = begins[last] if last < len(begins) else len(state.branch)
    for position in range(begin, end):
        entry = state.branch[position]
        turn = bisect_right(begins, position)
        if entry.is_compaction:
            words = "compaction, ignored" if state.reading.reader.ignores(entry) else "compaction"
            yield turn, SidebarEvent("compaction", words, entry.id)
        elif entry.role == Role.BRANCH_SUMMARY:
            yield turn, SidebarEvent("summary", "branch summary", entry.id)
        if state.labels and entry.id in state.labels:
            yield turn, SidebarEvent("label", state.labels[entry.id][: entry_view.NAME_CHARACTERS], entry.id)
        for fork in state.forks.get(position, ()):
            yield turn, SidebarEvent("fork", "", leaf_id=fork.leaf_id, entries=fork.entries)


def _titles(session: Session, state: BranchState, users: list[Entry]) -> dict[str, str]:
    unknown = [entry for entry in users if entry.id not in state.titles]
    fingerprint = msgspec.convert(session.fingerprint, Fingerprint)
    for entry_id, texts in read_texts(session.real_path(), fingerprint, unknown).items():
        blocks = state.tree.entry(entry_id).blocks
        text = texts.joined(blocks)
        state.titles[entry_id] = title_of(text, TITLE_CHARACTERS)
        if words := command_words(text):
            state.commands[entry_id] = words
    return {entry.id: state.titles.get(entry.id, "") for entry in users}


# ---- a place on the token map ---------------------------------------------------------------------------

WORDS: Final = 60
"""The maximum length of an entry's text in the name of its place, in characters."""


def place_at_point(session: Session, state: BranchState, x: int, y: int) -> dict[str, Any] | None:
    """The place at a point of the map; None if the context is empty."""
    tokens = state.token_map.tokens_at(x, y)
    return place_of(session, state, bisect_right(state.tokens_before, tokens))


def place_of(session: Session, state: BranchState, number: int) -> dict[str, Any] | None:
    """The entry of the context with this number, or the nearest one; None if the context is empty."""
    seen = state.listed["sees"]
    if not seen:
        return None
    number = min(max(number, 1), len(seen))
    entry, before = seen[number - 1], state.tokens_before
    turn = bisect_right(state.turns, entry.number, key=lambda one: one[1].number)
    where = f"turn {turn:,}" if turn else "before the first turn"
    tokens = in_measure(before[number] - before[number - 1], state.size)
    return {
        **map_place(state.token_map, before, number, len(seen), turn, partial(_beginning, state)),
        "entry_id": entry.id,
        "name": f"{where}, {_name(session, state, entry)}, about {tokens} tokens",
    }


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
        return " ".join(filter(None, (entry_view.author_of(entry.role, entry.tool_name), words.partition(" ")[2])))
    message = state.kept[entry.id]
    kind = message.blocks[0].type if message.blocks else ""
    words = _beginning_of(session, message.source, message.blocks)
    return ": ".join(filter(None, (entry_view.author_of(entry.role, "", kind, entry.type), words)))


def _beginning_of(session: Session, entry: Entry, blocks: tuple[Block, ...] | None) -> str:
    text = spoken(entry_view.joined_in_short(indexed_texts(session, [entry])[entry.id], blocks)[:4_000], entry.role)
    if session.cwd.strip("/"):
        text = text.replace(f"{session.cwd.rstrip('/')}/", "")
    return escape_line(entry_view.beginning_of(" ".join(text.split()), WORDS))


# ---- the surroundings -----------------------------------------------------------------------------------


def surroundings_of(session: Session, state: BranchState, view: str, leaf: str, start: int, end: int) -> dict[str, Any]:
    """The surroundings of the page with these entries of a view, given as positions in it, for the page.

    Raises Conflict if the file was rewritten.
    """
    listed = state.listed[view]
    here = listed[start] if start < end else None
    first = here.id if here is not None and start else ""
    size, before = state.size, state.tokens_before
    tokens, rest = size.contents([share.tokens for share in state.token_map.shares])
    seen_before = next((state.places[one.id] for one in listed[start:] if one.id in state.places), len(state.places))
    return {
        "state": state,
        "version": version_of(session, start, end),
        "view": view,
        "leaf": leaf,
        "tabs": [
            {
                "view": name,
                "label": label,
                "count": len(state.listed[name]),
                "address": view_address(session, name, leaf, first),
                "is_current": name == view,
            }
            for name, label in VIEWS.items()
        ],
        "rail": rail_of(session, state, here),
        # The position of the page's beginning on the token map, and the top and the height of the page, if it shows
        # the context.
        "place": place_of(session, state, seen_before + 1),
        "frame": state.token_map.frame(before[start], before[end] - before[start]) if view == "sees" and here else None,
        # The parts of the context in its measure, and the tokens that the provider counts and the session lacks.
        "shares": [
            Share(share.kind, share.name, part, percent(part, size.tokens))
            for share, part in zip(state.token_map.shares, tokens, strict=True)
        ],
        "rest": rest,
        "span": span_of(state.branch),
        # In a path, these are followed by an entry's id.
        "at": view_address(session, view, leaf) + "&at=",
        "all_at": view_address(session, "all", leaf) + "&at=",
        "branch": view_address(session, view) + "&leaf=",
    }


def version_of(session: Session, start: int, end: int) -> str:
    """The version of the surroundings of a page, between these positions of a view."""
    return f"{session.entry_count}.{start}.{end}"


def view_address(session: Session, view: str, leaf: str = "", at: str = "") -> str:
    """The address of a view of a branch, from an entry on."""
    parameters = {"view": view, "leaf": leaf, "at": at}
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{session.get_absolute_url()}?{query}"

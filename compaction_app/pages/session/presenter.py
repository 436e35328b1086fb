"""The page of a session: one page of a branch's entries, the turns beside it, damaged lines, bypassed compactions.

The state of the branch comes from `branches`; the texts of a page are read from the file by offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from django.utils import timezone

from compaction_app.entries.branches import BranchState, branch_state
from compaction_app.entries.view import (
    EntryNote,
    EntryView,
    ShownText,
    calls_of,
    clamp,
    is_minor,
    items_of,
    languages_of,
    minor_item,
    shown_pictures,
    source_of,
    summary_notes,
    tied,
)
from compaction_app.models import Compaction
from compaction_app.session_activity import Activity, activity_of
from sessions_app.disk.files import SessionReader
from sessions_app.document.document import indexed_texts
from sessions_app.index.index_store import entries_naming
from sessions_app.models import Session
from sessions_app.sessionlog.diagnosis import Breakage
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.session import DamageKind
from sessions_app.sessionlog.text import duration_words, plural
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.templatetags.formatting import heading

# WAS compaction_app/session_page/time_lines: """The times of a page's entries: pauses between them, and the duration of each turn."""
# WAS compaction_app/session_page/relatives: """The sessions related to a session: its parent, its forks, and the subagents that it started."""
# WAS compaction_app/session_page/live_signs: """Whether a session is live, as its page shows it: by its file and by its agent's own signs."""


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


def pause_before(listed: Sequence[Entry], position: int, state: BranchState) -> EntryView | None:
    """A line before an entry: the time since the previous one if it is long, and the day if it is another one.

    For the first entry of a branch it is the day, if the branch has several.
    """
    at = listed[position].moment
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
        at = listed[place].moment
        if at is not None:
            return at
    return None


def day_of(at: datetime | None) -> date | None:
    """The day of a time in the zone of this computer."""
    return timezone.localtime(at).date() if at is not None else None


RELATIVES_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Relatives:
    """The indexed sessions that are related to one."""

    parent: Session | None
    """The session from which it was forked, or that started it."""
    subagents: list[Session]
    """The first RELATIVES_SHOWN sessions that it started, and its forks."""
    forks: list[Session]
    start: StartingCall | None
    """The call that started it."""


@dataclass(frozen=True, slots=True)
class StartingCall:
    """The call that started a subagent, in the session of this call."""

    session: Session
    entry_id: str
    tool: str


def relatives_of(session: Session) -> Relatives:
    """The shown sessions that are related to this one."""
    shown = Session.objects.shown().for_display()
    children = shown.children_of(session).order_by("mtime_ns", "pk")
    parent = shown.parent_of(session)
    siblings = shown.children_of(parent).filter(is_subagent=True) if parent is not None else ()
    return Relatives(
        parent,
        list(children.filter(is_subagent=True)[:RELATIVES_SHOWN]),
        list(children.filter(is_subagent=False)[:RELATIVES_SHOWN]),
        _starting_call(session, [parent, *siblings]) if parent is not None and session.is_subagent else None,
    )


def _starting_call(subagent: Session, sessions: Sequence[Session]) -> StartingCall | None:
    """The call in these sessions that started a subagent; None if none of them has one."""
    if not subagent.header_id:
        return None
    for session, result in entries_naming(sessions, subagent.header_id):
        if result.subagent == subagent.header_id and result.result_for is not None:
            naming = (entry for _, entry in entries_naming([session], result.result_for))
            call = next((entry for entry in naming if result.result_for in entry.call_ids()), result)
            return StartingCall(session, call.id, result.tool_name)
    return None


def subagents_of(session: Session, state: BranchState, shown: Sequence[Entry]) -> dict[str, Session]:
    """The sessions that calls of these entries started, by `Entry.subagent`."""
    results = (result for entry in shown for call_id in entry.call_ids() for result in state.answers.get(call_id, ()))
    ids = {result.subagent for result in results if result.subagent}
    return Session.objects.shown().for_display().started_by(session, ids) if ids else {}


WINDOW: Final = 40
"""Entries on one page of a branch, and blocks if its entries have many."""
WINDOW_BLOCKS: Final = 100
DAMAGED_SHOWN: Final = 20
"""Damaged lines that are shown between two entries."""
DAMAGED_BYTES: Final = 300
OF_ENTRIES: Final = frozenset({DamageKind.MISSING_PARENT, DamageKind.CYCLE})
"""Faults of an entry's position in the tree. All others are of a line that is on no branch."""


@dataclass(frozen=True, slots=True)
class Bypassed:
    """A compaction of Redline's that an agent bypassed: it has no effect on the branch that continues."""

    entry_id: str
    at: str
    """The entry with which the agent continued from its own copy."""
    run: int | None
    """The run that planned it, whose plan can be applied again."""
    host: str
    """The host that receives requests for that; empty if there is none."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """One page of a branch's entries, and its position in the view."""

    state: BranchState
    view: str
    items: list[EntryView]
    start: int
    end: int
    """The positions of the page in the view."""
    earlier: str
    later: str
    last: str
    """The first entry of the last page."""
    upto: str
    """The last entry of the view."""
    count: int
    """The entries of the view."""
    here: str
    """The first entry of this page."""
    damaged_at: str
    """The entry after the first damaged line."""
    bypassed: list[Bypassed]
    broken: Breakage | None
    """Why the branch cannot be continued; None if it can."""


def row_compactions(session: Session) -> list[Compaction]:
    """Redline's compactions that changed rows of a database: what they removed is in their backups only."""
    if session.agent.store.database(session.path) is None:
        return []
    return list(session.compactions.filter(created="").exclude(undos__is_whole=True).order_by("pk"))


def view_session(
    session: Session, *, leaf_id: str = "", view: str = "sees", at: str = "", as_recorded: bool = False
) -> SessionView:
    """The page of a view that begins at an entry, or with the branch.

    Raises the errors of `branch_state`, and BadInput `unknown_entry` if the session lacks the entry `at`.
    """
    state = branch_state(session, leaf_id)
    listed = state.listed[view]
    start = _start(state, listed, at)
    end = _end(listed, start)
    shown = listed[start:end]
    damage = _Damage(session.damage)
    here = shown[0] if shown else None
    items = tied([*_items(session, state, view, listed, start, end, damage, as_recorded)])
    return SessionView(
        state=state,
        view=view,
        items=items if as_recorded else with_pictures(session, state, view, items),
        start=start,
        end=end,
        earlier=listed[_start_before(listed, start)].id if start else "",
        later=listed[end].id if end < len(listed) else "",
        last=listed[_start_before(listed, len(listed))].id if listed else "",
        upto=listed[-1].id if listed else "",
        count=len(listed),
        here=here.id if here is not None else "",
        damaged_at=damage.first_behind(state.branch),
        bypassed=list(_bypassed(session, state.tree)),
        broken=state.broken,
    )


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
    session: Session,
    state: BranchState,
    view: str,
    listed: Sequence[Entry],
    start: int,
    end: int,
    damage: _Damage,
    as_recorded: bool,
) -> Iterator[EntryView]:
    shown = listed[start:end]
    sources = [source_of(state, entry, view) for entry in shown]
    calls = calls_of(state, shown)
    texts = indexed_texts(session, [*sources, *calls])
    languages = languages_of(calls, texts)
    subagents = subagents_of(session, state, shown)
    between = damage.between(listed, start, end) if view == "all" else {}
    with session.agent.store.open(session.real_path()) as reader:
        position = start
        while position < end:
            entry = listed[position]
            pause = pause_before(listed, position, state)
            if pause is not None:
                yield pause
            yield from _damaged(reader, between.get(position, ()))
            minor = _minor_run(state, listed[position:end], frozenset(place - position for place in between))
            if len(minor) > 1:
                yield minor_item(minor)
                position += len(minor)
                continue
            yield from items_of(
                state,
                entry,
                texts[sources[position - start].id],
                view,
                remarks=[
                    *(EntryNote(words, icon="broken") for words in damage.faults.get(entry.number, ())),
                    *summary_notes(session.agent, entry, state.tree, reader),
                ],
                project=session.cwd,
                subagents=subagents,
                languages=languages,
                as_recorded=as_recorded,
            )
            turn = turn_line(state, entry)
            if turn is not None:
                yield turn
            position += 1
        yield from _damaged(reader, between.get(end, ()))


def _minor_run(state: BranchState, entries: Sequence[Entry], damaged: Container[int]) -> list[Entry]:
    """The sequence of minor entries with which these begin; damaged lines are shown before those at `damaged`."""
    run: list[Entry] = []
    for place, entry in enumerate(entries):
        if not is_minor(state, entry) or (run and place in damaged):
            break
        run.append(entry)
    return run


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
        self.lines.sort(key=_line_number)

    def between(self, listed: Sequence[Entry], start: int, end: int) -> dict[int, list[dict[str, Any]]]:
        """The damaged lines before each entry of a page, by its position; at `end` those after the last."""
        found = {}
        for position in range(start, end + (end == len(listed))):
            after = listed[position - 1].number if position else 0
            low = bisect_right(self.lines, after, key=_line_number)
            high = (
                bisect_right(self.lines, listed[position].number, key=_line_number)
                if position < len(listed)
                else len(self.lines)
            )
            if low < high:
                found[position] = self.lines[low:high]
        return found

    def first_behind(self, branch: Sequence[Entry]) -> str:
        """The entry after the first damaged line; the branch's last if the line comes after all of them."""
        if not self.lines:
            return ""
        first = self.lines[0]["number"]
        return branch[min(bisect_left(branch, first, key=_entry_number), len(branch) - 1)].id


def _line_number(fault: dict[str, Any]) -> int:
    return int(fault["number"])


def _entry_number(entry: Entry) -> int:
    return entry.number


def _damaged(reader: SessionReader, lines: Sequence[dict[str, Any]]) -> Iterator[EntryView]:
    """Damaged lines of the file: the fault, and the beginning of their bytes."""
    for fault in lines[:DAMAGED_SHOWN]:
        raw = reader.read_at(fault["offset"], min(fault["length"], DAMAGED_BYTES))
        left = fault["length"] - len(raw)
        yield EntryView(
            "damage",
            f"line {fault['number']:,}",
            shown=ShownText(
                clamp(raw.decode("utf-8", "backslashreplace"))[0],
                f"{plural(fault['length'], 'byte')} in all" if left else "",
            ),
            remarks=[EntryNote(fault["detail"], icon="broken")],
        )
    if len(lines) > DAMAGED_SHOWN:
        more = len(lines) - DAMAGED_SHOWN
        yield EntryView("damage", "", remarks=[EntryNote(f"{more:,} more damaged lines lie here", icon="broken")])


# ---- bypassed compactions--------------------------------------------------------------------------------


def _bypassed(session: Session, tree: SessionTree) -> Iterator[Bypassed]:
    """Redline's compactions that are not on the branch that continues from the entry before them.

    An agent that has the session open has its own copy: its next line continues from there, past our entry.
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
            yield Bypassed(entry_id, child.id, run_id, urlsplit(base_url or "").netloc)


def with_pictures(session: Session, state: BranchState, view: str, items: Iterable[EntryView]) -> list[EntryView]:
    """The items with their pictures, unless an edit has replaced the recorded content."""
    return [
        item
        if not item.entry_id or (view == "sees" and item.entry_id in state.edits)
        else _with_pictures(session, state, item)
        for item in items
    ]


def _with_pictures(session: Session, state: BranchState, item: EntryView) -> EntryView:
    entry = state.tree.entry(item.entry_id)
    block = next((one for one in entry.blocks or () if one.index == item.block), None)
    pictures = shown_pictures(session, entry, block, item.shown.text)
    return replace(item, pictures=pictures) if pictures else item


def title_of(session: Session, activity: Activity) -> str:
    """The title of its page: the session and its states."""
    states = {"due": session.due, "live": activity.is_live}
    return ", ".join([heading(session), *(state for state, applies in states.items() if applies)])


def live_signs(session: Session, now: datetime) -> Activity:
    """The known activity of others in the session, without a search of all processes.

    Raises the errors of opening it.
    """
    return activity_of(session, session.agent.store.state(session.real_path()), now, with_writers=False)

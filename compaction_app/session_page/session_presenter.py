"""The page of a session: one page of a branch's entries, the turns beside it, damaged lines, bypassed compactions.

The state of the branch comes from `branches`; the texts of a page are read from the file by offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from compaction_app.entries.branches import BranchState, branch_state
from compaction_app.entries.text import ShownText, calls_of, clamp, languages_of
from compaction_app.entries.view import (
    EntryNote,
    EntryView,
    is_minor,
    items_of,
    minor_item,
    shown_pictures,
    source_of,
    summary_notes,
    tied,
)
from compaction_app.models import Compaction
from sessions_app.document.document import indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.printable import plural
from sessions_app.sessionlog.provider_rules import Breakage
from sessions_app.sessionlog.session import DamageKind
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.files import SessionReader

from .relatives import subagents_of
from .time_lines import pause_before, turn_line

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

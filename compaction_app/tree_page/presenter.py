"""The page of a session's tree: some of its rows, each with its position in the drawing, and the selected entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from compaction_app.core.lanes import LANES, LaneDrawing, Lanes
from compaction_app.core.summary_loss import is_summary
from compaction_app.entries.branches import BranchState, branch_state
from compaction_app.entries.stretches import NO_TEXT, RowText, texts_of_stretches
from compaction_app.navigation.offers import Offers, offers_of
from sessions_app.models import Session
from sessions_app.sessionlog.controls import BoundaryControl
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.moments import moment_of
from sessions_app.sessionlog.tree_rows import Below, FoldedRows, RowKind, TreeRow, TreeRows, folded

from .figures import in_measure, measure_of

WINDOW: Final = 200
"""Rows on one page."""
FOUND: Final = 200
"""Matching rows that are shown."""
SEARCHED: Final = 20_000
"""Rows whose texts a search reads."""
LABELS_SHOWN: Final = 100
BRANCHES_OFFERED: Final = 50
"""Branches offered for a comparison with the selected one."""
FORKS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class KnotRow:
    """A row of the tree, or several folded ones."""

    row: TreeRow | FoldedRows
    entry_id: str
    """The entry that is selected with it."""
    drawing: LaneDrawing
    tokens: int
    began: datetime | None
    is_apart: bool = False
    """Whether a separate tree begins here, after the first one."""
    is_selected: bool = False
    text: RowText = NO_TEXT
    labels: Sequence[str] = ()
    summary: str = ""
    """The first summary in it that has a page of its loss; empty if there is none."""
    ended: datetime | None = None
    """For folded rows, the time of the last entry."""

    @property
    def is_fold(self) -> bool:
        return isinstance(self.row, FoldedRows)

    @property
    def place(self) -> str:
        """Its turn, and whether a branch begins or ends with it."""
        row = self.row
        if isinstance(row, FoldedRows):
            return f"turns {row.first.turn:,} to {row.last.turn:,}" if row.turns > 1 else ""
        words = [f"turn {row.turn:,}"] if row.turns else []
        if row.lane and row.is_start:
            words.append("other branch" if row.lane < LANES else f"other branch, {row.lane:,} deep")
        if self.is_apart:
            words.append("a tree of its own")
        if row.is_end and not row.is_leaf:
            words.append("ends")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class SelectedEntry:
    """The selected entry of the page, and its position in the tree."""

    entry: Entry
    row: TreeRow
    last_id: str
    """The last entry of its row: its branch ends with the turn."""
    name: str
    text: RowText
    tokens: int
    at: datetime | None
    below: Below
    reported: int | None
    """The context's tokens in the last report of a provider in its row."""
    labels: Sequence[str]
    summary: str
    """See `KnotRow.summary`."""
    offered: frozenset[str]
    """The possible actions: `move`, `label` and `fork`."""
    not_offered: Sequence[str]
    """Why the others are impossible, as sentences."""
    own_label: str
    """The label of the entry itself; empty if it has none."""
    branches: list[BranchEnd]
    """The branches that it can be compared with, besides the active one."""

    @property
    def is_said(self) -> bool:
        """Whether it is a user's message, so that a move and a fork go before it."""
        return self.entry.role == Role.USER

    @property
    def has_plain_id(self) -> bool:
        """Whether its id can be in a form: not every character can."""
        return self.entry.id.isprintable()


@dataclass(frozen=True, slots=True)
class BranchEnd:
    """A branch that is offered for a comparison, named by its last turn."""

    entry_id: str
    words: str


class LabelledEntry(NamedTuple):
    """An entry that has a label."""

    entry_id: str
    label: str


@dataclass(frozen=True, slots=True)
class TreeView:
    """One page of a session's tree."""

    rows: list[KnotRow]
    earlier: str
    """The first entry of the page with earlier rows; empty if there are none."""
    later: str
    total: int
    """The rows of the whole tree, with its folds."""
    selected: SelectedEntry
    branches: int
    compactions: int
    turns: int
    entries: int
    tokens: int
    """All messages of the tree, in the measure of the session's context; the sum of all rows."""
    began: datetime | None
    ended: datetime | None
    leaf_id: str
    forks: list[Session]
    """Sessions that were forked from this one, the first FORKS_SHOWN."""
    fork_count: int
    labels: list[LabelledEntry]
    """The labels in the order of their entries, the first LABELS_SHOWN."""
    found: int | None
    """The number of rows that match a search; None without one."""


def view_tree(
    session: Session, *, at: str = "", start: str = "", opened: Iterable[str] = (), query: str = ""
) -> TreeView:
    """The rows from `start` on, or around the selected entry `at`, which is the leaf by default.

    `opened`: the first entries of opened folds. With a query, the rows whose text or label contains it. Raises BadInput
    `unknown_entry`, and the errors of `branch_state`.
    """
    state = branch_state(session)
    tree = state.rows
    selected = tree.row_of(at or state.leaf_id)
    shown = _shown(tree, state, selected, [tree.row_of(one) for one in opened])
    found = _matching(session, state, query) if query else None
    page = _page(tree, shown, selected, start) if found is None else _Page(found[:FOUND], 0, len(shown))
    children = Session.objects.shown().children_of(session).filter(is_subagent=False)
    entries = state.tree.entries
    placed = [position for row in tree.rows for position in row.stretch.positions]
    return TreeView(
        rows=list(_knots(session, state, page.rows, tree.rows[selected], are_apart=found is not None)),
        earlier=_first_id(state, shown[max(0, page.start - WINDOW)]) if page.start else "",
        later=_first_id(state, shown[page.end]) if page.end < len(shown) else "",
        total=len(shown),
        selected=_selected(session, state, at, selected),
        branches=tree.branches,
        compactions=sum(_is_compaction(entries[position]) for position in placed),
        turns=sum(row.stretch.turns for row in tree.rows),
        entries=len(placed),
        tokens=measure_of(session).of(tree.tokens),
        began=moment_of(entries[placed[0]].timestamp),
        ended=moment_of(entries[max(placed)].timestamp),
        leaf_id=state.leaf_id,
        forks=list(children.for_display().order_by("mtime_ns", "pk")[:FORKS_SHOWN]),
        fork_count=children.count(),
        labels=_labelled(state),
        found=len(found) if found is not None else None,
    )


def _labelled(state: BranchState) -> list[LabelledEntry]:
    known = [entry_id for entry_id in state.labels if entry_id in state.tree and entry_id.isprintable()]
    known.sort(key=state.tree.position)
    return [LabelledEntry(entry_id, state.labels[entry_id]) for entry_id in known[:LABELS_SHOWN]]


# ---- the rows ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Page:
    """Some of the shown rows: from `start` up to `end`."""

    rows: Sequence[TreeRow | FoldedRows]
    start: int
    end: int


def _shown(tree: TreeRows, state: BranchState, selected: int, opened: list[int]) -> list[TreeRow | FoldedRows]:
    labelled = {tree.row_of(entry_id) for entry_id in state.labels if entry_id in state.tree}
    return folded(tree.rows, {selected, *labelled}, opened)


def _page(tree: TreeRows, shown: Sequence[TreeRow | FoldedRows], selected: int, start: str) -> _Page:
    sought = tree.rows[tree.row_of(start) if start else selected]
    place = next(
        index
        for index, one in enumerate(shown)
        if one is sought or (isinstance(one, FoldedRows) and sought in one.rows)
    )
    begin = place if start else max(0, min(place - WINDOW // 2, len(shown) - WINDOW))
    end = min(begin + WINDOW, len(shown))
    return _Page(shown[begin:end], begin, end)


def _matching(session: Session, state: BranchState, query: str) -> list[TreeRow]:
    """The rows whose text or label has the words of a query, ignoring case."""
    wanted = query.casefold()
    rows = [row for row in state.rows.rows if row.stretch.kind is not RowKind.REST][:SEARCHED]
    labels = _labels_by_row(state)
    texts = texts_of_stretches(session, state, [row.stretch for row in rows])
    return [
        row
        for row in rows
        if any(
            wanted in words.casefold() for words in (texts[row.stretch.start].words, *labels.get(row.stretch.start, ()))
        )
    ]


def _knots(
    session: Session,
    state: BranchState,
    shown: Sequence[TreeRow | FoldedRows],
    selected: TreeRow,
    *,
    are_apart: bool,
) -> Iterator[KnotRow]:
    """The rows of a page; for rows that do not follow each other, the lanes are omitted."""
    lanes = Lanes(state.rows.depth)
    labels = _labels_by_row(state)
    texts = texts_of_stretches(session, state, [one.stretch for one in shown if isinstance(one, TreeRow)])
    entries = state.tree.entries
    for one in shown:
        if isinstance(one, FoldedRows):
            first, last = one.first.stretch, one.last.stretch
            began, ended = (moment_of(entries[at].timestamp) for at in (first.start, last.positions[-1]))
            drawing = lanes.fold(one)
            yield KnotRow(one, entries[first.start].id, drawing, in_measure(session, one), began, ended=ended)
            continue
        start = one.stretch.start
        yield KnotRow(
            one,
            entries[start].id,
            lanes.dot(one) if are_apart else lanes.row(one),
            in_measure(session, one),
            moment_of(entries[start].timestamp),
            is_apart=one.is_start and one.lane == 0 and one is not state.rows.rows[0],
            is_selected=one is selected,
            text=texts[start],
            labels=labels.get(start, ()),
            summary=_summary_in(state, one),
        )


def _labels_by_row(state: BranchState) -> dict[int, list[str]]:
    """The labels in each row, by the position of its first entry."""
    found: dict[int, list[str]] = {}
    for entry_id, label in state.labels.items():
        if entry_id in state.tree:
            row = state.rows.rows[state.rows.row_of(entry_id)]
            found.setdefault(row.stretch.start, []).append(label)
    return found


def _summary_in(state: BranchState, row: TreeRow) -> str:
    reader = state.reading.reader
    entries = (state.tree.entries[position] for position in row.stretch.positions)
    return next((entry.id for entry in entries if is_summary(entry) and not reader.ignores(entry)), "")


def _first_id(state: BranchState, shown: TreeRow | FoldedRows) -> str:
    row = shown.first if isinstance(shown, FoldedRows) else shown
    return state.tree.entries[row.stretch.start].id


def _is_compaction(entry: Entry) -> bool:
    """Whether it is a compaction, and not only the note that turns were taken back."""
    is_note = isinstance(entry.control, BoundaryControl) and entry.control.turns is not None
    return entry.is_compaction and not is_note


# ---- the selected entry ------------------------------------------------------------------------------------


def _selected(session: Session, state: BranchState, at: str, index: int) -> SelectedEntry:
    row = state.rows.rows[index]
    entries = state.tree.entries
    positions = row.stretch.positions
    start = entries[row.stretch.start]
    entry = state.tree.entry(at) if at else start
    last = positions[-1]
    reported = next((entries[one].usage for one in reversed(positions) if entries[one].usage), None)
    has_plain_ids = entry.id.isprintable() and entries[last].id.isprintable()
    offers = offers_of(session, state) if has_plain_ids else Offers(frozenset())
    return SelectedEntry(
        entry=entry,
        row=row,
        last_id=entries[last].id,
        name=f"Turn {row.turn}" if row.stretch.turns else "Within a turn" if row.turn else "Before the first turn",
        text=texts_of_stretches(session, state, [row.stretch], length=1_000)[row.stretch.start],
        tokens=in_measure(session, row),
        at=moment_of(entry.timestamp),
        below=state.rows.below(last),
        reported=reported,
        labels=_labels_by_row(state).get(row.stretch.start, ()),
        summary=_summary_in(state, row),
        offered=offers.offered,
        not_offered=offers.not_offered,
        own_label=state.labels.get(entry.id, ""),
        branches=_branch_ends(session, state, row),
    )


def _branch_ends(session: Session, state: BranchState, selected: TreeRow) -> list[BranchEnd]:
    """The branches other than the active one and the selected row's, the latest ones first."""
    leaf = state.rows.rows[state.rows.row_of(state.leaf_id)]
    ends = [row for row in state.rows.ends() if row is not leaf and row is not selected]
    ends.sort(key=lambda row: row.stretch.positions[-1], reverse=True)
    offered = [row.stretch for row in ends[:BRANCHES_OFFERED]]
    texts = texts_of_stretches(session, state, offered, length=60)
    return [BranchEnd(state.tree.entries[one.positions[-1]].id, texts[one.start].words) for one in offered]

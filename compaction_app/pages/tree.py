"""The pages of a session's tree: its rows with the selected entry, and two of its branches side by side.

A row is a turn, or a compaction or summary between turns; each has its position in the drawing, and the beginning of
its text or a description of the event. Tokens are in the measure of the session's context. A comparison shows the
common part of two branches, and turn by turn what only one of them has.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from compaction_app.changes.entries import words_again
from compaction_app.changes.offers import Offers, offers_of
from compaction_app.core.lanes import LANES, LaneDrawing, Lanes
from compaction_app.core.summary_loss import is_summary
from compaction_app.entries.branches import BranchState, branch_state
from compaction_app.entries.view import author_of, joined_in_short, meaning_of, name_of
from compaction_app.lookups import known_session
from compaction_app.models import written_by_redline
from sessions_app.document.document import indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog import tree_rows
from sessions_app.sessionlog.context import UNKNOWN_SIZE, Basis, ContextSize
from sessions_app.sessionlog.entries import (
    NO_TEXTS,
    BoundaryControl,
    Entry,
    Role,
    Texts,
)
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.text import is_noise, plural, title_of
from sessions_app.web.pages import number_in, status_of, wants_fragment


def measure_of(session: Session) -> ContextSize:
    """The size of the session's context, whose measure converts estimates of other parts."""
    return session.context_size or UNKNOWN_SIZE


def in_measure(session: Session, row: tree_rows.TreeRow | tree_rows.FoldedRows) -> int:
    """The tokens of a row; the sum over all rows is exactly their total."""
    measure = measure_of(session)
    return measure.of(row.tokens_above + row.tokens) - measure.of(row.tokens_above)


TITLE: Final = 160
"""The number of characters of a text that a row shows."""


@dataclass(frozen=True, slots=True)
class RowText:
    """The words of a stretch: a user's text, or a description by Redline."""

    words: str = ""
    is_said: bool = False
    """Whether the user wrote them."""
    author: str = ""


def texts_of_stretches(
    session: Session, state: BranchState, stretches: Iterable[tree_rows.Stretch], length: int = TITLE
) -> dict[int, RowText]:
    """The words of stretches, by the position at which each begins. Raises Conflict if the file was rewritten."""
    described = {stretch.start: (stretch.kind, _described(state, stretch)) for stretch in stretches}
    texts = indexed_texts(session, [entry for _, entry in described.values() if entry.has_text])
    agent = session.agent_label or "the agent"
    has_compactions = any(kind is tree_rows.RowKind.COMPACTION for kind, _ in described.values())
    own = written_by_redline(session) if has_compactions else frozenset()
    return {
        start: (
            _compaction(state, entry, "Redline" if entry.id in own else agent, texts.get(entry.id, NO_TEXTS))
            if kind is tree_rows.RowKind.COMPACTION
            else _message(state, kind, entry, texts.get(entry.id, NO_TEXTS), length)
        )
        for start, (kind, entry) in described.items()
    }


def _described(state: BranchState, stretch: tree_rows.Stretch) -> Entry:
    """The entry whose text represents a stretch: for the rest of a turn, its first message."""
    entries = state.tree.entries
    start = entries[stretch.start]
    if stretch.kind is not tree_rows.RowKind.REST:
        return start
    return next((entries[one] for one in stretch.positions if entries[one].is_message), start)


def _message(state: BranchState, kind: tree_rows.RowKind, entry: Entry, texts: Texts, length: int) -> RowText:
    text = joined_in_short(texts, entry.blocks)
    if kind is tree_rows.RowKind.TURN:
        words = _beginning(title_of(text, length + 1), length)
        return RowText(words, author="command") if is_noise(text) else RowText(words, is_said=True)
    if kind is tree_rows.RowKind.SUMMARY:
        return RowText(_beginning(text, length), author="branch summary")
    if entry.is_message:
        author = author_of(entry.role, entry.tool_name, otherwise=entry.type)
        return RowText(_beginning(text, length), author=author)
    if entry.control is None:
        return RowText(name_of(entry))
    note = meaning_of(entry, state.reading.reader, state.tree)
    return RowText(f"{note.words} {note.quoted}".strip(), author=name_of(entry))


def _compaction(state: BranchState, entry: Entry, by: str, texts: Texts) -> RowText:
    reader = state.reading.reader
    if isinstance(entry.control, BoundaryControl) and entry.control.turns is not None:
        turns = entry.control.turns
        return RowText(f"{plural(turns, 'turn')} taken back")
    note = meaning_of(entry, reader, state.tree)
    meaning = f"a summary of {plural(len(texts.whole), 'character')}" if texts.whole else note.words
    return RowText(f"Compaction by {by}: {meaning}{note.tail}")


def _beginning(text: str, length: int) -> str:
    words = " ".join(text[: 4 * length].split())
    return words if len(words) <= length and len(text) <= 4 * length else f"{words[:length]}…"


# ---- the tree ----------------------------------------------------------------------------------------------

WINDOW: Final = 200
"""The number of rows on one page."""
FOUND: Final = 200
"""The maximum number of matching rows that are shown."""
SEARCHED: Final = 20_000
"""The maximum number of rows whose texts a search reads."""
LABELS_SHOWN: Final = 100
BRANCHES_OFFERED: Final = 50
"""The maximum number of branches offered for a comparison with the selected one."""
FORKS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class KnotRow:
    """A row of the tree, or several folded ones."""

    row: tree_rows.TreeRow | tree_rows.FoldedRows
    entry: Entry
    """Its first entry, which is selected with it."""
    drawing: LaneDrawing
    tokens: int
    is_apart: bool = False
    """Whether a separate tree begins here, after the first one."""
    is_selected: bool = False
    text: RowText = RowText()
    labels: Sequence[str] = ()
    summary: str = ""
    """The first summary in it that has a page of its loss; empty if there is none."""

    @property
    def is_fold(self) -> bool:
        return isinstance(self.row, tree_rows.FoldedRows)

    @property
    def place(self) -> str:
        """Its turn, and whether a branch begins or ends with it."""
        row = self.row
        if isinstance(row, tree_rows.FoldedRows):
            return f"turns {row.first.turn:,} to {row.last.turn:,}" if row.turns > 1 else ""
        words = [f"turn {row.turn:,}"] if row.turns else []
        if row.lane and row.is_start:
            words.append("other branch" if row.lane < LANES else f"other branch, {row.lane:,} deep")
        if self.is_apart:
            words.append("a tree of its own")
        if row.is_end and not row.is_leaf:
            words.append("ends")
        return ", ".join(words)


def view_tree(session: Session, *, at: str, start: str, opened: Iterable[str], query: str) -> dict[str, Any]:
    """The rows from `start` on, or around the selected entry `at`, which is the leaf by default; for the page.

    `opened`: the first entries of opened folds. With a query, the rows whose text or label contains it. Raises BadInput
    `unknown_entry`, and the errors of `branch_state`.
    """
    state = branch_state(session)
    tree = state.rows
    selected = tree.row_of(at or state.leaf_id)
    always_shown = {selected, *(tree.row_of(entry_id) for entry_id in state.labels if entry_id in state.tree)}
    shown = tree_rows.folded(tree.rows, always_shown, [tree.row_of(one) for one in opened])
    found = _matching(session, state, query) if query else None
    first, end = _page(tree, shown, selected, start) if found is None else (0, len(shown))
    rows = shown[first:end] if found is None else found[:FOUND]
    children = Session.objects.shown().children_of(session).filter(is_subagent=False)
    entries = state.tree.entries
    placed = [position for row in tree.rows for position in row.stretch.positions]
    labelled = [entry_id for entry_id in state.labels if entry_id in state.tree and entry_id.isprintable()]
    labelled.sort(key=state.tree.position)
    return {
        "rows": list(_knots(session, state, rows, tree.rows[selected], are_apart=found is not None)),
        # The first entries of the pages before and after this one.
        "earlier": _first_id(state, shown[max(0, first - WINDOW)]) if first else "",
        "later": _first_id(state, shown[end]) if end < len(shown) else "",
        "total": len(shown),
        "selected": _selected(session, state, at, selected),
        "branches": tree.branches,
        "compactions": sum(_is_compaction(entries[position]) for position in placed),
        "turns": sum(row.stretch.turns for row in tree.rows),
        "entries": len(placed),
        # All messages of the tree: the sum of all rows.
        "tokens": measure_of(session).of(tree.tokens),
        "began": entries[placed[0]].moment,
        "ended": entries[max(placed)].moment,
        "leaf_id": state.leaf_id,
        "forks": list(children.for_display().order_by("mtime_ns", "pk")[:FORKS_SHOWN]),
        "fork_count": children.count(),
        "labels": [(entry_id, state.labels[entry_id]) for entry_id in labelled[:LABELS_SHOWN]],
        # The number of rows that match the query; None without one.
        "found": len(found) if found is not None else None,
    }


# ---- the rows ----------------------------------------------------------------------------------------------


def _page(
    tree: tree_rows.TreeRows, shown: Sequence[tree_rows.TreeRow | tree_rows.FoldedRows], selected: int, start: str
) -> tuple[int, int]:
    """The first and the end of the rows of a page."""
    sought = tree.rows[tree.row_of(start) if start else selected]
    place = next(
        index
        for index, one in enumerate(shown)
        if one is sought or (isinstance(one, tree_rows.FoldedRows) and sought in one.rows)
    )
    begin = place if start else max(0, min(place - WINDOW // 2, len(shown) - WINDOW))
    return begin, min(begin + WINDOW, len(shown))


def _matching(session: Session, state: BranchState, query: str) -> list[tree_rows.TreeRow]:
    """The rows whose text or label has the words of a query, ignoring case."""
    wanted = query.casefold()
    rows = [row for row in state.rows.rows if row.stretch.kind is not tree_rows.RowKind.REST][:SEARCHED]
    labels = _labels_by_row(state)
    texts = texts_of_stretches(session, state, [row.stretch for row in rows])
    words = {start: [text.words, *labels.get(start, ())] for start, text in texts.items()}
    return [row for row in rows if any(wanted in one.casefold() for one in words[row.stretch.start])]


def _knots(
    session: Session,
    state: BranchState,
    shown: Sequence[tree_rows.TreeRow | tree_rows.FoldedRows],
    selected: tree_rows.TreeRow,
    *,
    are_apart: bool,
) -> Iterator[KnotRow]:
    """The rows of a page; for rows that do not follow each other, the lanes are omitted."""
    lanes = Lanes(state.rows.depth)
    labels = _labels_by_row(state)
    texts = texts_of_stretches(session, state, [one.stretch for one in shown if isinstance(one, tree_rows.TreeRow)])
    entries = state.tree.entries
    for one in shown:
        if isinstance(one, tree_rows.FoldedRows):
            yield KnotRow(one, entries[one.first.stretch.start], lanes.fold(one), in_measure(session, one))
            continue
        start = one.stretch.start
        yield KnotRow(
            one,
            entries[start],
            lanes.dot(one) if are_apart else lanes.row(one),
            in_measure(session, one),
            is_apart=one.is_start and one.lane == 0 and one is not state.rows.rows[0],
            is_selected=one is selected,
            text=texts[start],
            labels=labels.get(start, ()),
            summary=_summary_in(state, one),
        )


def _labels_by_row(state: BranchState) -> dict[int, list[str]]:
    """The labels in each row, by the position of its first entry."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for entry_id, label in state.labels.items():
        if entry_id in state.tree:
            found[state.rows.rows[state.rows.row_of(entry_id)].stretch.start].append(label)
    return found


def _summary_in(state: BranchState, row: tree_rows.TreeRow) -> str:
    reader = state.reading.reader
    entries = (state.tree.entries[position] for position in row.stretch.positions)
    return next((entry.id for entry in entries if is_summary(entry) and not reader.ignores(entry)), "")


def _first_id(state: BranchState, shown: tree_rows.TreeRow | tree_rows.FoldedRows) -> str:
    row = shown.first if isinstance(shown, tree_rows.FoldedRows) else shown
    return state.tree.entries[row.stretch.start].id


def _is_compaction(entry: Entry) -> bool:
    """Whether it is a compaction, and not only the note that turns were taken back."""
    is_note = isinstance(entry.control, BoundaryControl) and entry.control.turns is not None
    return entry.is_compaction and not is_note


# ---- the selected entry ------------------------------------------------------------------------------------


def _selected(session: Session, state: BranchState, at: str, index: int) -> dict[str, Any]:
    """The selected entry of the page, and its position in the tree."""
    row = state.rows.rows[index]
    entries = state.tree.entries
    positions = row.stretch.positions
    start = entries[row.stretch.start]
    entry = state.tree.entry(at) if at else start
    last = positions[-1]
    reported = next((entries[one].usage for one in reversed(positions) if entries[one].usage), None)
    has_plain_ids = entry.id.isprintable() and entries[last].id.isprintable()
    offers = offers_of(session, state) if has_plain_ids else Offers(frozenset())
    return {
        "entry": entry,
        "row": row,
        # Its branch ends with the turn.
        "last_id": entries[last].id,
        "name": f"Turn {row.turn}" if row.stretch.turns else "Within a turn" if row.turn else "Before the first turn",
        "text": texts_of_stretches(session, state, [row.stretch], length=1_000)[row.stretch.start],
        "tokens": in_measure(session, row),
        "below": state.rows.below(last),
        # The context's tokens in the last report of a provider in its row.
        "reported": reported,
        "labels": _labels_by_row(state).get(row.stretch.start, ()),
        "summary": _summary_in(state, row),
        "offers": offers,
        "own_label": state.labels.get(entry.id, ""),
        "branches": _branch_ends(session, state, row),
        # A move and a fork go before a user's message.
        "is_said": entry.role == Role.USER,
        # Not every character can be in a form.
        "has_plain_id": entry.id.isprintable(),
    }


def _branch_ends(session: Session, state: BranchState, selected: tree_rows.TreeRow) -> list[tuple[str, str]]:
    """The branches other than the active one and the selected row's, the latest ones first: the last entry, and the
    words of the turn."""
    leaf = state.rows.rows[state.rows.row_of(state.leaf_id)]
    ends = [row for row in state.rows.ends() if row is not leaf and row is not selected]
    ends.sort(key=lambda row: row.stretch.positions[-1], reverse=True)
    offered = [row.stretch for row in ends[:BRANCHES_OFFERED]]
    texts = texts_of_stretches(session, state, offered, length=60)
    return [(state.tree.entries[one.positions[-1]].id, texts[one.start].words) for one in offered]


COMPARED_TURNS: Final = 100
"""The number of turns on one page."""
TOOLS_SHOWN: Final = 4


def view_comparison(session: Session, a: str, b: str, start: int) -> dict[str, Any]:
    """The branches that end with the entries `a` and `b`, for the page; an empty one means the active branch.

    Raises BadInput `unknown_entry`, and the errors of `branch_state`.
    """
    state = branch_state(session)
    ends = (a or state.leaf_id, b or state.leaf_id)
    found = tree_rows.compare_branches(state.rows, *ends)
    entries = state.tree.entries
    first, second = (_turns(session, state, only, start, found.turns_before) for only in found.only)
    common = [entries[position] for position in found.common]
    longest = max(map(len, found.only))
    before = state.rows.rows[state.rows.row_of(common[-1].id)].stretch if common else None
    return {
        "sides": [_side(session, state, *side) for side in zip("AB", ends, found.only, strict=True)],
        "pairs": list(zip_longest(first, second)),
        # The beginning of the next page; 0 if this is the last.
        "later": start + COMPARED_TURNS if longest > start + COMPARED_TURNS else 0,
        "ancestor_id": common[-1].id if common else "",
        "ancestor": texts_of_stretches(session, state, [before])[before.start] if before is not None else RowText(),
        "common_turns": found.turns_before,
        "common_entries": len(common),
        "common_tokens": measure_of(session).of(sum(entry.tokens for entry in common if entry.is_message)),
    }


def _side(
    session: Session, state: BranchState, letter: str, end_id: str, only: Sequence[tree_rows.Stretch]
) -> dict[str, Any]:
    """One branch of a comparison, with the sums of the turns that only it has."""
    entries = state.tree.entries
    is_active = end_id == state.leaf_id
    measure = measure_of(session)
    return {
        "letter": letter,
        "end_id": end_id,
        "is_active": is_active,
        "turns": sum(stretch.turns for stretch in only),
        "entries": sum(len(stretch.positions) for stretch in only),
        "tokens": measure.of(sum(stretch.tokens for stretch in only)),
        # The context of the model at its end.
        "context": measure if is_active else _context_at(state, end_id, measure),
        "began": entries[only[0].positions[0]].moment if only else None,
        "ended": entries[only[-1].positions[-1]].moment if only else None,
    }


def _context_at(state: BranchState, end_id: str, now: ContextSize) -> ContextSize:
    """The context at the end of another branch: that of the active one, plus or minus the difference."""
    context = state.reading.reader.rebuild(state.tree.branch(end_id))
    tokens = now.tokens + now.of(context.estimate - state.context.estimate)
    return ContextSize(max(0, tokens), Basis.ABOUT, now.ratio)


def _turns(
    session: Session, state: BranchState, only: Sequence[tree_rows.Stretch], start: int, before: int
) -> Iterator[dict[str, Any]]:
    """A page of the turns that only one branch has. `before`: the number of common turns."""
    stretches = only[start : start + COMPARED_TURNS]
    texts = texts_of_stretches(session, state, stretches)
    measure = measure_of(session)
    above = sum(stretch.tokens for stretch in only[:start])
    before += sum(stretch.turns for stretch in only[:start])
    for stretch in stretches:
        before += stretch.turns
        yield {
            "entry": state.tree.entries[stretch.start],
            # The number of the turn on its branch; 0 for entries outside of turns.
            "number": before if stretch.turns else 0,
            "text": texts[stretch.start],
            "entries": len(stretch.positions),
            "tokens": measure.of(above + stretch.tokens) - measure.of(above),
            "tools": _tools(state, stretch),
        }
        above += stretch.tokens


def _tools(state: BranchState, stretch: tree_rows.Stretch) -> str:
    """The tools that a turn used most, with the number of their results."""
    entries = (state.tree.entries[position] for position in stretch.positions)
    counts = Counter(entry.tool_name for entry in entries if entry.role == Role.TOOL_RESULT and entry.tool_name)
    words = [f"{number:,} {name}" for name, number in counts.most_common(TOOLS_SHOWN)]
    return ", ".join([*words, "…"] if len(counts) > TOOLS_SHOWN else words)


QUERY_LENGTH: Final = 200
PAGE: Final = "tree_page/tree.html"
COMPARISON: Final = "tree_page/comparison.html"


@require_safe
def tree(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The branches of a session, and the entry that is selected in them."""
    found = known_session(root, path)
    at, opened = request.GET.get("at", ""), request.GET.getlist("open")
    start = request.GET.get("from", "")
    query = _query(request.GET.get("q", ""))
    context = {
        "session": found,
        "at": at,
        "query": query,
        "active_nav": "sessions",
        "page": _address(found, "tree", at=at, open=opened),
        "comparing": _address(found, "compare_branches"),
        "selecting": _address(found, "tree", **{"from": start}, open=opened),
        "opening": _address(found, "tree", at=at, **{"from": start}, open=opened),
    }
    again = request.GET.get("again", "")
    try:
        view = view_tree(found, at=at, start=start, opened=opened, query=query)
        context["again"] = words_again(found, again) if again else ""
    except RedlineError as fault:
        return _not_shown(request, PAGE, context, fault)
    part = f"{PAGE}#graph" if wants_fragment(request) else PAGE
    return render(request, part, {**context, "view": view})


@require_safe
def comparison(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """Two branches side by side, which end with the entries `a` and `b`."""
    found = known_session(root, path)
    a, b, start = (request.GET.get(name, "") for name in ("a", "b", "from"))
    context = {
        "session": found,
        "active_nav": "sessions",
        "page": _address(found, "compare_branches", a=a, b=b),
        "exchanged": _address(found, "compare_branches", a=b, b=a)[:-1],
    }
    try:
        view = view_comparison(found, a, b, number_in(start) or 0)
    except RedlineError as fault:
        return _not_shown(request, COMPARISON, context, fault)
    return render(request, COMPARISON, {**context, "view": view})


def _query(text: str) -> str:
    """The words of a search, without unprintable characters."""
    return "".join(filter(str.isprintable, " ".join(text.split())))[:QUERY_LENGTH]


def _not_shown(request: HttpRequest, template: str, context: dict[str, Any], fault: RedlineError) -> HttpResponse:
    code = fault.code if isinstance(fault, BadInput) else ""
    if code == "unknown_entry":
        raise Http404(fault.message) from fault
    status = 200 if code == "no_entries" else status_of(fault)
    return render(request, template, {**context, "fault": fault}, status=status)


def _address(session: Session, name: str, **parameters: str | list[str]) -> str:
    """The address of a page with these parameters; another one can follow."""
    address = reverse(f"compaction:{name}", args=(session.root_id, session.relative_path))
    query = urlencode({name: value for name, value in parameters.items() if value}, doseq=True)
    return f"{address}?{query}{'&' if query else ''}"

"""Two branches of a session side by side, turn by turn: their common part, and the turns that only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Final

from compaction_app.entries.branches import BranchState, branch_state
from compaction_app.entries.stretches import RowText, texts_of_stretches
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.measure import Basis, ContextSize
from sessions_app.sessionlog.moments import moment_of
from sessions_app.sessionlog.tree_rows import Stretch, compare_branches

from .figures import measure_of

WINDOW: Final = 100
"""Turns on one page."""
TOOLS_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class ComparedTurn:
    """A turn that only one of the branches has."""

    entry_id: str
    number: int
    """The number of the turn on its branch; 0 for entries outside of turns."""
    text: RowText
    entries: int
    tokens: int
    tools: str
    """The tools that it used most, with the number of their results."""
    began: datetime | None


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """The turns that only one of the branches has."""

    letter: str
    end_id: str
    end: RowText
    """The words of the branch's last turn."""
    is_active: bool
    turns: int
    entries: int
    tokens: int
    """In the measure of the session's context; the sum of its rows."""
    context: ContextSize
    """The context of the model at its end."""
    began: datetime | None
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """A page of a comparison."""

    sides: tuple[ComparedSide, ComparedSide]
    pairs: list[tuple[ComparedTurn | None, ComparedTurn | None]]
    start: int
    later: int
    """The beginning of the next page; 0 if this is the last."""
    ancestor_id: str
    """The last common entry; empty if there is none."""
    ancestor: RowText
    common_turns: int
    common_entries: int
    common_tokens: int


def view_comparison(session: Session, a: str, b: str, start: int = 0) -> ComparisonView:
    """The branches that end with the entries `a` and `b`; an empty one means the active branch.

    Raises BadInput `unknown_entry`, and the errors of `branch_state`.
    """
    state = branch_state(session)
    ends = (a or state.leaf_id, b or state.leaf_id)
    found = compare_branches(state.rows, *ends)
    entries = state.tree.entries
    first, second = (_turns(session, state, only, start, found.turns_before) for only in found.only)
    common = [entries[position] for position in found.common]
    longest = max(map(len, found.only))
    before = state.rows.rows[state.rows.row_of(common[-1].id)].stretch if common else None
    return ComparisonView(
        sides=(
            _side(session, state, "A", ends[0], found.only[0]),
            _side(session, state, "B", ends[1], found.only[1]),
        ),
        pairs=list(zip_longest(first, second)),
        start=start,
        later=start + WINDOW if longest > start + WINDOW else 0,
        ancestor_id=common[-1].id if common else "",
        ancestor=texts_of_stretches(session, state, [before])[before.start] if before is not None else RowText(""),
        common_turns=found.turns_before,
        common_entries=len(common),
        common_tokens=measure_of(session).of(sum(entry.tokens for entry in common if entry.is_message)),
    )


def _side(session: Session, state: BranchState, letter: str, end_id: str, only: Sequence[Stretch]) -> ComparedSide:
    entries = state.tree.entries
    last = state.rows.rows[state.rows.row_of(end_id)].stretch
    is_active = end_id == state.leaf_id
    measure = measure_of(session)
    return ComparedSide(
        letter=letter,
        end_id=end_id,
        end=texts_of_stretches(session, state, [last])[last.start],
        is_active=is_active,
        turns=_turns_in(only),
        entries=sum(len(stretch.positions) for stretch in only),
        tokens=measure.of(sum(stretch.tokens for stretch in only)),
        context=measure if is_active else _context_at(state, end_id, measure),
        began=moment_of(entries[only[0].positions[0]].timestamp) if only else None,
        ended=moment_of(entries[only[-1].positions[-1]].timestamp) if only else None,
    )


def _context_at(state: BranchState, end_id: str, now: ContextSize) -> ContextSize:
    """The context at the end of another branch: that of the active one, plus or minus the difference."""
    context = state.reading.reader.rebuild(state.tree.branch(end_id))
    tokens = now.tokens + now.of(context.estimate - state.context.estimate)
    return ContextSize(max(0, tokens), Basis.ABOUT, now.ratio)


def _turns(
    session: Session, state: BranchState, only: Sequence[Stretch], start: int, before: int
) -> list[ComparedTurn]:
    """A page of the turns that only one branch has. `before`: the number of common turns."""
    stretches = only[start : start + WINDOW]
    texts = texts_of_stretches(session, state, stretches)
    measure = measure_of(session)
    above = sum(stretch.tokens for stretch in only[:start])
    before += _turns_in(only[:start])
    turns = []
    for stretch in stretches:
        before += stretch.turns
        entry = state.tree.entries[stretch.start]
        turns.append(
            ComparedTurn(
                entry_id=entry.id,
                number=before if stretch.turns else 0,
                text=texts[stretch.start],
                entries=len(stretch.positions),
                tokens=measure.of(above + stretch.tokens) - measure.of(above),
                tools=_tools(state, stretch),
                began=moment_of(entry.timestamp),
            )
        )
        above += stretch.tokens
    return turns


def _turns_in(stretches: Sequence[Stretch]) -> int:
    return sum(stretch.turns for stretch in stretches)


def _tools(state: BranchState, stretch: Stretch) -> str:
    counts: dict[str, int] = {}
    for position in stretch.positions:
        entry = state.tree.entries[position]
        if entry.role == Role.TOOL_RESULT and entry.tool_name:
            counts[entry.tool_name] = counts.get(entry.tool_name, 0) + 1
    often = sorted(counts.items(), key=lambda item: -item[1])
    words = [f"{number:,} {name}" for name, number in often[:TOOLS_SHOWN]]
    return ", ".join([*words, "…"] if len(often) > TOOLS_SHOWN else words)

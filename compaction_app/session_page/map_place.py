"""A place on the token map: its entry of the context, with a name and a link."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice
from typing import Final

from compaction_app.entries.branches import BranchState
from compaction_app.entries.words import author_of, beginning_of, joined_in_short
from sessions_app.document.document import indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Block, Entry, Role
from sessions_app.sessionlog.noise import spoken
from sessions_app.templatetags.formatting import escape_line, in_measure

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

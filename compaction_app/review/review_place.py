"""A place on the token map of a review: its entry by name, the decision about it, and a link to it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from compaction_app.core.review_fold import ReviewItem
from compaction_app.core.transcript_entries import TranscriptEntry
from compaction_app.entries.links import entry_address
from compaction_app.entries.words import beginning_of
from sessions_app.sessionlog.measure import significant
from sessions_app.sessionlog.printable import plural
from sessions_app.templatetags.formatting import escape_line, in_measure

from .lines import line_of
from .presenter import ReviewDesk
from .target_ref import anchor, ref_of

WORDS: Final = 60
"""The maximum length of an entry's line in its name, in characters."""


@dataclass(frozen=True, slots=True)
class ReviewPlace:
    """One entry of the planned context, by its position on the map."""

    number: int
    """Counted from 1."""
    total: int
    name: str
    address: str
    """Its proposal in the review; if it is kept, its entry in the session."""
    top: int
    height: int
    """Its height on the map."""
    previous_turn: int
    """The numbers of the entries that begin this turn (or the previous one) and the next one: the targets of the page
    keys."""
    next_turn: int


def place_at_point(desk: ReviewDesk, x: int, y: int) -> ReviewPlace:
    """The place at a point of the map."""
    drawn = desk.struck_map
    return place_of(desk, bisect_right(drawn.before, drawn.ground.tokens_at(x, y)))


def place_of(desk: ReviewDesk, number: int) -> ReviewPlace:
    """The entry with this number, or the nearest one."""
    total = len(desk.transcript)
    number = min(max(number, 1), total)
    entry, before = desk.transcript.entries[number - 1], desk.struck_map.before
    top, height = desk.struck_map.ground.frame(before[number - 1], before[number] - before[number - 1])
    item = _item(desk, entry)
    starts = desk.outline.turn_starts
    turn = desk.outline.turn_number(entry.position)
    begun = starts[turn - 1] + 1 if turn else 1
    return ReviewPlace(
        number=number,
        total=total,
        name=_name(desk, entry, item, turn),
        address=_address(desk, entry, item),
        top=top,
        height=height,
        previous_turn=begun if begun < number else starts[turn - 2] + 1 if turn > 1 else 1,
        next_turn=starts[turn] + 1 if turn < len(starts) else total,
    )


def _item(desk: ReviewDesk, entry: TranscriptEntry) -> ReviewItem | None:
    """The proposal in which an entry is decided; None if no part of it is proposed."""
    found = next((item for item in desk.review.items.values() if item.position == entry.position), None)
    return desk.review.items[found.leader] if found is not None and found.leader is not None else found


def _name(desk: ReviewDesk, entry: TranscriptEntry, item: ReviewItem | None, turn: int) -> str:
    line = line_of(desk.run, desk.transcript, entry)
    where = f"turn {turn:,}" if turn else "before the first turn"
    what = escape_line(beginning_of(f"{line.tool} {line.words}".strip(), WORDS))
    if item is None:
        return f"{where}, {what}, {in_measure(entry.tokens, desk.context)} tokens, stays"
    row = desk.proposal_rows([item])[0]
    return f"{where}, {what}, {plural(significant(row.tokens), 'token')}, {row.mark.words}"


def _address(desk: ReviewDesk, entry: TranscriptEntry, item: ReviewItem | None) -> str:
    if item is None:
        return entry_address(desk.run.session.get_absolute_url(), entry.entry_id)
    key = quote(ref_of(item.target), safe="")
    return f"{desk.chosen.query()}&at={key}#{anchor(item.position, item.target)}"

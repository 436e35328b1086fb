"""PURE: a selection in a review: what of it was proposed, what could be added, and why the rest stays."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from sessions_app.sessionlog.targets import Target, request_of

from .airlock import Airlock
from .errors import Refusal
from .gates import Restraints
from .review_fold import Review, ReviewItem
from .scoring import Unit
from .transcript import Transcript
from .transcript_entries import WHOLE, Object


class Addable(NamedTuple):
    """A unit that was not proposed and may go, and the target that names it."""

    target: Target
    unit: Unit


class RefusedUnit(NamedTuple):
    """A unit that may not go, and why."""

    target: Target
    refusal: Refusal


class ReviewSelection(NamedTuple):
    """Units in a review, in the order of the transcript. What goes with something else already is left out."""

    proposed: tuple[ReviewItem, ...]
    """The items that are decided on."""
    addable: tuple[Addable, ...]
    refused: tuple[RefusedUnit, ...]


def review_selection(
    units: Sequence[Unit],
    transcript: Transcript,
    review: Review,
    thinking_guard: str,
    *,
    in_part: bool = False,
) -> ReviewSelection:
    """What selected units are in a review. `in_part`: an entry is selected if any of its blocks is."""
    airlock = Airlock(transcript, Restraints(frozenset(review.pins), thinking_guard))
    proposed: dict[Target, ReviewItem] = {}
    addable: list[Addable] = []
    refused: list[RefusedUnit] = []
    selected = {found for unit in units for found in unit.objects}
    for unit in units:
        named = list(targets_of(unit, transcript))
        items = [
            review.items[target]
            for target in named
            if target in review.items and (in_part or _is_covered(target, transcript, selected))
        ]
        if items:
            lead = items[0].leader or items[0].target
            proposed[lead] = review.items[lead]
        elif not any(target in review.would_go for target in named):
            judged = airlock.judge_request(request_of([named[0]]))
            if isinstance(judged, Refusal):
                refused.append(RefusedUnit(named[0], judged))
            else:
                addable.append(Addable(named[0], unit))
    return ReviewSelection(tuple(proposed.values()), tuple(addable), tuple(refused))


def _is_covered(target: Target, transcript: Transcript, selected: Container[Object]) -> bool:
    """Whether all that a target deletes of its entry is selected."""
    entry = transcript.entry(target.entry_id)
    if entry is None or target.block_index is not None or Object(entry.position) in selected:
        return True
    return all(Object(entry.position, slot) in selected for slot in range(len(entry.blocks)))


def targets_of(unit: Unit, transcript: Transcript) -> Iterator[Target]:
    """The targets that name a unit or a part of it, the one that deletes all of it first: of a call, its result.

    The only block of an entry is named by its entry.
    """
    objects = sorted(unit.objects, key=lambda found: found.slot != WHOLE)
    for found in objects:
        yield _target(found, transcript)
    for found in objects:
        if found.slot != WHOLE:
            yield Target(transcript.entries[found.position].entry_id)


def _target(found: Object, transcript: Transcript) -> Target:
    entry = transcript.entries[found.position]
    if found.slot == WHOLE or len(entry.blocks) == 1:
        return Target(entry.entry_id)
    return Target(entry.entry_id, entry.blocks[found.slot].index)

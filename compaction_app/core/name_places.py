"""PURE: the places in kept entries of names from deleted ones.

Later entries are searched before earlier ones, the nearest first, until every name was found: the model is working with
the later ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from .references import named_text, references
from .standing_lines import Stays
from .transcript import Transcript
from .transcript_entries import WHOLE, Object


def name_places(transcript: Transcript, objects: Collection[Object], stays: Stays) -> dict[str, Object | None]:
    """The nearest place of each name in `objects`, in alphabetical order; None if it occurs nowhere else."""
    own = {name for found in objects for name in references(named_text(transcript, found))}
    places: dict[str, Object | None] = dict.fromkeys(sorted(own))
    missing = set(own)
    for found in _others(transcript, objects):
        if not missing:
            break
        if stays(found):
            here = missing & references(named_text(transcript, found))
            places.update(dict.fromkeys(here, found))
            missing -= here
    return places


def _others(transcript: Transcript, objects: Collection[Object]) -> Iterator[Object]:
    """The other objects with texts: those after these from the nearest on, then those before them."""
    last = max((found.position for found in objects), default=-1)
    for position in [*range(last, len(transcript)), *range(last - 1, -1, -1)]:
        blocks = transcript.entries[position].blocks
        slots = range(len(blocks)) if blocks else [WHOLE]
        for slot in slots:
            found = Object(position, slot)
            if found not in objects and Object(position) not in objects:
                yield found

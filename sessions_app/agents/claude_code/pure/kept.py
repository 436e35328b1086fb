"""Which entries a boundary keeps (rule 2 of `tree`)."""

from __future__ import annotations

from collections.abc import Callable

from sessions_app.sessionlog.controls import BoundaryControl
from sessions_app.sessionlog.entries import Entry, EntryKind

EntryLookup = Callable[[str], Entry | None]


def kept_entries(boundary: Entry, lookup: EntryLookup) -> list[Entry]:
    """The entries that a boundary lists, in its order; without a list, those of its segment.

    Nothing if one of them does not exist: the client then ignores the whole list.
    """
    control = boundary.control
    if not isinstance(control, BoundaryControl):
        return []
    if not control.kept:
        return segment_entries(boundary, lookup)
    found: list[Entry] = []
    for entry_id in dict.fromkeys(control.kept):
        entry = lookup(entry_id)
        if entry is None:
            return []
        found += _line_of(entry, lookup)
    return found


def segment_entries(boundary: Entry, lookup: EntryLookup) -> list[Entry]:
    """The entries of a boundary's segment: from the last one up to the first; nothing if that is not above it."""
    control = boundary.control
    if not isinstance(control, BoundaryControl) or control.segment is None:
        return []
    head, tail = control.segment
    walk: dict[str, Entry] = {}
    entry = lookup(tail)
    while entry is not None and entry.id not in walk:
        walk[entry.id] = entry
        if entry.id == head:
            return [*_line_of(entry, lookup)[:-1], *reversed(walk.values())]
        is_end = entry.kind is EntryKind.BOUNDARY or entry.parent_id is None
        entry = None if is_end else lookup(entry.parent_id or "")
    return []


def _line_of(entry: Entry, lookup: EntryLookup) -> list[Entry]:
    """All entries of the line that ends with an entry."""
    line = {entry.id: entry}
    above = lookup(entry.parent_id or "")
    while above is not None and above.number == entry.number and above.id not in line:
        line[above.id] = above
        above = lookup(above.parent_id or "")
    return [*reversed(line.values())]

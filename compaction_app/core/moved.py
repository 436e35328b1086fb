"""PURE: the entries that an accepted plan moves, because the agent itself orders the messages that remain between two
replies. Nothing in them is lost, but the model reads them in another order than before, so you are warned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from sessions_app.agents.pure.contexts import Moved, TurnOrder
from sessions_app.sessionlog.targets import Target, blocks_by_entry

from .transcript_entries import TranscriptEntry


def moved(
    entries: Sequence[TranscriptEntry], plan: Iterable[Target], turns: TurnOrder | None, line: Callable[[str], bytes]
) -> tuple[Moved, ...]:
    """The kept entries that overtake other kept entries. `line` reads the line of an entry, given by id."""
    if turns is None:
        return ()
    return tuple(turns.moved(entries, list(_staying(entries, plan)), line))


def _staying(entries: Sequence[TranscriptEntry], plan: Iterable[Target]) -> Iterator[TranscriptEntry]:
    deleted = blocks_by_entry(plan)
    for entry in entries:
        if entry.entry_id not in deleted:
            yield entry
            continue
        gone = deleted[entry.entry_id]
        if gone is not None:
            blocks = tuple(block for block in entry.blocks if block.index not in gone)
            calls = tuple(block.call_id for block in blocks if block.call_id is not None)
            yield msgspec.structs.replace(entry, blocks=blocks, call_ids=calls)

"""The languages of what tools read: by the name of the file in the call that a result answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compaction_app.rendering.code import language_of
from sessions_app.sessionlog.entries import Entry, Texts

from .branches import BranchState
from .tool_call_text import call_parts, path_read


def calls_of(state: BranchState, entries: Iterable[Entry]) -> list[Entry]:
    """The entries with the calls that results among these answer."""
    ids = (entry.result_for for entry in entries if entry.result_for is not None and not entry.failed)
    return [makers[-1] for call_id in ids if (makers := state.makers.get(call_id))]


def languages_of(calls: Iterable[Entry], texts: Mapping[str, Texts]) -> dict[str, str]:
    """The language of the file that each call reads, by call id, given the texts of their entries."""
    found = {}
    for entry in calls:
        for block in entry.blocks or ():
            if block.call_id is not None:
                parts = call_parts(texts[entry.id].block(block.index), block.call_id)
                found[block.call_id] = language_of(path_read(*parts))
    return found

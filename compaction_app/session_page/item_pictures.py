"""The pictures of the items of a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from compaction_app.entries.branches import BranchState
from compaction_app.entries.view import EntryView, shown_pictures
from sessions_app.models import Session


def with_pictures(session: Session, state: BranchState, view: str, items: Iterable[EntryView]) -> list[EntryView]:
    """The items with their pictures, unless an edit has replaced what was recorded."""
    return [
        item
        if not item.entry_id or (view == "sees" and item.entry_id in state.edits)
        else _with_pictures(session, state, item)
        for item in items
    ]


def _with_pictures(session: Session, state: BranchState, item: EntryView) -> EntryView:
    entry = state.tree.entry(item.entry_id)
    block = next((one for one in entry.blocks or () if one.index == item.block), None)
    pictures = shown_pictures(session, entry, block, item.shown.text)
    return replace(item, pictures=pictures) if pictures else item

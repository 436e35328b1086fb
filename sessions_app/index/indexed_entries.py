"""The entries of a session as the index has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from sessions_app.models import Entry as EntryRow
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.packing import unpack
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.files import SessionReader
from sessions_app.storage.session_loader import reparse_entry

_COLUMNS: Final = ("number", "offset", "length", "entry_id", "parent_id", "digest")


def entries_at(keys: Iterable[int]) -> dict[int, Entry]:
    """The entries with these keys of their rows, without controls; those without a row are left out."""
    rows = EntryRow.objects.filter(pk__in=set(keys)).values_list("pk", *_COLUMNS)
    return {key: unpack(*columns) for key, *columns in rows}


def read_entries(session: Session, reader: SessionReader, version: int) -> Iterator[Entry]:
    """The indexed entries of a session in file order; control entries are read from the file again."""
    rows = session.entries.order_by("offset")
    agent = session.agent
    columns = rows.values_list(*_COLUMNS)
    for number, offset, length, entry_id, parent_id, packed in columns.iterator(chunk_size=5_000):
        entry = unpack(number, offset, length, entry_id, parent_id, packed)
        if entry.has_control:
            again, _ = reparse_entry(agent, reader, entry, version)
            entry = msgspec.structs.replace(entry, control=again.control)
        yield entry


def indexed_tree(session: Session, reader: SessionReader) -> SessionTree:
    """The tree of a session's indexed entries."""
    return session.agent.format.tree(list(read_entries(session, reader, session.version)))

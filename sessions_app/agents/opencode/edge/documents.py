"""EDGE: a session of OpenCode before 1.2 opened as lines: a document for each row.

    storage/session/PROJECT/ses_1.json        the session
    storage/message/ses_1/msg_1.json          its messages
    storage/part/msg_1/prt_1.json             their parts

Ids order by time. Links are not followed, and names that are not ids are not used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sessions_app.agents.opencode.pure.lines import (
    MESSAGE,
    PART,
    Row,
    columns_of,
    identity_of,
    in_order,
    render,
    revert_row,
    session_row,
    size_of,
)
from sessions_app.agents.pure import fields
from sessions_app.disk.files import file_state, opened, pread, reported, scan_directory, stat_file
from sessions_app.disk.rendered import RenderedLine
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import json_bytes

from .database import ID, NOTHING_READ

SUFFIX: Final = ".json"
SESSION_LIMIT: Final = 10_000_000
"""The size of a session's own document, in bytes, above which it is not read."""


def storage_of(path: Path) -> Path | None:
    """The store of a session's path; None if the path is not one of a session's document."""
    is_document = path.suffix == SUFFIX and ID.match(path.stem) is not None
    at = path.parent.parent
    return at.parent if is_document and at.name == "session" and at.parent.name == "storage" else None


class DocumentSource:
    """The lines of one session of the store."""

    def __init__(self, path: Path, storage: Path) -> None:
        self._storage = storage
        self._session = path.stem
        with reported(path, NOTHING_READ):
            found = stat_file(storage)
        self.identity = (found.st_dev, found.st_ino)
        self._rows = _rows_of(path, storage)
        self.changed_ns = changed_ns(path, storage)
        self.lines: Sequence[RenderedLine] = [RenderedLine(size_of(row), identity_of(row)) for row in self._rows]

    def render(self, place: int) -> bytes:
        row = self._rows[place]
        return render(row, row.data if row.data is not None else _read(self._document(row)))

    def _document(self, row: Row) -> Path:
        above = Path(MESSAGE, self._session) if row.type == MESSAGE else Path(PART, row.message_id)
        return self._storage / above / f"{row.id}{SUFFIX}"


def changed_ns(path: Path, storage: Path) -> int:
    """When a session was last changed, in nanoseconds: its own document, its newest message, or a part of that.

    The client writes to no other; for whoever does, a change shows when the session is read. Raises BadInput
    `no_such_file` and what inspecting the documents raises.
    """
    state = file_state(path)
    if state is None:
        raise BadInput("no_such_file", f"{path} does not exist. {NOTHING_READ} Check the path.")
    times = [state.mtime_ns]
    directory = storage / MESSAGE / path.stem
    newest = max(_names(directory), default="")
    if newest:
        parts = storage / PART / newest.removesuffix(SUFFIX)
        recorded = [file_state(directory / newest), *(file_state(parts / name) for name in _names(parts))]
        times += [found.mtime_ns for found in recorded if found is not None]
    return max(times)


def _names(directory: Path) -> list[str]:
    """The names of the documents in a directory; none if it is missing."""
    with reported(directory, NOTHING_READ), suppress(FileNotFoundError), scan_directory(directory) as entries:
        return [entry.name for entry in entries if _is_document(entry)]
    return []


def _is_document(entry: os.DirEntry[str]) -> bool:
    is_named = entry.name.endswith(SUFFIX) and ID.match(entry.name.removesuffix(SUFFIX))
    return bool(is_named) and entry.is_file(follow_symlinks=False)


@contextmanager
def opened_documents(path: Path, storage: Path) -> Iterator[DocumentSource]:
    """The lines of a session of the store."""
    yield DocumentSource(path, storage)


def _rows_of(path: Path, storage: Path) -> list[Row]:
    state = file_state(path)
    if state is None:
        raise BadInput("no_such_file", f"{path} does not exist. {NOTHING_READ} Check the path.")
    if state.size > SESSION_LIMIT:
        raise BadInput("not_a_session", f"{path} is larger than {SESSION_LIMIT:,} bytes. {NOTHING_READ}")
    recorded = fields.object_in(_read(path)) or {}
    messages = {row.id: row for row in _documents(storage / MESSAGE / path.stem, MESSAGE)}
    parts = ((key, part) for key in messages for part in _documents(storage / PART / key, PART))
    session = session_row(columns_of(recorded, path.stem), state.mtime_ns)
    rows = [session, *in_order(messages, parts)]
    revert = fields.mapping(recorded, "revert")
    reverted = revert_row(json_bytes(revert), revert, rows) if revert else None
    return [*rows, reverted] if reverted is not None else rows


def _documents(directory: Path, row_type: str) -> Iterator[Row]:
    """The rows for the documents in a directory, by id; a directory that is missing has none."""
    found = []
    with reported(directory, NOTHING_READ):
        try:
            with scan_directory(directory) as entries:
                for entry in filter(_is_document, entries):
                    state, row_id = entry.stat(follow_symlinks=False), entry.name.removesuffix(SUFFIX)
                    found.append(Row(row_type, row_id, state.st_size, state.st_mtime_ns, directory.name))
        except FileNotFoundError:
            return
    yield from sorted(found, key=lambda row: row.id)


def _read(path: Path) -> bytes:
    with opened(path, os.O_RDONLY, NOTHING_READ) as fd, reported(path, NOTHING_READ):
        return pread(fd, 0, os.fstat(fd).st_size)

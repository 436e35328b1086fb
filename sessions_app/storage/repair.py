"""EDGE: the repaired copy of a session and its lost bytes, written beside it. The session itself is only read."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

from sessions_app.agents.registry import agent_at
from sessions_app.disk.copies import create_beside
from sessions_app.disk.files import CHUNK, SessionReader, file_state, first_bytes, reported
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.jsjson import Line, split_lines
from sessions_app.sessionlog.repair_pieces import Fate, RepairAccount, RepairPiece
from sessions_app.sessionlog.session import Header


def write_repaired(path: Path, copy: Path, lost: Path, new_header: Header) -> RepairAccount:
    """Write the repaired copy of the session at a real path, and the file of lost bytes if any are lost.

    Raises BadInput `exists` if one of the files exists, and Conflict `session_rewritten` if the session's bytes changed
    meanwhile; then neither is made.
    """
    if file_state(lost) is not None:
        raise BadInput("exists", f"{lost} exists already. No copy was made. Move it away first.")
    account = RepairAccount()
    with (
        reported(path, "No copy was made."),
        SessionReader(path) as reader,
        SpooledTemporaryFile(CHUNK) as spool,
        ExitStack() as undo,
    ):

        def copied() -> Iterator[bytes]:
            yield from _copied(reader, account, spool, new_header)
            # A copy never appears without its lost bytes, even if this process is killed.
            if account.lost_size:
                create_beside(lost, _chunks(spool), reader.stat())
                undo.callback(lost.unlink, missing_ok=True)

        create_beside(copy, copied(), reader.stat())
        undo.pop_all()
    return account


def planned_repair(path: Path, new_header: Header) -> RepairAccount:
    """The account of the repair that `write_repaired` would do. Nothing is written."""
    account = RepairAccount()
    with SessionReader(path) as reader:
        for piece in _pieces(reader, new_header):
            account.add(piece)
    return account


def _copied(reader: SessionReader, account: RepairAccount, spool: IO[bytes], new_header: Header) -> Iterator[bytes]:
    """The bytes of the copy; the lost ones go to `spool`. At the end, both are compared with the session."""
    digest = hashlib.sha256()
    for piece in _pieces(reader, new_header):
        account.add(piece)
        if piece.fate is not Fate.INSERTED:
            digest.update(piece.raw)
        if piece.fate is Fate.LOST:
            spool.write(piece.raw)
        else:
            yield piece.raw
    recorded = hashlib.sha256()
    for chunk in first_bytes(reader, account.original_size):
        recorded.update(chunk)
    if recorded.digest() != digest.digest():
        raise Conflict(
            "session_rewritten",
            f"{reader.path} changed while its repaired copy was written. No copy was made. Try again.",
        )


def _pieces(reader: SessionReader, new_header: Header) -> Iterator[RepairPiece]:
    """The pieces of a repair of the session as it is now."""
    size = reader.state().size

    def read() -> Iterable[Line]:
        return split_lines(first_bytes(reader, size))

    return agent_at(reader.path).format.repair(read, new_header)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(CHUNK):
        yield chunk

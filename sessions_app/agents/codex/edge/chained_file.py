"""EDGE: a thread's bytes: those of the files that it is based on, then its own.

    base of the base │ base │ own file        offsets count from the first byte of the first file
    up to its end    │ …    │ all of it

A file names its base by the id at the end of the base's name, and the base's end in bytes. The base is an earlier
segment of the same thread, or the thread that it was forked from, and grows on without moving what the end covers. It
is looked for among Codex's sessions and archived sessions, or beside a file that is elsewhere; no link is followed. A
base that is missing, or has no line that ends there, is left out with everything before it: the parser reports that.

Fingerprints, states and backups are of the own file; a fingerprint also has a digest of the edges of the bases.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError
from sessions_app.storage.discovery import discover
from sessions_app.storage.files import (
    CHUNK,
    EDGE,
    Fingerprint,
    Growth,
    GrowthKind,
    SessionReader,
    open_regular,
    pread,
    reported,
)

from .directories import ARCHIVED, COMPRESSED_SUFFIX, SESSIONS, codex_home, find_rollout
from .writer_lock import thread_id_of

MAX_BASES: Final = 100
HEADER_BYTES: Final = 4 << 20
"""A longer first line is not searched for a base."""
NOT_READ: Final = "It was not read."
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class _Base(NamedTuple):
    """An opened base: its path, and where its bytes end."""

    path: Path
    fd: int
    size: int


class RolloutReader(SessionReader):
    """A `SessionReader` of a thread. Without a base it differs in nothing but one look at the first line."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._bases: list[_Base] = []
        """The first file first."""

    def __enter__(self) -> Self:
        """Raises BadInput `compressed`, and what opening a file raises."""
        if self.path.name.endswith(COMPRESSED_SUFFIX):
            raise BadInput(
                "compressed",
                f"{self.path} is compressed. {NOT_READ} Resume it in Codex, which decompresses it: `codex resume "
                f"{thread_id_of(self.path.with_suffix(''))}`.",
            )
        super().__enter__()
        try:
            self._open_bases()
        except RedlineError:
            self.__exit__()
            raise
        self.own_offset = sum(base.size for base in self._bases)
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        while self._bases:
            os.close(self._bases.pop().fd)

    def chunks(self, start: int, size: int = CHUNK) -> Iterator[bytes]:
        own = super().chunks(max(0, start - self.own_offset), size)
        return self._chunks_of_bases(start, size, own) if start < self.own_offset else own

    def read_at(self, offset: int, length: int) -> bytes:
        if offset >= self.own_offset:
            return super().read_at(offset - self.own_offset, length)
        begin = 0
        for base in self._bases:
            if offset + length <= begin + base.size:
                return self._read_base(base, offset - begin, length)
            begin += base.size
        raise ValueError(f"{length} bytes at {offset} are in two files")

    def growth(self, previous: Fingerprint) -> Growth:
        if previous.base != self._edges_of_bases():
            return Growth(GrowthKind.REWRITTEN, "a thread that it is based on changed")
        return super().growth(previous)

    def fingerprint(self, end: int, previous: Fingerprint | None) -> Fingerprint:
        found = super().fingerprint(max(0, end - self.own_offset), previous)
        return msgspec.structs.replace(found, base=self._edges_of_bases())

    def _chunks_of_bases(self, start: int, size: int, own: Iterator[bytes]) -> Iterator[bytes]:
        begin = 0
        for base in self._bases:
            offset = max(0, start - begin)
            while offset < base.size:
                length = min(size, base.size - offset)
                yield self._read_base(base, offset, length)
                offset += length
            begin += base.size
        yield from own

    def _edges_of_bases(self) -> str:
        if not self._bases:
            return ""
        digest = hashlib.sha256()
        for base in self._bases:
            edge = min(EDGE, base.size)
            digest.update(b"%d " % base.size)
            digest.update(self._read_base(base, 0, edge))
            digest.update(self._read_base(base, base.size - edge, edge))
        return digest.hexdigest()

    def _read_base(self, base: _Base, offset: int, length: int) -> bytes:
        with reported(base.path, "It was not read further."):
            data = pread(base.fd, offset, length)
        if len(data) != length:
            raise Conflict(
                "session_rewritten",
                f"{base.path}: it ends before byte {offset + length}, and {self.path} is based on it. Read it again.",
            )
        self.bytes_read += length
        return data

    def _open_bases(self) -> None:
        fd, path = self._fd, self.path
        seen = {path}
        while len(self._bases) < MAX_BASES:
            base_id, size = _base_in(_first_line(fd, path))
            found = find_rollout(path, base_id) if base_id and size else None
            if found is None or found in seen:
                return
            try:
                fd, path = open_regular(found, os.O_RDONLY, NOT_READ), found
            except RedlineError:
                return  # it went away, or is another user's
            self._bases.insert(0, _Base(path, fd, size))
            seen.add(path)
            with reported(path, NOT_READ):
                if pread(fd, size - 1, 1) != b"\n":
                    os.close(self._bases.pop(0).fd)
                    return


def _first_line(fd: int, path: Path) -> bytes:
    """The first line of a file, if a base is mentioned in it."""
    line = b""
    with reported(path, NOT_READ):
        while b"\n" not in line and len(line) < HEADER_BYTES:
            piece = pread(fd, len(line), 1 << 16)
            line += piece
            if len(piece) < 1 << 16:
                break
    line = line.partition(b"\n")[0]
    return line if b'"history_base"' in line else b""


def _base_in(line: bytes) -> tuple[str, int]:
    """The id of the base, and its end in bytes; empty and 0 if there is none."""
    base = fields.mapping(fields.mapping(fields.object_in(line) or {}, "payload"), "history_base")
    base_id, end = fields.text(base, "thread_id"), fields.whole_number(base, "end_byte_offset")
    return (base_id, end) if end and _ID.match(base_id) else ("", 0)


def threads_based_on(path: Path) -> list[Path]:
    """The rollouts that name another one as their base: those beside it, and Codex's others. Raises SystemFailure."""
    home = codex_home(path)
    roots = [path.parent] if home is None else [home / SESSIONS, home / ARCHIVED]
    found = (one for root in roots if root.is_dir() for one in discover(root).paths if one != path)
    return [one for one in found if (base_id := _base_id_of(one)) and path.stem.endswith(base_id)]


def _base_id_of(path: Path) -> str:
    """The id of a rollout's base; empty if it has none, or went away."""
    try:
        fd = open_regular(path, os.O_RDONLY, NOT_READ)
    except BadInput:
        return ""
    try:
        return _base_in(_first_line(fd, path))[0]
    finally:
        os.close(fd)

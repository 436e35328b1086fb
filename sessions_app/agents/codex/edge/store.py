"""EDGE: the rollouts of Codex: their directories, the lock on a thread, and the bytes of a thread with its bases.

    <home>/sessions/2026/11/22/rollout-<time>-<thread>.jsonl              by the local date on which it was begun
    <home>/sessions/2026/11/22/rollout-<time>-<thread>_<segment>.jsonl
    <home>/archived_sessions/rollout-<time>-<thread>.jsonl
    <home>/thread-writer-locks/<thread>.lock                  locked by a client as long as it has the thread open

A rollout is found by the id at the end of its name, as Codex finds it: wherever it is below these directories. An id
begins with the time at which it was given, so that the directory of that day is searched first, and few others are. A
directory is listed again only when it has changed. No link is followed.

While Redline holds the lock, no client opens the thread; so it takes the lock only to write. Clients as old as 0.104
know no lock: a free lock proves nothing.

The bytes of a thread are those of the files that it is based on, then its own:

    base of the base │ base │ own file        offsets count from the first byte of the first file
    up to its end    │ …    │ all of it

A file names its base by the id at the end of the base's name, and the base's end in bytes. The base is an earlier
segment of the same thread, or the thread that it was forked from, and may grow without moving what the end covers. It
is searched for among Codex's sessions and archived sessions, or beside a file that is elsewhere. A base that is
missing, or has no line that ends there, is left out with everything before it: the parser reports that.

Fingerprints, states and backups are of the own file; a fingerprint also has a digest of the edges of the bases.
"""

import errno
import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

from sessions_app.agents.base import OpenElsewhere, Store
from sessions_app.agents.pure import fields
from sessions_app.disk import files
from sessions_app.disk.discovery import Discovery, discover
from sessions_app.disk.open_files import is_locked, locked_among
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError

from .settings import DIRECTORY, home_directory

SESSIONS: Final = "sessions"
ARCHIVED: Final = "archived_sessions"
COMPRESSED_SUFFIX: Final = ".jsonl.zst"
"""The suffix of compressed rollouts. Codex can compress rollouts that are not in use, and decompresses one to resume
it."""
MAX_DEPTH: Final = 4
"""The depth of the dated directories: sessions/2026/11/22."""
MAX_DIRECTORIES: Final = 2_000
"""The maximum number of directories searched for a rollout."""
SETTLED_NS: Final = 2_000_000_000
"""Nanoseconds after a change of a directory within which another change may leave its modification time the same."""
_NAME: Final = re.compile(r"rollout-.+[-_]([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl\Z")
_DAY: Final = timedelta(days=1)


class _Listing(NamedTuple):
    """The entries of a directory."""

    rollouts: Mapping[str, str]
    """The names of rollouts by the ids at their ends."""
    directories: tuple[str, ...]
    """The directories, the latest date first."""


_NOTHING: Final = _Listing({}, ())


def codex_home(path: Path) -> Path | None:
    """Codex's directory that contains a session; None for a session elsewhere."""
    return next((parent.parent for parent in path.parents if parent.name in (SESSIONS, ARCHIVED)), None)


def find_rollout(path: Path, rollout_id: str) -> Path | None:
    """The rollout with this id at the end of its name: beside `path`, or elsewhere among Codex's sessions."""
    for directory in islice(_directories(path, rollout_id), MAX_DIRECTORIES):
        name = _listing(directory).rollouts.get(rollout_id)
        if name is not None:
            return directory / name
    return None


def _directories(path: Path, rollout_id: str) -> Iterator[Path]:
    """The directories in which a rollout may be, the likeliest first."""
    yield path.parent
    home = codex_home(path)
    if home is None:
        return
    for day in _days_of(rollout_id):
        yield home / SESSIONS / f"{day:%Y/%m/%d}"
    yield home / ARCHIVED
    yield from _below(home / SESSIONS, MAX_DEPTH)
    yield from _below(home / ARCHIVED, MAX_DEPTH)


def _below(directory: Path, depth: int) -> Iterator[Path]:
    yield directory
    for name in _listing(directory).directories if depth > 0 else ():
        yield from _below(directory / name, depth - 1)


def _days_of(rollout_id: str) -> tuple[date, ...]:
    """The local dates on which an id may have been created: a version 7 UUID begins with its time. Empty for other
    ids.
    """
    if rollout_id[14:15] != "7":
        return ()
    milliseconds = int(rollout_id[:8] + rollout_id[9:13], 16)
    try:
        day = (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)).date()
        return day, day - _DAY, day + _DAY
    except OverflowError:
        return ()


def _listing(directory: Path) -> _Listing:
    try:
        state = files.stat_file(directory)
        if time.time_ns() - state.st_mtime_ns < SETTLED_NS:
            return _list(directory)
        return _settled_listing(directory, state.st_dev, state.st_ino, state.st_mtime_ns)
    except OSError:
        return _NOTHING  # a directory that is gone or cannot be read has no rollout


@lru_cache(maxsize=MAX_DIRECTORIES)
def _settled_listing(directory: Path, device: int, inode: int, changed_ns: int) -> _Listing:
    """The entries of a directory in this state."""
    del device, inode, changed_ns
    return _list(directory)


def _list(directory: Path) -> _Listing:
    rollouts: dict[str, str] = {}
    directories: list[str] = []
    with files.scan_directory(directory) as entries:
        for entry in sorted(entries, key=attrgetter("name")):
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif entry.is_file(follow_symlinks=False) and (found := _NAME.match(entry.name)):
                rollouts.setdefault(found[1], entry.name)
    return _Listing(rollouts, tuple(reversed(directories)))


LOCKS: Final = "thread-writer-locks"
_SUFFIX: Final = ".lock"
NOT_WRITTEN: Final = "Nothing was written."
_THREAD_NAME: Final = re.compile(r"rollout-.+?-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:_[0-9a-f-]+)?\.jsonl\Z")


def thread_id_of(path: Path) -> str:
    """The id of a rollout's thread, from the name of its file; empty if it has another name."""
    found = _THREAD_NAME.match(path.name)
    return found[1] if found is not None else ""


@contextmanager
def writer_lock(path: Path) -> Iterator[None]:
    """Hold the lock on a thread that is among Codex's own files. Raises Conflict `open_in_agent`, and SystemFailure."""
    lock = lock_of(path)
    if lock is None:
        yield
        return
    with files.reported(lock, NOT_WRITTEN):
        lock.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = _locked(lock)
    if descriptor is None:
        raise Conflict(
            "open_in_agent",
            f"{path} is open in Codex, which would not notice a change. {NOT_WRITTEN} Close the thread in Codex, or "
            "save it as a fork.",
        )
    try:
        yield
    finally:
        os.close(descriptor)


def lock_of(path: Path) -> Path | None:
    """The file that a client locks while it has a thread open; None for a session that is not among Codex's files."""
    home, thread_id = codex_home(path), thread_id_of(path)
    return home / LOCKS / f"{thread_id}{_SUFFIX}" if home is not None and thread_id else None


def _locked(lock: Path) -> int | None:
    """A descriptor that holds the lock; None if a client holds it. A client that ends removes the file."""
    while True:
        descriptor = files.open_file(lock, os.O_RDWR | os.O_CREAT)
        try:
            if not _try(descriptor):
                os.close(descriptor)
                return None
            held = os.fstat(descriptor)
            there = files.stat_file(lock)
            if (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino):
                return descriptor
        except FileNotFoundError:
            pass  # it was removed at this moment
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    """Take the lock if no one else holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        if fault.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


MAX_BASES: Final = 100
HEADER_BYTES: Final = 4 << 20
"""The maximum length in bytes of a first line that is searched for a base."""
NOT_READ: Final = "It was not read."
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class _Base(NamedTuple):
    """An opened base: its path, and where its bytes end."""

    path: Path
    fd: int
    size: int


class RolloutReader(files.SessionReader):
    """A `SessionReader` of a thread and its bases. For a thread without a base, it only inspects the first line in
    addition.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._bases: list[_Base] = []
        """The first file first."""

    def __enter__(self) -> Self:
        """Open the file and its bases. Raises BadInput `compressed`, and the errors of opening a file."""
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

    def chunks(self, start: int, size: int = files.CHUNK) -> Iterator[bytes]:
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

    def growth(self, previous: files.Fingerprint) -> files.Growth:
        if previous.base != self._edges_of_bases():
            return files.Growth(files.GrowthKind.REWRITTEN, "a thread that it is based on changed")
        return super().growth(previous)

    def fingerprint(self, end: int, previous: files.Fingerprint | None) -> files.Fingerprint:
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
            edge = min(files.EDGE, base.size)
            digest.update(b"%d " % base.size)
            digest.update(self._read_base(base, 0, edge))
            digest.update(self._read_base(base, base.size - edge, edge))
        return digest.hexdigest()

    def _read_base(self, base: _Base, offset: int, length: int) -> bytes:
        with files.reported(base.path, "It was not read further."):
            data = files.pread(base.fd, offset, length)
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
                fd, path = files.open_regular(found, os.O_RDONLY, NOT_READ), found
            except RedlineError:
                return  # it went away, or is another user's
            self._bases.insert(0, _Base(path, fd, size))
            seen.add(path)
            with files.reported(path, NOT_READ):
                if files.pread(fd, size - 1, 1) != b"\n":
                    os.close(self._bases.pop(0).fd)
                    return


def _first_line(fd: int, path: Path) -> bytes:
    """The first line of a file, if a base is mentioned in it."""
    line = b""
    with files.reported(path, NOT_READ):
        while b"\n" not in line and len(line) < HEADER_BYTES:
            piece = files.pread(fd, len(line), 1 << 16)
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
    """The rollouts that name another one as their base, beside it or elsewhere in Codex's directory. Raises
    SystemFailure.
    """
    home = codex_home(path)
    roots = [path.parent] if home is None else [home / SESSIONS, home / ARCHIVED]
    found = (one for root in roots if root.is_dir() for one in discover(root).paths if one != path)
    return [one for one in found if (base_id := _base_id_of(one)) and path.stem.endswith(base_id)]


def _base_id_of(path: Path) -> str:
    """The id of a rollout's base; empty if it has none, or no longer exists."""
    try:
        with files.opened(path, os.O_RDONLY, NOT_READ) as fd:
            return _base_in(_first_line(fd, path))[0]
    except BadInput:
        return ""


_FIRST_LINE: Final = re.compile(rb'"type"\s*:\s*"session_meta"')
_BEFORE_TYPE: Final = 200
"""The maximum number of bytes before the type in the first line."""


class CodexStore(Store):
    is_append_only = True
    """The client's own history, and threads based on a file, refer to byte positions in it."""
    write_lock = staticmethod(writer_lock)
    sessions_based_on = staticmethod(threads_based_on)

    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        directory = home_directory(Path("~"), environment)
        return str(directory / SESSIONS), str(directory / ARCHIVED)

    def owns(self, path: Path) -> bool:
        return DIRECTORY in path.parts

    def recognises(self, head: bytes) -> bool:
        return _FIRST_LINE.search(head, 0, _BEFORE_TYPE) is not None

    def discover(self, root: Path) -> Discovery:
        """The sessions below a root, including compressed ones: opening one raises an error that names the command to
        decompress it.
        """
        return discover(root, (files.SESSION_SUFFIX, COMPRESSED_SUFFIX))

    def open(self, path: Path) -> files.SessionReader:
        return RolloutReader(path)

    def open_elsewhere(self, path: Path) -> OpenElsewhere | None:
        lock = lock_of(path)
        held = lock is not None and is_locked(lock)
        if held is None:
            return OpenElsewhere("may be open in Codex: nothing shows whether its lock is held", is_certain=False)
        return OpenElsewhere("is open in Codex") if held else None

    def open_sessions(self, root: Path) -> set[str]:
        directory = (codex_home(root / "thread") or root) / LOCKS
        try:
            with files.scan_directory(directory) as entries:
                locks = [directory / entry.name for entry in entries if entry.name.endswith(_SUFFIX)]
        except OSError:
            return set()  # no client has ever locked a thread there, or its locks cannot be seen
        return {lock.name.removesuffix(_SUFFIX) for lock in locked_among(locks) or ()}

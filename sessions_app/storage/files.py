"""The file edge: what a session file is on disk, read without trusting a size that was seen earlier.

    discovery.discover → SessionReader → Fingerprint        reading takes no lock
    appending.session_lock → backups.back_up → appending.append_line        writing demands the lock

Paths are real ones (`real_path`), and no link that came since is followed: see `nofollow`. The agent takes no
lock and writes whenever it likes. Every OSError becomes a `RedlineError` that names the
path and says what was not done. Offsets, sizes and lengths are bytes; digests are lower-case hexadecimal
SHA-256.
"""

from __future__ import annotations

import enum
import errno
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError, SystemFailure
from sessions_app.storage.nofollow import open_file, stat_file

if sys.platform == "darwin":
    import fcntl

CHUNK = 1 << 20
EDGE = 4096
"""Bytes at each end of the indexed part that are compared to see quickly whether it was rewritten."""
MAX_SEGMENTS = 1000
"""A fingerprint with more segments than this should be made anew, by reading the file from byte 0."""
SESSION_SUFFIX = ".jsonl"
BACKUP_LABELS = ("compact", "auto-compact", "overflow-auto-compact", "context-compact")
"""What makes backups, as their names say it: Redline and the agents write the first, only agents the others."""
BACKUP_SUFFIXES = tuple(f".{label}.bak" for label in BACKUP_LABELS)
BACKUP_SUFFIX = BACKUP_SUFFIXES[0]


# Failures ---------------------------------------------------------------------------------------------------

_FAILURES: dict[int, tuple[type[RedlineError], str, str]] = {
    errno.ENOENT: (BadInput, "no_such_file", "is not there"),
    errno.ENOTDIR: (BadInput, "no_such_file", "lies below something that is no directory"),
    errno.EISDIR: (BadInput, "not_a_file", "is a directory"),
    errno.ENXIO: (BadInput, "not_a_file", "is a socket or a device"),
    errno.ELOOP: (BadInput, "not_a_file", "is a symbolic link that is not followed"),
    errno.EACCES: (SystemFailure, "permission_denied", "may not be used by this user"),
    errno.EPERM: (SystemFailure, "permission_denied", "may not be changed by this user"),
    errno.EROFS: (SystemFailure, "read_only", "lies on a read-only file system"),
    errno.ENOSPC: (SystemFailure, "disk_full", "does not fit on the disk"),
    errno.EDQUOT: (SystemFailure, "disk_full", "does not fit into the quota"),
    errno.ENAMETOOLONG: (SystemFailure, "name_too_long", "has a name that is too long for its file system"),
    errno.EFBIG: (SystemFailure, "disk_full", "would be larger than files may be here"),
}
_REMEDIES = {
    "no_such_file": "Check the path.",
    "not_a_file": "Name a regular file.",
    "permission_denied": "Change its permissions, or run as its owner.",
    "read_only": "Mount it for writing.",
    "name_too_long": "Use a shorter name.",
    "disk_full": "Free some space, or raise the limit.",
}
_DISK_FAULTS = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, getattr(errno, "EUCLEAN", errno.EIO)})


def os_failure(error: OSError, path: Path, not_done: str, code: str = "io_error") -> RedlineError:
    """`error`, met while `path` was worked on, in words. `code` is for what is not in the table above."""
    unknown = (SystemFailure, code, "could not be read or written")
    kind, code, what = _FAILURES.get(error.errno or 0, unknown)
    where = path if error.filename is None or isinstance(error.filename, int) else error.filename
    retry = "Check the disk, then try again." if error.errno in _DISK_FAULTS else "Try again."
    remedy = _REMEDIES.get(code, retry)
    return kind(code, f"{os.fsdecode(where)} {what} ({error.strerror or error}). {not_done} {remedy}")


@contextmanager
def reported(path: Path, not_done: str, code: str = "io_error") -> Iterator[None]:
    """Turns an OSError met inside into the RedlineError of `os_failure`."""
    try:
        yield
    except OSError as error:
        raise os_failure(error, path, not_done, code) from error


# Reading ----------------------------------------------------------------------------------------------------


class FileState(msgspec.Struct, frozen=True):
    """Which file it is and how far it has been written: what must not change between judging and writing.

    `size` is that of the whole file, including a last line without a newline.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileState:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Fingerprint(msgspec.Struct, frozen=True):
    """By what the first `size` bytes of a session, those that were indexed, are known again.

    `head` and `tail` are digests of the first and the last `EDGE` bytes of those (of all, where there are
    fewer) and are compared at every look. `segments` are (end, digest of the bytes since the previous end):
    without gaps from 0 to `size`, and compared in full whenever a backup copies the file.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    head: str
    tail: str
    segments: tuple[tuple[int, str], ...]


class GrowthKind(enum.Enum):
    UNCHANGED = "unchanged"
    GROWN = "grown"
    REWRITTEN = "rewritten"


class Growth(NamedTuple):
    """What became of a file since its fingerprint. `reason` is empty unless it was rewritten."""

    kind: GrowthKind
    reason: str = ""


class _Mark(NamedTuple):
    """A place up to which the read bytes can be fingerprinted, with the last bytes before it."""

    offset: int
    digest: hashlib._Hash
    before: bytes


class SessionReader:
    """A session opened read-only, as a context manager.

    Opening raises BadInput `no_such_file` or `not_a_file` (a directory, a FIFO, a device: never waited for)
    and SystemFailure. Reading raises Conflict `session_rewritten` where the file is found to be another than
    the one that was opened: shrunk, replaced, or rewritten in place.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes_read = 0
        self._fd = -1
        self._restart(0)

    def __enter__(self) -> Self:
        self._fd = open_regular(self.path, os.O_RDONLY, "It was not read.")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        self._fd = -1

    def stat(self) -> os.stat_result:
        """What the system says of the opened file, now."""
        with reported(self.path, "It was not read further."):
            return os.fstat(self._fd)

    def state(self) -> FileState:
        """The same, as what must not change until something is written."""
        return FileState.of(self.stat())

    def chunks(self, start: int, size: int = CHUNK) -> Iterator[bytes]:
        """The bytes from `start` to the end of the file, in pieces of `size`, hashed as they go.

        `size` is at least `EDGE`. A later call starts hashing anew; `fingerprint` speaks about the latest.
        """
        if start < 0 or size < EDGE:
            raise ValueError(f"cannot read from {start} in pieces of {size} bytes")
        self._restart(start)
        return self._stream(size)

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; Conflict where the file does not reach that far any more."""
        if offset < 0 or length < 0:
            raise ValueError(f"cannot read {length} bytes at {offset}")
        data = self._read(offset, length)
        if len(data) != length:
            raise self._rewritten(f"it ends before byte {offset + length}")
        return data

    def growth(self, previous: Fingerprint) -> Growth:
        """What became of the file since `previous`, from its identity, size and edges. Reads at most 8 KB.

        A change in the middle at an unchanged size is not seen here: that is what `segments` are for.
        """
        now = self.state()
        if (now.device, now.inode) != (previous.device, previous.inode):
            return Growth(GrowthKind.REWRITTEN, "another file took its place")
        if now.size < previous.size:
            return Growth(GrowthKind.REWRITTEN, f"it shrank from {previous.size:,} to {now.size:,} bytes")
        edge = min(EDGE, previous.size)
        if sha256_of(self.read_at(0, edge)) != previous.head:
            return Growth(GrowthKind.REWRITTEN, "its beginning changed")
        if sha256_of(self.read_at(previous.size - edge, edge)) != previous.tail:
            return Growth(GrowthKind.REWRITTEN, f"the bytes before {previous.size:,} changed")
        return Growth(GrowthKind.GROWN if now.size > previous.size else GrowthKind.UNCHANGED)

    def fingerprint(self, end: int, previous: Fingerprint | None) -> Fingerprint:
        """The fingerprint of [0, `end`), after `chunks` was read from `previous.size`, or from 0 without one.

        `end` is where the read bytes had their last newline, or where they ended. Raises Conflict where the
        file on disk is no longer the one that was read; ValueError for any other `end` or start.
        """
        marks = {mark.offset: mark for mark in (self._here, self._line_end)}
        if self._start != (previous.size if previous else 0) or end not in marks:
            raise ValueError(f"read from {self._start}, can fingerprint up to {sorted(marks)}, not {end}")
        edge = min(EDGE, end)
        head, tail = self.read_at(0, edge), self.read_at(end - edge, edge)
        digest = sha256_of(head)
        same_head = head.startswith(self._first[:edge]) and (
            previous is None or previous.size < EDGE or digest == previous.head
        )
        if not (same_head and tail.endswith(marks[end].before)):
            raise self._rewritten("its bytes changed while it was read")
        now = self.state()
        there = file_state(self.path)
        if there is None or (there.device, there.inode) != (now.device, now.inode):
            raise self._rewritten("another file took its place while it was read")
        segments = previous.segments if previous else ()
        if end > self._start:
            segments = (*segments, (end, marks[end].digest.hexdigest()))
        return Fingerprint(now.device, now.inode, end, now.mtime_ns, digest, sha256_of(tail), segments)

    def _restart(self, start: int) -> None:
        self._start = start
        self._first = b""
        self._here = _Mark(start, hashlib.sha256(), b"")
        self._line_end = _Mark(start, hashlib.sha256(), b"")

    def _stream(self, size: int) -> Iterator[bytes]:
        known = self.state().size
        while self._here.offset < known:
            chunk = self._read(self._here.offset, min(size, known - self._here.offset))
            if not chunk:
                break
            self._follow(chunk)
            yield chunk
            if self._here.offset == known:
                known = self._size_beyond()
        if self._here.offset != known:
            raise self._rewritten("it shrank while it was read")

    def _size_beyond(self) -> int:
        """The size now; Conflict where the file goes on, but not after the bytes that were read."""
        offset, _, before = self._here
        size = self.state().size
        if size > offset and self.read_at(offset - len(before), len(before)) != before:
            raise self._rewritten("its bytes changed while it was read")
        return size

    def _follow(self, chunk: bytes) -> None:
        """Hashes the chunk in two steps, so that the digest up to its last newline can be had too."""
        offset, digest, before = self._here
        if offset == 0:
            self._first = chunk[:EDGE]
        cut = chunk.rfind(b"\n") + 1
        whole = memoryview(chunk)
        if cut:
            digest.update(whole[:cut])
            recent = (before + chunk[max(0, cut - EDGE) : cut])[-EDGE:]
            self._line_end = _Mark(offset + cut, digest.copy(), recent)
        digest.update(whole[cut:])
        self._here = _Mark(offset + len(chunk), digest, (before + chunk[-EDGE:])[-EDGE:])

    def _read(self, offset: int, length: int) -> bytes:
        with reported(self.path, "It was not read further."):
            data = pread(self._fd, offset, length)
        self.bytes_read += len(data)
        return data

    def _rewritten(self, what: str) -> Conflict:
        return Conflict("session_rewritten", f"{self.path}: {what}. What was read is void. Read it again.")


def real_path(path: Path) -> Path:
    """`path`, absolute, with every symbolic link in it followed. It need not exist.

    Raises Conflict `link_changed` if a link is replaced while it is followed.
    """
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        message = (
            f"A link on the way to {path} was replaced while it was followed. Nothing was opened. Try again."
        )
        raise Conflict("link_changed", message) from error


def file_state(path: Path) -> FileState | None:
    """The state of the regular file at `path`, or None where nothing is there."""
    with reported(path, "It was not looked at."):
        try:
            found = stat_file(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    if not stat.S_ISREG(found.st_mode):
        raise BadInput("not_a_file", f"{path} is not a regular file. It was not used. Name a session file.")
    return FileState.of(found)


# Primitives ------------------------------------------------------------------------------------------------


def open_regular(path: Path, flags: int, not_done: str) -> int:
    """A descriptor of the regular file at `path`; anything else is refused without waiting for it."""
    with reported(path, not_done):
        fd = open_file(path, flags | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
    os.close(fd)
    raise BadInput("not_a_file", f"{path} is not a regular file. {not_done} Name a regular file.")


@contextmanager
def opened(path: Path, flags: int, not_done: str) -> Iterator[int]:
    """`open_regular`, closed at the end."""
    fd = open_regular(path, flags, not_done)
    try:
        yield fd
    finally:
        os.close(fd)


def pread(fd: int, offset: int, length: int) -> bytes:
    """`length` bytes from `offset`, fewer only at the end of the file."""
    data = os.pread(fd, length, offset)
    while len(data) < length and (more := os.pread(fd, length - len(data), offset + len(data))):
        data += more
    return data


def write_all(fd: int, data: bytes) -> None:
    """Writes `data` whole, in as many writes as it takes. For files of our own only."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def sync(fd: int) -> None:
    """Returns when what was written to `fd` will survive a power cut."""
    if sys.platform == "darwin":  # fsync alone stops at the drive's own cache there
        with suppress(OSError):  # not every file system there can do more than the fsync below
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    os.fsync(fd)


def sync_directory(directory: Path) -> None:
    """The same for the names in `directory`. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

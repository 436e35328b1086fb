"""EDGE: session files on disk, read without relying on a size that was seen earlier.

    discovery.discover → SessionReader → Fingerprint        reading takes no lock
    locks.session_lock → backups.back_up → append.append_lines        writing requires the lock

A path is resolved once, on input (`real_path`): a command-line argument, a configured root, a name below a root (see
`discovery.resolve_inside`). After that it means one place, and is opened without following a link in any part of it:
anyone who can write below a root can replace a file or a directory above it by a link at any moment. `open_file`,
`stat_file` and `scan_directory` raise OSError with the whole path: ELOOP or ENOTDIR if a part of it is a link.

Agents take no lock and write at any time. Every other OSError becomes a `RedlineError` that names the path and says
what was not done. Offsets, sizes and lengths are bytes; digests are lower-case hexadecimal SHA-256.
"""

from __future__ import annotations

import enum
import errno
import hashlib
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

import filelock
import msgspec

from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError, SystemFailure
from sessions_app.sessionlog.session import HEAD_BYTES
from sessions_app.sessionlog.text import plural

if sys.platform == "darwin":
    import fcntl

CHUNK = 1 << 20
EDGE = 4096
"""Bytes at each end of the indexed part that are compared for a quick check whether it was rewritten."""
MAX_SEGMENTS = 1000
"""A fingerprint with more segments should be replaced, by reading the file from byte 0."""
COMPARED = 100
"""The maximum number of cached comparisons of whole files."""
SESSION_SUFFIX = ".jsonl"
BACKUP_LABELS = ("compact", "auto-compact", "overflow-auto-compact", "context-compact")
"""The labels of backups in their names: Redline and the agents write the first, only agents the others."""
BACKUP_SUFFIXES = tuple(f".{label}.bak" for label in BACKUP_LABELS)
BACKUP_SUFFIX = BACKUP_SUFFIXES[0]


# Without following links --------------------------------------------------------------------------------------

if sys.platform == "darwin":

    def _open_directory(path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW_ANY)

else:
    # O_PATH does not need the right to read a directory, only the right to search it.
    _PASSED = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

    def _open_directory(path: Path) -> int:
        root, *names = path.parts
        above = os.open(root, _PASSED)
        for name in names:
            try:
                below = os.open(name, _PASSED, dir_fd=above)
            finally:
                os.close(above)
            above = below
        return above


@contextmanager
def _directory_of(path: Path) -> Iterator[int]:
    """A descriptor of the directory of `path`; an OSError inside the block names the whole path."""
    if not path.is_absolute():
        raise ValueError(f"{path} was not resolved before it was opened")
    try:
        directory = _open_directory(path.parent)
        try:
            yield directory
        finally:
            os.close(directory)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, os.fspath(path)) from None


def open_file(path: Path, flags: int) -> int:
    """A descriptor of the file at `path`, opened with `flags` and not inherited by other programs."""
    with _directory_of(path) as directory:
        return os.open(path.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)


def stat_file(path: Path) -> os.stat_result:
    """The system's information about `path`, which may itself be a link."""
    with _directory_of(path) as directory:
        return os.stat(path.name, dir_fd=directory, follow_symlinks=False)


@contextmanager
def scan_directory(path: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of a directory, as from `os.scandir`, valid inside the block."""
    descriptor = open_file(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


# Failures ---------------------------------------------------------------------------------------------------

_FAILURES: dict[int, tuple[type[RedlineError], str, str]] = {
    errno.ENOENT: (BadInput, "no_such_file", "does not exist"),
    errno.ENOTDIR: (BadInput, "no_such_file", "is below a path that is not a directory"),
    errno.EISDIR: (BadInput, "not_a_file", "is a directory"),
    errno.ENXIO: (BadInput, "not_a_file", "is a socket or a device"),
    errno.ELOOP: (BadInput, "not_a_file", "is a symbolic link that is not followed"),
    errno.EACCES: (SystemFailure, "permission_denied", "cannot be used by this user"),
    errno.EPERM: (SystemFailure, "permission_denied", "cannot be changed by this user"),
    errno.EROFS: (SystemFailure, "read_only", "is on a read-only file system"),
    errno.ENOSPC: (SystemFailure, "disk_full", "does not fit on the disk"),
    errno.EDQUOT: (SystemFailure, "disk_full", "does not fit into the quota"),
    errno.ENAMETOOLONG: (SystemFailure, "name_too_long", "has a name that is too long for its file system"),
    errno.EFBIG: (SystemFailure, "disk_full", "would exceed the maximum file size here"),
}
_REMEDIES = {
    "no_such_file": "Check the path.",
    "not_a_file": "Choose a regular file.",
    "permission_denied": "Change its permissions, or run as its owner.",
    "read_only": "Mount it for writing.",
    "name_too_long": "Use a shorter name.",
    "disk_full": "Free some space, or raise the limit.",
}
_DISK_FAULTS = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, getattr(errno, "EUCLEAN", errno.EIO)})


def os_failure(error: OSError, path: Path, not_done: str, code: str = "io_error") -> RedlineError:
    """The failure for an OSError on `path`. `code` is for errors that are not in the table above."""
    unknown = (SystemFailure, code, "could not be read or written")
    kind, code, what = _FAILURES.get(error.errno or 0, unknown)
    where = path if error.filename is None or isinstance(error.filename, int) else error.filename
    retry = "Check the disk, then try again." if error.errno in _DISK_FAULTS else "Try again."
    remedy = _REMEDIES.get(code, retry)
    return kind(code, f"{os.fsdecode(where)} {what} ({error.strerror or error}). {not_done} {remedy}")


@contextmanager
def reported(path: Path, not_done: str, code: str = "io_error") -> Iterator[None]:
    """Convert an OSError inside the block to the RedlineError of `os_failure`."""
    try:
        yield
    except OSError as error:
        raise os_failure(error, path, not_done, code) from error


def acquired_lock(path: Path, seconds: float, busy: RedlineError) -> AbstractContextManager[object]:
    """A lock file that is held from now on, by nobody else, until the end of a block. Its directory is made if needed.

    Raises `busy` if another process, or another part of this one, holds it for so many seconds; and OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return filelock.FileLock(path, thread_local=False).acquire(timeout=seconds, poll_interval=0.02)
    except filelock.Timeout as fault:
        raise busy from fault


FileIdentity = tuple[int, int]
"""The device and the inode of a file."""

# Reading ----------------------------------------------------------------------------------------------------


class FileState(msgspec.Struct, frozen=True):
    """The identity and extent of a file, which must not change between judging and writing.

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
    """Identifies the first `size` bytes of a session, the part that was indexed.

    `head` and `tail` are digests of its first and last `EDGE` bytes (of all of it, if it has fewer), compared at every
    check. `segments` are (end, digest of the bytes since the previous end), without gaps from 0 to `size`, and compared
    in full whenever a backup copies the file.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    head: str
    tail: str
    segments: tuple[tuple[int, str], ...]
    base: str = ""
    """A digest of the files that the session is based on, if an agent has such sessions."""


class GrowthKind(enum.Enum):
    UNCHANGED = "unchanged"
    GROWN = "grown"
    REWRITTEN = "rewritten"


class Growth(NamedTuple):
    """The change of a file since its fingerprint. `reason` is empty unless it was rewritten."""

    kind: GrowthKind
    reason: str = ""


_compared: dict[tuple[FileState, tuple[tuple[int, str], ...]], bool] = {}
"""Whether a file that replaced another begins with the bytes that were read of that one. Cached, because a page needs
it several times."""


class _HashedPosition(NamedTuple):
    """A position up to which the read bytes can be fingerprinted, with the last bytes before it."""

    offset: int
    digest: hashlib._Hash
    before: bytes


class SessionReader:
    """A session opened read-only, as a context manager.

    Opening raises BadInput `no_such_file` or `not_a_file` (a directory, a FIFO, a device: without waiting) and
    SystemFailure. Reading raises Conflict `session_rewritten` if the file is no longer the one that was opened: shrunk,
    replaced, or rewritten in place.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.own_offset = 0
        """Where the bytes of the file itself begin, if the session begins with bytes of another one."""
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
        """The system's information about the opened file, now."""
        with reported(self.path, "It was not read further."):
            return os.fstat(self._fd)

    def state(self) -> FileState:
        """The current state of the opened file."""
        return FileState.of(self.stat())

    def chunks(self, start: int, size: int = CHUNK) -> Iterator[bytes]:
        """The bytes from `start` to the end of the file, in pieces of `size`, hashed as they go.

        `size` is at least `EDGE`. A later call restarts the hash; `fingerprint` refers to the latest.
        """
        if start < 0 or size < EDGE:
            raise ValueError(f"cannot read from {start} in pieces of {size} bytes")
        self._restart(start)
        return self._stream(size)

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; Conflict if the file no longer extends that far."""
        if offset < 0 or length < 0:
            raise ValueError(f"cannot read {length} bytes at {offset}")
        return self._read_all(offset, length)

    def head(self) -> bytes:
        """The first bytes, which show what the file is."""
        return self.read_at(0, min(HEAD_BYTES, self.state().size))

    def growth(self, previous: Fingerprint) -> Growth:
        """The change of the file since `previous`, by its identity, size and edges. Reads at most 8 KB.

        A change in the middle at an unchanged size is not detected here; `segments` detect it. A file that replaced the
        one that was read is compared by them, once: a restored backup may have the same bytes.
        """
        now = self.state()
        if (now.device, now.inode) != (previous.device, previous.inode) and not self._holds(previous.segments, now):
            return Growth(GrowthKind.REWRITTEN, "it was replaced by another file")
        if now.size < previous.size:
            return Growth(GrowthKind.REWRITTEN, f"it shrank from {previous.size:,} to {plural(now.size, 'byte')}")
        edge = min(EDGE, previous.size)
        if sha256_of(self._read_all(0, edge)) != previous.head:
            return Growth(GrowthKind.REWRITTEN, "its beginning changed")
        if sha256_of(self._read_all(previous.size - edge, edge)) != previous.tail:
            return Growth(GrowthKind.REWRITTEN, f"the bytes before {previous.size:,} changed")
        return Growth(GrowthKind.GROWN if now.size > previous.size else GrowthKind.UNCHANGED)

    def fingerprint(self, end: int, previous: Fingerprint | None) -> Fingerprint:
        """The fingerprint of [0, `end`), after `chunks` was read from `previous.size`, or from 0 without one.

        `end` is the position of the last newline that was read, or the end of what was read. Raises Conflict if the
        file on disk has changed since; ValueError for any other `end` or start.
        """
        hashed = {one.offset: one for one in (self._here, self._line_end)}
        if self._start != (previous.size if previous else 0) or end not in hashed:
            raise ValueError(f"read from {self._start}, can fingerprint up to {sorted(hashed)}, not {end}")
        edge = min(EDGE, end)
        head, tail = self._read_all(0, edge), self._read_all(end - edge, edge)
        digest = sha256_of(head)
        same_head = head.startswith(self._first[:edge]) and (
            previous is None or previous.size < EDGE or digest == previous.head
        )
        if not (same_head and tail.endswith(hashed[end].before)):
            raise self._rewritten("its bytes changed while it was read")
        now = self.state()
        there = file_state(self.path)
        if there is None or (there.device, there.inode) != (now.device, now.inode):
            raise self._rewritten("it was replaced by another file while it was read")
        segments = previous.segments if previous else ()
        if end > self._start:
            segments = (*segments, (end, hashed[end].digest.hexdigest()))
        return Fingerprint(now.device, now.inode, end, now.mtime_ns, digest, sha256_of(tail), segments)

    def _holds(self, segments: tuple[tuple[int, str], ...], now: FileState) -> bool:
        """Whether the file begins with the bytes that have these digests."""
        key = (now, segments)
        if key not in _compared:
            if len(_compared) >= COMPARED:
                _compared.clear()
            _compared[key] = self._begins_with(segments, now.size)
        return _compared[key]

    def _begins_with(self, segments: tuple[tuple[int, str], ...], size: int) -> bool:
        start = 0
        for end, recorded in segments:
            if end > size or hashed(self._read_all, start, end).hexdigest() != recorded:
                return False
            start = end
        return True

    def _restart(self, start: int) -> None:
        self._start = start
        self._first = b""
        self._here = _HashedPosition(start, hashlib.sha256(), b"")
        self._line_end = _HashedPosition(start, hashlib.sha256(), b"")

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
        """The current size; Conflict if the file has grown, but not after the bytes that were read."""
        offset, _, before = self._here
        size = self.state().size
        if size > offset and self._read_all(offset - len(before), len(before)) != before:
            raise self._rewritten("its bytes changed while it was read")
        return size

    def _follow(self, chunk: bytes) -> None:
        """Hash the chunk in two steps, to have the digest up to its last newline as well."""
        offset, digest, before = self._here
        if offset == 0:
            self._first = chunk[:EDGE]
        cut = chunk.rfind(b"\n") + 1
        whole = memoryview(chunk)
        if cut:
            digest.update(whole[:cut])
            recent = (before + chunk[max(0, cut - EDGE) : cut])[-EDGE:]
            self._line_end = _HashedPosition(offset + cut, digest.copy(), recent)
        digest.update(whole[cut:])
        self._here = _HashedPosition(offset + len(chunk), digest, (before + chunk[-EDGE:])[-EDGE:])

    def _read_all(self, offset: int, length: int) -> bytes:
        data = self._read(offset, length)
        if len(data) != length:
            raise self._rewritten(f"it ends before byte {offset + length}")
        return data

    def _read(self, offset: int, length: int) -> bytes:
        with reported(self.path, "It was not read further."):
            data = pread(self._fd, offset, length)
        self.bytes_read += len(data)
        return data

    def _rewritten(self, what: str) -> Conflict:
        return Conflict("session_rewritten", f"{self.path}: {what}. The data read so far is invalid. Read it again.")


def first_bytes(reader: SessionReader, size: int) -> Iterator[bytes]:
    """The first `size` bytes of a session: an agent may append between two readings."""
    for chunk in reader.chunks(0):
        yield chunk[:size]
        size -= len(chunk)
        if size <= 0:
            return


def real_path(path: Path) -> Path:
    """`path`, absolute, with every symbolic link resolved. It need not exist.

    Raises Conflict `link_changed` if a link is replaced while it is followed.
    """
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        message = f"A link on the way to {path} was replaced while it was followed. Nothing was opened. Try again."
        raise Conflict("link_changed", message) from error


def file_identity(path: Path) -> FileIdentity | None:
    """Distinguishes the file at a path from one that replaces it; None if no file is visible there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def other_names_note(path: Path) -> str:
    """A sentence on what happens to the hard links of a file if it is replaced or deleted; empty if it has none."""
    with reported(path, "It was not read."):
        try:
            others = stat_file(path).st_nlink - 1
        except (FileNotFoundError, NotADirectoryError):
            return ""
    if others < 1:
        return ""
    names = (
        "another name (a hard link), which keeps" if others == 1 else f"{others} other names (hard links), which keep"
    )
    return f"{path} has {names} the present content: only this name changes, and the file is not shared any more."


def file_state(path: Path) -> FileState | None:
    """The state of the regular file at `path`, or None if there is nothing."""
    with reported(path, "It was not read."):
        try:
            found = stat_file(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    if not stat.S_ISREG(found.st_mode):
        raise BadInput("not_a_file", f"{path} is not a regular file. It was not used. Choose a session file.")
    return FileState.of(found)


# Primitives ------------------------------------------------------------------------------------------------


def open_regular(path: Path, flags: int, not_done: str) -> int:
    """A descriptor of the regular file at `path`; anything else is refused without waiting for it."""
    with reported(path, not_done):
        fd = open_file(path, flags | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
    os.close(fd)
    raise BadInput("not_a_file", f"{path} is not a regular file. {not_done} Choose a regular file.")


@contextmanager
def opened(path: Path, flags: int, not_done: str) -> Iterator[int]:
    """`open_regular`, closed at the end of the block."""
    fd = open_regular(path, flags, not_done)
    try:
        yield fd
    finally:
        os.close(fd)


def pread(fd: int, offset: int, length: int) -> bytes:
    """`length` bytes from `offset`; fewer only at the end of the file."""
    data = os.pread(fd, length, offset)
    while len(data) < length and (more := os.pread(fd, length - len(data), offset + len(data))):
        data += more
    return data


def last_line_start(read: Callable[[int, int], bytes], size: int) -> int:
    """The start of the last line of the first `size` bytes; `size` if they end with a newline.

    `read(offset, length)` returns `length` bytes from an offset.
    """
    start = size
    while start > 0:
        step = min(CHUNK, start)
        cut = read(start - step, step).rfind(b"\n") + 1
        start -= step - cut
        if cut:
            break
    return start


def hashed(
    read: Callable[[int, int], bytes], start: int, end: int, known: hashlib._Hash | None = None
) -> hashlib._Hash:
    """The hash of the bytes from `start` to `end`, or `known`, the one of what precedes them, continued.

    `read(offset, length)` returns so many bytes from an offset.
    """
    digest = known.copy() if known is not None else hashlib.sha256()
    while start < end and (piece := read(start, min(CHUNK, end - start))):
        digest.update(piece)
        start += len(piece)
    return digest


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, in as many writes as it takes. Only for Redline's own files."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def write_private(path: Path, content: bytes) -> None:
    """Write a small file that only its user can read, replacing any with this name in one step, synced to disk on
    return; its directory is made if needed. The draft is private from its first byte, whatever the mode of the file
    that it replaces. Raises OSError."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            sync(descriptor)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def content_created_once(path: Path, make: Callable[[], str]) -> str:
    """The content of a private file, created if it is missing. Raises OSError.

    A complete file is linked into place, so that two processes that need it first at the same time get the same.
    """
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", encoding="ascii") as draft:
            draft.write(make())
            draft.flush()
            with suppress(FileExistsError):
                path.hardlink_to(draft.name)
    return path.read_text(encoding="ascii")


def sync(fd: int) -> None:
    """Make the bytes written to `fd` survive a power failure."""
    if sys.platform == "darwin":  # there fsync does not flush the drive's own cache
        with suppress(OSError):  # not every file system supports it
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    os.fsync(fd)


def sync_directory(directory: Path) -> None:
    """Make changes to the names in `directory` survive a power failure. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

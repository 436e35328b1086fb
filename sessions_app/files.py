"""The file edge: finding, reading, locking and appending to session files.

    discover → SessionReader → Fingerprint              reading takes no lock
    session_lock → (backups.back_up) → append_line      writing demands the lock

- The agent takes no lock and writes whenever it likes. So nothing here trusts a size it saw earlier, and
  bytes that are not provably ours are never cut off.
- An append is announced in an intent record before it is made, so that whoever takes the lock after a crash
  can finish the story: nothing was written, everything was, or a torn piece that is cut off again.
- Every OSError becomes a `RedlineError` that names the path and says what was not done.

Offsets, sizes and lengths are bytes; digests are lower-case hexadecimal SHA-256.
"""

from __future__ import annotations

import enum
import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import filelock
import msgspec

from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError, SystemFailure

if sys.platform == "darwin":
    import fcntl

CHUNK = 1 << 20
EDGE = 4096
"""Bytes at each end of the indexed part that are compared to see quickly whether it was rewritten."""
MAX_SEGMENTS = 1000
"""A fingerprint with more segments than this should be made anew, by reading the file from byte 0."""
SESSION_SUFFIX = ".jsonl"
BACKUP_SUFFIX = ".compact.bak"
NOTHING_WRITTEN = "Nothing was written."
UNDECIDED = "Whether the line was appended is settled when the session is next locked: try again."


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
    errno.EFBIG: (SystemFailure, "disk_full", "would be larger than files may be here"),
}
_REMEDIES = {
    "no_such_file": "Check the path.",
    "not_a_file": "Name a regular file.",
    "permission_denied": "Change its permissions, or run as its owner.",
    "read_only": "Mount it for writing.",
    "disk_full": "Free some space, or raise the limit.",
}


def os_failure(error: OSError, path: Path, not_done: str, code: str = "io_error") -> RedlineError:
    """`error`, met while `path` was worked on, in words. `code` is for what is not in the table above."""
    unknown = (SystemFailure, code, "could not be read or written")
    kind, code, what = _FAILURES.get(error.errno or 0, unknown)
    where = path if error.filename is None or isinstance(error.filename, int) else error.filename
    remedy = _REMEDIES.get(code, "Check the disk, then try again.")
    return kind(code, f"{os.fsdecode(where)} {what} ({error.strerror or error}). {not_done} {remedy}")


@contextmanager
def reported(path: Path, not_done: str, code: str = "io_error") -> Iterator[None]:
    """Turns an OSError met inside into the RedlineError of `os_failure`."""
    try:
        yield
    except OSError as error:
        raise os_failure(error, path, not_done, code) from error


# Discovery --------------------------------------------------------------------------------------------------


class RefusedPath(NamedTuple):
    """Something below a root that is not listed as a session, and why."""

    path: Path
    reason: str


class Discovery(NamedTuple):
    """What lies below a root. Paths start with the root as it was given; both parts are sorted."""

    paths: tuple[Path, ...]
    refused: tuple[RefusedPath, ...]


def real_path(path: Path) -> Path:
    """`path`, absolute, with every symbolic link in it followed. It need not exist."""
    return Path(os.path.realpath(path))


def resolve_inside(root: Path, relative: str) -> Path:
    """The real path of `relative` below `root`; raises BadInput `outside_root` if it leaves the root."""
    try:
        os.fsencode(relative)
        real = real_path(root / relative)
        inside = real.is_relative_to(real_path(root))
    except ValueError:  # a NUL, or a character that no file name here can have
        inside = False
    if not inside:
        message = f"{relative!r} is not inside {root}. Nothing was opened. Name a path below that root."
        raise BadInput("outside_root", message)
    return real


def discover(root: Path) -> Discovery:
    """Every regular `*.jsonl` file below `root`, each once. Nothing is opened.

    A symbolic link to a file inside the root counts where that file is not listed itself. Linked directories
    are not entered: inside the root their sessions are listed at their own place, outside they are not ours.
    What cannot be listed is refused with a reason. Raises BadInput where `root` is no directory.
    """
    with reported(root, "It was not searched."):
        if not root.is_dir():
            raise BadInput("no_such_root", f"{root} is no directory. It was not searched. Check the root.")
    top = real_path(root)
    found: list[Path] = []
    links: list[Path] = []
    refused: list[RefusedPath] = []
    pending = [root]
    while pending:
        directory = pending.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    path = directory / entry.name
                    if entry.is_symlink():
                        links.append(path)
                    elif entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    elif not entry.name.endswith(SESSION_SUFFIX):
                        continue
                    elif entry.is_file(follow_symlinks=False):
                        found.append(path)
                    else:
                        refused.append(RefusedPath(path, "is not a regular file"))
        except OSError as error:
            refused.append(RefusedPath(directory, f"cannot be listed: {error.strerror}"))
    listed = {top / path.relative_to(root) for path in found}
    for path in sorted(links):
        target = real_path(path)
        reason = _refuse_link(path, target, top, listed)
        if reason is None:
            found.append(path)
            listed.add(target)
        elif reason:
            refused.append(RefusedPath(path, reason))
    return Discovery(tuple(sorted(found)), tuple(sorted(refused)))


def _refuse_link(path: Path, target: Path, top: Path, listed: set[Path]) -> str | None:
    """Why the link is no session of its own: "" where it never looked like one, None where it is one."""
    named_like_one = path.name.endswith(SESSION_SUFFIX)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return f"leads to {target}, which is not there" if named_like_one else ""
    except OSError as error:
        return f"leads to {target}, which cannot be looked at: {error.strerror}"
    if not (stat.S_ISDIR(mode) or named_like_one):
        return ""
    if not target.is_relative_to(top):
        return f"leads out of the root, to {target}"
    if stat.S_ISDIR(mode) or target in listed:
        return f"is another name of {target}, which is listed by itself"
    if not stat.S_ISREG(mode):
        return "is not a regular file"
    return f"leads to a backup, {target}" if target.name.endswith(BACKUP_SUFFIX) else None


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
            return Growth(GrowthKind.REWRITTEN, f"it shrank from {previous.size} to {now.size} bytes")
        edge = min(EDGE, previous.size)
        if _sha256(self.read_at(0, edge)) != previous.head:
            return Growth(GrowthKind.REWRITTEN, "its beginning changed")
        if _sha256(self.read_at(previous.size - edge, edge)) != previous.tail:
            return Growth(GrowthKind.REWRITTEN, f"the bytes before {previous.size} changed")
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
        digest = _sha256(head)
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
        return Fingerprint(now.device, now.inode, end, now.mtime_ns, digest, _sha256(tail), segments)

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


def file_state(path: Path) -> FileState | None:
    """The state of the regular file at `path`, or None where nothing is there."""
    with reported(path, "It was not looked at."):
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
    if not stat.S_ISREG(found.st_mode):
        raise BadInput("not_a_file", f"{path} is not a regular file. It was not used. Name a session file.")
    return FileState.of(found)


# Primitives, for backups too --------------------------------------------------------------------------------


def open_regular(path: Path, flags: int, not_done: str) -> int:
    """A descriptor of the regular file at `path`; anything else is refused without waiting for it."""
    with reported(path, not_done):
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
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


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Locking and recovery ---------------------------------------------------------------------------------------


class _Intent(msgspec.Struct, frozen=True):
    """An append that is about to be made: `payload` at byte `before` of the file `inode`."""

    path: str
    inode: int
    before: int
    payload: bytes


class RecoveryKind(enum.Enum):
    NOT_NEEDED = "no append was left unfinished"
    NOT_WRITTEN = "an append was announced but never made; the session is as it was before"
    WRITTEN = "an append was made in full before its process died; the session has the line"
    CUT_OFF = "an append was torn when its process died; the torn piece was cut off again"
    UNRESOLVED = "an append was interrupted and the session went on otherwise; the session was left as it is"


class Recovery(NamedTuple):
    """What became of an append that a crash interrupted, and of what record of it was kept."""

    kind: RecoveryKind
    record: Path | None = None


@dataclass(slots=True)
class LockedSession:
    """The right to write to one session, while `session_lock` is held. `path` is its real path."""

    path: Path
    intent: Path
    recovery: Recovery
    held: bool = True

    def demand_held(self) -> None:
        """Raises RuntimeError after the lock was given back: writing then is a mistake of the caller."""
        if not self.held:
            raise RuntimeError(f"the lock on {self.path} was given back")


@contextmanager
def session_lock(data_dir: Path, session: Path, timeout: float) -> Iterator[LockedSession]:
    """Keeps every other Redline process from writing to `session`, which need not exist.

    Waits at most `timeout` seconds (0: not at all), then raises Conflict `session_locked`. An append that a
    crash interrupted is settled first; what was found is in `recovery`. Agents know nothing of this lock.
    """
    if timeout < 0:
        raise ValueError("a lock is not waited for without end")
    path = real_path(session)
    locks = data_dir / "locks"
    key = _sha256(os.fsencode(path))
    lock = filelock.FileLock(locks / f"{key}.lock", thread_local=False)
    with reported(locks, f"{path} was not locked and {NOTHING_WRITTEN.lower()}"):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        locks.mkdir(mode=0o700, exist_ok=True)
        try:
            lock.acquire(timeout=timeout)
        except filelock.Timeout as busy:
            message = f"{path} is locked by another Redline process. {NOTHING_WRITTEN} Try again soon."
            raise Conflict("session_locked", message) from busy
    try:
        intent = locks / f"{key}.intent"
        with reported(path, "What an interrupted append left there was not settled."):
            locked = LockedSession(path, intent, _recover(path, intent))
        try:
            yield locked
        finally:
            locked.held = False
    finally:
        lock.release()


def _recover(path: Path, record: Path) -> Recovery:
    try:
        intent = msgspec.json.decode(record.read_bytes(), type=_Intent)
    except FileNotFoundError:
        return Recovery(RecoveryKind.NOT_NEEDED)
    except msgspec.DecodeError:
        return Recovery(RecoveryKind.UNRESOLVED, _set_aside(record))
    if file_state(path) is None:
        return Recovery(RecoveryKind.UNRESOLVED, _set_aside(record))
    with opened(path, os.O_RDONLY, NOTHING_WRITTEN) as fd:
        found = os.fstat(fd)
        after = pread(fd, intent.before, len(intent.payload))
    if found.st_ino != intent.inode or found.st_size < intent.before:
        kind = RecoveryKind.UNRESOLVED
    elif after == intent.payload:
        kind = RecoveryKind.WRITTEN
    elif not after:
        kind = RecoveryKind.NOT_WRITTEN
    elif intent.payload.startswith(after) and _cut_off_torn(path, intent.before, after):
        kind = RecoveryKind.CUT_OFF
    else:
        kind = RecoveryKind.UNRESOLVED
    if kind is RecoveryKind.UNRESOLVED:
        return Recovery(kind, _set_aside(record))
    _forget(record)
    return Recovery(kind)


def _announce(record: Path, intent: _Intent) -> None:
    """Writes the record so that it is there in full, on disk, or not at all."""
    draft = record.with_suffix(".draft")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, msgspec.json.encode(intent))
        sync(fd)
    finally:
        os.close(fd)
    draft.replace(record)
    sync_directory(record.parent)


def _forget(record: Path) -> None:
    record.unlink(missing_ok=True)
    sync_directory(record.parent)


def _set_aside(record: Path) -> Path:
    """Keeps the record of what could not be settled, under a name that no later one takes."""
    kept = record.with_name(f"{record.stem}.{_sha256(record.read_bytes())[:16]}.unresolved")
    record.replace(kept)
    sync_directory(record.parent)
    return kept


# Appending --------------------------------------------------------------------------------------------------


class Appended(NamedTuple):
    """Where the line is: `length` bytes from `offset`, followed by its newline."""

    offset: int
    length: int


def append_line(
    locked: LockedSession,
    line: bytes,
    expected: FileState,
    is_complete: Callable[[bytes], bool],
    *,
    write: Callable[[int, bytes], int] = os.write,
) -> Appended:
    """Appends `line` (without newline) and a newline by exactly one write, on disk when this returns.

    `expected` is the state that was judged, `is_complete` tells whether a last line without newline is
    complete JSON (then the write begins with a newline). `write` is the one write, so that a test can have it
    fail or be overtaken. Raises

    - Conflict `session_changed`, `torn_last_line`, or `foreign_append`: the session is as it was, except for
      what others wrote
    - SystemFailure `disk_full`, `write_failed` or another of `os_failure`: likewise
    - SystemFailure `append_left`: bytes of ours are in the file, and the message says where and why
    - SystemFailure `append_not_tidied`: the line was appended, but the record of the append is still there
    """
    if not line or b"\n" in line:
        raise ValueError("a line has content and no newline")
    locked.demand_held()
    path, record = locked.path, locked.intent
    with opened(path, os.O_RDWR | os.O_APPEND, NOTHING_WRITTEN) as fd:
        with reported(path, NOTHING_WRITTEN):
            _demand_state(fd, expected, path)
            payload = _joint(fd, expected.size, is_complete, path) + line + b"\n"
        with reported(record, f"Nothing was written to {path}."):
            _announce(record, _Intent(os.fspath(path), expected.inode, expected.size, payload))
        try:
            with reported(path, NOTHING_WRITTEN, code="write_failed"):
                _demand_state(fd, expected, path)
                written = write(fd, payload)
        except RedlineError:
            with reported(record, f"Nothing was written to {path}, but this record of it remains."):
                _forget(record)
            raise
        with reported(path, UNDECIDED, code="write_failed"):
            landed = os.lseek(fd, 0, os.SEEK_CUR) - written
            failure = _find_fault(fd, path, landed, written, payload, expected)
            if failure is not None:
                _take_back(fd, landed, payload[:written], record, failure)
    try:
        _forget(record)
    except OSError as error:
        what = f"The line was appended to {path}, but {record} could not be removed ({error.strerror})."
        raise SystemFailure("append_not_tidied", f"{what} The next lock on the session does it.") from error
    return Appended(landed + len(payload) - len(line) - 1, len(line))


def _demand_state(fd: int, expected: FileState, path: Path) -> None:
    if FileState.of(os.fstat(fd)) != expected:
        message = f"{path} was written to after it was judged. {NOTHING_WRITTEN} Read it again."
        raise Conflict("session_changed", message)


def _joint(fd: int, size: int, is_complete: Callable[[bytes], bool], path: Path) -> bytes:
    """What must come before a new line: nothing, or the newline that the last complete line lacks."""
    start = size
    while start > 0:
        step = min(CHUNK, start)
        cut = pread(fd, start - step, step).rfind(b"\n") + 1
        start -= step - cut
        if cut:
            break
    if start == size:
        return b""
    if is_complete(pread(fd, start, size - start)):
        return b"\n"
    what = f"{path} ends in a torn line, from byte {start} on"
    raise Conflict("torn_last_line", f"{what}. {NOTHING_WRITTEN} Let the agent finish it, or repair it.")


def _find_fault(
    fd: int, path: Path, landed: int, written: int, payload: bytes, expected: FileState
) -> RedlineError | None:
    """Why what was written may not stay, or None. The message is completed by `_take_back`."""
    if written < len(payload):
        what = f"only {written} of {len(payload)} bytes could be written: the disk or a limit is full"
        return SystemFailure("disk_full", f"{path}: {what}.")
    try:
        sync(fd)
    except OSError as error:
        what = f"the line could not be brought to disk ({error.strerror})"
        return SystemFailure("write_failed", f"{path}: {what}.")
    if landed != expected.size:
        return Conflict("foreign_append", f"{path}: another process wrote to it at the very same moment.")
    if pread(fd, landed, written) != payload:
        return SystemFailure("write_failed", f"{path}: what was read back is not what was written.")
    there = file_state(path)
    if there is None or (there.device, there.inode) != (expected.device, expected.inode):
        return Conflict("session_changed", f"{path} was replaced while the line was written.")
    return None


def _take_back(fd: int, start: int, mine: bytes, record: Path, failure: RedlineError) -> None:
    """Cuts off what was written and raises `failure`; where others wrote after it, leaves it and says so."""
    if not mine or _cut_off(fd, start, mine):
        _forget(record)
        raise type(failure)(failure.code, f"{failure.message} Nothing of ours remains in it. Read it again.")
    kept = _set_aside(record)
    left = f"Our {len(mine)} bytes at byte {start} were not cut off, because the file goes on otherwise."
    raise SystemFailure(
        "append_left", f"{failure.message} {left} Look at that line; {kept} has what was meant."
    )


def _cut_off(fd: int, start: int, mine: bytes) -> bool:
    """Truncates the file to `start` if it ends exactly with `mine` there; whether it did."""
    if pread(fd, start, len(mine)) != mine or os.fstat(fd).st_size != start + len(mine):
        return False
    os.ftruncate(fd, start)
    sync(fd)
    return True


def _cut_off_torn(path: Path, start: int, mine: bytes) -> bool:
    with opened(path, os.O_RDWR, NOTHING_WRITTEN) as fd:
        return _cut_off(fd, start, mine)

"""EDGE: the lock on a session, and the intent record that survives a killed lock holder.

A step that changes a session is announced in an intent record before it is made. The record is removed when the
outcome has been recorded elsewhere. The next lock holder finds the record of a killed process, determines from the file
what became of the step, and passes both to `settle`, which records what the dead process could not.

    announce ──▶ the step ──▶ recorded by the caller ──▶ finish
        killed anywhere here: the next lock holder checks the file, settles, and withdraws the record

`note` is the caller's own text: it is stored and returned without being interpreted.

An incomplete line of Redline's own is cut off again without any risk to bytes of other processes (`cut_off`). Between a
check of a file's end and its truncation another process could append, and its bytes would be cut off too. On Linux the
kernel prevents this: a write lease is granted only while no other process has the file open, and blocks others that
open it until it is released. On other systems, and while another process has the file open, nothing is cut.
"""

import enum
import errno
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import msgspec

from sessions_app.disk import files
from sessions_app.disk.copies import DRAFTS, draft_path
from sessions_app.sessionlog.errors import Conflict, RedlineError, SystemFailure

from .row_steps import CHANGED_BY_OTHERS, RowMark, backed_up_steps, put_back, was_made

if sys.platform == "linux":
    import fcntl

NOTHING_WRITTEN: Final = "Nothing was written."


class _Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A step on the session at a path."""

    path: str
    note: str = ""


class AppendIntent(_Intent, frozen=True, tag="append"):
    """Lines to be appended: `payload` at byte `before` of the file `inode`."""

    inode: int
    before: int
    payload: bytes

    @property
    def size(self) -> int:
        """The size of the session after the step, unless others write to it."""
        return self.before + len(self.payload)


class ReplaceIntent(_Intent, frozen=True, tag="replace"):
    """A file to be put in place of another: `inode` replaces `replaced`, None if there is none."""

    inode: int
    replaced: int | None
    size: int


class CreateIntent(_Intent, frozen=True, tag="create"):
    """A session to be created beside another, which does not change: `inode` gets the path `created`."""

    created: str
    inode: int
    size: int
    sha256: str


class RemoveIntent(_Intent, frozen=True, tag="remove"):
    """A session to be deleted permanently: the file `inode`."""

    inode: int
    size: ClassVar[int] = 0


class RowsIntent(_Intent, frozen=True, tag="rows"):
    """Rows of a database to be changed in one transaction; `size` is that of the session afterwards."""

    database: str
    marks: tuple[RowMark, ...]
    size: int


class ServedRowsIntent(_Intent, frozen=True, tag="served-rows"):
    """Rows of a database to be changed through the server at an address, call by call; `backup` contains them.

    `size` is that of the session afterwards, and known when all of them are changed.
    """

    database: str
    backup: str
    server: str
    is_made: bool = False
    """Whether all rows are changed, and were verified."""
    size: int = 0


Intent = AppendIntent | ReplaceIntent | CreateIntent | RemoveIntent | RowsIntent | ServedRowsIntent


class RecoveryKind(enum.Enum):
    NOT_NEEDED = "no step was left unfinished"
    NOT_MADE = "a step was announced but never made; the session is unchanged"
    MADE = "a step was completed before its process died; the session is as intended"
    CUT_OFF = "an append was incomplete when its process died; the incomplete line was cut off again"
    UNRESOLVED = "a step was interrupted and the session was changed by others; the session was left as it is"


class Recovery(NamedTuple):
    """The outcome of an interrupted step, its note, and the path of its record if that was kept.

    `size` is that of the changed or new session right after the step.
    """

    kind: RecoveryKind
    note: str = ""
    size: int = 0
    record: Path | None = None


@dataclass(slots=True)
class LockedSession:
    """The right to write to one session, while `session_lock` is held. `path` is its real path."""

    path: Path
    intent: Path
    recovery: Recovery
    held: bool = True

    def require_held(self) -> None:
        """Raise RuntimeError if the lock was released: writing then is a bug in the caller."""
        if not self.held:
            raise RuntimeError(f"the lock on {self.path} was released")

    @property
    def is_announced(self) -> bool:
        """Whether a step is announced and not withdrawn: it is in progress, or its outcome is not recorded."""
        return self.intent.exists()

    def announce(self, intent: Intent, not_done: str) -> None:
        """Write the record completely and sync it to disk, or not at all. Raises the errors of `os_failure`."""
        self.require_held()
        draft = _draft(self.intent)
        with files.reported(self.intent, not_done):
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                files.write_all(fd, msgspec.json.encode(intent))
                files.sync(fd)
            finally:
                os.close(fd)
            draft.replace(self.intent)
            files.sync_directory(self.intent.parent)

    def withdraw(self) -> None:
        """Remove the record: the outcome of its step was recorded, or the step was not made. Raises OSError."""
        self.intent.unlink(missing_ok=True)
        files.sync_directory(self.intent.parent)

    def finish(self, what: str) -> None:
        """Remove the record of a step that was made and recorded. `what` says what was made, as in "S was made".

        Raises SystemFailure `append_not_tidied`.
        """
        try:
            self.withdraw()
        except OSError as error:
            raise SystemFailure(
                "append_not_tidied",
                f"{what}, but {self.intent} could not be deleted ({error.strerror}). The next lock on the session "
                "deletes it.",
            ) from error

    def set_aside(self) -> Path:
        """Keep the record of a step that could not be settled, under a unique name. Raises OSError."""
        kept = self.intent.with_name(f"{self.intent.stem}.{files.sha256_of(self.intent.read_bytes())[:16]}.unresolved")
        self.intent.replace(kept)
        files.sync_directory(self.intent.parent)
        return kept


Settle = Callable[[LockedSession], object]
"""Records the outcome of an interrupted step, `LockedSession.recovery`. If it raises, the intent record stays."""


@contextmanager
def session_lock(
    data_dir: Path, path: Path, timeout: float, settle: Settle = lambda _: None
) -> Iterator[LockedSession]:
    """Keep other Redline processes from writing to the session at `path`, which need not exist.

    Waits at most `timeout` seconds (0: not at all), then raises Conflict `session_locked`. First cleans up after killed
    processes: removes their drafts and settles the announced step; `recovery` has the outcome. Agents do not use this
    lock.
    """
    if timeout < 0:
        raise ValueError("the timeout of a lock is not negative")
    locks = data_dir / "locks"
    intent = intent_path(data_dir, path)
    busy = Conflict("session_locked", f"{path} is locked by another Redline process. {NOTHING_WRITTEN} Try again soon.")
    with files.reported(locks, f"{path} was not locked and {NOTHING_WRITTEN.lower()}"):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = files.acquired_lock(intent.with_suffix(".lock"), timeout, busy)
    with lock:
        locked = LockedSession(path, intent, Recovery(RecoveryKind.NOT_NEEDED))
        try:
            with files.reported(path, "An interrupted step was not settled."):
                _put_in_order(locked, settle)
            yield locked
        finally:
            locked.held = False


def intent_path(data_dir: Path, session: Path) -> Path:
    """The path of a session's intent record while a step is in progress; `session` is its real path."""
    return data_dir / "locks" / f"{files.sha256_of(os.fsencode(session))}.intent"


def interrupted_sessions(data_dir: Path) -> list[Path]:
    """The sessions with an intent record: of a step that is in progress or was interrupted."""
    found = []
    for record in sorted((data_dir / "locks").glob("*.intent")):
        try:
            found.append(Path(_decode(record.read_bytes()).path))
        except (FileNotFoundError, msgspec.DecodeError):
            # Settled meanwhile, or damaged: the next lock on its session sets it aside.
            continue
    return found


# ---- after a killed process --------------------------------------------------------------------------------

_decode: Final = msgspec.json.Decoder(Intent).decode


def _put_in_order(locked: LockedSession, settle: Settle) -> None:
    intent, damaged = _announced(locked)
    if intent is not None:
        kind = _outcome(locked.path, intent)
        locked.recovery = Recovery(kind, intent.note, intent.size)
    settle(locked)
    if damaged or locked.recovery.kind is RecoveryKind.UNRESOLVED:
        locked.recovery = locked.recovery._replace(kind=RecoveryKind.UNRESOLVED, record=locked.set_aside())
    elif intent is not None:
        locked.withdraw()
    # Only now: the inode of an announced draft shows whether it replaced the session.
    _remove_drafts(locked)


def _announced(locked: LockedSession) -> tuple[Intent | None, bool]:
    """The intent of a killed process, and whether its record is damaged."""
    try:
        return _decode(locked.intent.read_bytes()), False
    except FileNotFoundError:
        return None, False
    except msgspec.DecodeError:
        return None, True


def _outcome(path: Path, intent: Intent) -> RecoveryKind:
    if isinstance(intent, CreateIntent):
        return RecoveryKind.MADE if _is_created(intent) else RecoveryKind.NOT_MADE
    if isinstance(intent, RowsIntent):
        database = Path(intent.database)
        made = was_made(database, intent.marks) if files.file_state(database) is not None else None
        return {True: RecoveryKind.MADE, False: RecoveryKind.NOT_MADE, None: RecoveryKind.UNRESOLVED}[made]
    if isinstance(intent, ServedRowsIntent):
        return _served_rows_outcome(path, intent)
    state = files.file_state(path)
    if isinstance(intent, RemoveIntent):
        is_there = state is not None and state.inode == intent.inode
        return RecoveryKind.NOT_MADE if is_there else RecoveryKind.MADE
    if isinstance(intent, ReplaceIntent):
        inode = state.inode if state is not None else None
        if inode == intent.inode:
            return RecoveryKind.MADE
        return RecoveryKind.NOT_MADE if inode == intent.replaced else RecoveryKind.UNRESOLVED
    if state is None or state.inode != intent.inode or state.size < intent.before:
        return RecoveryKind.UNRESOLVED
    with files.opened(path, os.O_RDONLY, NOTHING_WRITTEN) as fd:
        after = files.pread(fd, intent.before, len(intent.payload))
    if after == intent.payload:
        return RecoveryKind.MADE
    if not after:
        return RecoveryKind.NOT_MADE
    if intent.payload.startswith(after) and _cut_off_torn(path, intent.before, after):
        return RecoveryKind.CUT_OFF
    return RecoveryKind.UNRESOLVED


def _served_rows_outcome(path: Path, intent: ServedRowsIntent) -> RecoveryKind:
    """Restore the rows unless all of them were changed. Raises SystemFailure `left_between`: the next lock then tries
    again.
    """
    if intent.is_made:
        return RecoveryKind.MADE
    database, backup = Path(intent.database), Path(intent.backup)
    if files.file_state(database) is None or files.file_state(backup) is None:
        return RecoveryKind.UNRESOLVED
    try:
        put_back(path, database, backed_up_steps(backup), intent.server)
    except RedlineError as failure:
        if failure.code == CHANGED_BY_OTHERS:
            return RecoveryKind.UNRESOLVED
        raise SystemFailure(
            "left_between",
            f"A change of {path} through the server at {intent.server} was interrupted. {failure.message} {backup} has "
            "all rows as they were.",
        ) from failure
    return RecoveryKind.NOT_MADE


def _is_created(intent: CreateIntent) -> bool:
    """Whether the new session exists, even if an agent has appended to it. An inode alone could be another file's."""
    path = Path(intent.created)
    created = files.file_state(path)
    if created is None or created.inode != intent.inode or created.size < intent.size:
        return False
    with files.opened(path, os.O_RDONLY, NOTHING_WRITTEN) as fd:
        return files.hashed(partial(files.pread, fd), 0, intent.size).hexdigest() == intent.sha256


def _cut_off_torn(path: Path, start: int, mine: bytes) -> bool:
    with files.opened(path, os.O_RDWR, NOTHING_WRITTEN) as fd:
        return cut_off(fd, start, mine)


def _remove_drafts(locked: LockedSession) -> None:
    """Remove the unfinished files of a killed process: regular files with our names, never links."""
    for draft in (_draft(locked.intent), *(draft_path(locked.path, purpose) for purpose in DRAFTS)):
        try:
            is_file = stat.S_ISREG(draft.lstat().st_mode)
        except (FileNotFoundError, NotADirectoryError):  # a session in a database has none
            continue
        if is_file:
            draft.unlink()


def _draft(record: Path) -> Path:
    return record.with_suffix(".draft")


# ---- cutting off an incomplete line ------------------------------------------------------------------------

LEASE_ATTEMPTS: Final = 20
LEASE_PAUSE: Final = 0.02
"""Seconds between two attempts: Redline's own readers have a session open only briefly."""
_REFUSALS: Final = frozenset({errno.EAGAIN, errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP})
"""Errors for a refused lease: the file is open elsewhere or another user's, or the file system has no leases."""


def cut_off(fd: int, start: int, mine: bytes) -> bool:
    """Truncate the file to `start` if it ends exactly with `mine` there; returns whether it did.

    `fd` is writable, and the only descriptor of the file in this process. Raises OSError.
    """
    if not _ends_with(fd, start, mine):
        return False
    with _alone(fd) as alone:
        if not alone or not _ends_with(fd, start, mine):
            return False
        os.ftruncate(fd, start)
    files.sync(fd)
    return True


def _ends_with(fd: int, start: int, mine: bytes) -> bool:
    return os.fstat(fd).st_size == start + len(mine) and files.pread(fd, start, len(mine)) == mine


@contextmanager
def _alone(fd: int) -> Iterator[bool]:
    """Whether no other process has the file open. Inside the block, others that open it have to wait."""
    if sys.platform != "linux":
        yield False
        return
    # A break of the lease is signalled by SIGIO, which by default ends the process; SIGURG is ignored. The signal is
    # not needed: the lease is released long before the kernel would revoke it (45 seconds).
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    granted = _lease(fd)
    try:
        yield granted
    finally:
        if granted:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


if sys.platform == "linux":

    def _lease(fd: int) -> bool:
        for attempt in range(LEASE_ATTEMPTS):
            try:
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError as refused:
                if refused.errno not in _REFUSALS:
                    raise
                if refused.errno != errno.EAGAIN:
                    return False
            else:
                return True
            if attempt + 1 < LEASE_ATTEMPTS:
                time.sleep(LEASE_PAUSE)
        return False

"""EDGE: restoring a session from one of its backups, after backing up its current bytes.

    verified → backed up → written beside it → announced → replaces the session → recorded → withdrawn

A process that has the session open keeps the replaced file: its later writes belong to no session. Bytes written to it
until the end of the restore are kept as a backup, and the processes that still have it open are named.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure

from .backups import Backup, backed_up_session, copy_beside, copy_checked, file_digest, verify
from .copies import RESTORE_DRAFT, created, draft_path, require_space
from .files import FileState, SessionReader, file_state, reported, sync_directory
from .locks import LockedSession, ReplaceIntent
from .open_files import Writer, writers_of

NOT_RESTORED: Final = "The session was not touched."
RESTORED_BUT: Final = "The session was restored, but "
CLOSED_WITHIN: Final = 1.0
"""Seconds for a process that has the replaced file open to finish its line and close it."""


class Restored(NamedTuple):
    """A completed restore: the session has the digest `sha256`; `previous` are the backups of its bytes before, if any.

    `overtaken`: others wrote to it at the moment of the restore. Their bytes are in the last of the backups.
    `writers` still have the replaced file open: their later writes are lost.
    """

    path: Path
    sha256: str
    previous: tuple[Backup, ...]
    overtaken: bool
    writers: tuple[Writer, ...]

    @property
    def previous_backup(self) -> Backup | None:
        """The backup of everything that the session contained before."""
        return self.previous[-1] if self.previous else None


def _note_nothing(previous: tuple[Backup, ...], sha256: str) -> str:
    del previous, sha256
    return ""


def _record_nothing(restored: Restored) -> None:
    del restored


def restore(
    locked: LockedSession,
    backup: Path,
    recorded: str | None,
    present: FileState | None,
    now: datetime,
    *,
    note: Callable[[tuple[Backup, ...], str], str] = _note_nothing,
    record: Callable[[Restored], object] = _record_nothing,
    replace: Callable[[Path, Path], object] = os.replace,
) -> Restored:
    """Restore the session from `backup`, after backing up its current bytes.

    `recorded` is the digest that the backup must have, None only after a confirmation of an unverified one. `present`
    is the state of the session that was shown to the user, None if it was missing. `record` is called when the session
    is restored; if this process is killed before it has finished, or it raises, the next lock holder receives the
    result of `note`, which is called with the backup just made and with the digest of what is restored. `replace` is
    the step that changes the session, so that a test can intervene just before it. Raises what `record` raises, and

    - BadInput `not_a_backup` if it does not belong to this session, `no_such_file` if it is missing
    - Conflict `backup_damaged`; `session_changed` if the session is not in the state `present`
    - SystemFailure `no_space` and others of `os_failure`

    and then the session is unchanged; a backup of it that was complete by then stays.
    """
    locked.require_held()
    session = locked.path
    if backed_up_session(backup) != session:
        message = f"{backup} is not beside {session}. {NOT_RESTORED} Choose a backup that is listed for it."
        raise BadInput("not_a_backup", message)
    checked = verify(backup, recorded)
    if checked.holds is False:
        raise _damaged(backup)
    _require_present(session, present)
    with reported(session, NOT_RESTORED), ExitStack() as undo:
        require_space(session, backup.stat().st_size + (present.size if present else 0), NOT_RESTORED)
        replaced: SessionReader | None = None
        previous: tuple[Backup, ...] = ()
        if present is not None:
            replaced = undo.enter_context(SessionReader(session))
            previous = (copy_beside(replaced, present.size, (), now, NOT_RESTORED),)
        ready = _write_ready(backup, session, checked.sha256, undo)
        _require_present(session, present)
        _announced_step(locked, ready, present, note(previous, checked.sha256), replace)
        with reported(session, RESTORED_BUT + "a power failure may undo that."):
            sync_directory(session.parent)
        writers: tuple[Writer, ...] = ()
        overtaken = False
        if replaced is not None:  # only this descriptor still has the bytes written since
            writers = _writers_left(replaced)
            overtaken = replaced.state() != present
        if replaced is not None and overtaken:
            late = RESTORED_BUT + "bytes that were written to it at that moment are lost."
            previous = (*previous, copy_beside(replaced, replaced.stat().st_size, (), now, late))
        restored = Restored(session, checked.sha256, previous, overtaken, writers)
    record(restored)
    with reported(locked.intent, f"{RESTORED_BUT}its intent record remains. The next lock removes it."):
        locked.withdraw()
    return restored


def _announced_step(
    locked: LockedSession,
    ready: Path,
    present: FileState | None,
    note: str,
    replace: Callable[[Path, Path], object],
) -> None:
    """The one step that changes the session, after its intent record."""
    session = locked.path
    new, before = ready.stat(), present.inode if present is not None else None
    with reported(locked.intent, NOT_RESTORED):
        locked.announce(ReplaceIntent(os.fspath(session), new.st_ino, before, new.st_size, note))
    try:
        if present is None:
            _appear(ready, session)
        else:
            replace(ready, session)
    except (OSError, Conflict):
        locked.withdraw()
        raise


def _writers_left(replaced: SessionReader) -> tuple[Writer, ...]:
    """The processes that still have the replaced file open, after a pause in which they can finish a line."""
    until = time.monotonic() + CLOSED_WITHIN
    while (writers := writers_of(replaced.state())) and time.monotonic() < until:
        time.sleep(0.05)
    return writers


def _write_ready(backup: Path, session: Path, digest: str, undo: ExitStack) -> Path:
    """A verified copy of `backup`, under the name from which it will replace the session."""
    ready = draft_path(session, RESTORE_DRAFT)
    ready.unlink(missing_ok=True)
    with SessionReader(backup) as reader:
        like = reader.stat()
        with created(ready, like, undo) as fd:
            copied = copy_checked(reader, fd, like.st_size, ())
    if copied != digest:
        raise _damaged(backup)
    if file_digest(ready) != digest:
        what = f"{ready}: the bytes read back differ from those written."
        raise SystemFailure("write_failed", f"{what} {NOT_RESTORED} Check the disk, then try again.")
    return ready


def _appear(ready: Path, session: Path) -> None:
    """Give a missing session its name back; unlike a rename, this never replaces a file that appeared meanwhile."""
    try:
        session.hardlink_to(ready)
    except FileExistsError:
        raise _changed(session) from None


def _require_present(session: Path, present: FileState | None) -> None:
    if file_state(session) != present:
        raise _changed(session)


def _changed(session: Path) -> Conflict:
    what = f"{session} has changed since it was shown."
    return Conflict("session_changed", f"{what} {NOT_RESTORED} Check what was added, then decide again.")


def _damaged(backup: Path) -> Conflict:
    what = f"{backup} does not have the SHA-256 that was recorded when it was made."
    return Conflict("backup_damaged", f"{what} {NOT_RESTORED} Choose another backup.")

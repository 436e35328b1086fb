"""EDGE: giving a session the bytes of one of its backups, after backing up those it has.

    verified → backed up → written ready beside it → announced → takes the session's place → recorded → withdrawn

A process that has the session open keeps the replaced file: what it writes from then on belongs to no session. What
was written to it up to the end of the restore is kept as a backup, and who still has it open is named.
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

from .backups import Backup, copy_beside, copy_checked, digest_of, session_of, verify
from .copies import RESTORE_DRAFT, created, draft_of, require_space
from .files import FileState, SessionReader, file_state, reported, sync_directory
from .locks import LockedSession, ReplaceIntent
from .open_files import Writer, writers_of

NOT_RESTORED: Final = "The session was not touched."
RESTORED_BUT: Final = "The session was restored, but "
CLOSED_WITHIN: Final = 1.0
"""Seconds in which a process that had the replaced file open may finish its line and close it."""


class Restored(NamedTuple):
    """The session has the bytes with this digest; `previous` are the backups of those it had, if it existed.

    `overtaken`: others wrote to it at the very moment of the restore. What they wrote is in the last of the backups.
    `writers` still have the replaced file open: what they write from now on is lost.
    """

    path: Path
    sha256: str
    previous: tuple[Backup, ...]
    overtaken: bool
    writers: tuple[Writer, ...]

    @property
    def previous_backup(self) -> Backup | None:
        """The backup of all that the session held before."""
        return self.previous[-1] if self.previous else None


def _note_nothing(previous: tuple[Backup, ...]) -> str:
    del previous
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
    note: Callable[[tuple[Backup, ...]], str] = _note_nothing,
    record: Callable[[Restored], object] = _record_nothing,
    replace: Callable[[Path, Path], object] = os.replace,
) -> Restored:
    """Gives the session the bytes of `backup`, after backing up those it has.

    `recorded` is the digest that the backup must have, None only after an explicit confirmation of an unverified one.
    `present` is the state of the session that the user was shown, None where it was gone. `record` is called when the
    session is restored; where this process is killed before that is done, or it raises, whoever takes the lock next is
    given what `note` made of the backup that was made before. `replace` is the step that changes a session, so that a
    test can come just before it. Raises what `record` raises, and

    - BadInput `not_a_backup` where it does not belong to this session, `no_such_file` where it is gone
    - Conflict `backup_damaged`; `session_changed` where the session is not in the state `present`
    - SystemFailure `no_space` and others of `os_failure`

    and then the session is as it was; a backup of it that was complete by then stays.
    """
    locked.require_held()
    session = locked.path
    if session_of(backup) != session:
        message = (
            f"{backup} does not lie beside {session}. {NOT_RESTORED} Name a backup that is listed for it."
        )
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
        _announced_step(locked, ready, present, note(previous), replace)
        with reported(session, RESTORED_BUT + "a power cut may undo that."):
            sync_directory(session.parent)
        writers: tuple[Writer, ...] = ()
        overtaken = False
        if replaced is not None:  # only this descriptor still has what was written since
            writers = _writers_left(replaced)
            overtaken = replaced.state() != present
        if replaced is not None and overtaken:
            late = RESTORED_BUT + "what was written to it at that very moment is lost."
            previous = (*previous, copy_beside(replaced, replaced.stat().st_size, (), now, late))
        restored = Restored(session, checked.sha256, previous, overtaken, writers)
    record(restored)
    with reported(locked.intent, f"{RESTORED_BUT}this record of it remains. The next lock removes it."):
        locked.withdraw()
    return restored


def _announced_step(
    locked: LockedSession,
    ready: Path,
    present: FileState | None,
    note: str,
    replace: Callable[[Path, Path], object],
) -> None:
    """The one step that changes the session, with its intent recorded before."""
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
    """Who has the replaced file open for writing, after those who only finish a line have had time to close it."""
    until = time.monotonic() + CLOSED_WITHIN
    while (writers := writers_of(replaced.state())) and time.monotonic() < until:
        time.sleep(0.05)
    return writers


def _write_ready(backup: Path, session: Path, digest: str, undo: ExitStack) -> Path:
    """A checked copy of `backup`, under the name from which it will replace the session."""
    ready = draft_of(session, RESTORE_DRAFT)
    ready.unlink(missing_ok=True)
    with SessionReader(backup) as reader:
        like = reader.stat()
        with created(ready, like, undo) as fd:
            copied = copy_checked(reader, fd, like.st_size, ())
    if copied != digest:
        raise _damaged(backup)
    if digest_of(ready) != digest:
        what = f"{ready}: what was read back is not what was written."
        raise SystemFailure("write_failed", f"{what} {NOT_RESTORED} Check the disk, then try again.")
    return ready


def _appear(ready: Path, session: Path) -> None:
    """Gives a vanished session its name back; unlike a rename this never replaces one that came meanwhile."""
    try:
        session.hardlink_to(ready)
    except FileExistsError:
        raise _changed(session) from None


def _require_present(session: Path, present: FileState | None) -> None:
    if file_state(session) != present:
        raise _changed(session)


def _changed(session: Path) -> Conflict:
    what = f"{session} is not in the state in which it was shown."
    return Conflict("session_changed", f"{what} {NOT_RESTORED} Look at what was added, then decide again.")


def _damaged(backup: Path) -> Conflict:
    what = f"{backup} does not have the SHA-256 that was recorded when it was made."
    return Conflict("backup_damaged", f"{what} {NOT_RESTORED} Choose another backup.")

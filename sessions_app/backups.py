"""Backups: byte-exact copies beside a session, and the way back to one.

    SESSION.jsonl.2026-01-05T10-00-00-123Z.compact.bak         the copy, of the session's mode
    SESSION.jsonl.2026-01-05T10-00-00-123Z.compact.bak.sha256  its digest, as `sha256sum -c` reads it
    .SESSION.jsonl.redline-backup, -restore                    unfinished, from a process that was killed

- A backup gets its name only when it is complete, on disk, and has its digest beside it.
- Nothing that exists is overwritten: a name that is taken is passed over for the next millisecond.
- A failed step removes what it had begun. What a killed process had begun goes with the next step that
  holds the lock; at most a digest without its backup stays, which nothing reads.
- A backup is what lies beside the session and is named like one. The agent's own are named alike, but have
  no digest beside them.

Sizes are bytes; digests are lower-case hexadecimal SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from .appending import LockedSession
from .copying import create_beside as create_beside
from .copying import created, demand_space
from .files import (
    BACKUP_SUFFIX,
    CHUNK,
    FileState,
    Fingerprint,
    GrowthKind,
    SessionReader,
    file_state,
    opened,
    pread,
    reported,
    sync_directory,
    write_all,
)
from .nofollow import scan_directory
from .sessionlog.errors import BadInput, Conflict, SystemFailure

_NAME = re.compile(
    r"(?P<session>.+)\.(?P<time>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z)\.compact\.bak", re.DOTALL
)
_TIME = "%Y-%m-%dT%H-%M-%S-%fZ"
_RECORDED = re.compile(rb"\\?([0-9a-f]{64}) [ *]")
NO_BACKUP = "No backup was made and the session was not touched."
NOT_RESTORED = "The session was not touched."
RESTORED_BUT = "The session was restored, but "


class Backup(NamedTuple):
    """A backup as it lies beside its session. `recorded_sha256` is None where no digest lies beside it."""

    path: Path
    session: Path
    size: int
    taken_at: datetime
    recorded_sha256: str | None


class Verification(NamedTuple):
    """Whether a backup still has the recorded digest; `holds` is None where none was recorded."""

    holds: bool | None
    sha256: str


class Restored(NamedTuple):
    """The session has the bytes with this digest; `previous_backup` has those it had, if it existed.

    `overtaken`: others wrote to it at the very moment of the restore. What they wrote is in that backup.
    """

    path: Path
    sha256: str
    previous_backup: Backup | None
    overtaken: bool


# Names ------------------------------------------------------------------------------------------------------


def backup_name(session: Path, taken_at: datetime) -> str:
    """The name of a backup of `session`; `taken_at` is aware, and cut to the millisecond."""
    if taken_at.tzinfo is None:
        raise ValueError("a backup is named by an aware time")
    moment = taken_at.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    return f"{session.name}.{moment.replace(':', '-').replace('.', '-')}{BACKUP_SUFFIX}"


def session_of(backup: Path) -> Path:
    """The session that `backup` is a copy of, by its name; BadInput `not_a_backup`."""
    named = _parse(backup.name)
    if named is None:
        message = f"{backup} is not named like a backup. Nothing was done with it. Name one that is listed."
        raise BadInput("not_a_backup", message)
    return backup.with_name(named[0])


def _parse(name: str) -> tuple[str, datetime] | None:
    match = _NAME.fullmatch(name)
    if match is None or match["session"] in {".", ".."}:
        return None
    try:
        return match["session"], datetime.strptime(match["time"], _TIME).replace(tzinfo=UTC)
    except ValueError:  # no such day or hour
        return None


def _record_of(backup: Path) -> Path:
    return backup.with_name(f"{backup.name}.sha256")


def _record_line(name: str, sha256: str) -> bytes:
    """The line of `sha256sum`, which marks and escapes names with a backslash or a newline in them."""
    raw = os.fsencode(name)
    escaped = raw.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
    mark = b"" if escaped == raw else b"\\"
    return mark + sha256.encode() + b"  " + escaped + b"\n"


# Looking ----------------------------------------------------------------------------------------------------


def list_backups(session: Path) -> list[Backup]:
    """The backups beside `session`, newest first. The session itself may be gone."""
    found: list[Backup] = []
    with reported(session.parent, "Its backups were not listed."), scan_directory(session.parent) as entries:
        for entry in entries:
            named = _parse(entry.name)
            if named is None or named[0] != session.name or not entry.is_file(follow_symlinks=False):
                continue
            backup = session.with_name(entry.name)
            with suppress(FileNotFoundError):  # deleted since it was seen
                size = entry.stat(follow_symlinks=False).st_size
                found.append(Backup(backup, session, size, named[1], recorded_sha256(backup)))
    return sorted(found, key=lambda backup: (backup.taken_at, backup.path.name), reverse=True)


def recorded_sha256(backup: Path) -> str | None:
    """The digest beside `backup`; None where there is none, or the file there does not begin with one."""
    record = _record_of(backup)
    not_done = "The digest of the backup was not read."
    try:
        with opened(record, os.O_RDONLY, not_done) as fd, reported(record, not_done):
            match = _RECORDED.match(pread(fd, 0, 128))
    except BadInput as error:
        if error.code == "no_such_file":
            return None
        raise
    return match[1].decode() if match else None


def verify(backup: Path, recorded: str | None) -> Verification:
    """Reads `backup` whole and compares its digest with the `recorded` one."""
    session_of(backup)
    actual = _digest_of(backup)
    return Verification(None if recorded is None else actual == recorded, actual)


def _digest_of(path: Path) -> str:
    with (
        opened(path, os.O_RDONLY, "It was not verified.") as fd,
        reported(path, "It was not verified."),
        os.fdopen(fd, "rb", buffering=0, closefd=False) as file,
    ):
        return hashlib.file_digest(file, "sha256").hexdigest()


def delete_backup(backup: Path) -> None:
    """Removes a backup and the digest beside it. BadInput where it is not named like one, or not there."""
    session_of(backup)
    with opened(backup, os.O_RDONLY, "It was not deleted."):
        pass
    with reported(backup, "It was not deleted, or not for good."):
        backup.unlink()
        _record_of(backup).unlink(missing_ok=True)
        sync_directory(backup.parent)


# Backing up -------------------------------------------------------------------------------------------------


def back_up(locked: LockedSession, fingerprint: Fingerprint, now: datetime) -> Backup:
    """Copies the session byte for byte beside itself, on disk when this returns.

    The copy is of the whole file as it is now, and its indexed part is compared with every segment of
    `fingerprint` on the way. Raises Conflict `session_rewritten` where they differ; SystemFailure `no_space`
    before anything is written, `disk_full` and others of `os_failure`. Then there is no backup.
    """
    locked.demand_held()
    if fingerprint.size != (fingerprint.segments[-1][0] if fingerprint.segments else 0):
        raise ValueError("the segments of a fingerprint reach to its size")
    with SessionReader(locked.path) as reader:
        growth = reader.growth(fingerprint)
        if growth.kind is GrowthKind.REWRITTEN:
            raise _rewritten(locked.path, growth.reason)
        size = reader.stat().st_size
        demand_space(locked.path, size, NO_BACKUP)
        return _copy_beside(reader, size, fingerprint.segments, now, NO_BACKUP)


def _copy_beside(
    reader: SessionReader, size: int, segments: tuple[tuple[int, str], ...], now: datetime, not_done: str
) -> Backup:
    session = reader.path
    with reported(session, not_done), ExitStack() as undo:
        unfinished = session.with_name(f".{session.name}.redline-backup")
        unfinished.unlink(missing_ok=True)
        like = reader.stat()
        with created(unfinished, like, undo) as fd:
            digest = _copy_checked(reader, fd, size, segments)
        backup, taken_at = _put_in_place(unfinished, session, digest, now, undo)
        unfinished.unlink()
        sync_directory(session.parent)
        undo.pop_all()
    return Backup(backup, session, size, taken_at, digest)


def _copy_checked(reader: SessionReader, fd: int, size: int, segments: tuple[tuple[int, str], ...]) -> str:
    """Copies the first `size` bytes to `fd`, compares each segment, gives the digest of all."""
    whole = hashlib.sha256()
    offset = 0
    for end, recorded in (*segments, (size, None)):
        part = hashlib.sha256() if offset else whole  # nothing is hashed twice where one segment is all
        while offset < end:
            piece = reader.read_at(offset, min(CHUNK, end - offset))
            whole.update(piece)
            if part is not whole:
                part.update(piece)
            write_all(fd, piece)
            offset += len(piece)
        if recorded is not None and part.hexdigest() != recorded:
            raise _rewritten(reader.path, f"bytes before {end} are no longer those that were indexed")
    return whole.hexdigest()


def _put_in_place(
    unfinished: Path, session: Path, digest: str, now: datetime, undo: ExitStack
) -> tuple[Path, datetime]:
    """Gives the copy the first free name, its digest first, so that none is ever seen without."""
    taken_at = now.astimezone(UTC).replace(microsecond=now.microsecond // 1000 * 1000)
    while True:
        backup = session.with_name(backup_name(session, taken_at))
        record = _record_of(backup)
        if not os.path.lexists(backup):  # a kill must not leave our digest beside another's backup
            with suppress(FileExistsError), ExitStack() as undo_name:
                with created(record, unfinished.stat(), undo_name) as fd:
                    write_all(fd, _record_line(backup.name, digest))
                backup.hardlink_to(unfinished)
                undo.push(undo_name.pop_all())
                undo.callback(backup.unlink, missing_ok=True)
                return backup, taken_at
        taken_at += timedelta(milliseconds=1)


def _rewritten(session: Path, reason: str) -> Conflict:
    return Conflict("session_rewritten", f"{session}: {reason}. {NO_BACKUP} Index it anew and review again.")


# Restoring --------------------------------------------------------------------------------------------------


def restore(
    locked: LockedSession,
    backup: Path,
    recorded: str | None,
    present: FileState | None,
    now: datetime,
    *,
    replace: Callable[[Path, Path], object] = os.replace,
) -> Restored:
    """Gives the session the bytes of `backup`, after backing up those it has.

    `recorded` is the digest that the backup must have, None only after an explicit yes to an unverified one.
    `present` is the state of the session that the user was shown, None where it was gone. `replace` is the
    step that changes a session, so that a test can come just before it. Raises

    - BadInput `not_a_backup` where it does not belong to this session, `no_such_file` where it is gone
    - Conflict `backup_damaged`; `session_changed` where the session is not in the state `present`
    - SystemFailure `no_space` and others of `os_failure`

    and then the session is as it was; a backup of it that was complete by then stays.
    """
    locked.demand_held()
    session = locked.path
    if session_of(backup) != session:
        message = (
            f"{backup} does not lie beside {session}. {NOT_RESTORED} Name a backup that is listed for it."
        )
        raise BadInput("not_a_backup", message)
    checked = verify(backup, recorded)
    if checked.holds is False:
        raise _damaged(backup)
    _demand_present(session, present)
    with reported(session, NOT_RESTORED), ExitStack() as undo:
        demand_space(session, backup.stat().st_size + (present.size if present else 0), NOT_RESTORED)
        replaced: SessionReader | None = None
        previous: Backup | None = None
        if present is not None:
            replaced = undo.enter_context(SessionReader(session))
            previous = _copy_beside(replaced, present.size, (), now, NOT_RESTORED)
        ready = _write_ready(backup, session, checked.sha256, undo)
        _demand_present(session, present)
        if replaced is None:
            _appear(ready, session)
        else:
            replace(ready, session)
        with reported(session, RESTORED_BUT + "a power cut may undo that."):
            sync_directory(session.parent)
        overtaken = replaced is not None and replaced.state() != present
        if replaced is not None and overtaken:  # only this descriptor still has what was written
            late = RESTORED_BUT + "what was written to it at that very moment is lost."
            previous = _copy_beside(replaced, replaced.stat().st_size, (), now, late)
    return Restored(session, checked.sha256, previous, overtaken)


def _write_ready(backup: Path, session: Path, digest: str, undo: ExitStack) -> Path:
    """A checked copy of `backup`, under the name from which it will replace the session."""
    ready = session.with_name(f".{session.name}.redline-restore")
    ready.unlink(missing_ok=True)
    with SessionReader(backup) as reader:
        like = reader.stat()
        with created(ready, like, undo) as fd:
            copied = _copy_checked(reader, fd, like.st_size, ())
    if copied != digest:
        raise _damaged(backup)
    if _digest_of(ready) != digest:
        what = f"{ready}: what was read back is not what was written."
        raise SystemFailure("write_failed", f"{what} {NOT_RESTORED} Check the disk, then try again.")
    return ready


def _appear(ready: Path, session: Path) -> None:
    """Gives a vanished session its name back; unlike a rename this never replaces one that came meanwhile."""
    try:
        session.hardlink_to(ready)
    except FileExistsError:
        raise _changed(session) from None


def _demand_present(session: Path, present: FileState | None) -> None:
    if file_state(session) != present:
        raise _changed(session)


def _changed(session: Path) -> Conflict:
    what = f"{session} is not in the state in which it was shown."
    return Conflict("session_changed", f"{what} {NOT_RESTORED} Look at what was added, then decide again.")


def _damaged(backup: Path) -> Conflict:
    what = f"{backup} does not have the SHA-256 that was recorded when it was made."
    return Conflict("backup_damaged", f"{what} {NOT_RESTORED} Choose another backup.")

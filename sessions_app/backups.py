"""Backups: byte-exact copies beside a session, and the way back to one.

    SESSION.jsonl.2026-01-05T10-00-00-123Z.compact.bak             the copy, of the session's mode
    SESSION.jsonl.2026-01-05T10-00-00-123Z.compact.bak.sha256      its digest, as `sha256sum -c` reads it
    .SESSION.jsonl.redline-backup, .SESSION.jsonl.redline-restore  unfinished: left by a process that was killed

- A backup gets its name only when it is complete, on disk, and has its digest beside it.
- Nothing that exists is overwritten: a name that is taken is passed over for the next millisecond.
- A failed step removes what it had begun. What a killed process had begun goes with the next step that
  holds the lock.
- A backup is what lies beside the session and is named like one. The agent's own are named alike, but have
  no digest beside them.

Sizes are bytes; digests are lower-case hexadecimal SHA-256.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from sessions_app.files import (
    BACKUP_SUFFIX,
    CHUNK,
    NOTHING_WRITTEN,
    FileState,
    Fingerprint,
    GrowthKind,
    LockedSession,
    SessionReader,
    file_state,
    opened,
    pread,
    real_path,
    reported,
    sync,
    sync_directory,
    write_all,
)
from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure

_NAME = re.compile(r"(?P<session>.+)\.(?P<time>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z)\.compact\.bak", re.DOTALL)
_TIME = "%Y-%m-%dT%H-%M-%S-%fZ"
_RECORDED = re.compile(rb"\\?([0-9a-f]{64}) [ *]")
NO_BACKUP = "No backup was made and the session was not touched."
NOT_RESTORED = "The session was not touched."


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
    """The session has the bytes with this digest; `previous_backup` has those it had, if it existed."""

    path: Path
    sha256: str
    previous_backup: Backup | None


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
    if match is None:
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
    path = real_path(session)
    found: list[Backup] = []
    with reported(path.parent, "Its backups were not listed."), os.scandir(path.parent) as entries:
        for entry in entries:
            named = _parse(entry.name)
            if named is None or named[0] != path.name or not entry.is_file(follow_symlinks=False):
                continue
            backup = path.with_name(entry.name)
            size = entry.stat(follow_symlinks=False).st_size
            found.append(Backup(backup, path, size, named[1], recorded_sha256(backup)))
    return sorted(found, key=lambda backup: (backup.taken_at, backup.path.name), reverse=True)


def recorded_sha256(backup: Path) -> str | None:
    """The digest beside `backup`; None where there is none, or the file there does not begin with one."""
    record = _record_of(backup)
    with reported(record, "The digest of the backup was not read."):
        if not os.path.lexists(record):
            return None
        with opened(record, os.O_RDONLY | os.O_NOFOLLOW, "The digest of the backup was not read.") as fd:
            match = _RECORDED.match(pread(fd, 0, 128))
    return match[1].decode() if match else None


def verify(backup: Path, recorded: str | None) -> Verification:
    """Reads `backup` whole and compares its digest with the `recorded` one."""
    session_of(backup)
    actual = _digest_of(backup)
    return Verification(None if recorded is None else actual == recorded, actual)


def _digest_of(path: Path) -> str:
    with (
        opened(path, os.O_RDONLY | os.O_NOFOLLOW, "It was not verified.") as fd,
        reported(path, "It was not verified."),
        os.fdopen(fd, "rb", buffering=0, closefd=False) as file,
    ):
        return hashlib.file_digest(file, "sha256").hexdigest()


def delete_backup(backup: Path) -> None:
    """Removes a backup and the digest beside it. BadInput where it is not named like one, or not there."""
    session_of(backup)
    with opened(backup, os.O_RDONLY | os.O_NOFOLLOW, "It was not deleted."):
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
    with SessionReader(locked.path) as reader:
        growth = reader.growth(fingerprint)
        if growth.kind is GrowthKind.REWRITTEN:
            raise _rewritten(locked.path, growth.reason)
        size = reader.state().size
        _demand_space(locked.path, size, NO_BACKUP)
        return _copy_beside(reader, size, fingerprint.segments, now, NO_BACKUP)


def _copy_beside(
    reader: SessionReader, size: int, segments: tuple[tuple[int, str], ...], now: datetime, not_done: str
) -> Backup:
    session = reader.path
    with reported(session, not_done), ExitStack() as undo:
        unfinished = session.with_name(f".{session.name}.redline-backup")
        with _made_anew(unfinished, undo) as fd:
            digest = _copy_checked(reader, fd, size, segments)
            os.fchmod(fd, stat.S_IMODE(session.stat().st_mode))
            sync(fd)
        backup, taken_at = _put_in_place(unfinished, session, digest, now, undo)
        unfinished.unlink()
        sync_directory(session.parent)
        undo.pop_all()
    return Backup(backup, session, size, taken_at, digest)


@contextmanager
def _made_anew(path: Path, undo: ExitStack) -> Iterator[int]:
    """A descriptor of a new file at `path`, readable by nobody else yet; a killed process's is removed."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    undo.callback(path.unlink, missing_ok=True)
    try:
        yield fd
    finally:
        os.close(fd)


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
    for later in itertools.count():
        taken_at = now + timedelta(milliseconds=later)
        backup = session.with_name(backup_name(session, taken_at))
        record = _record_of(backup)
        if os.path.lexists(backup) or os.path.lexists(record):
            continue
        with ExitStack() as undo_name:
            with _made_anew(record, undo_name) as fd:
                write_all(fd, _record_line(backup.name, digest))
                os.fchmod(fd, stat.S_IMODE(unfinished.stat().st_mode))
                sync(fd)
            try:
                backup.hardlink_to(unfinished)
            except FileExistsError:
                continue
            undo.callback(backup.unlink, missing_ok=True)
            undo.push(undo_name.pop_all())
            named = _parse(backup.name)
            if named is None:
                raise AssertionError(f"{backup.name} is not recognised as a backup")
            return backup, named[1]
    raise AssertionError("time has no end")


def _demand_space(session: Path, needed: int, not_done: str) -> None:
    with reported(session.parent, not_done):
        disk = os.statvfs(session.parent)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        what = f"{session.parent} has {free} bytes free, a copy of {session.name} needs {needed}."
        raise SystemFailure("no_space", f"{what} {not_done} Free some space.")


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
    `present` is the state of the session that the user was shown, None where it was gone. `replace` is the one
    step that changes the session, so that a test can be quicker. Raises

    - BadInput `not_a_backup` where it does not belong to this session, `no_such_file` where it is gone
    - Conflict `backup_damaged`; `session_changed` where the session is not in the state `present`
    - SystemFailure `no_space` and others of `os_failure`

    and then the session is as it was; a backup of it that was complete by then stays.
    """
    locked.demand_held()
    session = locked.path
    if session_of(real_path(backup.parent) / backup.name) != session:
        message = f"{backup} does not lie beside {session}. {NOT_RESTORED} Name a backup that is listed for it."
        raise BadInput("not_a_backup", message)
    checked = verify(backup, recorded)
    if checked.holds is False:
        raise _damaged(backup)
    _demand_present(session, present)
    with ExitStack() as undo:
        replaced: SessionReader | None = None
        previous: Backup | None = None
        size = backup.stat().st_size
        _demand_space(session, size + (present.size if present else 0), NOT_RESTORED)
        if present is not None:
            replaced = undo.enter_context(SessionReader(session))
            previous = _copy_beside(replaced, present.size, (), now, NOT_RESTORED)
        ...
    return Restored(session, checked.sha256, previous)

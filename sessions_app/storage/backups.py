"""EDGE: backups, the byte-exact copies beside a session, and the restore of one.

    SESSION.jsonl.2026-01-05T10-00-00-123Z.compact.bak         the copy, with the session's mode
    SESSION.jsonl.2026-01-05T10-00-00-123Z.compact.bak.sha256  its digest, for `sha256sum -c`
    SESSION.jsonl.2026-01-05T10-00-00-123Z.auto-compact.bak    an agent's backup: see BACKUP_LABELS
    .SESSION.jsonl.redline-backup, -restore                    unfinished, from a process that was killed

- A backup gets its name only when it is complete, on disk, and has its digest beside it.
- Nothing is overwritten: if a name exists, the next millisecond is used.
- A failed step removes its unfinished files. Those of a killed process are removed by the next step that holds the
  lock; at most a digest without a backup stays, which nothing reads.
- A backup is a file beside the session with a backup's name. The agents' own have the same form of name, with a label
  for their cause, but no digest.

A restore backs up the current bytes first:

    verified → backed up → written beside it → announced → replaces the session → recorded → withdrawn

A process that has the session open keeps the replaced file: its later writes belong to no session. Bytes written to it
until the end of the restore are kept as a backup, and the processes that still have it open are named.

Sizes are bytes; digests are lower-case hexadecimal SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from sessions_app.disk import files
from sessions_app.disk.copies import (
    BACKUP_DRAFT,
    RESTORE_DRAFT,
    create_beside as create_beside,
    created,
    draft_path,
    require_space,
)
from sessions_app.disk.open_files import Writer, writers_of
from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure

from .locks import LockedSession, ReplaceIntent

_NAME = re.compile(
    r"(?P<session>.+)\.(?P<time>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z)\."
    rf"(?P<label>{'|'.join(files.BACKUP_LABELS)})\.bak",
    re.DOTALL,
)
_TIME = "%Y-%m-%dT%H-%M-%S-%fZ"
_RECORDED = re.compile(rb"\\?([0-9a-f]{64}) [ *]")
NO_BACKUP = "No backup was made and the session was not touched."


class Backup(NamedTuple):
    """A backup beside its session. `recorded_sha256` is None if there is no digest beside it."""

    path: Path
    session: Path
    size: int
    taken_at: datetime
    recorded_sha256: str | None
    label: str = files.BACKUP_LABELS[0]


class Verification(NamedTuple):
    """Whether a backup matches its recorded digest; `holds` is None if none was recorded."""

    holds: bool | None
    sha256: str


# Names ------------------------------------------------------------------------------------------------------


def backup_name(session: Path, taken_at: datetime) -> str:
    """The name of a backup of `session`; `taken_at` is aware, and truncated to the millisecond."""
    if taken_at.tzinfo is None:
        raise ValueError("the time of a backup is aware")
    moment = taken_at.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    return f"{session.name}.{moment.replace(':', '-').replace('.', '-')}{files.BACKUP_SUFFIX}"


def backed_up_session(backup: Path) -> Path:
    """The session of `backup`, by its name. Raises BadInput `not_a_backup`."""
    named = _parse(backup.name)
    if named is None:
        message = f"{backup} does not have the name of a backup. Nothing was done. Choose one that is listed."
        raise BadInput("not_a_backup", message)
    return backup.with_name(named.session)


class _Name(NamedTuple):
    session: str
    taken_at: datetime
    label: str


def _parse(name: str) -> _Name | None:
    match = _NAME.fullmatch(name)
    if match is None or match["session"] in {".", ".."}:
        return None
    try:
        taken_at = datetime.strptime(match["time"], _TIME).replace(tzinfo=UTC)
    except ValueError:  # no such day or hour
        return None
    return _Name(match["session"], taken_at, match["label"])


def _record_of(backup: Path) -> Path:
    return backup.with_name(f"{backup.name}.sha256")


def _record_line(name: str, sha256: str) -> bytes:
    """The line as `sha256sum` writes it: names with a backslash or newline are marked and escaped."""
    raw = os.fsencode(name)
    escaped = raw.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
    mark = b"" if escaped == raw else b"\\"
    return mark + sha256.encode() + b"  " + escaped + b"\n"


# Reading ----------------------------------------------------------------------------------------------------


def list_backups(session: Path) -> list[Backup]:
    """The backups beside `session`, newest first. The session itself may be missing.

    A session in a database has no backups beside it.
    """
    found: list[Backup] = []
    if session.parent.is_file():
        return found
    with (
        files.reported(session.parent, "Its backups were not listed."),
        files.scan_directory(session.parent) as entries,
    ):
        for entry in entries:
            named = _parse(entry.name)
            if named is None or named.session != session.name or not entry.is_file(follow_symlinks=False):
                continue
            backup = session.with_name(entry.name)
            with suppress(FileNotFoundError):  # deleted since it was listed
                size = entry.stat(follow_symlinks=False).st_size
                sha256 = recorded_sha256(backup)
                found.append(Backup(backup, session, size, named.taken_at, sha256, named.label))
    return sorted(found, key=lambda backup: (backup.taken_at, backup.path.name), reverse=True)


def recorded_sha256(backup: Path) -> str | None:
    """The digest beside `backup`; None if there is none, or the file does not start with one."""
    record = _record_of(backup)
    not_done = "The digest of the backup was not read."
    try:
        with files.opened(record, os.O_RDONLY, not_done) as fd, files.reported(record, not_done):
            match = _RECORDED.match(files.pread(fd, 0, 128))
    except BadInput as error:
        if error.code == "no_such_file":
            return None
        raise
    return match[1].decode() if match else None


def verify(backup: Path, recorded: str | None) -> Verification:
    """Read all of `backup` and compare its digest with the `recorded` one."""
    backed_up_session(backup)
    actual = file_digest(backup)
    return Verification(None if recorded is None else actual == recorded, actual)


def file_digest(path: Path) -> str:
    """The digest of a file that is not a link."""
    with (
        files.opened(path, os.O_RDONLY, "It was not verified.") as fd,
        files.reported(path, "It was not verified."),
        os.fdopen(fd, "rb", buffering=0, closefd=False) as file,
    ):
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_written(path: Path, digest: str, not_done: str) -> None:
    """Read a new file back. Raises SystemFailure `write_failed` if it does not have the digest of what was written."""
    if file_digest(path) != digest:
        what = f"{path}: the bytes read back differ from those written."
        raise SystemFailure("write_failed", f"{what} {not_done} Check the disk, then try again.")


def delete_backup(backup: Path) -> None:
    """Remove a backup and the digest beside it. Raises BadInput if it does not have a backup's name or is missing."""
    backed_up_session(backup)
    with files.opened(backup, os.O_RDONLY, "It was not deleted."):
        pass
    with files.reported(backup, "It was not deleted, or not for good."):
        backup.unlink()
        _record_of(backup).unlink(missing_ok=True)
        files.sync_directory(backup.parent)


# Backing up -------------------------------------------------------------------------------------------------


def back_up(
    locked: LockedSession,
    fingerprint: files.Fingerprint | None,
    now: datetime,
    content: hashlib._Hash | None = None,
) -> Backup:
    """Copy the session byte for byte beside itself, synced to disk on return.

    `content` is updated with all bytes that are copied: it can be continued with what is appended (`digest_up_to`).

    The copy is of the whole current file; its indexed part is compared with every segment of `fingerprint` on the
    way, if its bytes are what was indexed. Raises Conflict `session_rewritten` if they differ; SystemFailure `no_space`
    before anything is written, `disk_full` and others of `os_failure`. After an error there is no backup.
    """
    locked.require_held()
    segments = fingerprint.segments if fingerprint is not None else ()
    if fingerprint is not None and fingerprint.size != (segments[-1][0] if segments else 0):
        raise ValueError("the segments of a fingerprint reach to its size")
    with files.SessionReader(locked.path) as reader:
        growth = reader.growth(fingerprint) if fingerprint is not None else None
        if growth is not None and growth.kind is files.GrowthKind.REWRITTEN:
            raise _rewritten(locked.path, growth.reason)
        size = reader.stat().st_size
        require_space(locked.path, size, NO_BACKUP)
        return copy_beside(reader, size, segments, now, NO_BACKUP, content)


def digest_up_to(session: Path, end: int, start: int = 0, content: hashlib._Hash | None = None) -> str:
    """The digest of the first `end` bytes of a session; `content` is the hash of those before `start`, if known."""
    with files.SessionReader(session) as reader:
        return files.hashed(reader.read_at, start, end, content).hexdigest()


def copy_beside(
    reader: files.SessionReader,
    size: int,
    segments: tuple[tuple[int, str], ...],
    now: datetime,
    not_done: str,
    content: hashlib._Hash | None = None,
) -> Backup:
    """A backup of the first `size` bytes of the opened file, compared with `segments` on the way."""

    def copy(fd: int) -> tuple[int, str]:
        return size, copy_checked(reader, fd, size, segments, content)

    return _make(reader.path, reader.stat(), now, not_done, copy)


def write_backup(session: Path, content: bytes, like: os.stat_result, now: datetime) -> Backup:
    """A backup with this content, as if it were beside a session at this path; synced to disk on return."""

    def write(fd: int) -> tuple[int, str]:
        files.write_all(fd, content)
        return len(content), files.sha256_of(content)

    return _make(session, like, now, NO_BACKUP, write)


def _make(
    session: Path, like: os.stat_result, now: datetime, not_done: str, write: Callable[[int], tuple[int, str]]
) -> Backup:
    """A backup of what `write` writes to a descriptor, synced to disk; it returns the size and the digest."""
    with files.reported(session, not_done), ExitStack() as undo:
        unfinished = draft_path(session, BACKUP_DRAFT)
        unfinished.unlink(missing_ok=True)
        with created(unfinished, like, undo) as fd:
            size, digest = write(fd)
        backup, taken_at = _put_in_place(unfinished, session, digest, now, undo)
        unfinished.unlink()
        files.sync_directory(session.parent)
        undo.pop_all()
    return Backup(backup, session, size, taken_at, digest)


def copy_checked(
    reader: files.SessionReader,
    fd: int,
    size: int,
    segments: tuple[tuple[int, str], ...],
    content: hashlib._Hash | None = None,
) -> str:
    """Copy the first `size` bytes to `fd` and compare each segment; returns the digest of all.

    `content`, a hash of nothing yet, is updated with all of them.
    """
    whole = content if content is not None else hashlib.sha256()
    offset = 0
    for end, recorded in (*segments, (size, None)):
        part = hashlib.sha256() if offset else whole  # a single segment is not hashed twice
        while offset < end:
            piece = reader.read_at(offset, min(files.CHUNK, end - offset))
            whole.update(piece)
            if part is not whole:
                part.update(piece)
            files.write_all(fd, piece)
            offset += len(piece)
        if recorded is not None and part.hexdigest() != recorded:
            raise _rewritten(reader.path, f"bytes before {end} have changed since they were indexed")
    return whole.hexdigest()


def _put_in_place(
    unfinished: Path, session: Path, digest: str, now: datetime, undo: ExitStack
) -> tuple[Path, datetime]:
    """Give the copy the first free name, after writing its digest, so that no backup is ever without one."""
    taken_at = now.astimezone(UTC).replace(microsecond=now.microsecond // 1000 * 1000)
    while True:
        backup = session.with_name(backup_name(session, taken_at))
        record = _record_of(backup)
        if not os.path.lexists(backup):  # a kill must not leave our digest beside another backup
            with suppress(FileExistsError), ExitStack() as undo_name:
                with created(record, unfinished.stat(), undo_name) as fd:
                    files.write_all(fd, _record_line(backup.name, digest))
                backup.hardlink_to(unfinished)
                undo.push(undo_name.pop_all())
                undo.callback(backup.unlink, missing_ok=True)
                return backup, taken_at
        taken_at += timedelta(milliseconds=1)


def _rewritten(session: Path, reason: str) -> Conflict:
    return Conflict("session_rewritten", f"{session}: {reason}. {NO_BACKUP} Index it again, then review again.")


# The restore ------------------------------------------------------------------------------------------------


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


def restore(
    locked: LockedSession,
    backup: Path,
    recorded: str | None,
    present: files.FileState | None,
    now: datetime,
    *,
    note: Callable[[tuple[Backup, ...], str], str] = lambda _previous, _sha256: "",
    record: Callable[[Restored], object] = lambda _: None,
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
    with files.reported(session, NOT_RESTORED), ExitStack() as undo:
        require_space(session, backup.stat().st_size + (present.size if present else 0), NOT_RESTORED)
        replaced: files.SessionReader | None = None
        previous: tuple[Backup, ...] = ()
        if present is not None:
            replaced = undo.enter_context(files.SessionReader(session))
            previous = (copy_beside(replaced, present.size, (), now, NOT_RESTORED),)
        ready = _write_ready(backup, session, checked.sha256, undo)
        _require_present(session, present)
        _announced_step(locked, ready, present, note(previous, checked.sha256), replace)
        with files.reported(session, RESTORED_BUT + "a power failure may undo that."):
            files.sync_directory(session.parent)
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
    with files.reported(locked.intent, f"{RESTORED_BUT}its intent record was kept. The next lock deletes it."):
        locked.withdraw()
    return restored


def _announced_step(
    locked: LockedSession,
    ready: Path,
    present: files.FileState | None,
    note: str,
    replace: Callable[[Path, Path], object],
) -> None:
    """The one step that changes the session, after its intent record."""
    session = locked.path
    new, before = ready.stat(), present.inode if present is not None else None
    intent = ReplaceIntent(new.st_ino, before, new.st_size, path=os.fspath(session), note=note)
    locked.announce(intent, NOT_RESTORED)
    try:
        if present is None:
            _appear(ready, session)
        else:
            replace(ready, session)
    except (OSError, Conflict):
        locked.withdraw()
        raise


def _writers_left(replaced: files.SessionReader) -> tuple[Writer, ...]:
    """The processes that still have the replaced file open, after a pause in which they can finish a line."""
    until = time.monotonic() + CLOSED_WITHIN
    while (writers := writers_of(replaced.state())) and time.monotonic() < until:
        time.sleep(0.05)
    return writers


def _write_ready(backup: Path, session: Path, digest: str, undo: ExitStack) -> Path:
    """A verified copy of `backup`, under the name from which it will replace the session."""
    ready = draft_path(session, RESTORE_DRAFT)
    ready.unlink(missing_ok=True)
    with files.SessionReader(backup) as reader:
        like = reader.stat()
        with created(ready, like, undo) as fd:
            copied = copy_checked(reader, fd, like.st_size, ())
    if copied != digest:
        raise _damaged(backup)
    require_written(ready, digest, NOT_RESTORED)
    return ready


def _appear(ready: Path, session: Path) -> None:
    """Give a missing session its name back; unlike a rename, this never replaces a file that appeared meanwhile."""
    try:
        session.hardlink_to(ready)
    except FileExistsError:
        raise _changed(session) from None


def _require_present(session: Path, present: files.FileState | None) -> None:
    if files.file_state(session) != present:
        raise _changed(session)


def _changed(session: Path) -> Conflict:
    what = f"{session} has changed since it was shown."
    return Conflict("session_changed", f"{what} {NOT_RESTORED} Check what was added, then decide again.")


def _damaged(backup: Path) -> Conflict:
    what = f"{backup} does not have the SHA-256 that was recorded when it was made."
    return Conflict("backup_damaged", f"{what} {NOT_RESTORED} Choose another backup.")

"""EDGE: new files beside a session, written completely or not at all.

A copy is written under a draft name, with the mode and owner of a given file, synced, and only then renamed. If a step
fails, its unfinished files are removed.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from sessions_app.sessionlog.errors import BadInput, SystemFailure

from .files import reported, sync, sync_directory, write_all

BACKUP_DRAFT: Final = "redline-backup"
RESTORE_DRAFT: Final = "redline-restore"
FORK_DRAFT: Final = "redline-fork"
DRAFTS: Final = (BACKUP_DRAFT, RESTORE_DRAFT, FORK_DRAFT)
"""The drafts beside a session while its lock is held. Others under that lock belong to a dead process."""


def draft_path(path: Path, purpose: str) -> Path:
    """The name of a file while it is written."""
    return path.with_name(f".{path.name}.{purpose}")


def create_beside(path: Path, lines: Iterable[bytes], like: os.stat_result) -> int:
    """Write a complete new file, synced to disk on return, with mode and owner of `like`; returns its size in bytes.

    Raises BadInput `exists` if there is a file at `path`, and whatever `lines` raises; then there is no new file.
    """
    with reported(path, "No copy was made."), ExitStack() as undo:
        if os.path.lexists(path):
            raise BadInput("exists", f"{path} exists already. No copy was made. Move it away first.")
        draft = draft_path(path, "redline-copy")
        draft.unlink(missing_ok=True)
        size = 0
        with created(draft, like, undo) as fd:
            for line in lines:
                write_all(fd, line)
                size += len(line)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            raise BadInput("exists", f"{path} exists already. No copy was made. Move it away first.") from None
    with reported(path, "The copy may be lost in a power cut."):
        sync_directory(path.parent)
    return size


@contextmanager
def created(path: Path, like: os.stat_result | None, undo: ExitStack) -> Iterator[int]:
    """Create a file and yield its descriptor; finally sync it, with mode and owner of `like`, or private without it.
    `undo` removes it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    undo.callback(path.unlink, missing_ok=True)
    try:
        yield fd
        if like is not None:
            if os.geteuid() == 0:  # otherwise the agent's user could not use a file that root restored
                os.fchown(fd, like.st_uid, like.st_gid)
            os.fchmod(fd, stat.S_IMODE(like.st_mode))
        sync(fd)
    finally:
        os.close(fd)


def require_space(session: Path, needed: int, not_done: str) -> None:
    """Raise SystemFailure `no_space` if fewer than `needed` bytes are free beside `session`."""
    with reported(session.parent, not_done):
        disk = os.statvfs(session.parent)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        what = f"{session.parent} has {free} bytes free; a copy of {session.name} needs {needed}."
        raise SystemFailure("no_space", f"{what} {not_done} Free some space.")

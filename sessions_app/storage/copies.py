"""EDGE: new files beside a session, which are there whole or not at all.

A copy is written under the name of a draft, with mode and owner of what it is like, synced, and only then given its
own name. Whatever fails on the way removes what it had begun.
"""

from __future__ import annotations

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
DRAFTS: Final = (BACKUP_DRAFT, RESTORE_DRAFT)
"""What is drafted beside a session while its lock is held. Another draft under that lock is a dead process's."""


def draft_of(path: Path, purpose: str) -> Path:
    """Where a file is written before it gets its own name."""
    return path.with_name(f".{path.name}.{purpose}")


def create_beside(path: Path, lines: Iterable[bytes], like: os.stat_result) -> int:
    """Writes a new file whole, on disk when this returns, with mode and owner of `like`; gives its bytes.

    Raises BadInput `exists` where `path` is taken, and whatever making the lines raises; then there is no file.
    """
    with reported(path, "No copy was made."), ExitStack() as undo:
        if os.path.lexists(path):
            raise BadInput("exists", f"{path} is there already. No copy was made. Move it away first.")
        draft = draft_of(path, "redline-copy")
        draft.unlink(missing_ok=True)
        size = 0
        with created(draft, like, undo) as fd:
            for line in lines:
                write_all(fd, line)
                size += len(line)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            raise BadInput(
                "exists", f"{path} is there already. No copy was made. Move it away first."
            ) from None
    with reported(path, "The copy may not survive a power cut."):
        sync_directory(path.parent)
    return size


@contextmanager
def created(path: Path, like: os.stat_result, undo: ExitStack) -> Iterator[int]:
    """A descriptor of a new file, on disk and with mode and owner of `like` at the end; `undo` removes it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    undo.callback(path.unlink, missing_ok=True)
    try:
        yield fd
        if os.geteuid() == 0:  # else the agent's user could not use what root restored
            os.fchown(fd, like.st_uid, like.st_gid)
        os.fchmod(fd, stat.S_IMODE(like.st_mode))
        sync(fd)
    finally:
        os.close(fd)


def require_space(session: Path, needed: int, not_done: str) -> None:
    """Raises SystemFailure `no_space` where fewer than `needed` bytes are free beside `session`."""
    with reported(session.parent, not_done):
        disk = os.statvfs(session.parent)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        what = f"{session.parent} has {free} bytes free, a copy of {session.name} needs {needed}."
        raise SystemFailure("no_space", f"{what} {not_done} Free some space.")

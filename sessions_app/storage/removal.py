"""EDGE: deleting a session that Redline made, under its lock, while it is exactly as Redline made it.

bytes as written? nobody writes to it? → intent record → deleted → recorded by the caller → intent record removed
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure

from .backups import digest_of
from .files import FileState, file_state, reported, sync_directory
from .locks import LockedSession, RemoveIntent
from .open_files import describe, writers_of

NOT_DELETED = "It was not deleted."


def remove_session(locked: LockedSession, size: int, sha256: str, *, note: str, record: Callable[[], object]) -> None:
    """Delete the locked session if it consists of exactly these bytes and no other process has it open for writing.

    `record` is called when it is deleted; if this process is killed before it has finished, or it raises, the next lock
    holder receives `note`. Raises what `record` raises, and

    - BadInput `no_such_file`, Conflict `session_changed` and `open_elsewhere`, and SystemFailure: it is still there
    - SystemFailure `append_not_tidied`: it was deleted and recorded, but its intent record could not be removed
    """
    locked.require_held()
    path = locked.path
    state = require_as_written(path, size, sha256)
    with reported(locked.intent, NOT_DELETED):
        locked.announce(RemoveIntent(os.fspath(path), state.inode, note))
    with reported(path, NOT_DELETED):
        if file_state(path) != state:
            locked.withdraw()
            raise _changed(path)
        try:
            path.unlink()
        except OSError:
            locked.withdraw()
            raise
        sync_directory(path.parent)
    record()
    try:
        locked.withdraw()
    except OSError as error:
        what = f"{path} was deleted, but {locked.intent} could not be removed ({error.strerror})."
        raise SystemFailure("append_not_tidied", f"{what} The next lock on the session removes it.") from error


def require_as_written(path: Path, size: int, sha256: str) -> FileState:
    """The state of a file that has exactly these bytes and that no other process has open for writing.

    Raises BadInput `no_such_file`, Conflict `session_changed` and `open_elsewhere`.
    """
    state = file_state(path)
    if state is None:
        raise BadInput("no_such_file", f"{path} is gone already, so there is nothing to delete.")
    if state.size != size or digest_of(path) != sha256:
        raise _changed(path)
    writers = writers_of(state)
    if writers:
        raise Conflict(
            "open_elsewhere",
            f"{path} is open for writing in {describe(writers)}. {NOT_DELETED} Close it there first.",
        )
    return state


def _changed(path: Path) -> Conflict:
    return Conflict(
        "session_changed",
        f"{path} is no longer as Redline wrote it: the conversation may have continued there. {NOT_DELETED} Delete it "
        "yourself if you do not need it.",
    )

"""EDGE: a new session beside another one, made under the lock of that one, and deleted under its own.

    made      written as a draft → synced, read back, checked by the caller → intent record → its name → recorded
    deleted   bytes as written? → no process writes to it? → intent record → deleted → recorded by the caller

At the end of both, the intent record is removed. A session appears with its whole content or not at all, and never
replaces a file. It is deleted only while it is exactly as Redline made it.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from sessions_app.disk.copies import FORK_DRAFT, created, draft_path, require_space
from sessions_app.disk.files import CHUNK, FileState, file_state, reported, sync_directory, write_all
from sessions_app.disk.open_files import describe, writers_of
from sessions_app.sessionlog.errors import BadInput, Conflict

from .backups import file_digest, require_written
from .locks import CreateIntent, LockedSession, RemoveIntent

NOT_MADE = "No new session was made."
NOT_DELETED = "It was not deleted."


class NewSession(NamedTuple):
    """A complete new session: its size in bytes and its SHA-256."""

    path: Path
    size: int
    sha256: str


def create_session(
    locked: LockedSession,
    name: str,
    pieces: Iterable[bytes],
    *,
    check: Callable[[Path], object],
    note: Callable[[NewSession], str],
    record: Callable[[NewSession], object],
) -> NewSession:
    """Write a new session with these bytes beside the locked one, with its mode and owner, synced to disk on return.

    `check` is called with the path of the complete draft; if it raises, there is no new session. `record` is called
    when the session has its name; if this process is killed before it has finished, or it raises, the next lock holder
    receives the result of `note`. Raises what `check` and `record` raise, and

    - BadInput `exists` if there is a file of that name
    - SystemFailure `no_space`, `write_failed` and others of `os_failure`: there is no new session
    - SystemFailure `append_not_tidied`: it was made and recorded, but its intent record could not be removed
    """
    locked.require_held()
    path = locked.path.with_name(name)
    with reported(path, NOT_MADE), ExitStack() as undo:
        like = locked.path.stat()
        require_space(locked.path, like.st_size, NOT_MADE)
        draft = draft_path(locked.path, FORK_DRAFT)
        draft.unlink(missing_ok=True)
        made = _write(draft, path, pieces, like, undo)
        check(draft)
        inode = draft.stat().st_ino
        intent = CreateIntent(
            os.fspath(path), inode, made.size, made.sha256, path=os.fspath(locked.path), note=note(made)
        )
        locked.announce(intent, NOT_MADE)
        try:
            path.hardlink_to(draft)
        except OSError as error:
            locked.withdraw()
            if isinstance(error, FileExistsError):
                raise BadInput("exists", f"{path} exists already. {NOT_MADE} Move it away first.") from None
            raise
    with reported(path, "The new session may be lost in a power cut."):
        sync_directory(path.parent)
    record(made)
    locked.finish(f"{path} was made")
    return made


def _write(draft: Path, path: Path, pieces: Iterable[bytes], like: os.stat_result, undo: ExitStack) -> NewSession:
    """The draft, written and read back. Its name in `NewSession` is the one that it will have."""
    digest, size, waiting = hashlib.sha256(), 0, bytearray()
    with created(draft, like, undo) as fd:
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            waiting += piece
            if len(waiting) >= CHUNK:
                write_all(fd, bytes(waiting))
                waiting.clear()
        write_all(fd, bytes(waiting))
    require_written(draft, digest.hexdigest(), NOT_MADE)
    return NewSession(path, size, digest.hexdigest())


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
    locked.announce(RemoveIntent(state.inode, path=os.fspath(path), note=note), NOT_DELETED)
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
    locked.finish(f"{path} was deleted")


def require_as_written(path: Path, size: int, sha256: str) -> FileState:
    """The state of a file that has exactly these bytes and that no other process has open for writing.

    Raises BadInput `no_such_file`, Conflict `session_changed` and `open_elsewhere`.
    """
    state = file_state(path)
    if state is None:
        raise BadInput("no_such_file", f"{path} does not exist any more, so there is nothing to delete.")
    if state.size != size or file_digest(path) != sha256:
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

"""EDGE: a new session beside another one, under the lock of that one.

    written as a draft → synced, read back, checked by the caller → intent record → its name → recorded → record removed

It appears with its whole content or not at all, and never replaces a file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from sessions_app.sessionlog.errors import BadInput, SystemFailure

from .backups import digest_of
from .copies import FORK_DRAFT, created, draft_of, require_space
from .files import CHUNK, reported, sync_directory, write_all
from .locks import CreateIntent, LockedSession

NOT_MADE = "No new session was made."


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
        draft = draft_of(locked.path, FORK_DRAFT)
        draft.unlink(missing_ok=True)
        made = _write(draft, path, pieces, like, undo)
        check(draft)
        intent = CreateIntent(
            os.fspath(locked.path), os.fspath(path), draft.stat().st_ino, made.size, made.sha256, note(made)
        )
        with reported(locked.intent, NOT_MADE):
            locked.announce(intent)
        try:
            path.hardlink_to(draft)
        except OSError as error:
            locked.withdraw()
            if isinstance(error, FileExistsError):
                raise BadInput("exists", f"{path} exists already. {NOT_MADE} Move it away first.") from None
            raise
    with reported(path, "The new session may not survive a power cut."):
        sync_directory(path.parent)
    record(made)
    try:
        locked.withdraw()
    except OSError as error:
        what = f"{path} was made, but {locked.intent} could not be removed ({error.strerror})."
        raise SystemFailure("append_not_tidied", f"{what} The next lock on the session removes it.") from error
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
    if digest_of(draft) != digest.hexdigest():
        what = f"{draft}: the bytes read back differ from those written."
        raise SystemFailure("write_failed", f"{what} {NOT_MADE} Check the disk, then try again.")
    return NewSession(path, size, digest.hexdigest())

"""The rows of a session: found by its path, written by one indexing at a time. Nothing here reads a session."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import filelock
from django.conf import settings
from django.db import connection, transaction

from ..files import file_state, reported
from ..models import Entry, Root, Session
from ..sessionlog.errors import BadInput, Conflict, RedlineError
from ..sessionlog.jsjson import well_formed
from .roots import root_for

BATCH: Final = 1_000
"""Rows written in one transaction."""
INDEX_LOCKS: Final = 256
"""Lock files that the sessions share, so that their number stays bounded."""
LOCK_SECONDS: Final = 600
"""How long an indexing waits for another one of the same session, which may have gigabytes to read."""
SETTLED: Final = (
    "header_id version cwd name first_user_message title leaf_id provider model read_as window window_source "
    "reserve_tokens size entry_count damage_count damage compaction_count context_tokens context_source overflow "
    "last_used mtime_ns indexed_at missing fault schema fingerprint state"
).split()
"""What a reading finds out. All else of a session's row is somebody's decision, and may change meanwhile."""
_INSERT: Final = (
    "INSERT INTO sessions_app_entry"
    ' (session_id, number, "offset", length, entry_id, parent_id, digest)'
    " VALUES (%s, %s, %s, %s, %s, %s, %s)"
)


def demand_name(path: Path) -> None:
    """Raise BadInput `unusable_name` if a path cannot be kept in the database."""
    if not str(path).isascii() and well_formed(str(path)) != str(path):
        raise BadInput(
            "unusable_name",
            f"The name of {path} is not UTF-8. Nothing was done with it. Give it another name.",
        )


def session_row(path: Path) -> Session:
    """The row of the file at a real path, made if there is none; the file is not read.

    Raises BadInput `unusable_name`.
    """
    session, _ = find_row(path)
    return session


def find_row(path: Path) -> tuple[Session, bool]:
    """The row of the file at a real path in the innermost root that holds it, and whether it was made just now.

    A row that it had in an outer root moves there, with everything that hangs on it.
    """
    demand_name(path)
    root, below = root_for(path.parent)
    place: dict[str, Any] = {"root": root, "relative_path": str(below / path.name)}
    session = Session.objects.filter(**place).first()
    if session is not None:
        return session, False
    for outer in Root.objects.exclude(pk=root.pk):
        if path.is_relative_to(outer.path):
            relative = str(path.relative_to(outer.path))
            if Session.objects.filter(root=outer, relative_path=relative).update(**place):
                break
    return Session.objects.get_or_create(**place)


def remember_own_write(path: Path, size: int) -> None:
    """Keep in mind that the last write to a session was Redline's, so that it does not count as live.

    `size` is what the session then has; where it has another, someone else has written to it since.
    """
    state = file_state(path)
    own = state.mtime_ns if state is not None and state.size == size else None
    Session.objects.filter(pk=session_row(path).pk).update(own_write_ns=own)


def keep_fault(session: Session, fault: RedlineError) -> None:
    """Keep with a session why it could not be read."""
    Session.objects.filter(pk=session.pk).update(fault=fault.message, missing=fault.code == "no_such_file")


def lost_below(
    directory: Path, known: Iterable[tuple[int, Path]], seen: set[int], unlisted: Iterable[Path] = ()
) -> list[int]:
    """The keys of sessions below a directory that were not seen there, unless they lie where nobody could look.

    All paths are real. `known` was asked for before the look: what is new since is not lost.
    """
    below = str(directory / "_")[:-1]
    hidden = tuple(str(path / "_")[:-1] for path in unlisted)
    return [
        key
        for key, path in known
        if key not in seen and (place := str(path)).startswith(below) and not place.startswith(hidden)
    ]


def known_paths() -> list[tuple[int, Path]]:
    """Keys and real paths of all sessions that are not known to be gone."""
    known = Session.objects.filter(missing=False).values_list("pk", "root__path", "relative_path")
    return [(key, Path(root, relative)) for key, root, relative in known.iterator()]


def mark_missing(keys: Sequence[int]) -> None:
    """Keep in mind that the files of these sessions are gone."""
    for start in range(0, len(keys), BATCH):
        Session.objects.filter(pk__in=keys[start : start + BATCH]).update(missing=True)


@contextmanager
def only_indexer(path: Path) -> Iterator[None]:
    """Keeps every other process and thread from indexing the session at `path` meanwhile; readers go on.

    It is no lock on the session itself, and is held within that one where both are. Raises Conflict `being_indexed`
    where another indexing takes more than LOCK_SECONDS, and SystemFailure.
    """
    locks = settings.REDLINE_DATA_DIR / "locks"
    place = zlib.crc32(os.fsencode(path)) % INDEX_LOCKS
    lock = filelock.FileLock(locks / f"index-{place}.lock", thread_local=False)
    with reported(locks, f"{path} was not indexed."):
        locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=LOCK_SECONDS, poll_interval=0.02)
        except filelock.Timeout as busy:
            message = f"{path} is being indexed by another Redline process. It was not read. Try again soon."
            raise Conflict("being_indexed", message) from busy
    try:
        yield
    finally:
        lock.release()


# ---- what an indexing writes -------------------------------------------------------------------------------


def insert_entries(rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows of entries, at most BATCH: the columns of `_INSERT`."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(_INSERT, rows)


def remove_entries(session: Session, number: int) -> None:
    """Remove a session's entries from a number on, the last ones first, so that a kill leaves no gap."""
    rows = Entry.objects.filter(session=session, number__gte=number)
    while numbers := list(rows.order_by("-number").values_list("number", flat=True)[: 10 * BATCH]):
        rows.filter(number__gte=numbers[-1]).delete()


def settle(session: Session) -> None:
    """Write what a reading found out, and nothing else of the row."""
    found = {name: getattr(session, name) for name in SETTLED}
    Session.objects.filter(pk=session.pk).update(**found)

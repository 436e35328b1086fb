"""Locking a session: with the configured wait, and with what a killed process left recorded first.

What an interrupted step means for the database is known to whoever made it: a settler, added by `add_settler`, is
called with every lock before anything else happens under it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from django.conf import settings
from django.utils.module_loading import import_string

from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sqlite import left_out_if_busy
from sessions_app.storage.locks import LockedSession, intent_path, interrupted_sessions, session_lock

logger = logging.getLogger("redline")

Settle = Callable[[LockedSession], object]
Unsettled = Callable[[], Iterable[Path]]

_settlers: Final[list[tuple[str, str]]] = []


def add_settler(settle: str, unsettled: str) -> None:
    """Add the dotted paths of a Settle, which is called with every lock, and of an Unsettled, which lists sessions that
    it has something to settle for. They are imported when a session is locked: most commands lock none."""
    if (settle, unsettled) not in _settlers:
        _settlers.append((settle, unsettled))


@contextmanager
def lock_session(path: Path, seconds: float | None = None) -> Iterator[LockedSession]:
    """The lock on a session; waits as long as is configured, or `seconds`. Raises what `session_lock` raises."""
    wait = settings.REDLINE.lock_seconds if seconds is None else seconds
    with session_lock(settings.REDLINE_DATA_DIR, path, wait, _settle) as locked:
        yield locked


def _settle(locked: LockedSession) -> None:
    for settler, _ in _settlers:
        settle: Settle = import_string(settler)
        settle(locked)


def settle_interrupted() -> None:
    """Record what killed processes left, of every session that nobody has locked right now."""
    listed: list[Path] = []
    for _, lister in _settlers:
        unsettled: Unsettled = import_string(lister)
        listed += unsettled()
    for path in dict.fromkeys([*interrupted_sessions(settings.REDLINE_DATA_DIR), *listed]):
        settle_session(path)


def settle_session(path: Path) -> None:
    """Record what a killed process left of one session, unless somebody has it locked: then a step is under way.

    What cannot be recorded now is logged, and stays for the next lock: it keeps nobody from looking at anything, and
    waits for nobody who writes to the database.
    """
    try:
        with left_out_if_busy(f"What an interrupted step left of {path}"), lock_session(path, 0):
            pass
    except RedlineError as fault:
        if fault.code != "session_locked":
            logger.warning("what an interrupted step left was not settled: %s", fault.message)


def is_interrupted(path: Path) -> bool:
    """Whether a step on a session, by its real path, is under way or was interrupted."""
    return intent_path(settings.REDLINE_DATA_DIR, path).exists()

"""Locking a session: with the configured timeout, and after completing the steps of killed processes. And the sessions
that agents have open now, according to their locks and registers.

Only the code that made a step knows its effect on the database. It adds a settler with `add_settler`, which is called
under every lock before anything else.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db.models import Q
from django.utils.module_loading import import_string

from sessions_app.agents.registry import AGENTS
from sessions_app.database.sqlite import left_out_if_busy
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.locks import LockedSession, intent_path, interrupted_sessions, session_lock

logger = logging.getLogger("redline")

Settle = Callable[[LockedSession], object]
Unsettled = Callable[[], Iterable[Path]]

_settlers: Final[list[tuple[str, str]]] = []


def add_settler(settle: str, unsettled: str) -> None:
    """Add the dotted paths of a Settle, which is called under every lock, and of an Unsettled, which lists sessions to
    settle. They are imported when a session is locked, because most commands lock none."""
    if (settle, unsettled) not in _settlers:
        _settlers.append((settle, unsettled))


@contextmanager
def lock_session(path: Path, seconds: float | None = None) -> Iterator[LockedSession]:
    """The lock on a session; waits for the configured time, or `seconds`. Raises the errors of `session_lock`."""
    wait = settings.REDLINE.lock_seconds if seconds is None else seconds
    with session_lock(settings.REDLINE_DATA_DIR, path, wait, _settle) as locked:
        yield locked


def _settle(locked: LockedSession) -> None:
    for settler, _ in _settlers:
        settle: Settle = import_string(settler)
        settle(locked)


def settle_interrupted() -> None:
    """Complete the steps of killed processes, for every session that is not locked."""
    listed: list[Path] = []
    for _, lister in _settlers:
        unsettled: Unsettled = import_string(lister)
        listed += unsettled()
    for path in dict.fromkeys([*interrupted_sessions(settings.REDLINE_DATA_DIR), *listed]):
        settle_session(path)


def settle_session(path: Path) -> None:
    """Complete the step of a killed process on one session, unless the session is locked: then a step is in progress.

    Errors are logged, and the step stays for the next lock: reading is not prevented, and other database writers are
    not waited for.
    """
    try:
        with left_out_if_busy(f"The interrupted step on {path}"), lock_session(path, 0):
            pass
    except RedlineError as fault:
        if fault.code != "session_locked":
            logger.warning("An interrupted step was not settled: %s", fault.message)


def is_interrupted(path: Path) -> bool:
    """Whether a step on a session, by its real path, is in progress or was interrupted."""
    return intent_path(settings.REDLINE_DATA_DIR, path).exists()


# ---- what agents have open -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSessions:
    """The sessions that agents certainly have open."""

    agents: Mapping[tuple[str, str], str]
    """The name of the agent, by the path of the root and the header id of the session."""

    @property
    def query(self) -> Q:
        places = (Q(root__path=path, header_id=session_id) for path, session_id in self.agents)
        return reduce(or_, places, Q(pk__in=()))

    def agent_of(self, session: Session) -> str:
        """The name of the agent that has a session open; empty if none is known to."""
        return self.agents.get((session.root.path, session.header_id), "")


def open_sessions(roots: Iterable[tuple[str, str]]) -> OpenSessions:
    """The sessions that are open now in these roots, each given as its path and the key of its agent, if it has one."""
    return OpenSessions(
        {
            (path, session_id): agent.label
            for path, key in roots
            for agent in ([AGENTS[key]] if key in AGENTS else AGENTS.values())
            for session_id in agent.store.open_sessions(Path(path))
        }
    )

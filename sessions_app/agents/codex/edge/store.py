"""EDGE: the rollouts of Codex."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from sessions_app.agents.store import OpenElsewhere, Store
from sessions_app.storage.discovery import Discovery, discover
from sessions_app.storage.files import SESSION_SUFFIX, SessionReader
from sessions_app.storage.held_locks import is_locked

from .chained_file import RolloutReader, threads_based_on
from .directories import ARCHIVED, COMPRESSED_SUFFIX, SESSIONS
from .settings import DIRECTORY, home_directory
from .writer_lock import lock_of, open_threads, writer_lock

_FIRST_LINE: Final = re.compile(rb'"type"\s*:\s*"session_meta"')
_BEFORE_TYPE: Final = 200
"""No more bytes come before the type of the first line."""


class CodexStore(Store):
    is_append_only = True
    """The client's own history, and threads that are based on one, name positions in a file."""

    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        directory = home_directory(Path("~"), environment)
        return str(directory / SESSIONS), str(directory / ARCHIVED)

    def owns(self, path: Path) -> bool:
        return DIRECTORY in path.parts

    def recognises(self, head: bytes) -> bool:
        return _FIRST_LINE.search(head, 0, _BEFORE_TYPE) is not None

    def discover(self, root: Path) -> Discovery:
        """Compressed sessions, too, which say how they are opened."""
        return discover(root, (SESSION_SUFFIX, COMPRESSED_SUFFIX))

    def open(self, path: Path) -> SessionReader:
        return RolloutReader(path)

    def open_elsewhere(self, path: Path) -> OpenElsewhere | None:
        lock = lock_of(path)
        held = lock is not None and is_locked(lock)
        if held is None:
            return OpenElsewhere("may be open in Codex: nothing shows whether its lock is held", is_certain=False)
        return OpenElsewhere("is open in Codex") if held else None

    def open_sessions(self, root: Path) -> set[str]:
        return set(open_threads(root))

    def write_lock(self, path: Path) -> AbstractContextManager[object]:
        return writer_lock(path)

    def sessions_based_on(self, path: Path) -> Sequence[Path]:
        return threads_based_on(path)

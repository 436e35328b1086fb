"""EDGE: what OpenCode 2 has taken over of a database. Its sessions are not read yet.

    session_v2         its sessions: those that it imported, under their old ids, and its own
    session_message    their messages; OpenCode 1.18 has an empty table of this name, which previews of OpenCode 2 used
    kv                 migration.v1-v2: {"phase": "sessions", "cursor": …} during the import, {"phase": "completed"}

It imports the sessions of OpenCode 1 once, and leaves their rows as they are: from then on, each version changes its
own rows only. A database that OpenCode 2 made has no rows of OpenCode 1.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from sessions_app.agents.opencode.pure.lines import SESSION
from sessions_app.agents.pure import fields

_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_OWN: Final = "session_v2"
_STATE: Final = "SELECT CAST(value AS BLOB) FROM kv WHERE key = 'migration.v1-v2'"


class Owner(IntEnum):
    """The version of OpenCode that continues a session."""

    FIRST = 0
    """OpenCode 1; OpenCode 2 was never started with this database."""
    SECOND = 1
    """OpenCode 2, which has its own rows of it."""
    LEFT = 2
    """Only OpenCode 1, although OpenCode 2 uses the database: it is not imported any more."""
    WAITING = 3
    """OpenCode 2 is to import it."""


MARKS: Final = {
    Owner.FIRST: "",
    Owner.SECOND: "taken over by OpenCode 2",
    Owner.LEFT: "not in OpenCode 2",
    Owner.WAITING: "to be taken over by OpenCode 2",
}
"""What a list says of a session."""
SENTENCES: Final = {
    Owner.FIRST: "",
    Owner.SECOND: (
        "OpenCode 2 has taken this session over, and this version of Redline does not read the sessions of OpenCode 2. "
        "What is shown is how OpenCode 1 left it; the model may see something else now. Nothing is written to it: "
        "OpenCode 2 would not see that."
    ),
    Owner.LEFT: (
        "OpenCode 2 has taken over this database and imports nothing more, so it does not have this session. Nothing "
        "is written to it: only OpenCode 1 would see that."
    ),
    Owner.WAITING: (
        "OpenCode 2 has begun to take over this database, and is to import this session. Nothing is written to it "
        "meanwhile."
    ),
}
"""What it means for a session, and for whoever wants to change it."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """What OpenCode 2 has of a database, as a transaction sees it."""

    connection: sqlite3.Connection
    tables: frozenset[object]

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> Self:
        return cls(connection, frozenset(name for (name,) in connection.execute(_TABLES)))

    @property
    def has_older(self) -> bool:
        """Whether there are rows of OpenCode 1. A database with neither is asked for them, and so refused."""
        return SESSION in self.tables or self._ids is None

    def session_ids(self) -> set[object]:
        """The ids of the sessions of OpenCode 2, which may be anything in a damaged database."""
        if self._ids is None:
            return set()
        table, column = self._ids
        return {row_id for (row_id,) in self.connection.execute(f"SELECT DISTINCT {column} FROM {table}")}  # noqa: S608  # constants

    def owner(self, session_id: str) -> Owner:
        """The version that continues a session of OpenCode 1."""
        if self._ids is None:
            return Owner.FIRST
        table, column = self._ids
        found = self.connection.execute(f"SELECT 1 FROM {table} WHERE {column} = ? LIMIT 1", (session_id,))  # noqa: S608  # constants
        return Owner.SECOND if found.fetchone() is not None else self.owner_of_others()

    def owner_of_others(self) -> Owner:
        """The version that continues the sessions of OpenCode 1 that are not among those of OpenCode 2."""
        if _OWN not in self.tables:
            return Owner.FIRST
        state = self.connection.execute(_STATE).fetchone() if "kv" in self.tables else None
        return Owner.LEFT if state is not None and _phase(bytes(state[0] or b"")) == "completed" else Owner.WAITING

    @property
    def _ids(self) -> tuple[str, str] | None:
        """The table and the column with the ids of its sessions; None if it has none."""
        places = ((_OWN, "id"), ("session_message", "session_id"))
        return next((place for place in places if place[0] in self.tables), None)


def _phase(state: bytes) -> object:
    return (fields.object_in(state) or {}).get("phase")

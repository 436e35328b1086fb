"""EDGE: the lines of a session as rows of a database that a client made for a session of its own.

The rows take the place of those of the client's session, so that everything else is as its version has it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sessions_app.sessionlog.jsjson import parse, stringify
from sessions_app.sessionlog.lines import split_lines

MODEL: Final = ("redline", "model")
"""The provider and the model of a session that names none."""
TITLE: Final = "A copy"
"""A title of its own: the client does not ask a model for one."""


class SessionRows:
    """The messages and parts of a session, in their order, and what it says of itself."""

    def __init__(self, content: Iterable[bytes]) -> None:
        self.model = MODEL
        """The provider and the model of the latest message."""
        self._messages: list[tuple[str, str]] = []
        self._parts: list[tuple[str, str, str]] = []
        self._revert: str | None = None
        for line in split_lines(content):
            self._add(line.raw)

    def insert(self, database: Path) -> str:
        """Put the rows in place of those of the only session; returns its id. Raises sqlite3.Error."""
        with closing(sqlite3.connect(database)) as connection, connection:
            ((session_id,),) = connection.execute("SELECT id FROM session")
            connection.execute("DELETE FROM part")
            connection.execute("DELETE FROM message")
            connection.execute("UPDATE session SET title = ?, revert = ?", (TITLE, self._revert))
            connection.executemany(
                "INSERT INTO message (id, session_id, time_created, time_updated, data) VALUES (?, ?, ?, ?, ?)",
                ((row_id, session_id, at, at, data) for at, (row_id, data) in enumerate(self._messages, 1)),
            )
            connection.executemany(
                "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)"
                " VALUES (?, ?, ?, 1, 1, ?)",
                ((row_id, message_id, session_id, data) for row_id, message_id, data in self._parts),
            )
        return str(session_id)

    def _add(self, raw: bytes) -> None:
        try:
            row = parse(raw)
        except ValueError:
            return
        data = row.get("data") if isinstance(row, dict) else None
        if not isinstance(data, dict):
            return
        recorded = stringify(data)
        match row.get("type"):
            case "message":
                self._messages.append((str(row.get("id")), recorded))
                self.model = _model(data) or self.model
            case "part":
                self._parts.append((str(row.get("id")), str(row.get("message")), recorded))
            case "revert":
                self._revert = recorded


def _model(message: Mapping[str, Any]) -> tuple[str, str] | None:
    """The model of a message: a user's names it in an object, an assistant's in fields of its own."""
    named = message.get("model")
    model = named if isinstance(named, dict) else message
    found = model.get("providerID"), model.get("modelID")
    return (str(found[0]), str(found[1])) if all(isinstance(one, str) for one in found) else None

"""Hand-written sessions of OpenCode: rows in a database with the columns that matter, or documents."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SCHEMA: Final = """
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text, directory text NOT NULL,
    title text NOT NULL, version text NOT NULL, share_url text, revert text, time_created integer NOT NULL,
    time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
    time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE INDEX message_session ON message (session_id, time_created, id);
CREATE INDEX part_message ON part (message_id, id);
CREATE INDEX part_session ON part (session_id);
"""
SECOND: Final = """
CREATE TABLE IF NOT EXISTS session_v2 (id text PRIMARY KEY, project_id text NOT NULL, directory text NOT NULL,
    title text, version text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE IF NOT EXISTS session_message (id text PRIMARY KEY, session_id text NOT NULL, type text NOT NULL,
    seq integer NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE IF NOT EXISTS kv (key text PRIMARY KEY, value text NOT NULL, time_created integer NOT NULL,
    time_updated integer NOT NULL);
"""
"""What OpenCode 2 adds to a database."""
MODEL: Final = {"providerID": "scripted", "modelID": "model"}
START: Final = 1_790_000_000_000
PICTURE: Final = "data:image/png;base64,aGk="


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def reasoning(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "reasoning", "text": words, **fields}


def tool(call_id: str, output: str = "done", **state: Any) -> dict[str, Any]:
    """A tool part that is completed, unless the state says otherwise."""
    found = {
        "status": "completed",
        "input": {"command": f"run {call_id}"},
        "output": output,
        "time": {"start": START, "end": START + 1},
        **state,
    }
    return {"type": "tool", "tool": "bash", "callID": call_id, "state": found}


@dataclass
class OpenCodeStore:
    """A database in a data directory of OpenCode. Ids and times are counted, so that they are always the same."""

    directory: Path
    name: str = "opencode.db"
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA)

    @property
    def database(self) -> Path:
        return self.directory / self.name

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.database, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")  # nothing here has to survive a power cut
        connection.row_factory = sqlite3.Row
        return connection

    def run(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a statement."""
        with closing(self.connect()) as connection:
            return [dict(row) for row in connection.execute(statement, values)]

    def session(self, session_id: str = "ses_1", **columns: Any) -> Path:
        """A new session; returns its path."""
        row = {
            "id": session_id,
            "project_id": "project",
            "directory": "/home/dev/project",
            "title": "A title",
            "version": "1.18.33",
            "time_created": START,
            "time_updated": START,
            **columns,
        }
        self._insert("session", row)
        return self.database / session_id

    def user(self, *parts: Mapping[str, Any] | str, session_id: str = "ses_1", **data: Any) -> str:
        """A message of the user; a string is a text. Returns its id."""
        return self._message(session_id, {"role": "user", "model": MODEL, **data}, parts)

    def assistant(self, *parts: Mapping[str, Any] | str, session_id: str = "ses_1", **data: Any) -> str:
        """A finished reply."""
        found = {"role": "assistant", "finish": "stop", "tokens": {"total": 900}, **MODEL, **data}
        return self._message(session_id, found, parts)

    def part(self, message_id: str, data: object, session_id: str = "ses_1") -> str:
        number = next(self._numbers)
        row_id = f"prt_{number:04}"
        row = {"id": row_id, "message_id": message_id, "session_id": session_id, **_times(number)}
        self._insert("part", {**row, "data": data if isinstance(data, str) else json.dumps(data)})
        return row_id

    def parts(self) -> list[dict[str, Any]]:
        return self.run("SELECT * FROM part ORDER BY id")

    def take_over(self, *session_ids: str, phase: str = "completed") -> None:
        """Have OpenCode 2 take over these sessions, or make them, each with a message. An import that is over is in the
        phase `completed`; without a phase, none has begun."""
        with closing(self.connect()) as connection:
            connection.executescript(SECOND)
            connection.execute("DELETE FROM kv")
            if phase:
                state = json.dumps({"phase": phase})
                connection.execute("INSERT INTO kv VALUES ('migration.v1-v2', ?, ?, ?)", (state, START, START))
        for session_id in session_ids:
            row = {"id": session_id, "project_id": "project", "directory": "/home/dev/project", "version": "2.0.16"}
            self._insert("session_v2", {**row, "time_created": START, "time_updated": START})
            number = next(self._numbers)
            said = {"id": f"msg_{number:04}", "session_id": session_id, "type": "user", "seq": 1, **_times(number)}
            self._insert("session_message", {**said, "data": '{"text": "More."}'})

    def drop_older(self) -> None:
        """Remove what OpenCode 2 does not make: the tables of OpenCode 1."""
        for table in ("part", "message", "session"):
            self.run(f"DROP TABLE {table}")

    def drop_keys(self) -> None:
        """Rebuild the tables without keys and constraints, so that any damage can be written."""
        for table in ("session", "message", "part"):
            self.run(f"CREATE TABLE copy AS SELECT * FROM {table}")  # noqa: S608  # our tables
            self.run(f"DROP TABLE {table}")
            self.run(f"ALTER TABLE copy RENAME TO {table}")

    def _message(self, session_id: str, data: Mapping[str, Any], parts: Any) -> str:
        number = next(self._numbers)
        row_id = f"msg_{number:04}"
        recorded = {"time": {"created": START + number}, **data}
        row = {"id": row_id, "session_id": session_id, **_times(number), "data": json.dumps(recorded)}
        self._insert("message", row)
        for part in parts:
            self.part(row_id, text(part) if isinstance(part, str) else part, session_id)
        return row_id

    def _insert(self, table: str, row: Mapping[str, Any]) -> None:
        places = ", ".join("?" * len(row))
        self.run(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", *row.values())  # noqa: S608  # our tables


def _times(number: int) -> dict[str, int]:
    return {"time_created": START + number, "time_updated": START + number}


def worked_session(store: OpenCodeStore, turns: int = 3, session_id: str = "ses_1") -> Path:
    """A session of several turns, each with thinking, two calls and a reply."""
    path = store.session(session_id)
    for turn in range(turns):
        store.user(f"Do step {turn}.", session_id=session_id)
        store.assistant(
            {"type": "step-start"},
            reasoning(f"Thinking of {turn}. " * 4),
            text(f"I will do {turn}."),
            tool(f"c{turn}a", f"output {turn} a\n" * 40),
            tool(f"c{turn}b", f"output {turn} b\n" * 40),
            {"type": "step-finish", "reason": "tool-calls"},
            session_id=session_id,
            finish="tool-calls",
        )
        store.assistant(text(f"Step {turn} is done."), session_id=session_id)
    return path


def documents(directory: Path, store: OpenCodeStore, session_id: str = "ses_1") -> Path:
    """The session of a database as documents of the older store below a directory; returns its path."""
    (session,) = store.run("SELECT * FROM session WHERE id = ?", session_id)
    path = directory / "storage" / "session" / "project" / f"{session_id}.json"
    _write(path, {"id": session_id, "directory": session["directory"], "title": session["title"]})
    for row in store.run("SELECT * FROM message WHERE session_id = ?", session_id):
        place = directory / "storage" / "message" / session_id / f"{row['id']}.json"
        _write(place, {"id": row["id"], "sessionID": session_id, **json.loads(row["data"])})
    for row in store.run("SELECT * FROM part WHERE session_id = ?", session_id):
        place = directory / "storage" / "part" / row["message_id"] / f"{row['id']}.json"
        _write(place, {"id": row["id"], "messageID": row["message_id"], **json.loads(row["data"])})
    return path


def _write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")

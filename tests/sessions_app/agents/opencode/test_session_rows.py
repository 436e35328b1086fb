"""The lines of a session as rows of a database that a client made."""

import json
import sqlite3
from contextlib import closing
from typing import Any

from sessions_app.agents.opencode.session_rows import MODEL, SessionRows

SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, title text NOT NULL, revert text);
CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, time_updated integer, data text);
CREATE TABLE part
  (id text PRIMARY KEY, message_id text, session_id text, time_created integer, time_updated integer, data text);
INSERT INTO session (id, title) VALUES ('ses_own', 'New session');
INSERT INTO message VALUES ('msg_own', 'ses_own', 5, 5, '{}');
INSERT INTO part VALUES ('prt_own', 'msg_own', 'ses_own', 5, 5, '{}');
"""


def lines(*rows: dict[str, Any]) -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in rows]


def test_the_rows_take_the_place_of_those_of_the_clients_session(tmp_path):
    database = tmp_path / "opencode.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(SCHEMA)
    user = {"role": "user", "model": {"providerID": "p", "modelID": "old"}}
    assistant = {"role": "assistant", "providerID": "p", "modelID": "new"}
    text, revert = {"type": "text", "text": "go é"}, {"messageID": "msg_1"}
    recorded = lines(
        {"type": "session", "id": "ses_1", "data": {"title": "Mine"}},
        {"type": "message", "id": "msg_2", "data": user},
        {"type": "part", "id": "prt_1", "message": "msg_2", "data": text},
        {"type": "message", "id": "msg_1", "data": assistant},
        {"type": "revert", "data": revert, "after": "prt_1"},
        {"type": "message", "id": "msg_3", "data": 7},
    )
    rows = SessionRows([*recorded, b'{"type":"message",'])
    assert rows.model == ("p", "new")
    assert rows.insert(database) == "ses_own"
    with closing(sqlite3.connect(database)) as connection:
        ordered = connection.execute("SELECT id, session_id, data FROM message ORDER BY time_created").fetchall()
        parts = connection.execute("SELECT id, message_id, session_id, data FROM part").fetchall()
        ((title, reverted),) = connection.execute("SELECT title, revert FROM session")
    expected = [("msg_2", "ses_own", user), ("msg_1", "ses_own", assistant)]
    assert [(row_id, session, json.loads(data)) for row_id, session, data in ordered] == expected
    assert [(*ids, json.loads(data)) for *ids, data in parts] == [("prt_1", "msg_2", "ses_own", text)]
    assert title != "New session"
    assert json.loads(reverted) == revert


def test_a_session_without_messages_has_a_model():
    assert SessionRows([]).model == MODEL

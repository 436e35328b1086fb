"""EDGE: a running OpenCode server on this machine: parts of one session are changed through its HTTP interface.

    GET    /global/health                      {"version": "1.18.33", …}
    GET    /api/info                           {"version": "2.0.16", …}; only OpenCode 2, which has none of the others
    GET    /session/status                     {"ses_1": {"type": "busy"}}; an idle session is not in it
    GET    /session/ses_1                      {"id": "ses_1", "time": {"created": …}, …}
    GET    /session/ses_1/message/msg_1        {"info": {"id": "msg_1", …}, "parts": [{"id": "prt_1", …}, …]}
    PATCH  /session/ses_1/message/msg_1/part/prt_1    changes a part, or makes it again: the body is the whole part
    DELETE /session/ses_1/message/msg_1/part/prt_1    true, also if there is none

A part is written with the fields that the server knows, and shown with the same ones: what it shows of a part is what
it would keep. Older servers show all that a row has, and lose it when they write: they are not used. A write sets
`time_updated`, and `time_created` of a part that is made again. Messages cannot be changed.

The password is that of the client's own environment variables. It is sent only after the process that listens at the
configured address was found to be the only other one that has the session's database open.
"""

import base64
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from sessions_app.agents.opencode.pure.lines import PART, SESSION
from sessions_app.agents.pure import fields
from sessions_app.disk.agent_database import bytes_of, opened_database, read_row
from sessions_app.disk.files import file_state
from sessions_app.disk.loopback import LoopbackAddress, is_listening
from sessions_app.disk.open_files import writers_of
from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure
from sessions_app.sessionlog.jsjson import canonical, json_bytes, parse, stringify

PASSWORD_VARIABLE: Final = "OPENCODE_SERVER_PASSWORD"  # noqa: S105  # a name
USER_VARIABLE: Final = "OPENCODE_SERVER_USERNAME"
USER: Final = "opencode"
SECONDS: Final = 20.0
"""The timeout of a request, in seconds."""
ANSWER_LIMIT: Final = 1 << 28
"""The maximum number of bytes read of an answer."""
PIECE: Final = 1 << 16
IDLE: Final = "idle"
OLDEST: Final = (1, 18, 33)
"""The first version known to show only the fields of a part that it would keep."""
OTHER_INTERFACE: Final = (2,)
_VERSION: Final = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?![\d.])")
_TIMES: Final = frozenset({"time_created", "time_updated"})
_COLUMNS: Final = frozenset({"id", "sessionID", "messageID"})
"""The fields of a shown part that are columns of its row."""
_UNCHANGED: Final = "Nothing was written."
_OTHER_WAYS: Final = "Close OpenCode first, so that the rows themselves are changed, or save a new session as a fork."

PartRow = Mapping[str, Any]


def is_same_row(one: PartRow | None, other: PartRow | None) -> bool:
    """Whether two rows mean the same to the client: their times, and the formatting of their JSON, do not count."""
    if one is None or other is None:
        return one is other
    if one.keys() != other.keys():
        return False
    others = one.keys() - _TIMES - {"data"}
    return all(one[name] == other[name] for name in others) and _is_same_json(one.get("data"), other.get("data"))


@dataclass(frozen=True)
class OpenCodeServer:
    """The server at an address, for the session at a path."""

    location: LoopbackAddress
    path: Path

    @property
    def address(self) -> str:
        return str(self.location)

    def is_alone(self) -> bool:
        """Whether the process that listens at the address is the only other one that has the database open."""
        state = file_state(self.path.parent)
        writers = writers_of(state) if state is not None else ()
        return len(writers) == 1 and is_listening(writers[0].pid, self.location)

    def changes(self, table: str) -> bool:
        return table == PART

    def require_ready(self, connection: sqlite3.Connection, rows: Iterable[PartRow]) -> None:
        if not self.is_alone():
            raise Conflict(
                "open_in_agent",
                f"The server at {self.address} is not, or no longer, the only process that has {self.path.parent} "
                f"open. {_UNCHANGED} Close the others, or save a new session as a fork.",
            )
        self._require_version()
        session = read_row(connection, SESSION, self.path.name) or {}
        shown = fields.as_mapping(self._call("GET", ""))
        created = fields.mapping(shown, "time").get("created")
        if shown.get("id") != self.path.name or created != session.get("time_created"):
            raise self._other("session", self.path.name)
        if fields.text(fields.mapping(self._statuses(), self.path.name), "type") not in ("", IDLE):
            raise self._busy()
        by_message: dict[str, list[PartRow]] = {}
        for row in rows:
            by_message.setdefault(row["message_id"], []).append(row)
        for message_id, parts in by_message.items():
            self._require_kept(connection, message_id, parts)

    def require_answer(self) -> None:
        self._statuses()

    def write(self, row: PartRow) -> None:
        """Write a part with the data of its row."""
        part = {
            **(_document(row["data"]) or {}),
            "id": row["id"],
            "sessionID": row["session_id"],
            "messageID": row["message_id"],
        }
        self._call("PATCH", _place(row), json_bytes(part))

    def delete(self, row: PartRow) -> None:
        self._call("DELETE", _place(row))

    def _require_version(self) -> None:
        version = self._version()
        numbers = _VERSION.match(version)
        if numbers is None or not OLDEST <= tuple(map(int, numbers.groups())) < OTHER_INTERFACE:
            raise BadInput(
                "server_version",
                f"The server at {self.address} is OpenCode {version[:40] or 'of an unknown version'}. Only those from "
                f"{'.'.join(map(str, OLDEST))} on, and before 2, are used: older ones do not show what they would keep "
                f"of a part, and OpenCode 2 has another interface. {_UNCHANGED} {_OTHER_WAYS}",
            )

    def _version(self) -> str:
        try:
            return fields.text(fields.as_mapping(self._call("GET", "/global/health", is_whole=True)), "version")
        except (Conflict, SystemFailure) as fault:
            if fault.code not in ("other_database", "not_understood"):
                raise
            status, content = self._answer("GET", "/api/info", None)
            info = _document(content.decode("utf-8", "surrogateescape")) if status == HTTPStatus.OK else None
            if info is None:
                raise
            return fields.text(info, "version")

    def _statuses(self) -> Mapping[str, Any]:
        """The state of each working session, by its id."""
        statuses = self._call("GET", "/session/status", is_whole=True)
        if not isinstance(statuses, Mapping):
            raise self._not_understood("the status of its sessions")
        return statuses

    def _require_kept(self, connection: sqlite3.Connection, message_id: str, rows: Iterable[PartRow]) -> None:
        """Raise Conflict unless the server shows a message with all its parts, and these rows with all their fields."""
        shown = fields.as_mapping(self._call("GET", f"/message/{quote(message_id, safe='')}"))
        listed = shown.get("parts")
        if not isinstance(listed, list):
            raise self._not_understood(f"the message {message_id}")
        parts = {part["id"]: part for part in fields.objects(shown, "parts") if isinstance(part.get("id"), str)}
        recorded = connection.execute("SELECT id FROM part WHERE message_id = ?", (message_id,))
        is_same = fields.mapping(shown, "info").get("id") == message_id
        if not is_same or parts.keys() != {row_id for (row_id,) in recorded}:
            raise self._other("message", message_id)
        for row in rows:
            part = {name: value for name, value in parts[row["id"]].items() if name not in _COLUMNS}
            if not _is_same_json(row["data"], stringify(part)):
                raise Conflict(
                    "not_kept",
                    f"The part {row['id']} in {self.path.parent} has fields that the server at {self.address} does not "
                    f"know and would lose. {_UNCHANGED} {_OTHER_WAYS}",
                )

    @cached_property
    def _directory(self) -> str:
        """The directory of the session; without it, the server answers for the directory in which it was started."""
        with opened_database(self.path.parent, "It was not read.") as connection:
            return fields.text(read_row(connection, SESSION, self.path.name) or {}, "directory")

    def _call(self, method: str, place: str, body: bytes | None = None, *, is_whole: bool = False) -> Any:
        """The document of an answer. `place` is below the session unless it `is_whole`.

        Raises SystemFailure `server_unreachable`, `server_failed` and `not_understood`, BadInput `server_password`,
        Conflict `session_busy` and `other_database`.
        """
        target = place if is_whole else f"/session/{self.path.name}{place}"
        query = urlencode({"directory": self._directory}, errors="surrogateescape")
        status, content = self._answer(method, f"{target}?{query}", body)
        if status == HTTPStatus.UNAUTHORIZED:
            raise BadInput(
                "server_password",
                f"The server at {self.address} refused the password. {_UNCHANGED} Start Redline with the server's own "
                f"{PASSWORD_VARIABLE} (and {USER_VARIABLE}, if it has one) in its environment.",
            )
        if status == HTTPStatus.CONFLICT:
            raise self._busy()
        if status == HTTPStatus.NOT_FOUND:
            raise self._other("session or message", self.path.name)
        if status != HTTPStatus.OK:
            raise SystemFailure(
                "server_failed",
                f"The server at {self.address} answered {method} {target} with the status {status}. {_UNCHANGED} "
                f"{_OTHER_WAYS}",
            )
        try:
            return parse(content)
        except ValueError as fault:
            raise self._not_understood(f"{method} {target}") from fault

    def _answer(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        deadline = time.monotonic() + SECONDS
        # Imported here: every command loads this module, and hardly one of them calls a server.
        from http.client import HTTPConnection, HTTPException

        connection = HTTPConnection(self.location.host, self.location.port, timeout=SECONDS)
        try:
            connection.request(method, target, body, _headers())
            answer = connection.getresponse()
            content = bytearray()
            while piece := answer.read1(PIECE):
                content += piece
                if len(content) > ANSWER_LIMIT or time.monotonic() > deadline:
                    raise self._unreachable(f"did not end its answer within {SECONDS:g} s or {ANSWER_LIMIT:,} bytes")
        except (OSError, HTTPException) as fault:
            raise self._unreachable(f"did not answer ({fault or type(fault).__name__})") from fault
        finally:
            connection.close()
        return answer.status, bytes(content)

    def _unreachable(self, what: str) -> SystemFailure:
        return SystemFailure(
            "server_unreachable",
            f"The server at {self.address} {what}. {_UNCHANGED} Check that it runs, or close OpenCode first.",
        )

    def _not_understood(self, what: str) -> SystemFailure:
        return SystemFailure(
            "not_understood",
            f"The server at {self.address} answered in a form that is not OpenCode's ({what}). {_UNCHANGED} Check the "
            "address in Redline's settings.",
        )

    def _busy(self) -> Conflict:
        return Conflict(
            "session_busy",
            f"OpenCode is working on {self.path}. {_UNCHANGED} Wait until it has finished, or stop it there.",
        )

    def _other(self, kind: str, row_id: str) -> Conflict:
        return Conflict(
            "other_database",
            f"The server at {self.address} does not show the {kind} {row_id} as {self.path.parent} has it. "
            f"{_UNCHANGED} Check the address in Redline's settings.",
        )


def _place(row: PartRow) -> str:
    return f"/message/{quote(row['message_id'], safe='')}/part/{quote(row['id'], safe='')}"


def _headers() -> dict[str, str]:
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    password = os.environ.get(PASSWORD_VARIABLE, "")
    if password:
        known = f"{os.environ.get(USER_VARIABLE) or USER}:{password}".encode("utf-8", "surrogateescape")
        headers["authorization"] = f"Basic {base64.b64encode(known).decode()}"
    return headers


def _document(data: object) -> Mapping[str, Any] | None:
    """The object in the data of a row; None if it is none."""
    return fields.object_in(bytes_of(data)) if isinstance(data, str) else None


def _is_same_json(one: object, other: object) -> bool:
    documents = _document(one), _document(other)
    return one == other or (None not in documents and canonical(documents[0]) == canonical(documents[1]))

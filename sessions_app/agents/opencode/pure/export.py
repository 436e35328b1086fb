"""A session of OpenCode as the document that `opencode export` writes and `opencode import` reads.

    {"info": {"id": "ses_1", …}, "messages": [{"info": {"id": "msg_1", …}, "parts": [{"id": "prt_1", …}, …]}, …]}

It is read as the lines of `lines`; the first one has `info` as well, which is more than a row says of a session.
Messages and parts that are written keep their recorded bytes; only their ids are set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.jsjson import Span, items, json_bytes, members, parse, splice

from .lines import MESSAGE, PART, REVERT, Row, columns_of, render, revert_row, session_row

SUFFIX: Final = ".json"
INFO: Final = "info"
HEAD: Final = re.compile(rb'\s*\{\s*"info"\s*:\s*\{[^{}\[\]]{0,1000}"id"\s*:\s*"ses_')
"""A document whose first field describes a session, with the id among its first fields."""
_SESSION: Final = b'{"type":"session"'
_REVERT: Final = b'{"type":"revert"'


class ExportRow(NamedTuple):
    """A message, or a part of the message before it."""

    type: str
    id: str
    data: bytes


# Read -------------------------------------------------------------------------------------------------------


def lines_of_export(document: bytes) -> list[bytes] | None:
    """The lines of an export, each with its newline; None if it is not one of OpenCode 1."""
    try:
        parse(document)
    except ValueError:
        return None
    found = _members(document, Span(0, len(document)))
    info = fields.as_mapping(parse(found[INFO].of(document))) if INFO in found else {}
    if not isinstance(info.get("id"), str) or "messages" not in found or _is_of_second(document, found["messages"]):
        return None
    session = session_row(columns_of(info, info["id"]), 0)
    rows = [session, *_rows_of(document, found["messages"])]
    revert = fields.mapping(info, REVERT)
    reverted = revert_row(json_bytes(revert), revert, rows) if revert else None
    described = b'%s,"%s":%s}' % ((session.data or b"{")[:-1], INFO.encode(), json_bytes(info))
    return [
        render(session, described),
        *(render(row, row.data or b"") for row in [*rows[1:], *filter(None, [reverted])]),
    ]


def _is_of_second(document: bytes, messages: Span) -> bool:
    """Whether messages are in the form of OpenCode 2: `{"type": "user", "text": …}`."""
    found = (_members(document, at) for at in _items(document, messages))
    return any("type" in message and INFO not in message for message in found)


def _rows_of(document: bytes, messages: Span) -> Iterator[Row]:
    for at in _items(document, messages):
        message = _members(document, at)
        if INFO in message:
            info = _row(MESSAGE, message[INFO].of(document))
            yield info
            parts = _items(document, message["parts"]) if "parts" in message else []
            yield from (_row(PART, part.of(document), info.id) for part in parts)


def _members(document: bytes, at: Span) -> Mapping[str, Span]:
    """The fields of an object; none if the value is something else."""
    return members(document, at.start) if at.of(document).lstrip()[:1] == b"{" else {}


def _items(document: bytes, at: Span) -> list[Span]:
    return items(document, at.start) if document[at.start : at.start + 1] == b"[" else []


def _row(row_type: str, data: bytes, message_id: str = "") -> Row:
    """The row of a message or a part. Without an id of its own it gets none, and is reported as damage."""
    row_id = fields.text(fields.as_mapping(parse(data)), "id")
    return Row(row_type, row_id, len(data), message_id=message_id, data=data)


# Written ----------------------------------------------------------------------------------------------------


def export_of(info: Mapping[str, Any], rows: Iterable[ExportRow]) -> Iterator[bytes]:
    """The pieces of an export, with a line for each message and part."""
    ids = {"sessionID": str(info["id"])}
    yield b'{"info":%s,"messages":[' % json_bytes(info)
    before = end = b""
    for row in rows:
        if row.type == MESSAGE:
            ids.pop("messageID", None)
            yield b'%s\n{"info":%s,"parts":[' % (end, with_ids(row.data, id=row.id, **ids))
            ids["messageID"], before, end = row.id, b"", b"]},"
        else:
            yield b"%s\n%s" % (before, with_ids(row.data, id=row.id, **ids))
            before = b","
    yield b"%s\n]}\n" % end.removesuffix(b",")


def with_ids(data: bytes, **ids: str) -> bytes:
    """The data of a row with these fields set."""
    found, end = members(data), data.rindex(b"}")
    texts = {name: json_bytes(value) for name, value in ids.items()}
    changes = [(found[name], text) for name, text in texts.items() if name in found]
    added = b",".join(b'"%s":%s' % (name.encode(), text) for name, text in texts.items() if name not in found)
    joint = b"," if found and added else b""
    return splice(data, [*changes, (Span(end, end), joint + added)])


def info_of(lines: Iterable[bytes], updated: int) -> Mapping[str, Any]:
    """What an export says of a session, given its lines and when it was last changed, in milliseconds."""
    session: Mapping[str, Any] = {}
    revert: Mapping[str, Any] = {}
    for raw in lines:
        if raw.startswith(_SESSION):
            session = fields.mapping(fields.object_in(raw) or {}, "data")
        elif raw.startswith(_REVERT):
            revert = fields.mapping(fields.object_in(raw) or {}, "data")
    others = {
        "slug": session.get("slug") or session.get("id"),
        "parentID": session.get("parent_id"),
        "projectID": session.get("project_id"),
        "time": {"created": session.get("time_created") or updated, "updated": updated},
        REVERT: dict(revert) or None,
    }
    same = {name: session.get(name) for name in ("id", "directory", "title", "version")}
    return {name: value for name, value in (same | others).items() if value is not None}


def export_rows(lines: Iterable[bytes]) -> Iterator[ExportRow]:
    """The messages and parts of a session's lines; rows without a readable object have no place in an export."""
    for raw in lines:
        row = fields.object_in(raw) or {}
        if row.get("type") in (MESSAGE, PART) and isinstance(row.get("data"), dict):
            yield ExportRow(row["type"], str(row.get("id")), members(raw)["data"].of(raw))

"""A session of OpenCode as lines, each rendered from one row. Its order is the client's.

    {"type":"session","data":{"title":…},"id":"ses_…"}
    {"type":"part","data":…,"id":"prt_…","message":"msg_…"}        parts whose message is missing, by id
    {"type":"message","data":…,"id":"msg_…"}                       by time of creation and id
    {"type":"part","data":…,"id":"prt_…","message":"msg_…"}        by id, after their message
    {"type":"revert","data":…,"after":"prt_…"}                     if messages are reverted

`data` is the recorded text. Only a newline, which in JSON is a space, becomes one, so that a row is a line. The ids
come after it, so that no recorded text can take their place: of equal names the last one counts.

The document that `opencode export` writes and `opencode import` reads has the same rows. Its first line has `info` as
well, which is more than a row says of a session. Messages and parts that are written keep their recorded bytes; only
their ids are set.

    {"info": {"id": "ses_1", …}, "messages": [{"info": {"id": "msg_1", …}, "parts": [{"id": "prt_1", …}, …]}, …]}
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.jsjson import Span, items, json_bytes, members, parse, splice

SESSION: Final = "session"
MESSAGE: Final = "message"
PART: Final = "part"
REVERT: Final = "revert"
HEADER_FIELDS: Final = ("id", "parent_id", "project_id", "slug", "directory", "title", "version", "time_created")
"""The columns of a session row that hardly ever change: the others change with every step."""
_DOCUMENT_FIELDS: Final = {
    **{name: name for name in ("id", "directory", "title", "version", "slug")},
    "parent_id": "parentID",
    "project_id": "projectID",
}
"""The fields of a session's document, and of an export, by the columns with the same values; in the client's order."""

Key = TypeVar("Key")


class Row(NamedTuple):
    """A row of a session, without its data."""

    type: str
    id: str
    """Empty if there is no id, or if it is not a text."""
    length: int
    """The size of its data in bytes."""
    updated: int = 0
    """When it was last changed, in the store's own unit."""
    message_id: str = ""
    """The id of the message to which a part belongs."""
    after: str | None = None
    """The last row before the reverted ones; None if there is none."""
    data: bytes | None = None
    """The data, if it is already loaded; None if it must be fetched."""
    number: int = 0
    """Its number in its table, by which its data is fetched; 0 in a store without tables."""


def frame(row: Row) -> tuple[bytes, bytes]:
    """The bytes of a line before and after the data of its row; the second ends with the newline."""
    said: dict[str, Any] = {"id": row.id}
    if row.type == PART:
        said["message"] = row.message_id
    if row.type == REVERT:
        said = {"after": row.after}
    return b'{"type":"%s","data":' % row.type.encode(), b",%s\n" % json_bytes(said)[1:]


def named_in(raw: bytes) -> str:
    """The name, for people, of the row of a line with damaged data: its type and id come after the data."""
    _, comma, behind = raw.rpartition(b',"id":')
    row_id = (fields.object_in(b'{"id":' + behind) or {}).get("id") if comma else None
    row_type = MESSAGE if raw.startswith(b'{"type":"message"') else PART
    return f"the {row_type} {row_id}" if row_id else "the row"


def render(row: Row, data: bytes) -> bytes:
    """The line of a row with its data."""
    before, after = frame(row)
    return b"%s%s%s" % (before, data.replace(b"\n", b" "), after)


def size_of(row: Row) -> int:
    """The size of a row's line, with its newline."""
    before, after = frame(row)
    return len(before) + row.length + len(after)


def identity_of(row: Row) -> str:
    """A text that changes whenever the line of a row does, as far as this shows without reading its data.

    A change that keeps both the size of the data and `updated` is missed. The client sets `updated` with every change;
    another program may not. Texts are read from the row on demand, so pages show the change, but the index keeps the
    estimate of the earlier text, and a reviewed plan is not refused. The content that it deletes is in the backup,
    exactly as it was then, and a write compares each row with its backup. A digest of the data would double the time of
    each opening: 1.5 instead of 0.7 ms for a megabyte.
    """
    said = row.updated if row.data is None else row.data.decode("utf-8", "replace")
    return f"{row.id}:{row.length}:{said}"


def session_row(recorded: Mapping[str, object], updated: int) -> Row:
    """The first row, from the columns of a session."""
    columns = {name: recorded.get(name) for name in HEADER_FIELDS}
    # JSON has no form for bytes.
    data = json_bytes(
        {name: value if isinstance(value, str | int | float) else None for name, value in columns.items()}
    )
    return Row(SESSION, str(recorded.get("id")), len(data), updated, data=data)


def columns_of(recorded: Mapping[str, Any], session_id: str) -> dict[str, Any]:
    """The columns of a session, from its document."""
    columns = {column: recorded.get(name) for column, name in _DOCUMENT_FIELDS.items()}
    return {**columns, "id": session_id, "time_created": fields.mapping(recorded, "time").get("created")}


def revert_rows(data: bytes, revert: Mapping[str, Any], rows: Sequence[Row]) -> list[Row]:
    """The last row, if messages are reverted; none if the named message does not exist.

    `rows` are the others, in order. With a part, its message remains, up to that part.
    """
    message_id = revert.get("messageID")
    first = next((at for at, row in enumerate(rows) if row.id and row.id == message_id), None)
    if first is None:
        return []
    if revert.get("partID"):
        end = next((at for at in range(first + 1, len(rows)) if rows[at].type != PART), len(rows))
        first = next((at for at in range(first, end) if rows[at].id == revert["partID"]), end)
    after = rows[first - 1].id if first and rows[first - 1].type != SESSION else None
    return [Row(REVERT, "", len(data), after=after, data=data)]


def in_order(messages: Mapping[Key, Row], parts: Iterable[tuple[Key, Row]]) -> list[Row]:
    """Each message, followed by the parts with its key; the order of both is kept. Parts with unknown keys are left
    out.
    """
    of_message: dict[Key, list[Row]] = {}
    for key, part in parts:
        of_message.setdefault(key, []).append(part)
    return [row for key, message in messages.items() for row in (message, *of_message.get(key, ()))]


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
    if not isinstance(info.get("id"), str) or "messages" not in found:
        return None
    messages = [_members(document, at) for at in _items(document, found["messages"])]
    if any("type" in message and INFO not in message for message in messages):
        return None  # in the form of OpenCode 2: `{"type": "user", "text": …}`
    session = session_row(columns_of(info, info["id"]), 0)
    rows = [session, *_rows_of(document, messages)]
    revert = fields.mapping(info, REVERT)
    others = [*rows[1:], *revert_rows(json_bytes(revert), revert, rows)]
    described = b'%s,"%s":%s}' % ((session.data or b"{")[:-1], INFO.encode(), json_bytes(info))
    return [render(session, described), *(render(row, row.data or b"") for row in others)]


def _rows_of(document: bytes, messages: Iterable[Mapping[str, Span]]) -> Iterator[Row]:
    for message in messages:
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
    """The row of a message or a part. Without its own id it gets none, and is reported as damage."""
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
    """The `info` of an export, given the session's lines and when it was last changed, in milliseconds."""
    session: Mapping[str, Any] = {}
    revert: Mapping[str, Any] = {}
    for raw in lines:
        if raw.startswith(_SESSION):
            session = fields.mapping(fields.object_in(raw) or {}, "data")
        elif raw.startswith(_REVERT):
            revert = fields.mapping(fields.object_in(raw) or {}, "data")
    info = {name: session.get(column) for column, name in _DOCUMENT_FIELDS.items()}
    info["slug"] = info["slug"] or info["id"]
    info["time"] = {"created": session.get("time_created") or updated, "updated": updated}
    info[REVERT] = dict(revert) or None
    return {name: value for name, value in info.items() if value is not None}


def export_rows(lines: Iterable[bytes]) -> Iterator[ExportRow]:
    """The messages and parts of a session's lines; rows without a readable object have no place in an export."""
    for raw in lines:
        row = fields.object_in(raw) or {}
        if row.get("type") in (MESSAGE, PART) and isinstance(row.get("data"), dict):
            yield ExportRow(row["type"], str(row.get("id")), members(raw)["data"].of(raw))

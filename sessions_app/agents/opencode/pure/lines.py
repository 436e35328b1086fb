"""A session of OpenCode as lines, each rendered from one row. Its order is the client's.

    {"type":"session","data":{"title":…},"id":"ses_…"}
    {"type":"part","data":…,"id":"prt_…","message":"msg_…"}        parts whose message is missing, by id
    {"type":"message","data":…,"id":"msg_…"}                       by time of creation and id
    {"type":"part","data":…,"id":"prt_…","message":"msg_…"}        by id, after their message
    {"type":"revert","data":…,"after":"prt_…"}                     if messages are reverted

`data` is the recorded text. Only a newline, which in JSON is a space, becomes one, so that a row is a line. The ids
come after it, so that no recorded text can take their place: of equal names the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.jsjson import json_bytes

SESSION: Final = "session"
MESSAGE: Final = "message"
PART: Final = "part"
REVERT: Final = "revert"
HEADER_FIELDS: Final = (
    "id",
    "parent_id",
    "project_id",
    "slug",
    "directory",
    "title",
    "version",
    "time_created",
)
"""What a session row says for good, or nearly: the other columns change with every step."""

Key = TypeVar("Key")


class Row(NamedTuple):
    """A row of a session, without its data."""

    type: str
    id: str
    """Empty if it has none that is a text."""
    length: int
    """The size of its data in bytes."""
    updated: int = 0
    """When it was last changed, in the store's own unit."""
    message_id: str = ""
    """The message of a part."""
    after: str | None = None
    """The last row before the reverted ones; None if there is none."""
    data: bytes | None = None
    """Its data, if it is not to be fetched."""
    number: int = 0
    """Its number in its table, by which its data is fetched; 0 in a store without tables."""


def frame(row: Row) -> tuple[bytes, bytes]:
    """What a line has before and after the data of its row; the second ends with the newline."""
    said: dict[str, Any] = {"id": row.id}
    if row.type == PART:
        said["message"] = row.message_id
    if row.type == REVERT:
        said = {"after": row.after}
    return b'{"type":"%s","data":' % row.type.encode(), b",%s\n" % json_bytes(said)[1:]


def named_in(raw: bytes) -> str:
    """The row of a line whose data is damaged, for people: its type and id come after the data."""
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
    """What changes whenever the line of a row does, as far as that shows without reading its data.

    Missed is a change that keeps both the size of the data and `updated`. The client sets `updated` with every change;
    a program that writes to the store itself may not. Texts are read from the row on demand, so pages show the change,
    but the index keeps the estimate of the earlier text, and a plan that was reviewed before is not refused. What it
    deletes is in the backup, exactly as it was then, and a write compares each row with what it backed up. A digest of
    the data would double the time of each opening: 1.5 instead of 0.7 ms for a megabyte.
    """
    said = row.updated if row.data is None else row.data.decode("utf-8", "replace")
    return f"{row.id}:{row.length}:{said}"


def session_row(recorded: Mapping[str, object], updated: int) -> Row:
    """The first row, from the columns of a session."""
    data = json_bytes({name: _in_json(recorded.get(name)) for name in HEADER_FIELDS})
    return Row(SESSION, str(recorded.get("id")), len(data), updated, data=data)


def columns_of(recorded: Mapping[str, Any], session_id: str) -> dict[str, Any]:
    """What a document says of its session, by the names of the columns."""
    return {
        "id": session_id,
        "parent_id": recorded.get("parentID"),
        "project_id": recorded.get("projectID"),
        "slug": recorded.get("slug"),
        "directory": recorded.get("directory"),
        "title": recorded.get("title"),
        "version": recorded.get("version"),
        "time_created": fields.mapping(recorded, "time").get("created"),
    }


def _in_json(value: object) -> object:
    """The value of a column; None for bytes, which JSON has no form for."""
    return value if isinstance(value, str | int | float) else None


def revert_row(data: bytes, revert: Mapping[str, Any], rows: Sequence[Row]) -> Row | None:
    """The last row, if messages are reverted; None if the named message does not exist.

    `rows` are the others, in order. With a part, its message remains, up to that part.
    """
    message_id = revert.get("messageID")
    first = next((at for at, row in enumerate(rows) if row.id and row.id == message_id), None)
    if first is None:
        return None
    if revert.get("partID"):
        end = next((at for at in range(first + 1, len(rows)) if rows[at].type != PART), len(rows))
        first = next((at for at in range(first, end) if rows[at].id == revert["partID"]), end)
    after = rows[first - 1].id if first and rows[first - 1].type != SESSION else None
    return Row(REVERT, "", len(data), after=after, data=data)


def in_order(messages: Mapping[Key, Row], parts: Iterable[tuple[Key, Row]]) -> list[Row]:
    """Each message, followed by its parts, which have its key; both are in order. Parts of other keys are left out."""
    of_message: dict[Key, list[Row]] = {}
    for key, part in parts:
        of_message.setdefault(key, []).append(part)
    return [row for key, message in messages.items() for row in (message, *of_message.get(key, ()))]

"""Migration of a version 1 or 2 session to version 3, line by line, with as few changed bytes as possible.

Fields are inserted at the start of the object and the rest stays as recorded. A copied line is accepted only if it
parses to exactly what reading the old line gives. Damaged lines are copied unchanged, so nothing is lost. A file
without a header, which agents refuse or empty, is given one.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import Any, Final

from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import Line, json_bytes, parse, stringify
from sessions_app.sessionlog.session import Header, ParserState, Recorded, require_session

from .parser import CURRENT_VERSION, SessionParser

_OLD_ROLE: Final = b'"role":"hookMessage"'
_NEW_ROLE: Final = b'"role":"custom"'


def migrate(lines: Iterable[Line], name: str, header: Header | None = None) -> Iterator[bytes]:
    """The lines of a version 3 copy, each with its original newline.

    A file without a header gets `header` as its first line, and is then copied at version 3 as well. Raises BadInput
    `is_current`, and `not_a_session` at the end if no line belonged to a session.
    """
    parser = SessionParser()
    above: list[bytes] | None = []
    """The lines before the first header or entry; None after that."""
    for line in lines:
        header_before = parser.state.header
        recorded = next(iter(parser.read(line)), None)
        copied = _copy(line, recorded, parser.state, is_header=parser.state.header is not header_before)
        if above is None:
            yield copied
            continue
        above.append(copied)
        if parser.state.version:
            if header is not None and parser.state.header is None:
                above = [header_line(header), above[0].removeprefix(BOM_UTF8), *above[1:]]
            else:
                _require_old(parser.state.version)
            yield from above
            above = None
    require_session(parser.state, name)


def _copy(line: Line, recorded: Recorded | None, state: ParserState, *, is_header: bool) -> bytes:
    ending = b"\n" if line.complete else b""
    if recorded is not None:
        return _migrate_entry(line.raw, recorded.entry, recorded.data, state.version) + ending
    return (_splice(line.raw, {"version": CURRENT_VERSION}) if is_header else line.raw) + ending


def header_line(header: Header) -> bytes:
    """The line of a header, with its newline."""
    fields = {
        "type": "session",
        "version": header.version,
        "id": header.id,
        "timestamp": header.timestamp,
        "cwd": header.cwd,
    }
    return json_bytes(fields) + b"\n"


def _require_old(version: int) -> None:
    if version >= CURRENT_VERSION:
        raise BadInput("is_current", f"The session is at version {version} already. Nothing was written.")


def _migrate_entry(raw: bytes, entry: Entry, data: dict[str, Any], version: int) -> bytes:
    added: dict[str, Any] = {}
    if version == 1:
        added = {"id": entry.id, "parentId": entry.parent_id}
        if entry.kind is EntryKind.SUMMARY:
            added["firstKeptEntryId"] = data["firstKeptEntryId"]
    copied = _splice(raw, added)
    message = data.get("message")
    if isinstance(message, dict) and message.get("role") == "hookMessage":
        wanted = {**added, **data, **added, "message": {**message, "role": "custom"}}
        renamed = copied.replace(_OLD_ROLE, _NEW_ROLE, 1)
        return renamed if _parses_to(renamed, wanted) else json_bytes(wanted)
    return copied


def _splice(raw: bytes, added: dict[str, Any]) -> bytes:
    """The object with fields inserted at its start.

    A recorded field of the same name would take precedence over an inserted one; then the object is printed anew.
    """
    if not added:
        return raw
    body = raw.removeprefix(BOM_UTF8)
    mark = raw[: len(raw) - len(body)]
    start = body.index(b"{") + 1
    rest = body[start:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    spliced = body[:start] + json_bytes(added)[1:-1] + comma + rest
    wanted = {**added, **parse(body), **added}
    return mark + (spliced if _parses_to(spliced, wanted) else json_bytes(wanted))


def _parses_to(raw: bytes, wanted: object) -> bool:
    # Compared as text: Python cannot compare deeply nested values.
    return stringify(parse(raw)) == stringify(wanted)

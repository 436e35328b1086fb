"""The records on a damaged line: several on one line, or some between bytes that are not JSON.

An agent writes one object per line. A line has more if a newline was lost, if two processes wrote at the same time, or
if a process appended after an incomplete line. A record inside the damage is recognised by its type and by what follows
it: another record, blanks or NUL bytes, or the end of the line. An object inside an incomplete record is followed by a
comma or a bracket; it is not a record.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, NoReturn

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.jsjson import parse

from .records import KNOWN_TYPES

HEADER_TYPE: Final = "session"
ATTEMPTS: Final = 10_000
"""A damaged line with more beginnings of objects than this is not searched further."""
_BEGIN: Final = re.compile(r'\{[ \t\r]*"')
_END: Final = re.compile(rb"[ \t\r\0]*(?:\{|\Z)")
_BLANKS: Final = re.compile(rb"[ \t\r]*")
_BETWEEN: Final = b" \t\r\v\f\0" + BOM_UTF8


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse).raw_decode


class Fragment(NamedTuple):
    """A part of a line, from `start` up to, but without, `end`: a record, or bytes that are not one."""

    start: int
    end: int
    data: dict[str, Any] | None


def fragments(raw: bytes, *, is_first: bool) -> list[Fragment]:
    """The parts of a line without its newline, without gaps. `is_first` is for the first line of a file."""
    start = len(BOM_UTF8) if is_first and raw.startswith(BOM_UTF8) else 0
    body = raw[start:]
    mark = [Fragment(0, start, None)] if start else []
    try:
        data = parse(body)
    except ValueError:
        return mark + [one._replace(start=one.start + start, end=one.end + start) for one in _search(body)]
    if isinstance(data, dict):
        return [*mark, Fragment(start, len(raw), data)]
    return [Fragment(0, len(raw), None)] if raw else []


def _search(raw: bytes) -> Iterator[Fragment]:
    done = 0
    for start, end, data in _records(raw):
        if done < start:
            yield Fragment(done, start, None)
        yield Fragment(start, end, data)
        done = end
    if done < len(raw):
        yield Fragment(done, len(raw), None)


def _records(raw: bytes) -> Iterator[tuple[int, int, dict[str, Any]]]:
    # Latin-1 makes each byte a character, and changes no character that JSON's structure consists of.
    text = raw.decode("latin-1")
    done = position = 0
    for _ in range(ATTEMPTS):
        found = _BEGIN.search(text, position)
        if found is None:
            return
        start = found.start()
        end = _end_of(text, start)
        if end is None:
            position = start + 1
            continue
        position = end
        data = _record(raw[start:end])
        follows_record = not raw[done:start].strip(_BETWEEN)
        if data is not None and (follows_record or _END.match(raw, end)):
            blanks = _BLANKS.match(raw, end)
            done = position = blanks.end() if blanks else end
            yield start, done, data


def _end_of(text: str, start: int) -> int | None:
    """The end of the object that starts here; None if it is incomplete."""
    try:
        return _decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def _record(raw: bytes) -> dict[str, Any] | None:
    data = fields.object_in(raw)
    recorded_type = fields.text(data, "type") if data is not None else ""
    return data if recorded_type == HEADER_TYPE or recorded_type in KNOWN_TYPES else None

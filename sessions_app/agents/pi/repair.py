"""Repairs a session file of pi or Atomic: the pieces of a copy that the agents open, and of what cannot be saved.

The file is read twice. The first reading plans (see `repair_plan`), the second one gives the pieces.

    line        {"type":"message","id":"b"…}NUL NUL{"type":"message","id":"c","parentId":"x"…}
    kept        {"type":"message","id":"b"…}       {"type":"message","id":"c","parentId":   …}
    inserted                                newline                                      "b"
    lost                                    NUL NUL                                      "x"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.raw_json import Span, members
from sessions_app.sessionlog.repair_pieces import Fate, RepairPiece
from sessions_app.sessionlog.session import Header

from .fragments import fragments
from .migration import header_line
from .parser import BYTE_ORDER_MARK
from .repair_plan import RecordEdit, RepairPlan, plan_repair

_BLANKS: Final = b" \t\r\v\f"


def repair(read: Callable[[], Iterable[Line]], new_header: Header) -> Iterator[RepairPiece]:
    """The pieces of a repaired copy, in the order of the original.

    `read` reads the same lines each time. `new_header` is for a session that does not begin with one; a header that
    comes too late gives the new one its fields.
    """
    plan = plan_repair(read(), new_header)
    if plan.new_header is not None:
        yield RepairPiece(Fate.INSERTED, 1, 0, header_line(plan.new_header), "a header is needed here")
    for line in read():
        yield from _line_pieces(line, plan)


def _line_pieces(line: Line, plan: RepairPlan) -> Iterator[RepairPiece]:
    found = fragments(line.raw, is_first=line.offset == 0)
    kept = [one.start for one in found if one.data is not None and line.offset + one.start not in plan.lost]
    for one in found:
        offset = line.offset + one.start
        raw = line.raw[one.start : one.end]
        if one.start not in kept:
            yield RepairPiece(Fate.LOST, line.number, offset, raw, plan.lost.get(offset) or _reason(raw))
            continue
        yield from _record_pieces(raw, line.number, offset, plan.edits.get(offset, ()))
        if one.start != kept[-1]:
            yield _newline(line, offset + len(raw), "two records were on one line")
    if line.complete:
        fate, reason = (Fate.KEPT, "") if kept else (Fate.LOST, "the end of a line without a record")
        yield RepairPiece(fate, line.number, line.end - 1, b"\n", reason)
    elif kept:
        yield _newline(line, line.end, "the last line had no newline")


def _newline(line: Line, offset: int, reason: str) -> RepairPiece:
    return RepairPiece(Fate.INSERTED, line.number, offset, b"\n", reason)


def _reason(raw: bytes) -> str:
    """Why bytes that are not a record are lost."""
    if raw == BYTE_ORDER_MARK:
        return "a byte order mark"
    if not raw.strip(_BLANKS):
        return "blanks"
    if not raw.strip(b"\0" + _BLANKS):
        return "NUL bytes"
    return "not a record, or not a complete one"


def _record_pieces(raw: bytes, number: int, offset: int, edits: Sequence[RecordEdit]) -> Iterator[RepairPiece]:
    """The pieces of a record with these edits, which concern different fields."""
    if not edits:
        yield RepairPiece(Fate.KEPT, number, offset, raw)
        return
    found = members(raw)
    opening = raw.index(b"{") + 1
    done = 0
    for edit in sorted(edits, key=lambda edit: found.get(edit.name, Span(opening, opening))):
        span = found.get(edit.name, Span(opening, opening))
        value = edit.value if edit.name in found else b'"' + edit.name.encode() + b'":' + edit.value + b","
        yield RepairPiece(Fate.KEPT, number, offset + done, raw[done : span.start])
        yield RepairPiece(Fate.LOST, number, offset + span.start, span.of(raw), edit.reason)
        yield RepairPiece(Fate.INSERTED, number, offset + span.end, value, edit.reason)
        done = span.end
    yield RepairPiece(Fate.KEPT, number, offset + done, raw[done:])

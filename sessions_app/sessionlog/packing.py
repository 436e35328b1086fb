"""The storage format of entries in the index: ids and position in columns, the rest as one small binary value."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from .controls import BoundaryControl, Control
from .entries import Block, Entry, EntryKind


class _Rest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    type: str
    kind: EntryKind
    timestamp: str
    role: str
    tokens: int
    blocks: tuple[Block, ...] | None
    result_for: str | None
    tool_name: str
    failed: bool
    excluded: bool
    empty: bool
    stop_reason: str
    usage: int | None
    model: tuple[str, str] | None
    overflown: int | None
    sole_agent: str
    reply: str
    subagent: str
    boundary: BoundaryControl | None = None
    """The control of a boundary, which its line alone does not determine."""


SCHEMA: Final = 21
"""Increased whenever the meaning of packed data changes: an index with another schema is rebuilt."""

_encode: Final = msgspec.msgpack.Encoder().encode
_rest_of: Final = attrgetter(*_Rest.__struct_fields__[:-1])
_decode: Final = msgspec.msgpack.Decoder(_Rest).decode


def pack(entry: Entry) -> bytes:
    """The fields that are not columns. A control is omitted if it can be read from the file again."""
    rest = _rest_of(entry)
    return _encode((*rest, entry.control) if isinstance(entry.control, BoundaryControl) else rest)


def unpack(
    number: int,
    offset: int,
    length: int,
    entry_id: str,
    parent_id: str | None,
    packed: bytes | memoryview,
    control: Control | None = None,
) -> Entry:
    """The packed entry."""
    # The fields of `_Rest` are the fields of an Entry after `parent_id`, in the same order; the last is a control.
    rest: tuple[Any, ...] = astuple(_decode(packed))
    if control is not None:
        rest = (*rest[:-1], rest[-1] or control)
    return Entry(number, offset, length, entry_id, parent_id, *rest)

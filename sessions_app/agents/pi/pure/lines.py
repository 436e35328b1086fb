"""Lines of pi and Atomic as writers make them: new entries, and recorded ones with another parent or content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Entry, EntryKind, Role
from sessions_app.sessionlog.jsjson import json_bytes
from sessions_app.sessionlog.moments import timestamp_of
from sessions_app.sessionlog.raw_json import Span, items, members, splice

NULL: Final = b"null"
_CONTENT_IN: Final = {EntryKind.EDIT: "replacement", EntryKind.MESSAGE: "message"}


def new_line(kind: str, entry_id: str, parent_id: str | None, moment: datetime, **fields: Any) -> bytes:
    """The line of a new entry, without its newline."""
    common = {"type": kind, "id": entry_id, "parentId": parent_id, "timestamp": timestamp_of(moment)}
    return json_bytes({**common, **fields})


def edit_line(entry_id: str, parent_id: str, moment: datetime, target_id: str, content: bytes | None) -> bytes:
    """A `context_edit`: `content` is the JSON of the new content; None omits the target."""
    line = new_line("context_edit", entry_id, parent_id, moment, targetId=target_id, replacement=None)
    if content is None:
        return line
    return splice(line, [(members(line)["replacement"], b'{"content":' + content + b"}")])


def surviving_content(message: Message, deleted: frozenset[int], line: Callable[[Entry], bytes]) -> bytes:
    """The JSON of a message's content without some of its blocks; every block has its recorded bytes."""
    source = message.source
    raw = line(source)
    span = content_span(raw, source)
    if span is None or message.blocks is None:
        return NULL if span is None else span.of(raw)
    if raw[span.start : span.start + 1] == b'"':
        # pi makes a block of a text that replaces an assistant's or a tool's content.
        return b'[{"type":"text","text":' + span.of(raw) + b"}]"
    recorded = items(raw, span.start)
    kept = (recorded[block.index].of(raw) for block in message.blocks if block.index not in deleted)
    return b"[" + b",".join(kept) + b"]"


def content_span(raw: bytes, source: Entry) -> Span | None:
    """The position of the content in the line of an entry or an edit; None if it has none."""
    found = members(raw)
    if source.kind is EntryKind.EDIT or source.type == "message":
        within = found.get(_CONTENT_IN[source.kind])
        found = members(raw, within.start) if within is not None else {}
    return found.get("content")


def moved_line(raw: bytes, entry: Entry, parent_id: str | None, content: bytes | None = None, **fields: str) -> bytes:
    """A recorded line with another parent, and with another content and other texts in some fields if given."""
    found = members(raw)
    parent = NULL if parent_id is None else json_bytes(parent_id)
    changes = [(found[name], json_bytes(value)) for name, value in fields.items()]
    if "parentId" in found:
        changes.append((found["parentId"], parent))
    else:
        opening = raw.index(b"{") + 1
        changes.append((Span(opening, opening), b'"parentId":' + parent + b","))
    if content is not None:
        changes.append(_with_content(raw, entry, content))
    return splice(raw, changes)


def _with_content(raw: bytes, entry: Entry, content: bytes) -> tuple[Span, bytes]:
    """The change that gives an entry another content, which it may not have had at all."""
    span = content_span(raw, entry)
    if span is not None:
        return span, content
    within = members(raw)[_CONTENT_IN[entry.kind]].start if entry.type == "message" else 0
    opening = raw.index(b"{", within) + 1
    return Span(opening, opening), b'"content":' + content + b","


def without_usage(raw: bytes, entry: Entry) -> bytes:
    """The line of an assistant message with 0 for every token count that its provider reported."""
    if entry.role != Role.ASSISTANT or entry.usage is None:
        return raw
    message = members(raw)["message"]
    usage = members(raw, message.start).get("usage")
    counts = members(raw, usage.start) if usage is not None else {}
    return splice(raw, ((span, b"0") for span in _numbers(raw, counts)))


def _numbers(raw: bytes, found: Mapping[str, Span]) -> Iterator[Span]:
    return (span for span in found.values() if raw[span.start : span.start + 1] in b"-0123456789")

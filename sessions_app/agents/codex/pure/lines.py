"""Lines of Codex as writers make them. What is kept of a line has its recorded bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.jsjson import json_bytes, parse
from sessions_app.sessionlog.moments import timestamp_of
from sessions_app.sessionlog.raw_json import items, members, splice

from .parser import PROVENANCE, is_part
from .records import CONTENT_IN, summary_item


class KeptItem(NamedTuple):
    """An item that stays: the id of its entry, and its bytes. One that was not recorded before has no entry."""

    entry_id: str
    raw: bytes


def new_line(kind: str, moment: datetime, ordinal: int | None, payload: bytes) -> bytes:
    """A line; `ordinal` is None in a legacy file."""
    number = b"" if ordinal is None else b',"ordinal":%d' % ordinal
    return b'{"timestamp":%s%s,"type":%s,"payload":%s}' % (
        json_bytes(timestamp_of(moment)),
        number,
        json_bytes(kind),
        payload,
    )


def compacted_payload(kept: Sequence[KeptItem], window: Mapping[str, Any], provenance: Mapping[str, Any]) -> bytes:
    """The payload of a compacted line with these items, the window that it begins, and what Redline says about it."""
    own = {**provenance, "items": [item.entry_id for item in kept]}
    items_json = b",".join(item.raw for item in kept)
    return b'{"message":"","replacement_history":[%s],%s"%s":%s}' % (
        items_json,
        b"".join(b"%s:%s," % (json_bytes(name), json_bytes(value)) for name, value in window.items()),
        PROVENANCE.encode(),
        json_bytes(own),
    )


def next_window(
    branch: Sequence[Entry], line: Callable[[Entry], bytes], new_id: str, thread_window: str = ""
) -> Mapping[str, Any]:
    """The fields by which a compacted line begins a new window; none in a thread without windows.

    Without them, Codex goes by the tokens that were last reported, as if nothing had been deleted, and compacts at once
    if they are above its limit. `thread_window` is the first window of a new thread, whose header is not in the branch.
    """
    first = previous = thread_window
    number = 0
    for entry in () if thread_window else branch:
        if entry.type == "session_meta":
            window = fields.mapping(recorded_payload(line(entry)), "context_window")
            first = previous = fields.text(window, "window_id")
            number = 0
        elif entry.type == "compacted" and entry.is_compaction:
            payload = recorded_payload(line(entry))
            previous = fields.text(payload, "window_id") or previous
            number = fields.whole_number(payload, "window_number") or number + 1
    if not first:
        return {}
    return {
        "window_number": number + 1,
        "first_window_id": first,
        "previous_window_id": previous,
        "window_id": str(uuid5(NAMESPACE_URL, f"{new_id} {number + 1}")),
    }


def recorded_payload(raw: bytes) -> dict[str, Any]:
    """The payload of a line that the parser has read."""
    return fields.mapping(parse(raw), "payload")


def payload_bytes(raw: bytes) -> bytes:
    """The recorded payload of a line."""
    return members(raw)["payload"].of(raw)


def kept_item(message: Message, deleted: frozenset[int], line: Callable[[Entry], bytes]) -> bytes:
    """The bytes of an item without some of its blocks."""
    raw = line(message.entry)
    if not is_part(message.entry.id):
        raw = payload_bytes(raw)
    elif raw.lstrip()[:1] == b'"':
        return json_bytes(summary_item(parse(raw)))
    blocks = message.blocks
    if blocks is None or not (deleted or len(blocks) < len(message.entry.blocks or ())):
        return raw
    content = members(raw)[CONTENT_IN[message.entry.type]]
    recorded = items(raw, content.start)
    left = (recorded[block.index].of(raw) for block in blocks if block.index not in deleted)
    return splice(raw, [(content, b"[" + b",".join(left) + b"]")])


def baseline_lines(branch: Sequence[Entry], line: Callable[[Entry], bytes]) -> list[tuple[str, bytes]]:
    """The type and payload of the lines that say which context the model has: the last full `world_state` with the
    changes after it, and the last `turn_context`. None of them if Codex adds its context anew in any case."""
    boundaries = (place for place, entry in enumerate(branch) if entry.type == "compacted" and entry.is_compaction)
    after = max(boundaries, default=0)
    states: list[bytes] = []
    turn = None
    for entry in branch[after:]:
        if entry.type == "world_state":
            payload = payload_bytes(line(entry))
            is_full = members(payload).get("full")
            if is_full is not None and is_full.of(payload) == b"true":
                states = []
            elif not states:
                continue
            states.append(payload)
        elif entry.type == "turn_context":
            turn = payload_bytes(line(entry))
    if turn is None or not states:
        return []
    return [*(("world_state", state) for state in states), ("turn_context", turn)]

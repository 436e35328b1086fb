"""Lines of Claude Code as writers make them: new ones, and recorded ones in another session.

Of a recorded line only what has to differ is replaced; everything else keeps its recorded bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.jsjson import json_bytes, parse
from sessions_app.sessionlog.moments import timestamp_of
from sessions_app.sessionlog.raw_json import Span, items, members, splice

from .records import is_result

NO_USAGE: Final = b'{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}'
INTERACTIVE: Final = "cli"
"""The `entrypoint` of the sessions that `claude --resume` lists."""

_PLACE: Final = ("isSidechain", "userType", "entrypoint", "cwd", "version", "gitBranch")
"""What a line says of where and by which program it was written."""

LostBlocks = Mapping[str, frozenset[int] | None]
"""By entry id, the indexes of the blocks that are left out; None for the whole entry."""


def lines_of_context(context: ActiveContext, branch: Sequence[Entry]) -> list[list[Entry]]:
    """The recorded lines that a context consists of, in its order: the entries of each. The last one has the line's id,
    and its bytes are those of the line."""
    parts: dict[int, list[Entry]] = {}
    for entry in branch:
        parts.setdefault(entry.number, []).append(entry)
    return [parts[number] for number in dict.fromkeys(message.entry.number for message in context.messages)]


def is_one_of_several(entry: Entry) -> bool:
    """Whether its line has other entries: an entry of such a line has a parent on it, or a part's id."""
    _, point, number = entry.id.rpartition(".")
    return (bool(point) and number.isdigit()) or (entry.parent_id or "").startswith(f"{entry.id}.")


def is_nameless(entry: Entry) -> bool:
    """Whether its line has no uuid; the parser names it after its place."""
    return entry.id == f"line-{entry.number}"


def moved_line(raw: bytes, **fields: Any) -> bytes:
    """A recorded line with other values in these fields, as in another session, after another line.

    A report of used tokens becomes one of 0: with the old one, the agent would compact the shorter conversation at the
    next prompt.
    """
    found = members(raw)
    changes = [_member(raw, found, name, value) for name, value in fields.items()]
    if "entrypoint" in found:
        changes.append((found["entrypoint"], json_bytes(INTERACTIVE)))
    usage = members(raw, found["message"].start).get("usage") if "message" in found else None
    if usage is not None:
        changes.append((usage, NO_USAGE))
    return splice(raw, changes)


def user_line(beside: Mapping[str, Any], text: str, moment: datetime, **fields: str | None) -> bytes:
    """A new message of the user, as the client would have written it where another line was written."""
    place = {name: beside[name] for name in _PLACE if name in beside}
    if "entrypoint" in place:
        place["entrypoint"] = INTERACTIVE
    message = {"role": "user", "content": text}
    return json_bytes({**fields, **place, "type": "user", "message": message, "timestamp": timestamp_of(moment)})


def _member(raw: bytes, found: Mapping[str, Span], name: str, value: Any) -> tuple[Span, bytes]:
    """The change that gives a member of a line's object this value, which it may not have had at all."""
    if name in found:
        return found[name], json_bytes(value)
    opening = raw.index(b"{") + 1
    return Span(opening, opening), json_bytes(name) + b":" + json_bytes(value) + b","


def line_without(raw: bytes, parts: Sequence[Entry], lost: LostBlocks) -> bytes:
    """A recorded line without some of its content. `parts` are its entries: one for each tool result, then the rest."""
    if not any(part.id in lost for part in parts):
        return raw
    recorded = _content_items(raw, members(raw)["message"])
    kept = [span.of(raw) for span in recorded]
    results = (index for index, item in enumerate(kept) if is_result(parse(item)))
    gone: set[int] = set()
    for part in parts:
        blocks = lost.get(part.id, frozenset())
        if part.role != Role.TOOL_RESULT:
            gone |= {block.index for block in part.blocks or ()} if blocks is None else blocks
            continue
        index = next(results)
        if blocks is None:
            gone.add(index)
        else:
            kept[index] = _content_without(kept[index], Span(0, len(kept[index])), blocks)
    return _with_items(raw, members(raw)["message"], kept, gone)


def _content_items(raw: bytes, within: Span) -> list[Span]:
    return items(raw, members(raw, within.start)["content"].start)


def _content_without(raw: bytes, within: Span, gone: frozenset[int]) -> bytes:
    """The object with a content without some of its items."""
    if not gone:
        return raw
    return _with_items(raw, within, [span.of(raw) for span in _content_items(raw, within)], gone)


def _with_items(raw: bytes, within: Span, recorded: Sequence[bytes], gone: set[int] | frozenset[int]) -> bytes:
    left = b",".join(item for index, item in enumerate(recorded) if index not in gone)
    return splice(raw, [(members(raw, within.start)["content"], b"[" + left + b"]")])

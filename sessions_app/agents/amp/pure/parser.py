"""Parses the lines of a thread of Amp: Anthropic's blocks, a result being an entry of its own.

The entries form one chain. A message is entry `mN`, N being the number of its line; the result in block K is `mN.K`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from sessions_app.sessionlog.controls import NameControl
from sessions_app.sessionlog.entries import (
    NO_TEXTS,
    Block,
    BlockType,
    Entry,
    EntryKind,
    Role,
    Texts,
    tokens_of,
)
from sessions_app.sessionlog.image_size import size_in_base64
from sessions_app.sessionlog.jsjson import parse, stringify, utf16_length, well_formed
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.opaque import IMAGE_UNITS, Opaque
from sessions_app.sessionlog.raw_json import items, members
from sessions_app.sessionlog.session import DAMAGE_KEPT, Damage, DamageKind, Header, ParserState, Recorded

from .thread import MESSAGE, THREAD

CURRENT_VERSION: Final = 1
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT}
_RESULT: Final = "tool_result"
_IMAGE: Final = "[image]"
_YEAR_10000: Final = 253_402_300_800_000


@dataclass(slots=True)
class AmpParser:
    """Reads lines in order; `state` can be stored and passed to the next parser."""

    state: ParserState = field(default_factory=ParserState)
    damage: list[Damage] = field(default_factory=list)

    @property
    def damaged(self) -> int:
        return self.state.damaged

    def read(self, line: Line) -> Sequence[Recorded]:
        self.state.next_number = line.number + 1
        self.state.next_offset = line.end
        try:
            row = parse(line.raw)
        except ValueError as fault:
            return self._report(DamageKind.NOT_JSON, line, f"is not valid JSON ({fault})")
        data = row.get("data") if isinstance(row, dict) else None
        if not isinstance(data, dict):
            return self._report(DamageKind.NOT_AN_OBJECT, line, "contains no object")
        self.state.version, self.state.recognised = CURRENT_VERSION, True
        if row.get("type") == THREAD:
            return [self._thread(data, line)]
        recorded = list(self._message(data, line)) if row.get("type") == MESSAGE else []
        if recorded:
            self.state.previous_id = recorded[-1].entry.id
        return recorded

    def _thread(self, data: dict[str, Any], line: Line) -> Recorded:
        created = _timestamp(data.get("created"))
        thread_id = well_formed(_text(data.get("id")))
        self.state.header = Header(thread_id, CURRENT_VERSION, _directory(data), created, "")
        name = NameControl(well_formed(_text(data.get("title"))) or None)
        place = _place(line, thread_id, None)
        entry = msgspec.structs.replace(place, type=THREAD, kind=EntryKind.BESIDE, timestamp=created, control=name)
        return Recorded(entry, NO_TEXTS, data)

    def _message(self, data: dict[str, Any], line: Line) -> Iterator[Recorded]:
        role = _ROLES.get(_text(data.get("role")), well_formed(_text(data.get("role"))))
        content = data.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": _text(content)}]
        parent = self.state.previous_id
        for at, block in enumerate(blocks):
            if _is_result(block):
                place = _block_place(line, at, parent)
                yield Recorded(*_described_result(block, place), block)
                parent = place.id
        if not all(map(_is_result, blocks)):
            place = _place(line, f"m{line.number}", parent)
            entry, texts = _described(blocks, msgspec.structs.replace(place, role=role))
            entry = msgspec.structs.replace(entry, model=_model(data), timestamp=_answered(data))
            yield Recorded(entry, texts, data)

    def _report(self, kind: DamageKind, line: Line, detail: str) -> list[Recorded]:
        self.state.damaged += 1
        if len(self.damage) < DAMAGE_KEPT:
            self.damage.append(Damage(kind, line.number, line.offset, len(line.raw), detail))
        return []


def read_again(raw: bytes, place: Entry) -> tuple[Entry, Texts] | None:
    """The entry at the place of an earlier one; None if no such entry is there any more."""
    try:
        found = parse(raw)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    if place.role == Role.TOOL_RESULT:
        return _described_result(found, place)
    data = found.get("data")
    content = data.get("content") if isinstance(data, dict) else None
    blocks = content if isinstance(content, list) else [{"type": "text", "text": _text(content)}]
    return _described(blocks, place) if place.role else (place, NO_TEXTS)


def text_of_result(block: Mapping[str, Any]) -> str:
    """The text of a result: a string, texts and the names of images, or whatever was recorded."""
    content = block.get("content", block.get("run"))
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(one, dict) and ("text" in one or _is_image(one)) for one in content
    ):
        return "\n".join(_IMAGE if _is_image(one) else _text(one["text"]) for one in content)
    return stringify(content) if content is not None else ""


def _described(blocks: Sequence[object], place: Entry) -> tuple[Entry, Texts]:
    """A message without its results; its other blocks are counted without them."""
    own = without_results(blocks)
    found = [_block(block, at) for at, block in enumerate(own)]
    kept = tuple(block for block, _ in found)
    tokens = tokens_of(sum(block.units for block in kept))
    entry = msgspec.structs.replace(place, kind=EntryKind.MESSAGE, blocks=kept, tokens=tokens)
    images = tuple(_image(block, at) for at, block in enumerate(own) if _is_image(block))
    return entry, Texts(None, tuple(text for _, text in found), images)


def without_results(blocks: Sequence[object]) -> list[object]:
    return [block for block in blocks if not _is_result(block)]


def _described_result(block: Mapping[str, Any], place: Entry) -> tuple[Entry, Texts]:
    text, content = text_of_result(block), block.get("content")
    images = tuple(_image(one) for one in content if _is_image(one)) if isinstance(content, list) else ()
    entry = msgspec.structs.replace(
        place,
        kind=EntryKind.MESSAGE,
        role=Role.TOOL_RESULT,
        tokens=tokens_of(utf16_length(text) + sum(image.units for image in images)),
        result_for=well_formed(_text(block.get("tool_use_id") or block.get("toolUseID"))),
        failed=block.get("is_error") is True,
    )
    return entry, Texts(text, (), images)


def _is_image(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "image"


def _image(block: Any, at: int | None = None) -> Opaque:
    source = block.get("source")
    return Opaque(
        IMAGE_UNITS, at, _IMAGE, size_in_base64(_text(source.get("data"))) if isinstance(source, dict) else None
    )


def _block(block: object, at: int) -> tuple[Block, str]:
    found = block if isinstance(block, dict) else {}
    kind = _text(found.get("type"))
    call_id = None
    if kind == "text":
        block_type, text = BlockType.TEXT, _text(found.get("text"))
    elif kind == "thinking":
        block_type, text = BlockType.THINKING, _text(found.get("thinking"))
    elif kind == "tool_use":
        block_type, call_id = BlockType.TOOL_CALL, well_formed(_text(found.get("id")))
        text = f"toolCall {call_id} {_text(found.get('name'))} {stringify(found.get('input'))}"
    elif kind == "image":
        return Block(at, BlockType.IMAGE, tokens_of(IMAGE_UNITS), IMAGE_UNITS), _IMAGE
    else:
        block_type, text = well_formed(kind) or BlockType.UNKNOWN, stringify(block)
    units = utf16_length(text)
    return Block(at, block_type, max(1, tokens_of(units)), units, call_id), text


def _place(line: Line, entry_id: str, parent: str | None) -> Entry:
    return Entry(line.number, line.offset, len(line.raw), entry_id, parent, MESSAGE)


def _block_place(line: Line, at: int, parent: str | None) -> Entry:
    """The place of a block of a message: its bytes in the line."""
    data = members(line.raw)["data"]
    content = members(line.raw, data.start)["content"]
    span = items(line.raw, content.start)[at]
    length = span.end - span.start
    return Entry(line.number, line.offset + span.start, length, f"m{line.number}.{at}", parent, _RESULT)


def _is_result(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == _RESULT


def _model(data: Mapping[str, Any]) -> tuple[str, str] | None:
    usage = data.get("usage")
    model = usage.get("model") if isinstance(usage, dict) else None
    return ("amp", well_formed(model)) if isinstance(model, str) else None


def _answered(data: Mapping[str, Any]) -> str:
    """When the model's answer was complete: Amp records no time with other messages."""
    usage = data.get("usage")
    return well_formed(_text(usage.get("timestamp"))) if isinstance(usage, dict) else ""


def _directory(data: Mapping[str, Any]) -> str:
    """The directory of the first tree that a thread was started in."""
    found: Any = data.get("env")
    for name in ("initial", "trees"):
        found = found.get(name) if isinstance(found, dict) else None
    tree = found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}
    return well_formed(_text(tree.get("uri"))).removeprefix("file://")


def _timestamp(milliseconds: object) -> str:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return ""
    if not 0 < milliseconds < _YEAR_10000:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""

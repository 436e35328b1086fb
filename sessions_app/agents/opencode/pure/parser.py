"""Parses the lines of a session of OpenCode: header, entries and damage.

A message is an entry that is never sent, followed by one entry for each part; a tool part gives two, the call and the
result. All form one chain, in the order of the rows. An entry has the id of its row; a call has `.call` behind it, so
that the last entry of every row has the row's id.

    msg_1 user      ◀── prt_1 text
    msg_2 assistant ◀── prt_2 reasoning ◀── prt_3.call ◀── prt_3 result ◀── prt_4 text

If messages are reverted, the last entry follows the last row that remains: its branch is what the client continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from sessions_app.sessionlog.controls import BoundaryControl, NameControl
from sessions_app.sessionlog.entries import NO_TEXTS, Entry, EntryKind, Role, Texts, tokens_of
from sessions_app.sessionlog.jsjson import parse, stringify, well_formed
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.raw_json import members
from sessions_app.sessionlog.session import DAMAGE_KEPT, Damage, DamageKind, Header, ParserState, Recorded

from .export import INFO
from .lines import MESSAGE, PART, REVERT, SESSION, Row, frame, named_in
from .parts import (
    Content,
    assistant_content,
    call_content,
    mapping_of,
    result_content,
    status_of,
    subagent_of,
    text_of,
    user_content,
)

CURRENT_VERSION: Final = 1
CALL_SUFFIX: Final = ".call"
ABORTED: Final = "aborted"
_ABORTED_ERROR: Final = "MessageAbortedError"
_DEFAULT_TITLES: Final = ("New session - ", "Child session - ")
_BLANKS: Final = b" \t\r\n\v\f"


class SpokenMessage(msgspec.Struct):
    """What the parts of a message need to know of it."""

    id: str
    role: str
    timestamp: str = ""
    model: tuple[str, str] | None = None
    stop_reason: str = ""
    usage: int | None = None
    is_summary: bool = False
    steps: int = 0
    """How many steps have begun so far: each is a reply of the model."""

    @property
    def reply(self) -> str:
        return self.id if self.steps < 2 else f"{self.id}/{self.steps}"


@dataclass(slots=True)
class OpenCodeParser:
    """Reads lines in order; `state` can be stored and passed to the next parser."""

    state: ParserState = field(default_factory=ParserState)
    damage: list[Damage] = field(default_factory=list)
    torn: int = 0
    """Faults on the last line, if it has no newline."""

    @property
    def damaged(self) -> int:
        return self.state.damaged + self.torn

    def read(self, line: Line) -> Sequence[Recorded]:
        recorded = self._read(line)
        if line.complete:
            self.state.next_number = line.number + 1
            self.state.next_offset = line.end
            for found in recorded:
                if not found.entry.is_beside:
                    self.state.previous_id = found.entry.id
        return recorded

    def _read(self, line: Line) -> list[Recorded]:
        if not line.raw.strip(_BLANKS):
            return []
        try:
            row = parse(line.raw)
        except ValueError as fault:
            kind = DamageKind.NOT_JSON if line.complete else DamageKind.TORN_LINE
            self._report(kind, line, f"{named_in(line.raw)} is not valid JSON ({fault})")
            return []
        data = row.get("data") if isinstance(row, dict) else None
        if not isinstance(data, dict):
            self._report(DamageKind.NOT_AN_OBJECT, line, f"{named_in(line.raw)} contains no object")
            return []
        self.state.version = CURRENT_VERSION
        self.state.recognised = True
        if row.get("type") == REVERT:
            return [self._revert(row, line)]
        row_id = row.get("id")
        if not isinstance(row_id, str) or not row_id or well_formed(row_id) != row_id:
            self._report(DamageKind.NO_ID, line, "the row has no usable id")
            return []
        if row.get("type") == SESSION:
            return self._session(row_id, data, line)
        if row.get("type") == MESSAGE:
            return [self._message(row_id, data, line)]
        return self._part(row_id, text_of(row.get("message")), data, line)

    def _session(self, row_id: str, data: dict[str, Any], line: Line) -> list[Recorded]:
        if self.state.header is not None:
            self._report(DamageKind.SECOND_HEADER, line, "a second session; the first one counts")
            return []
        self.state.header = header_of(row_id, data)
        if isinstance(data.get(INFO), dict):
            # As text: states are copied and stored by what cannot take it as deeply nested as it may be.
            self.state.extra[INFO] = stringify(data[INFO])
        title = well_formed(text_of(data.get("title")))
        name = None if title.startswith(_DEFAULT_TITLES) else title
        entry = _entry(line, row_id, None, SESSION, kind=EntryKind.BESIDE, control=NameControl(name))
        return [Recorded(entry, NO_TEXTS, data)]

    def _message(self, row_id: str, data: dict[str, Any], line: Line) -> Recorded:
        message = message_of(row_id, data)
        self.state.extra["message"] = msgspec.to_builtins(message)
        control = self._boundary(data) if message.is_summary else None
        entry = _entry(
            line,
            row_id,
            self.state.previous_id,
            MESSAGE,
            kind=EntryKind.OTHER if control is None else EntryKind.BOUNDARY,
            timestamp=message.timestamp,
            model=message.model,
            failed=not _is_finished(data) if control is not None else bool(data.get("error")),
            control=control,
        )
        return Recorded(entry, NO_TEXTS, data)

    def _boundary(self, data: Mapping[str, Any]) -> BoundaryControl | None:
        """The compaction that an assistant's summary completes; None if there is none.

        A failed summary counts only if something is kept before it: the client then sends that in its place.
        """
        asked = text_of(data.get("parentID"))
        compaction = self.state.extra.get("compactions", {}).get(asked)
        if compaction is None or not (compaction["tail"] or _is_finished(data)):
            return None
        tail = compaction["tail"]
        return BoundaryControl(
            anchor_id=asked,
            segment=(tail, asked) if tail else None,
            trigger=compaction["trigger"],
            began_id=asked,
        )

    def _part(self, row_id: str, message_id: str, part: dict[str, Any], line: Line) -> list[Recorded]:
        message = msgspec.convert(self.state.extra.get("message", {"id": "", "role": ""}), SpokenMessage)
        if not message_id or message.id != message_id:
            # The client never sends it. It is in no branch, so that a writer neither deletes nor copies it.
            what = f"the message of the part {row_id} is missing or damaged: {message_id}"
            self._report(DamageKind.NO_MESSAGE, line, what)
            return []
        recorded_type = well_formed(text_of(part.get("type")))
        if recorded_type == "step-start":
            message.steps += 1
            self.state.extra["message"] = msgspec.to_builtins(message)
        if recorded_type == "compaction" and message.role == "user":
            trigger = "auto" if part.get("auto") is True else "manual"
            compactions = self.state.extra.setdefault("compactions", {})
            tail = well_formed(text_of(part.get("tail_start_id")))
            compactions[message.id] = {"tail": tail, "trigger": trigger}
        common: dict[str, Any] = {
            "timestamp": timestamp_of(_started(part)) or message.timestamp,
            "model": message.model,
            "reply": message.reply,
        }
        if recorded_type == "tool" and message.role == "assistant":
            return self._tool(row_id, message, part, line, common)
        content = content_of(part, message.role, is_summary=message.is_summary)
        if content is None:
            entry = _entry(line, row_id, self.state.previous_id, recorded_type, **common)
            return [Recorded(entry, NO_TEXTS, part)]
        if message.role == "assistant":
            common |= _spoken(message)
        place = _entry(line, row_id, self.state.previous_id, recorded_type, **common)
        return [Recorded(_with(place, content, message), content.texts, part)]

    def _tool(
        self,
        row_id: str,
        message: SpokenMessage,
        part: dict[str, Any],
        line: Line,
        common: dict[str, Any],
    ) -> list[Recorded]:
        call_id = row_id + CALL_SUFFIX
        tool = well_formed(text_of(part.get("tool")))
        place = _entry(line, call_id, self.state.previous_id, "tool", **(common | _spoken(message)), tool_name=tool)
        content = call_content(part, row_id)
        call = Recorded(_with(place, content, message), content.texts, part)
        result = _entry(
            line,
            row_id,
            call_id,
            "tool",
            **(common | {"timestamp": timestamp_of(_ended(part)) or common["timestamp"]}),
            result_for=row_id,
            tool_name=tool,
            failed=status_of(part) == "error",
            stop_reason=status_of(part),
            subagent=subagent_of(part),
        )
        start, length = _data_in(line.raw, Row(PART, row_id, 0, message_id=message.id))
        result = msgspec.structs.replace(result, offset=line.offset + start, length=length)
        content = result_content(part)
        return [call, Recorded(_with(result, content, message), content.texts, part)]

    def _revert(self, row: Mapping[str, Any], line: Line) -> Recorded:
        after = row.get("after")
        parent = after if isinstance(after, str) else None
        entry = _entry(line, f"{REVERT}.{after or ''}", parent, REVERT)
        return Recorded(entry, NO_TEXTS, dict(mapping_of(row.get("data"))))

    def _report(self, kind: DamageKind, line: Line, detail: str) -> None:
        if line.complete:
            self.state.damaged += 1
        else:
            self.torn += 1
        if len(self.damage) < DAMAGE_KEPT:
            self.damage.append(Damage(kind, line.number, line.offset, len(line.raw), detail))


def _data_in(raw: bytes, row: Row) -> tuple[int, int]:
    """The position and the length of a row's data in its line, which in a damaged export may be written differently."""
    before, after = frame(row)
    if raw.startswith(before) and raw.endswith(after.rstrip(b"\n")):
        return len(before), len(raw) - len(before) - len(after) + 1
    data = members(raw)["data"]
    return data.start, data.end - data.start


def header_of(session_id: str, data: Mapping[str, Any]) -> Header:
    """The header of a session, from the columns of its row: only a subagent's names another one."""
    parent = well_formed(text_of(data.get("parent_id")))
    return Header(
        id=session_id,
        version=CURRENT_VERSION,
        cwd=well_formed(text_of(data.get("directory"))),
        timestamp=timestamp_of(data.get("time_created")),
        parent_session=parent,
        is_subagent=bool(parent),
    )


def message_of(message_id: str, data: Mapping[str, Any]) -> SpokenMessage:
    """What a message row says of its parts."""
    role = text_of(data.get("role"))
    of_model = mapping_of(data.get("model")) if role == "user" else data
    error = mapping_of(data.get("error"))
    stop_reason = well_formed(text_of(data.get("finish")))
    if data.get("error"):
        stop_reason = ABORTED if error.get("name") == _ABORTED_ERROR else "error"
    return SpokenMessage(
        message_id,
        role,
        timestamp_of(mapping_of(data.get("time")).get("created")),
        _model(of_model.get("providerID"), of_model.get("modelID")),
        stop_reason,
        usage_of(data.get("tokens")),
        role == "assistant" and data.get("summary") is True,
    )


def content_of(part: Mapping[str, Any], role: str, *, is_summary: bool) -> Content | None:
    """The content of a part, if it is not a tool's."""
    if role == "user":
        return user_content(part)
    return assistant_content(part, is_summary=is_summary) if role == "assistant" else None


def read_again(raw: bytes, place: Entry) -> tuple[Entry, Texts] | None:
    """The entry at the place of an earlier one; None if no such entry is there any more."""
    try:
        found = parse(raw)
    except ValueError:
        return None
    part = found if place.role == Role.TOOL_RESULT else mapping_of(found).get("data")
    if not isinstance(part, dict):
        return None
    content = _content_again(part, place)
    if content is None:
        return place, NO_TEXTS
    tokens = 0 if place.excluded else tokens_of(content.units)
    return (
        msgspec.structs.replace(place, role=content.role, tokens=tokens, blocks=content.blocks),
        content.texts,
    )


def _content_again(part: Mapping[str, Any], place: Entry) -> Content | None:
    if not place.role:
        return None
    if place.type == "tool":
        return result_content(part) if place.result_for is not None else call_content(part, _row_id(place.id))
    is_user = place.role in (Role.USER, Role.CUSTOM)
    is_summary = place.role == Role.COMPACTION_SUMMARY
    return content_of(part, "user" if is_user else "assistant", is_summary=is_summary)


def _row_id(entry_id: str) -> str:
    return entry_id.removesuffix(CALL_SUFFIX)


def usage_of(tokens: object) -> int | None:
    """The context that an assistant message reports: the total, or the sum of its parts."""
    if not isinstance(tokens, Mapping):
        return None
    cache = mapping_of(tokens.get("cache"))
    counts = (tokens.get("input"), tokens.get("output"), cache.get("read"), cache.get("write"))
    return _count(tokens.get("total")) or sum(map(_count, counts)) or None


def timestamp_of(milliseconds: object) -> str:
    """A recorded time as text; empty if it is not one."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return ""
    if not 0 < milliseconds < 253_402_300_800_000:  # the year 10000
        return ""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _entry(line: Line, entry_id: str, parent_id: str | None, recorded_type: str, **fields: Any) -> Entry:
    return Entry(line.number, line.offset, len(line.raw), entry_id, parent_id, recorded_type, **fields)


def _spoken(message: SpokenMessage) -> dict[str, Any]:
    """What every part of an assistant's message has of it."""
    return {
        "stop_reason": message.stop_reason,
        "failed": message.stop_reason in ("error", ABORTED),
        "usage": None if message.is_summary else message.usage,
    }


def _with(place: Entry, content: Content, message: SpokenMessage) -> Entry:
    excluded = not content.sent or (message.role == "assistant" and message.stop_reason == "error")
    return msgspec.structs.replace(
        place,
        kind=EntryKind.MESSAGE,
        role=content.role,
        tokens=0 if excluded else tokens_of(content.units),
        blocks=content.blocks,
        excluded=excluded,
    )


def _is_finished(data: Mapping[str, Any]) -> bool:
    return bool(data.get("finish")) and not data.get("error")


def _started(part: Mapping[str, Any]) -> object:
    time = part.get("time") or mapping_of(part.get("state")).get("time")
    return mapping_of(time).get("start")


def _ended(part: Mapping[str, Any]) -> object:
    return mapping_of(mapping_of(part.get("state")).get("time")).get("end")


def _model(provider: object, model_id: object) -> tuple[str, str] | None:
    if isinstance(provider, str) and isinstance(model_id, str):
        return well_formed(provider), well_formed(model_id)
    return None


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        return 0
    return int(value)

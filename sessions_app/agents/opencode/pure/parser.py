"""Parses the lines of a session of OpenCode: header, entries and damage.

A message is an entry that is never sent, followed by one entry for each part; a tool part gives two, the call and the
result. All form one chain, in the order of the rows. An entry has the id of its row; a call has `.call` behind it, so
that the last entry of every row has the row's id.

    msg_1 user      ◀── prt_1 text
    msg_2 assistant ◀── prt_2 reasoning ◀── prt_3.call ◀── prt_3 result ◀── prt_4 text

If messages are reverted, the last entry follows the last row that remains: its branch is what the client continues.

The texts of parts are those that the client sends, also of a tool result that it has cleared; the row keeps its output.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from sessions_app.agents.pure import fields
from sessions_app.sessionlog import entries
from sessions_app.sessionlog.jsjson import Line, members, stringify, utf16_length, well_formed
from sessions_app.sessionlog.opaque import IMAGE_UNITS, Opaque, document_units
from sessions_app.sessionlog.session import DamageKind, Header, LineParser, Recorded
from sessions_app.sessionlog.text import timestamp_of

from .lines import INFO, MESSAGE, PART, REVERT, SESSION, Row, frame, named_in

CLEARED: Final = "[Old tool result content cleared]"
INTERRUPTED: Final = "[Tool execution was interrupted]"
COMPACTION: Final = "What did we do so far?"
SUBTASK: Final = "The following tool was executed by the user"
ATTACHED: Final = "Attached media from tool result:"
"""The client's texts that replace recorded content: see `FORMAT.md`."""
COMPLETED: Final = "completed"
CLEARED_STATUS: Final = "cleared"
PDF: Final = "application/pdf"
_SEALED: Final = ("signature", "redactedData", "reasoningEncryptedContent")
"""The fields with a provider's private form of reasoning."""
NOT_SENT: Final = frozenset({"text/plain", "application/x-directory"})
"""The media types of files whose content is recorded as a text beside them."""


class Content(NamedTuple):
    """The content of a part that is, or could be, sent."""

    role: str
    texts: entries.Texts = entries.NO_TEXTS
    units: int = 0
    blocks: tuple[entries.Block, ...] | None = None
    sent: bool = True


def content_of(part: Mapping[str, Any], role: str, *, is_summary: bool) -> Content | None:
    """The content of a part that is not a tool's, in a message of this role; None if the client never sends it."""
    recorded_type, text = part.get("type"), fields.text(part, "text")
    if role == "assistant":
        if recorded_type == "text":
            return _text(entries.Role.COMPACTION_SUMMARY if is_summary else entries.Role.ASSISTANT, text)
        return _reasoning(part) if recorded_type == "reasoning" else None
    if role != "user":
        return None
    if recorded_type == "text":
        author = entries.Role.CUSTOM if part.get("synthetic") is True else entries.Role.USER
        return _text(author, text, sent=bool(text) and not part.get("ignored"))
    if recorded_type == "file":
        return _file(part)
    if recorded_type in ("compaction", "subtask"):
        return _text(entries.Role.CUSTOM, COMPACTION if recorded_type == "compaction" else SUBTASK)
    return None


def call_content(part: Mapping[str, Any], call_id: str) -> Content:
    """The call of a tool part. Its id is Redline's: recorded ones may repeat."""
    name, arguments = fields.stored_text(part, "tool"), stringify(input_of(part))
    block, text = entries.Block.of_call(0, call_id, name, arguments, shown_id=call_id)
    return Content(entries.Role.ASSISTANT, entries.Texts(None, (text,)), block.units, (block,))


def result_content(part: Mapping[str, Any]) -> Content:
    """The result of a tool part. The files that belong to it are named below its output."""
    text, files = output_of(part), tuple(map(_opaque, attachments_of(part)))
    units = utf16_length(text) + sum(file.units for file in files)
    return Content(
        entries.Role.TOOL_RESULT, entries.Texts("\n".join([text, *(file.label for file in files)]), (), files), units
    )


def input_of(part: Mapping[str, Any]) -> object:
    return fields.mapping(part, "state").get("input")


def status_of(part: Mapping[str, Any]) -> str:
    """The recorded status of a tool part, or CLEARED_STATUS."""
    state = fields.mapping(part, "state")
    status = fields.text(state, "status")
    is_cleared = status == COMPLETED and fields.mapping(state, "time").get("compacted")
    return CLEARED_STATUS if is_cleared else well_formed(status)


def output_of(part: Mapping[str, Any]) -> str:
    """The text that a model receives as the result of a tool part."""
    state = fields.mapping(part, "state")
    status = status_of(part)
    if status == CLEARED_STATUS:
        return CLEARED
    if status == COMPLETED:
        return fields.text(state, "output")
    if status == "error":
        metadata = fields.mapping(state, "metadata")
        if metadata.get("interrupted") is True and isinstance(metadata.get("output"), str):
            return str(metadata["output"])
        return fields.text(state, "error")
    return INTERRUPTED


def attachments_of(part: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The files that a model receives with the result of a tool part."""
    if status_of(part) != COMPLETED:
        return []
    return fields.objects(fields.mapping(part, "state"), "attachments")


def is_image(file: Mapping[str, Any]) -> bool:
    return fields.text(file, "mime").startswith("image/")


def _text(role: str, text: str, *, sent: bool = True) -> Content:
    return Content(role, entries.Texts(text, ()), utf16_length(text), sent=sent)


def _reasoning(part: Mapping[str, Any]) -> Content:
    """Reasoning; if it has no text, what its provider alone can read."""
    text = fields.text(part, "text")
    by_provider = {} if text else fields.mapping(part, "metadata")
    sealed = (fields.text(fields.as_mapping(one), name) for one in by_provider.values() for name in _SEALED)
    encrypted = max(sealed, key=len, default="")  # providers' private forms of the reasoning: the longest one
    opaque = (Opaque.encrypted(encrypted, 0),) if encrypted else ()
    units = opaque[0].units if opaque else utf16_length(text)
    block = entries.Block.of(0, entries.BlockType.REDACTED_THINKING if opaque else entries.BlockType.THINKING, units)
    return Content(entries.Role.ASSISTANT, entries.Texts(None, (text,), opaque), units, (block,))


def _file(part: Mapping[str, Any]) -> Content:
    file = _opaque(part, 0)
    block = entries.Block.of(0, entries.BlockType.IMAGE if is_image(part) else "file", file.units)
    is_sent = fields.text(part, "mime") not in NOT_SENT
    return Content(entries.Role.USER, entries.Texts(None, (file.label,), (file,)), file.units, (block,), sent=is_sent)


def _opaque(file: Mapping[str, Any], block: int | None = None) -> Opaque:
    """A file, named for people: its content, which may be megabytes of data, is not shown."""
    mime, url = fields.text(file, "mime"), fields.text(file, "url")
    label = f"[{mime}: {fields.text(file, 'filename') or 'file'}]"
    if mime == PDF:
        return Opaque(document_units(url), block, label)
    return Opaque.image(url, block, label) if is_image(file) else Opaque(IMAGE_UNITS, block, label)


CURRENT_VERSION: Final = 1
CALL_SUFFIX: Final = ".call"
ABORTED: Final = "aborted"
_ABORTED_ERROR: Final = "MessageAbortedError"
_DEFAULT_TITLES: Final = ("New session - ", "Child session - ")


class SpokenMessage(msgspec.Struct):
    """The facts about a message on which its parts depend."""

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
class OpenCodeParser(LineParser):
    """Parses the lines of a session, each of which is a row: see `lines`."""

    def read_object(self, data: dict[str, Any], line: Line) -> Sequence[Recorded]:
        recorded = self._read_row(data, line)
        for found in recorded:
            if not found.entry.is_off_branch:
                self.state.previous_id = found.entry.id
        return recorded

    @staticmethod
    def reparse(raw: bytes, place: entries.Entry, version: int) -> tuple[entries.Entry, entries.Texts] | None:
        """The entry at the place of an earlier one; None if no such entry is there any more."""
        found = fields.object_in(raw)
        part = found if found is None or place.role == entries.Role.TOOL_RESULT else found.get("data")
        if not isinstance(part, dict):
            return None
        content = None
        if place.type == "tool" and place.role:
            is_result = place.result_for is not None
            content = result_content(part) if is_result else call_content(part, row_id_of(place.id))
        elif place.role:
            role = "user" if place.role in (entries.Role.USER, entries.Role.CUSTOM) else "assistant"
            content = content_of(part, role, is_summary=place.role == entries.Role.COMPACTION_SUMMARY)
        if content is None:
            return place, entries.NO_TEXTS
        tokens = 0 if place.excluded else entries.tokens_of(content.units)
        return (msgspec.structs.replace(place, role=content.role, tokens=tokens, blocks=content.blocks), content.texts)

    def describe_fault(self, raw: bytes, fault: ValueError) -> str:
        return f"{named_in(raw)} {LineParser.describe_fault(self, raw, fault)}"

    def describe_value(self, raw: bytes, value: object) -> str:
        return f"{named_in(raw)} contains no object"

    def _read_row(self, row: dict[str, Any], line: Line) -> Sequence[Recorded]:
        data = row.get("data")
        if not isinstance(data, dict):
            return self.report(DamageKind.NOT_AN_OBJECT, line, self.describe_value(line.raw, data))
        self.state.version = CURRENT_VERSION
        self.state.recognised = True
        if row.get("type") == REVERT:
            after = fields.text_or_none(row, "after")
            return [Recorded(_entry(line, f"{REVERT}.{row.get('after') or ''}", after, REVERT), entries.NO_TEXTS, data)]
        row_id = fields.identifier(row, "id")
        if not row_id:
            return self.report(DamageKind.NO_ID, line, "the row has no usable id")
        if row.get("type") == SESSION:
            return self._session(row_id, data, line)
        if row.get("type") == MESSAGE:
            return [self._message(row_id, data, line)]
        return self._part(row_id, fields.text(row, "message"), data, line)

    def _session(self, row_id: str, data: dict[str, Any], line: Line) -> Sequence[Recorded]:
        if self.state.header is not None:
            return self.report(DamageKind.SECOND_HEADER, line, "a second session; the first one counts")
        self.state.header = header_of(row_id, data)
        if isinstance(data.get(INFO), dict):
            # As text: states are copied and stored by what cannot take it as deeply nested as it may be.
            self.state.extra[INFO] = stringify(data[INFO])
        title = fields.stored_text(data, "title")
        name = None if title.startswith(_DEFAULT_TITLES) else title
        entry = _entry(
            line, row_id, None, SESSION, kind=entries.EntryKind.OFF_BRANCH, control=entries.NameControl(name)
        )
        return [Recorded(entry, entries.NO_TEXTS, data)]

    def _message(self, row_id: str, data: dict[str, Any], line: Line) -> Recorded:
        message = message_of(row_id, data)
        self.state.extra["message"] = msgspec.to_builtins(message)
        control = self._boundary(data) if message.is_summary else None
        entry = _entry(
            line,
            row_id,
            self.state.previous_id,
            MESSAGE,
            kind=entries.EntryKind.OTHER if control is None else entries.EntryKind.BOUNDARY,
            timestamp=message.timestamp,
            model=message.model,
            failed=not _is_finished(data) if control is not None else bool(data.get("error")),
            control=control,
        )
        return Recorded(entry, entries.NO_TEXTS, data)

    def _boundary(self, data: Mapping[str, Any]) -> entries.BoundaryControl | None:
        """The compaction that an assistant's summary completes; None if there is none.

        A failed summary counts only if something is kept before it: the client then sends that in its place.
        """
        question = fields.text(data, "parentID")
        compaction = self.state.extra.get("compactions", {}).get(question)
        if compaction is None or not (compaction["tail"] or _is_finished(data)):
            return None
        tail = compaction["tail"]
        return entries.BoundaryControl(
            anchor_id=question,
            segment=(tail, question) if tail else None,
            trigger=compaction["trigger"],
            began_id=question,
        )

    def _part(self, row_id: str, message_id: str, part: dict[str, Any], line: Line) -> Sequence[Recorded]:
        message = msgspec.convert(self.state.extra.get("message", {"id": "", "role": ""}), SpokenMessage)
        if not message_id or message.id != message_id:
            # The client never sends it. It is in no branch, so that a writer neither deletes nor copies it.
            what = f"the message of the part {row_id} is missing or damaged: {message_id}"
            return self.report(DamageKind.NO_MESSAGE, line, what)
        recorded_type = fields.stored_text(part, "type")
        if recorded_type == "step-start":
            message.steps += 1
            self.state.extra["message"] = msgspec.to_builtins(message)
        if recorded_type == "compaction" and message.role == "user":
            trigger = "auto" if part.get("auto") is True else "manual"
            compaction = {"tail": fields.stored_text(part, "tail_start_id"), "trigger": trigger}
            self.state.extra["compactions"] = {**self.state.extra.get("compactions", {}), message.id: compaction}
        time = fields.as_mapping(part.get("time") or fields.mapping(part, "state").get("time"))
        common: dict[str, Any] = {
            "timestamp": _timestamp(time, "start") or message.timestamp,
            "model": message.model,
            "reply": message.reply,
        }
        if recorded_type == "tool" and message.role == "assistant":
            return self._tool(row_id, message, part, line, common)
        content = content_of(part, message.role, is_summary=message.is_summary)
        if content is None:
            entry = _entry(line, row_id, self.state.previous_id, recorded_type, **common)
            return [Recorded(entry, entries.NO_TEXTS, part)]
        if message.role == "assistant":
            common |= _spoken(message)
        place = _entry(line, row_id, self.state.previous_id, recorded_type, **common)
        return [Recorded(_with(place, content, message), content.texts, part)]

    def _tool(
        self, row_id: str, message: SpokenMessage, part: dict[str, Any], line: Line, common: dict[str, Any]
    ) -> list[Recorded]:
        call_id = row_id + CALL_SUFFIX
        tool = fields.stored_text(part, "tool")
        place = _entry(line, call_id, self.state.previous_id, "tool", **(common | _spoken(message)), tool_name=tool)
        content = call_content(part, row_id)
        call = Recorded(_with(place, content, message), content.texts, part)
        state = fields.mapping(part, "state")
        ended = _timestamp(fields.mapping(state, "time"), "end")
        result = _entry(
            line,
            row_id,
            call_id,
            "tool",
            **(common | {"timestamp": ended or common["timestamp"]}),
            result_for=row_id,
            tool_name=tool,
            failed=status_of(part) == "error",
            stop_reason=status_of(part),
            # The session that a tool has started.
            subagent=fields.stored_text(fields.mapping(state, "metadata"), "sessionId"),
        )
        start, length = _data_in(line.raw, Row(PART, row_id, 0, message_id=message.id))
        result = msgspec.structs.replace(result, offset=line.offset + start, length=length)
        content = result_content(part)
        return [call, Recorded(_with(result, content, message), content.texts, part)]


def _data_in(raw: bytes, row: Row) -> tuple[int, int]:
    """The position and the length of a row's data in its line, which in a damaged export may be written differently."""
    before, after = frame(row)
    if raw.startswith(before) and raw.endswith(after.rstrip(b"\n")):
        return len(before), len(raw) - len(before) - len(after) + 1
    data = members(raw)["data"]
    return data.start, data.end - data.start


def header_of(session_id: str, data: Mapping[str, Any]) -> Header:
    """The header of a session, from the columns of its row: only a subagent's names another one."""
    parent = fields.stored_text(data, "parent_id")
    return Header(
        id=session_id,
        version=CURRENT_VERSION,
        cwd=fields.stored_text(data, "directory"),
        timestamp=_timestamp(data, "time_created"),
        parent_session=parent,
        is_subagent=bool(parent),
    )


def message_of(message_id: str, data: Mapping[str, Any]) -> SpokenMessage:
    """The facts about a message row on which its parts depend."""
    role = fields.text(data, "role")
    of_model = fields.mapping(data, "model") if role == "user" else data
    error = fields.mapping(data, "error")
    stop_reason = fields.stored_text(data, "finish")
    if data.get("error"):
        stop_reason = ABORTED if error.get("name") == _ABORTED_ERROR else "error"
    return SpokenMessage(
        message_id,
        role,
        _timestamp(fields.mapping(data, "time"), "created"),
        fields.model(of_model.get("providerID"), of_model.get("modelID")),
        stop_reason,
        _usage(data),
        role == "assistant" and data.get("summary") is True,
    )


def row_id_of(entry_id: str) -> str:
    """The id of the row of an entry, which two entries of a tool part share."""
    return entry_id.removesuffix(CALL_SUFFIX)


def _usage(data: Mapping[str, Any]) -> int | None:
    """The context that an assistant message reports: the total, or the sum of its parts."""
    tokens = fields.mapping(data, "tokens")
    cache = fields.mapping(tokens, "cache")
    parts = ((tokens, "input"), (tokens, "output"), (cache, "read"), (cache, "write"))
    return fields.tokens(tokens, "total") or sum(fields.tokens(*part) for part in parts) or None


def _timestamp(data: Mapping[str, Any], name: str) -> str:
    """A recorded time as text; empty if it is not one."""
    moment = fields.moment(data, name)
    return timestamp_of(moment) if moment is not None else ""


def _entry(line: Line, entry_id: str, parent_id: str | None, recorded_type: str, **more: Any) -> entries.Entry:
    return entries.Entry(line.number, line.offset, len(line.raw), entry_id, parent_id, recorded_type, **more)


def _spoken(message: SpokenMessage) -> dict[str, Any]:
    """The fields that every part of an assistant's message has from it."""
    return {
        "stop_reason": message.stop_reason,
        "failed": message.stop_reason in ("error", ABORTED),
        "usage": None if message.is_summary else message.usage,
    }


def _with(place: entries.Entry, content: Content, message: SpokenMessage) -> entries.Entry:
    excluded = not content.sent or (message.role == "assistant" and message.stop_reason == "error")
    return msgspec.structs.replace(
        place,
        kind=entries.EntryKind.MESSAGE,
        role=content.role,
        tokens=0 if excluded else entries.tokens_of(content.units),
        blocks=content.blocks,
        excluded=excluded,
    )


def _is_finished(data: Mapping[str, Any]) -> bool:
    return bool(data.get("finish")) and not data.get("error")

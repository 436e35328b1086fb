"""What the parts of OpenCode's messages say: role, texts, blocks and estimate of each.

The texts are those that the client sends, also of a tool result that it has cleared; the row keeps its output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.entries import NO_TEXTS, Block, BlockType, Role, Texts
from sessions_app.sessionlog.jsjson import stringify, utf16_length, well_formed
from sessions_app.sessionlog.opaque import IMAGE_UNITS, Opaque, document_units

CLEARED: Final = "[Old tool result content cleared]"
INTERRUPTED: Final = "[Tool execution was interrupted]"
COMPACTION: Final = "What did we do so far?"
SUBTASK: Final = "The following tool was executed by the user"
ATTACHED: Final = "Attached media from tool result:"
"""What the client sends in the place of something recorded: see `FORMAT.md`."""
COMPLETED: Final = "completed"
CLEARED_STATUS: Final = "cleared"
PDF: Final = "application/pdf"
_SEALED: Final = ("signature", "redactedData", "reasoningEncryptedContent")
"""The fields in which providers give reasoning in a form of their own."""
NOT_SENT: Final = frozenset({"text/plain", "application/x-directory"})
"""The media types of files whose content is recorded as a text beside them."""


class Content(NamedTuple):
    """The content of a part that is, or could be, sent."""

    role: str
    texts: Texts = NO_TEXTS
    units: int = 0
    blocks: tuple[Block, ...] | None = None
    sent: bool = True


def user_content(part: Mapping[str, Any]) -> Content | None:
    """The content of a part of a user's message; None if the client never sends such a part."""
    recorded_type = part.get("type")
    if recorded_type == "text":
        text = fields.text(part, "text")
        role = Role.CUSTOM if part.get("synthetic") is True else Role.USER
        return _text(role, text, sent=bool(text) and not part.get("ignored"))
    if recorded_type == "file":
        return _file(part)
    if recorded_type in ("compaction", "subtask"):
        return _text(Role.CUSTOM, COMPACTION if recorded_type == "compaction" else SUBTASK)
    return None


def assistant_content(part: Mapping[str, Any], *, is_summary: bool) -> Content | None:
    """The content of a part of an assistant's message, of a tool's only the call; None if there is none."""
    recorded_type = part.get("type")
    if recorded_type == "text":
        return _text(Role.COMPACTION_SUMMARY if is_summary else Role.ASSISTANT, fields.text(part, "text"))
    if recorded_type == "reasoning":
        return _reasoning(part)
    return None


def call_content(part: Mapping[str, Any], call_id: str) -> Content:
    """The call of a tool part. Its id is Redline's: recorded ones may repeat."""
    name, arguments = fields.stored_text(part, "tool"), stringify(input_of(part))
    block, text = Block.of_call(0, call_id, name, arguments, shown_id=call_id)
    return Content(Role.ASSISTANT, Texts(None, (text,)), block.units, (block,))


def result_content(part: Mapping[str, Any]) -> Content:
    """The result of a tool part. The files that belong to it are named below its output."""
    text, files = output_of(part), tuple(map(_opaque, attachments_of(part)))
    units = utf16_length(text) + sum(file.units for file in files)
    return Content(Role.TOOL_RESULT, Texts("\n".join([text, *(file.label for file in files)]), (), files), units)


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


def subagent_of(part: Mapping[str, Any]) -> str:
    """The id of the session that a tool part has started; empty if it has not."""
    return fields.stored_text(fields.mapping(fields.mapping(part, "state"), "metadata"), "sessionId")


def is_image(file: Mapping[str, Any]) -> bool:
    return fields.text(file, "mime").startswith("image/")


def _text(role: str, text: str, *, sent: bool = True) -> Content:
    return Content(role, Texts(text, ()), utf16_length(text), sent=sent)


def _reasoning(part: Mapping[str, Any]) -> Content:
    """Reasoning; if it has no text, what its provider alone can read."""
    text = fields.text(part, "text")
    encrypted = "" if text else _encrypted(part)
    opaque = (Opaque.encrypted(encrypted, 0),) if encrypted else ()
    units = opaque[0].units if opaque else utf16_length(text)
    block = Block.of(0, BlockType.REDACTED_THINKING if opaque else BlockType.THINKING, units)
    return Content(Role.ASSISTANT, Texts(None, (text,), opaque), units, (block,))


def _encrypted(part: Mapping[str, Any]) -> str:
    """What a provider gave with reasoning for itself."""
    by_provider = fields.mapping(part, "metadata").values()
    found = (fields.text(fields.as_mapping(metadata), name) for metadata in by_provider for name in _SEALED)
    return max(found, key=len, default="")


def _file(part: Mapping[str, Any]) -> Content:
    file = _opaque(part, 0)
    block = Block.of(0, BlockType.IMAGE if is_image(part) else "file", file.units)
    is_sent = fields.text(part, "mime") not in NOT_SENT
    return Content(Role.USER, Texts(None, (file.label,), (file,)), file.units, (block,), sent=is_sent)


def _opaque(file: Mapping[str, Any], block: int | None = None) -> Opaque:
    """A file, named for people: its content, which may be megabytes of data, is not shown."""
    mime, url = fields.text(file, "mime"), fields.text(file, "url")
    label = f"[{mime}: {fields.text(file, 'filename') or 'file'}]"
    if mime == PDF:
        return Opaque(document_units(url), block, label)
    return Opaque.image(url, block, label) if is_image(file) else Opaque(IMAGE_UNITS, block, label)

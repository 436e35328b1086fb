"""Messages as pi and Atomic rebuild them from recorded lines, and their hashes.

    (Message, line, edit's line) ──message_json──▶ {"role": …, "content": …} ──message_hash──▶ "0f3c…"

A message is reduced to the fields that decide what the model receives. Two readers agree on a context if the hashes of
all its messages are equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import EntryKind, Role
from sessions_app.sessionlog.jsjson import canonical

from .records import new_content

MESSAGE_FIELDS: Final = (
    *("role", "content", "summary", "command", "output", "exitCode"),
    *("toolCallId", "toolName", "isError", "customType", "stopReason"),
)
HASH_DIGITS: Final = 16
_ONLY_BLOCKS: Final = frozenset({Role.ASSISTANT, Role.TOOL_RESULT})
"""Roles for which a text that replaces the content becomes a block."""
_WITHOUT_CONTENT: Final[Mapping[str, Any]] = {
    Role.SYSTEM: "",
    Role.USER: [],
    Role.ASSISTANT: [],
    Role.TOOL_RESULT: [],
}
"""What takes the place of content that is missing or null; in a system message that a compaction repeats, nothing."""


def message_json(
    message: Message, line: Mapping[str, Any], edit_line: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A message of the active context as the agent rebuilds it, reduced to MESSAGE_FIELDS.

    `line` is the recorded object of the message's entry, `edit_line` that of the `context_edit` that replaces its
    content. Both are of version 3.
    """
    recorded = _recorded_message(message, line)
    content = recorded.get("content")
    if content is None and message.entry.kind is EntryKind.MESSAGE:
        content = _WITHOUT_CONTENT.get(message.role)
    if edit_line is not None:
        content = _content_of_edit(edit_line, message.role)
    if isinstance(content, list) and message.blocks is not None:
        content = [content[block.index] for block in message.blocks]
    return fields_of({**recorded, "content": content})


def fields_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """The MESSAGE_FIELDS of a message that are not null."""
    return {name: message[name] for name in MESSAGE_FIELDS if message.get(name) is not None}


def message_hash(message: Mapping[str, Any]) -> str:
    """The first HASH_DIGITS hexadecimal digits of the SHA-256 of a message's fields as canonical JSON."""
    return hashlib.sha256(canonical(message).encode()).hexdigest()[:HASH_DIGITS]


def _recorded_message(message: Message, line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message that a line contains, in the form that all kinds of lines share."""
    if message.entry.kind is EntryKind.SUMMARY and message.role == Role.SYSTEM:
        return fields.mapping(line, "systemMessage")
    if message.entry.type == "message":
        return {**fields.mapping(line, "message"), "role": message.role}
    if message.role == Role.CUSTOM:
        content = line.get("content")
        return {
            "role": message.role,
            "customType": line.get("customType"),
            "content": [] if content is None else content,
        }
    return {"role": message.role, "summary": line.get("summary")}


def _content_of_edit(edit_line: Mapping[str, Any], role: str) -> Any:
    content = new_content(edit_line)
    if isinstance(content, str) and role in _ONLY_BLOCKS:
        return [{"type": "text", "text": content}]
    return content

"""A thread of Amp as lines: what it says of itself, then one line for each message."""

from __future__ import annotations

from typing import Final

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.jsjson import json_bytes

THREAD: Final = "thread"
MESSAGE: Final = "message"


def lines_of_thread(document: bytes) -> list[bytes] | None:
    """The lines of the thread in a document, each with its newline; None if it is not one."""
    thread = fields.object_in(document)
    if thread is None or not isinstance(thread.get("id"), str):
        return None
    messages = thread.pop("messages", None)
    if not isinstance(messages, list):
        return None
    return [_line(THREAD, thread), *(_line(MESSAGE, message) for message in messages)]


def _line(line_type: str, data: object) -> bytes:
    return json_bytes({"type": line_type, "data": data}) + b"\n"

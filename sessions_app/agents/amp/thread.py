"""A thread of Amp as lines: what it says of itself, then one line for each message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sessions_app.sessionlog.jsjson import parse, stringify

THREAD: Final = "thread"
MESSAGE: Final = "message"


def thread_of(document: bytes) -> dict[str, Any] | None:
    """The thread in a document; None if it is not one."""
    try:
        found = parse(document)
    except ValueError:
        return None
    is_thread = isinstance(found, dict) and isinstance(found.get("messages"), list)
    return found if is_thread and isinstance(found.get("id"), str) else None


def lines_of(thread: dict[str, Any]) -> Iterator[bytes]:
    """The lines of a thread, each with its newline."""
    own = {name: value for name, value in thread.items() if name != "messages"}
    yield _line(THREAD, own)
    for message in thread["messages"]:
        yield _line(MESSAGE, message)


def _line(line_type: str, data: object) -> bytes:
    return stringify({"type": line_type, "data": data}).encode() + b"\n"

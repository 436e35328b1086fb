"""Telling browsers that something changed. Facts travel; a consumer reads the rows and draws.

An announcement may be lost: whoever listens looks at the rows by itself as well. In the serving process it goes
to the channel layer, on the server's own event loop (the in-memory layer wakes nobody up from another thread).
A child of the server prints it as a line, which the server relays (see `children`). Elsewhere nobody listens.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, Final, TextIO

SESSIONS: Final = "sessions"
"""The group that hears of changes to the index: `{"sessions": [ids]}` or `{"indexing": {…}}`; and of what the pages
that are open are told as it is: `{"page": {…}}`."""

_loop: asyncio.AbstractEventLoop | None = None
_parent: TextIO | None = None
_line = threading.Lock()
"""Threads announce one line at a time."""


def run_group(run_id: int) -> str:
    """The group that hears of one run's new events."""
    return f"run.{run_id}"


def serve_on(loop: asyncio.AbstractEventLoop | None) -> None:
    """This is the serving process, and this its loop; None when it ends."""
    global _loop  # noqa: PLW0603  # there is one server in a process
    _loop = loop


def relay_through(parent: TextIO | None) -> None:
    """This is a child of the server: announcements are lines that it reads."""
    global _parent  # noqa: PLW0603  # there is one parent
    _parent = parent


def publish(group: str, **fact: Any) -> None:
    """Tell a group a fact. From any thread; never waits, and never fails for want of a listener."""
    if _parent is not None:
        try:
            with _line:
                _parent.write(json.dumps({"group": group, **fact}) + "\n")
                _parent.flush()
        except OSError:
            # The server is gone. What is worked on goes on: its rows say what there was to tell.
            relay_through(None)
        return
    if _loop is None or _loop.is_closed():
        return
    # Imported here because commands load this module too, and serve nobody.
    from channels.layers import get_channel_layer

    layer = get_channel_layer()
    if layer is not None:
        asyncio.run_coroutine_threadsafe(layer.group_send(group, {"type": "on_event", "fact": fact}), _loop)

"""Notify browsers of changes. An event carries facts; a consumer reads the rows and renders them.

An event may be lost: listeners also poll the rows. In the server process an event goes to the channel layer, on the
server's event loop (the in-memory layer wakes no listener from another thread). A child of the server prints it as a
line, which the server relays (see `children`). Other processes have no listeners.
"""

import asyncio
import json
import threading
from typing import Any, Final, TextIO

SESSIONS: Final = "sessions"
"""The group for changes to the index, `{"sessions": [ids]}` or `{"indexing": {…}}`, and for notices that open pages
show as they are, `{"page": {…}}`."""

_loop: asyncio.AbstractEventLoop | None = None
_parent: TextIO | None = None
_line = threading.Lock()
"""Threads write one line at a time."""


def run_group(run_id: int) -> str:
    """The group for one run's new events."""
    return f"run.{run_id}"


def serve_on(loop: asyncio.AbstractEventLoop | None) -> None:
    """Mark this process as the server, with its event loop; None when the server ends."""
    global _loop  # noqa: PLW0603  # there is one server in a process
    _loop = loop


def relay_through(parent: TextIO | None) -> None:
    """Mark this process as a child of the server, which reads events as lines from this stream."""
    global _parent  # noqa: PLW0603  # there is one parent
    _parent = parent


def publish(group: str, **fact: Any) -> None:
    """Send a fact to a group, from any thread. Never waits, and never fails without listeners."""
    if _parent is not None:
        try:
            with _line:
                _parent.write(json.dumps({"group": group, **fact}) + "\n")
                _parent.flush()
        except OSError:
            # The server is gone. The work continues: its rows have everything that would have been sent.
            relay_through(None)
        return
    if _loop is None or _loop.is_closed():
        return
    # Imported here because commands load this module too, and have no server.
    from channels.layers import get_channel_layer

    layer = get_channel_layer()
    if layer is not None:
        asyncio.run_coroutine_threadsafe(layer.group_send(group, {"type": "on_event", "fact": fact}), _loop)

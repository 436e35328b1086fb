"""Access to sockets: a browser that is logged in, on a page of this server, until its session ends."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from .connections import HEADERS, REFUSAL_HEADERS
from .credentials import Credentials, Headers

Application = Any

LOGIN_CHECK_SECONDS: Final = 1.0
"""Between two checks whether the session of an open socket has ended."""
ENDED: Final = 4001
"""The close code of a socket whose session has ended."""


async def refuse_socket(scope: dict[str, Any], receive: Any, send: Any, status: int = 403) -> None:
    """Refuse a handshake."""
    del scope
    await receive()
    headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS]
    start = {"status": status, "headers": [*headers, *REFUSAL_HEADERS, (b"content-length", b"0")]}
    await send({"type": "websocket.http.response.start", **start})
    await send({"type": "websocket.http.response.body", "body": b""})


def only_known_browsers(application: Application) -> Application:
    """Wrap the application: sockets need an Origin equal to their host, and the launch cookie.

    A socket is closed when its session ends (by a log-out, a new name, or time). A page whose cookie was renewed
    meanwhile connects again. Messages to a closed tab, or after the application closed the socket itself, are dropped:
    the application learns of both from its next receive.
    """

    async def guarded(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if not may_connect(scope["headers"]):
            await refuse_socket(scope, receive, send)
            return

        is_open = True

        async def send_while_open(message: Any) -> None:
            nonlocal is_open
            if is_open:
                is_open = message["type"] != "websocket.close"
                with contextlib.suppress(OSError):  # how ASGI reports that the client has disconnected
                    await send(message)

        watched = _Watched(Credentials.of_headers(scope["headers"]), receive)
        await application(scope, watched.receive, send_while_open)
        if watched.ended:
            await send_while_open({"type": "websocket.close", "code": ENDED})

    return guarded


class _Watched:
    """The receiving side of a socket, which ends with the session that opened it."""

    def __init__(self, credentials: Credentials, receive: Any) -> None:
        self._credentials = credentials
        self._receive = receive
        self.ended = False

    async def receive(self) -> Any:
        """The next message, or a disconnection once the session has ended."""
        coming = asyncio.ensure_future(self._receive())
        try:
            while True:
                await asyncio.wait({coming}, timeout=LOGIN_CHECK_SECONDS)
                known = self._credentials.have_launch_cookie()
                if coming.done() and (known or coming.result()["type"] == "websocket.disconnect"):
                    return coming.result()
                if not known:
                    self.ended = True
                    return {"type": "websocket.disconnect", "code": ENDED}
        finally:
            coming.cancel()


def may_connect(headers: Headers) -> bool:
    """Whether a handshake comes from a known browser on one of our pages."""
    credentials = Credentials.of_headers(headers)
    return credentials.name_our_host() and credentials.come_from_our_page() and credentials.have_launch_cookie()

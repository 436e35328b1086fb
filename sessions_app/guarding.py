"""Who may open a socket: a browser that is known, from a page of this very server."""

from __future__ import annotations

from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

from .credentials import Credentials, Headers

Application = Any


class Refusal(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """Closes a socket before it opens."""

    async def connect(self) -> None:
        await self.close()


def only_known_browsers(application: Application) -> Application:
    """The application, for sockets whose Origin is the host they go to and that bring the launch cookie."""
    refusal = Refusal.as_asgi()

    async def guarded(scope: dict[str, Any], receive: Any, send: Any) -> Any:
        chosen = application if may_connect(scope["headers"]) else refusal
        return await chosen(scope, receive, send)

    return guarded


def may_connect(headers: Headers) -> bool:
    """Whether the headers of a handshake are those of a known browser on one of our pages."""
    credentials = Credentials.of_headers(headers)
    return (
        credentials.name_our_host() and credentials.come_from_our_page() and credentials.have_launch_cookie()
    )

"""Who may open a socket: a browser that is known, from a page of this very server."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.http.request import validate_host

from .middleware import COOKIE, is_launch_cookie

Application = Any


class Refusal(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """Closes a socket before it opens."""

    async def connect(self) -> None:
        await self.close()


def only_known_browsers(application: Application) -> Application:
    """The application, for sockets whose Origin is the host they go to and that bring the launch cookie.

    The comparison includes the port: to a browser another server on this machine is the same site, so its pages
    would bring the cookie along.
    """
    refusal = Refusal.as_asgi()

    async def guarded(scope: dict[str, Any], receive: Any, send: Any) -> Any:
        chosen = application if may_connect(scope["headers"]) else refusal
        return await chosen(scope, receive, send)

    return guarded


def may_connect(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the headers of a handshake are those of a known browser on one of our pages."""
    found = {name: value.decode("latin-1") for name, value in headers}
    host = found.get(b"host", "")
    origin = urlsplit(found.get(b"origin", ""))
    if origin.scheme not in ("http", "https") or not host or origin.netloc != host:
        return False
    if not validate_host(host.rsplit(":", 1)[0] if not host.endswith("]") else host, settings.ALLOWED_HOSTS):
        return False
    try:
        cookie = SimpleCookie(found.get(b"cookie", "")).get(COOKIE)
    except CookieError:
        return False
    return cookie is not None and is_launch_cookie(cookie.value)

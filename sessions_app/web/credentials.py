"""The credentials of a request: its host, the sending page, a cookie, a token; and whether a browser shows the page.

Each rule is defined here once. The middleware reads credentials from a Django request; the authentication of sockets
reads them from ASGI headers, before anything else is known about the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, parse_cookie
from django.http.request import split_domain_port
from django.utils.crypto import salted_hmac

from sessions_app.server.connection_files import PATH as HANDSHAKES, ConnectedAgent, connection_with
from sessions_app.server.connections import HEADERS, REFUSAL_HEADERS
from sessions_app.server.running_server import SESSION_SECONDS, browser_host, has_ended, is_api_token

SALT: Final = "redline.launch"
# To a browser all ports of 127.0.0.1 are one site, so the cookie there has a different name in each installation.
COOKIE: Final = f"redline_launch_{salted_hmac(SALT, 'cookie', algorithm='sha256').hexdigest()[:8]}"
RENEWAL_SECONDS: Final = 60
"""The age from which a cookie is renewed with the next response, so that the session lasts."""
PLAIN_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
"""The hosts at which scripts are admitted; browsers only after `redline serve --plain`."""
API: Final = "/api/"
"""The path of the API, for scripts, which use a separate token."""

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class LaunchSession:
    """A browser's session, from its first request with a launch token to its end."""

    id: str
    is_old: bool
    """Whether its cookie is old enough to be renewed."""


@dataclass(frozen=True)
class Credentials:
    """Four headers of a request, unchanged; a repeated header is joined with commas.

    A missing header is empty, except Authorization, where an empty one is a wrong token.
    """

    host: str
    origin: str
    cookies: str
    authorization: str | None

    @classmethod
    def of_headers(cls, headers: Headers) -> Credentials:
        """From raw ASGI headers, whose names are in lower case."""
        found: dict[bytes, list[str]] = {}
        for name, value in headers:
            found.setdefault(name, []).append(value.decode("latin-1"))

        def header(name: bytes) -> str | None:
            return ",".join(found[name]) if name in found else None

        host, origin, cookies = (header(name) or "" for name in (b"host", b"origin", b"cookie"))
        return cls(host, origin, cookies, header(b"authorization"))

    @classmethod
    def of_request(cls, request: HttpRequest) -> Credentials:
        """From a request that has reached Django."""
        header = request.headers.get
        host, origin, cookies = (header(name, "") for name in ("Host", "Origin", "Cookie"))
        return cls(host, origin, cookies, header("Authorization"))

    def name_our_host(self) -> bool:
        """Whether the host is one of this server's, with any port."""
        return self.name_plain_host() or self.name_browser_host()

    def name_plain_host(self) -> bool:
        """Whether the host is a well-known name of this machine."""
        domain, _ = split_domain_port(self.host)
        return domain in PLAIN_HOSTS

    def name_browser_host(self) -> bool:
        """Whether browsers are admitted at this host."""
        return self._name_browser_host(browser_host(settings.REDLINE_DATA_DIR))

    def _name_browser_host(self, ours: str) -> bool:
        domain, _ = split_domain_port(self.host)
        return bool(settings.REDLINE_PLAIN) if domain in PLAIN_HOSTS else domain == ours

    def come_from_our_page(self) -> bool:
        """Whether the page that sent the request has the request's host as its origin, including the port.

        To a browser another server on this machine is the same site, so its pages would send the cookie too. This
        server does not use TLS: an origin with https belongs to another server.
        """
        return bool(self.host) and self.origin == f"http://{self.host}"

    def have_launch_cookie(self) -> bool:
        """Whether there is a cookie that admits a browser at this host."""
        return self.launch_session() is not None

    def launch_session(self) -> LaunchSession | None:
        """The browser session of the cookie; None unless it is valid here.

        The name of the host is part of the signature: a new name ends all sessions.
        """
        host = browser_host(settings.REDLINE_DATA_DIR)
        value = parse_cookie(self.cookies).get(COOKIE, "")
        if not value or not self._name_browser_host(host):
            return None
        salt, is_old = _salt(host), False
        try:
            try:
                session: str = signing.loads(value, salt=salt, max_age=RENEWAL_SECONDS)
            except signing.SignatureExpired:
                session, is_old = signing.loads(value, salt=salt, max_age=SESSION_SECONDS), True
        except signing.BadSignature:
            return None
        return None if has_ended(settings.REDLINE_DATA_DIR, session) else LaunchSession(session, is_old)

    def have_token_for(self, path: str) -> bool:
        """Whether Authorization is `Bearer` with the token accepted at a path of the API."""
        if is_for_agents(path):
            return self.connection() is not None
        return is_api_token(settings.REDLINE_DATA_DIR, self._bearer_token())

    def connection(self) -> ConnectedAgent | None:
        """The connected agent whose token is sent; None if it is not the token of an agent. Raises OSError."""
        return connection_with(settings.REDLINE_DATA_DIR, self._bearer_token())

    def _bearer_token(self) -> str:
        scheme, _, token = (self.authorization or "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def bring_token_to(self, path: str) -> bool:
        """Whether Authorization is sent to a path where tokens are accepted."""
        return path.startswith(API) and self.authorization is not None

    def admit_to(self, path: str) -> bool:
        """Whether they admit a request for this path. If a token is sent, it decides, even if it is wrong."""
        if self.bring_token_to(path) or is_for_agents(path):
            return self.have_token_for(path)
        return self.have_launch_cookie()


def is_for_agents(path: str) -> bool:
    """Whether a path is for the review requests of connected agents: no other client is admitted there."""
    return path == HANDSHAKES or path.startswith(f"{HANDSHAKES}/")


def new_launch_cookie(session: str = "") -> str:
    """The value of a cookie that admits a browser from now on; without a given session, it starts a new one."""
    host = browser_host(settings.REDLINE_DATA_DIR)
    return signing.dumps(session or secrets.token_hex(8), salt=_salt(host))


def page_address(request: HttpRequest, path: str) -> str:
    """The URL at which a browser opens the page at this path, whichever of our hosts the request used."""
    if Credentials.of_request(request).name_browser_host():
        return request.build_absolute_uri(path)
    return f"http://{browser_host(settings.REDLINE_DATA_DIR)}:{request.get_port()}{path}"


def _salt(host: str) -> str:
    return f"{SALT}.{host}"


# ---- requests whose response is not shown ----------------------------------------------------------------

PURPOSES: Final = ("Sec-Purpose", "Purpose", "X-Purpose", "X-Moz")
"""The headers by which browsers indicate that they fetch a page in advance, or for a preview."""
EARLY: Final = ("prefetch", "preview")


def is_shown(request: HttpRequest) -> bool:
    """Whether the user requested the response: not for HEAD, and not if a browser fetches it in advance."""
    purposes = (request.headers.get(name, "").lower() for name in PURPOSES)
    return request.method != "HEAD" and not any(early in purpose for purpose in purposes for early in EARLY)


# ---- sockets ---------------------------------------------------------------------------------------------

Application = Any

LOGIN_CHECK_SECONDS: Final = 1.0
"""Seconds between two checks whether the session of an open socket has ended."""
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

        is_open, has_ended = True, False
        credentials = Credentials.of_headers(scope["headers"])

        async def receive_while_known() -> Any:
            """The next message, or a disconnection once the session has ended."""
            nonlocal has_ended
            coming = asyncio.ensure_future(receive())
            try:
                while True:
                    await asyncio.wait({coming}, timeout=LOGIN_CHECK_SECONDS)
                    known = credentials.have_launch_cookie()
                    if coming.done() and (known or coming.result()["type"] == "websocket.disconnect"):
                        return coming.result()
                    if not known:
                        has_ended = True
                        return {"type": "websocket.disconnect", "code": ENDED}
            finally:
                coming.cancel()

        async def send_while_open(message: Any) -> None:
            nonlocal is_open
            if is_open:
                is_open = message["type"] != "websocket.close"
                with contextlib.suppress(OSError):  # how ASGI reports that the client has disconnected
                    await send(message)

        await application(scope, receive_while_known, send_while_open)
        if has_ended:
            await send_while_open({"type": "websocket.close", "code": ENDED})

    return guarded


def may_connect(headers: Headers) -> bool:
    """Whether a handshake comes from a known browser on one of our pages."""
    credentials = Credentials.of_headers(headers)
    return credentials.name_our_host() and credentials.come_from_our_page() and credentials.have_launch_cookie()

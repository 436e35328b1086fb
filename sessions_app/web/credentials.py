"""What a request brings to be let in: the host that it names, the page that sent it, a cookie, a token.

Each rule is written here once. The middleware reads credentials from a Django request; the guard of the sockets reads
them from ASGI headers, before anything else is known of the request.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, parse_cookie
from django.http.request import split_domain_port
from django.utils.crypto import salted_hmac

from .launch_tokens import SESSION_SECONDS, browser_host, has_ended, is_api_token

SALT: Final = "redline.launch"
# To a browser all ports of 127.0.0.1 are one site, so each installation has a name of its own for its cookie there.
COOKIE: Final = f"redline_launch_{salted_hmac(SALT, 'cookie', algorithm='sha256').hexdigest()[:8]}"
RENEWAL_SECONDS: Final = 60
"""A cookie that is older is given anew with the next answer, so that the session lasts."""
PLAIN_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
"""Where scripts are let in; browsers only after `redline serve --plain`."""
API: Final = "/api/"
"""Where scripts ask, with a token of their own."""

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Credentials:
    """Four headers of a request as they came; one that came twice has a comma.

    A missing one is empty, but for Authorization: an empty one is a wrong token.
    """

    host: str
    origin: str
    cookies: str
    authorization: str | None

    @classmethod
    def of_headers(cls, headers: Headers) -> Credentials:
        """Those of raw ASGI headers, whose names are in lower case."""
        found: dict[bytes, list[str]] = {}
        for name, value in headers:
            found.setdefault(name, []).append(value.decode("latin-1"))

        def header(name: bytes) -> str | None:
            return ",".join(found[name]) if name in found else None

        host, origin, cookies = (header(name) or "" for name in (b"host", b"origin", b"cookie"))
        return cls(host, origin, cookies, header(b"authorization"))

    @classmethod
    def of_request(cls, request: HttpRequest) -> Credentials:
        """Those of a request that reached Django."""
        header = request.headers.get
        host, origin, cookies = (header(name, "") for name in ("Host", "Origin", "Cookie"))
        return cls(host, origin, cookies, header("Authorization"))

    def name_our_host(self) -> bool:
        """Whether the host is one that this server is reached by, with any port."""
        return self.name_plain_host() or self.name_browser_host()

    def name_plain_host(self) -> bool:
        """Whether the host is one of this machine that everybody knows."""
        domain, _ = split_domain_port(self.host)
        return domain in PLAIN_HOSTS

    def name_browser_host(self) -> bool:
        """Whether browsers are let in at this host."""
        if self.name_plain_host():
            return bool(settings.REDLINE_PLAIN)
        domain, _ = split_domain_port(self.host)
        return domain == browser_host(settings.REDLINE_DATA_DIR)

    def come_from_our_page(self) -> bool:
        """Whether the page that sent the request has the host it goes to as its origin, port included.

        To a browser another server on this machine is the same site, so its pages would bring the cookie along. This
        server speaks no TLS: an origin with https is another server's.
        """
        return bool(self.host) and self.origin == f"http://{self.host}"

    def have_launch_cookie(self) -> bool:
        """Whether there is a cookie that lets a browser in at this host."""
        return bool(self.launch_session())

    def need_new_cookie(self) -> bool:
        """Whether the cookie is valid, and so old that it should be given anew."""
        return bool(self.launch_session()) and not self.launch_session(RENEWAL_SECONDS)

    def launch_session(self, max_age: int = SESSION_SECONDS) -> str:
        """The browser session that the cookie stands for; empty unless it is valid here and at most so old, in seconds.

        The name of the host is part of what is signed: with another name all sessions are over.
        """
        if not self.name_browser_host():
            return ""
        value = parse_cookie(self.cookies).get(COOKIE, "")
        try:
            session: str = signing.loads(value, salt=_salt(), max_age=max_age)
        except signing.BadSignature:
            return ""
        return "" if has_ended(settings.REDLINE_DATA_DIR, session) else session

    def have_api_token(self) -> bool:
        """Whether the Authorization is `Bearer` and the token for scripts."""
        scheme, _, token = (self.authorization or "").partition(" ")
        return scheme.lower() == "bearer" and is_api_token(settings.REDLINE_DATA_DIR, token.strip())

    def bring_token_to(self, path: str) -> bool:
        """Whether there is something that is to be the token for scripts, at a path where one counts."""
        return path.startswith(API) and self.authorization is not None

    def admit_to(self, path: str) -> bool:
        """Whether they let in what asks for the path. A token that is brought decides, also where it is wrong."""
        return self.have_api_token() if self.bring_token_to(path) else self.have_launch_cookie()


def new_launch_cookie(session: str = "") -> str:
    """The value of a cookie that lets a browser in from now on; without a session that it has, it begins one."""
    return signing.dumps(session or secrets.token_hex(8), salt=_salt())


def page_address(request: HttpRequest, path: str) -> str:
    """Where a browser opens the page at this path, for somebody who asked at any of our hosts."""
    if Credentials.of_request(request).name_browser_host():
        return request.build_absolute_uri(path)
    return f"http://{browser_host(settings.REDLINE_DATA_DIR)}:{request.get_port()}{path}"


def _salt() -> str:
    return f"{SALT}.{browser_host(settings.REDLINE_DATA_DIR)}"

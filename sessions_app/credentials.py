"""What a request brings to be let in: the host that it names, the page that sent it, a cookie, a token.

Each rule is written here once. The middleware reads credentials from a Django request; the guard of the sockets reads
them from ASGI headers, before anything else is known of the request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, parse_cookie
from django.http.request import split_domain_port, validate_host
from django.utils.crypto import salted_hmac

from .launching import is_api_token

SALT: Final = "redline.launch"
# To a browser all ports of a machine are one site, so each installation has a name of its own for its cookie.
COOKIE: Final = f"redline_launch_{salted_hmac(SALT, 'cookie', algorithm='sha256').hexdigest()[:8]}"
COOKIE_SECONDS: Final = 30 * 24 * 3600

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Credentials:
    """Four headers of a request as they came; one that is missing is empty, one that came twice has a comma."""

    host: str
    origin: str
    cookies: str
    authorization: str

    @classmethod
    def of_headers(cls, headers: Headers) -> Credentials:
        """Those of raw ASGI headers, whose names are in lower case."""
        found: dict[bytes, list[str]] = {}
        for name, value in headers:
            found.setdefault(name, []).append(value.decode("latin-1"))

        def header(name: bytes) -> str:
            return ",".join(found.get(name, ()))

        return cls(header(b"host"), header(b"origin"), header(b"cookie"), header(b"authorization"))

    @classmethod
    def of_request(cls, request: HttpRequest) -> Credentials:
        """Those of a request that reached Django."""
        header = request.headers.get
        return cls(
            header("Host", ""), header("Origin", ""), header("Cookie", ""), header("Authorization", "")
        )

    def name_our_host(self) -> bool:
        """Whether the host is one that this server is reached by, with any port."""
        domain, _ = split_domain_port(self.host)
        return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)

    def come_from_our_page(self) -> bool:
        """Whether the page that sent the request has the host it goes to as its origin, port included.

        To a browser another server on this machine is the same site, so its pages would bring the cookie along. This
        server speaks no TLS: an origin with https is another server's.
        """
        return bool(self.host) and self.origin == f"http://{self.host}"

    def have_launch_cookie(self) -> bool:
        """Whether there is a cookie that this installation has signed, not too long ago."""
        try:
            signing.loads(parse_cookie(self.cookies).get(COOKIE, ""), salt=SALT, max_age=COOKIE_SECONDS)
        except signing.BadSignature:
            return False
        return True

    def have_api_token(self) -> bool:
        """Whether the Authorization is `Bearer` and the token for scripts."""
        scheme, _, token = self.authorization.partition(" ")
        return scheme.lower() == "bearer" and is_api_token(settings.REDLINE_DATA_DIR, token.strip())


def new_launch_cookie() -> str:
    """The value of a cookie that lets a browser in from now on."""
    return signing.dumps(1, salt=SALT)

"""Addresses of providers: base URLs as they are stored, and origins, to which keys belong.

    https://API.example.com:443/v1/  →  https://api.example.com/v1    of the origin  https://api.example.com

An address is parsed by the client that connects to it, so that a key is checked against the host to which it is sent. A
message never quotes a refused address: you may have typed a key into the wrong field.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sessions_app.disk.loopback import is_loopback_address
from sessions_app.sessionlog.errors import BadInput

from .types import Dialect

if TYPE_CHECKING:
    import httpx

OWN: Final[Mapping[str, tuple[Dialect, str]]] = {
    "anthropic": (Dialect.ANTHROPIC, "https://api.anthropic.com"),
    "openai": (Dialect.OPENAI, "https://api.openai.com/v1"),
    "openrouter": (Dialect.OPENAI, "https://openrouter.ai/api/v1"),
}
"""Providers with keys in the environment: their dialect, and their own base URL."""

_HOST_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?\Z")
_PORTS: Final = range(1, 65_536)


def origin_of(url: str) -> str:
    """Scheme, host and port of an address: `https://api.openai.com`, with the port unless it is the scheme's default.

    Lower case; an international host name in its IDNA form. Raises BadInput `bad_base_url`.
    """
    read = _read(url)
    host = read.raw_host.decode("ascii")
    shown = f"[{ipaddress.IPv6Address(host).compressed}]" if ":" in host else host
    return f"{read.scheme}://{shown}" + (f":{read.port}" if read.port is not None else "")


def checked_base_url(url: str) -> str:
    """The address as it is stored: its origin and path, without a trailing slash. Raises BadInput `bad_base_url`.

    Any host over http or https is accepted. Keys are sent over plain http only to loopback, which is checked elsewhere.
    """
    read = _read(url)
    if read.userinfo:
        raise _refused("contains a user name or password")
    if "?" in url or "#" in url:
        raise _refused("has a query or a fragment, after ? or #")
    return origin_of(url) + read.raw_path.decode("ascii").rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine: `localhost`, 127.0.0.0/8 or ::1. Raises BadInput `bad_base_url`."""
    host = _read(url).raw_host.decode("ascii")
    return host == "localhost" or is_loopback_address(host)


def _read(url: str) -> httpx.URL:
    # Only an address of a provider needs it, and it is slow to import.
    import httpx

    try:
        read = httpx.URL(url.strip())
    except (httpx.InvalidURL, ValueError):
        raise _refused("is none") from None
    if read.scheme not in ("http", "https"):
        raise _refused("does not begin with http:// or https://")
    host = read.raw_host.decode("ascii", "replace")
    if not _is_host(host):
        raise _refused("names no host")
    if read.port is not None and read.port not in _PORTS:
        raise _refused("has a port that does not exist")
    return read


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _HOST_NAME.match(host) is not None
    try:
        return bool(ipaddress.IPv6Address(host)) and "%" not in host
    except ValueError:
        return False


def _refused(why: str) -> BadInput:
    return BadInput(
        "bad_base_url",
        f"The base URL {why}. Nothing was sent or stored. It should look like https://api.example.com/v1.",
    )

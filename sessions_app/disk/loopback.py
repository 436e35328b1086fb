"""EDGE: a server of another program on this machine: its address, and whether a process listens there.

Only Linux shows the latter, and only of processes that this user may inspect.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_PROCESSES: Final = Path("/proc")
_TABLES: Final = (_PROCESSES / "net" / "tcp", _PROCESSES / "net" / "tcp6")
_LISTENS: Final = "0A"
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]\Z")


class LoopbackAddress(NamedTuple):
    """An address on this machine at which a server is reached over HTTP."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def loopback_address(text: str) -> LoopbackAddress:
    """An address such as `http://127.0.0.1:4096`. Raises ValueError for any other, also for names of hosts."""
    parts = urlsplit(text)
    is_bare = parts.scheme == "http" and not parts.path.strip("/") and "@" not in parts.netloc
    host = parts.hostname or ""
    if is_bare and not parts.query and not parts.fragment and parts.port and is_loopback_address(host):
        return LoopbackAddress(str(ip_address(host)), parts.port)
    raise ValueError("a server is addressed as http://127.0.0.1:PORT or http://[::1]:PORT, on this machine only")


def is_loopback_address(host: str) -> bool:
    """Whether a host is named by an address of this machine: 127.0.0.0/8 or ::1."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_listening(pid: int, address: LoopbackAddress) -> bool:
    """Whether this process, and no other one, listens at an address. False except on Linux."""
    if sys.platform != "linux":
        return False
    sockets = set(_listening_sockets(address))
    return bool(sockets) and sockets <= set(_sockets_of(pid))


def _listening_sockets(address: LoopbackAddress) -> Iterator[str]:
    """The inodes of the sockets that may receive a connection to an address: also those that listen at all
    addresses."""
    host = ip_address(address.host)
    for table in _TABLES:
        if not table.exists():  # without IPv6
            continue
        for line in table.read_text("ascii").splitlines()[1:]:
            fields = line.split()
            local, _, port = fields[1].partition(":")
            found = _address_of(local)
            if fields[3] == _LISTENS and int(port, 16) == address.port and (found == host or int(found) == 0):
                yield fields[9]


def _address_of(digits: str) -> IPv4Address | IPv6Address:
    """An address as the kernel prints it: each word of four bytes is a number in the machine's own order."""
    words = (digits[start : start + 8] for start in range(0, len(digits), 8))
    return ip_address(b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words))


def _sockets_of(pid: int) -> Iterator[str]:
    """The inodes of the sockets that a process has open; none if it has ended, or belongs to another user."""
    try:
        descriptors = list((_PROCESSES / str(pid) / "fd").iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        with suppress(FileNotFoundError):  # closed meanwhile
            found = _SOCKET.match(str(descriptor.readlink()))
            if found is not None:
                yield found[1]

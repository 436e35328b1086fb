"""EDGE: the sockets of the server, on this machine only, and their connections, which are limited in bytes, time and
number before anything is known about the client.

uvicorn reads headers of any length for any time, and calls Django when they are complete. The limits on a connection
until then, and while its body is received:

| limit | what happens |
|---|---|
| HEADER_BYTES, HEADER_COUNT | 431, and the connection is closed |
| HEADER_SECONDS until the headers are complete | closed |
| BODY_BYTES in each BODY_SECONDS, while the body is being read | closed |
| UNREAD_BYTES, UNREAD_SECONDS if the body is not being read | closed |
| IDLE_SECONDS between two requests | closed |
| MOST_CONNECTIONS, MOST_WAITING, WAITING_BYTES of all connections | the longest-waiting one is closed |

A connection that another user of this machine has opened is closed immediately, if that is known. On Linux, the
kernel's socket diagnostics give the user (`sock_diag(7)`), in some 40 microseconds per socket. `/proc/net/tcp` and
`tcp6` have the same data, but to write them the kernel goes through all its sockets, which takes tens of milliseconds:
a client that opens many connections would delay everybody else. If the socket is closed already, and on other systems,
the user is unknown.

A connection waits while it has no request in progress, or while its client does not read the response. A connection
with a request in progress is never closed to make room. Opening many connections therefore does not lock others out: a
browser sends its request immediately, and then no longer counts as waiting.

This depends on the uvicorn versions allowed in pyproject.toml: `cycle`, `conn`, `flow` and `connections` are internal.
"""

import asyncio
import errno
import os
import resource
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from ipaddress import ip_address
from typing import Any, Final, cast

import h11
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from sessions_app.sessionlog.errors import Conflict, SystemFailure

HEADER_BYTES: Final = 65_536
HEADER_COUNT: Final = 100
HEADER_SECONDS: Final = 10
BODY_BYTES: Final = 1_000
BODY_SECONDS: Final = 10
UNREAD_BYTES: Final = 1_000_000
UNREAD_SECONDS: Final = 10
IDLE_SECONDS: Final = 5
MOST_CONNECTIONS: Final = 1_000
MOST_WAITING: Final = 256
"""The maximum number of waiting connections: more than a server accepts at once, because a connection with a request in
progress is read before it could be closed."""
WAITING_BYTES: Final = 2_000_000
"""The maximum size of incomplete headers in bytes, in all connections together."""

HEADERS: Final = (
    (
        "Permissions-Policy",
        "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""The headers of every response, including uvicorn's own; uvicorn adds them."""
REFUSAL_HEADERS: Final = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"connection", b"close"),
)
"""The headers of responses that are not Django's, in addition to HEADERS."""


class Awaited(Enum):
    """The data that the client must send next."""

    NOTHING = "nothing"
    HEADERS = "the rest of a request's headers"
    BODY = "the rest of a body that is being read"
    UNREAD = "the rest of a body that has been answered already"


_SECONDS: Final = {
    Awaited.HEADERS: HEADER_SECONDS,
    Awaited.BODY: BODY_SECONDS,
    Awaited.UNREAD: UNREAD_SECONDS,
}


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 within the limits of this module."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.waiting_since = self.loop.time()
        self._awaited = Awaited.NOTHING
        self._received = 0
        """Bytes since the client's turn began."""
        self._clock: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether no request is in progress, or the client does not read the response."""
        return self.cycle is None or self.cycle.response_complete or self.flow.write_paused

    @property
    def held_bytes(self) -> int:
        """The stored bytes of incomplete headers."""
        return self._received if self._awaited is Awaited.HEADERS else 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if is_of_another_user(transport.get_extra_info("peername"), transport.get_extra_info("sockname")):
            transport.abort()
            return
        self._await(Awaited.HEADERS)
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(Awaited.NOTHING)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._awaited is Awaited.NOTHING:
            self._await(Awaited.HEADERS)
        self._received += len(data)
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        super().on_response_complete()
        self._watch()
        self._make_room()

    def pause_writing(self) -> None:
        self.waiting_since = self.loop.time()
        super().pause_writing()
        self._make_room()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._await(Awaited.NOTHING)
        super().handle_websocket_upgrade(event)
        opened = cast(WebSocketsSansIOProtocol, self.transport.get_protocol())
        if not opened.handshake_initiated:
            # The handshake violates a rule of the socket's own parser, which then reports nothing and waits for ever.
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse input that is not HTTP; a client that has its response already gets no other."""
        if self.cycle is not None and not self.cycle.response_complete:
            # The application is notified as for any lost connection.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        elif self.conn.our_state is h11.IDLE:
            too_long = self._received > HEADER_BYTES
            status = b"431 Request Header Fields Too Large" if too_long else b"400 Bad Request"
            self.transport.write(self._refusal(status, msg.encode("ascii")))
        self.transport.close()

    def _refusal(self, status: bytes, message: bytes) -> bytes:
        length = (b"content-length", str(len(message)).encode())
        headers = [*self.server_state.default_headers, *REFUSAL_HEADERS, length]
        lines = [b"HTTP/1.1 " + status, *(name + b": " + value for name, value in headers), b"", message]
        return b"\r\n".join(lines)

    def _watch(self) -> None:
        """Update what the client has to send next."""
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            awaited = Awaited.NOTHING
        elif self.conn.their_state is h11.IDLE:
            awaited = Awaited.HEADERS if self.conn.trailing_data[0] else Awaited.NOTHING
        elif self.conn.their_state is h11.SEND_BODY:
            awaited = Awaited.UNREAD if self.cycle.response_complete else Awaited.BODY
        else:
            awaited = Awaited.NOTHING
        if awaited is not self._awaited:
            self._await(awaited)
        elif awaited is Awaited.HEADERS:
            self._make_room()
        elif awaited is Awaited.UNREAD and self._received > UNREAD_BYTES:
            self.transport.abort()

    def _await(self, awaited: Awaited) -> None:
        """Wait for something from the client, within its time limit, or for nothing."""
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        self._awaited, self._received = awaited, 0
        if awaited is not Awaited.NOTHING:
            self._clock = self.loop.call_later(_SECONDS[awaited], self._time_is_up)

    def _time_is_up(self) -> None:
        is_held_up_by_us = self._awaited is Awaited.BODY and self.flow.read_paused
        if self._awaited is Awaited.BODY and (is_held_up_by_us or self._received >= BODY_BYTES):
            self._await(Awaited.BODY)
        else:
            self.transport.abort()

    def _make_room(self) -> None:
        """Close the longest-waiting connections while there are too many, or they take too much memory."""
        waiting = [one for one in self.connections if isinstance(one, BoundedProtocol) and one.is_waiting]
        waiting.sort(key=lambda one: one.waiting_since, reverse=True)
        most = most_connections()
        while waiting and (
            len(self.connections) > most
            or len(waiting) > MOST_WAITING
            or sum(one.held_bytes for one in waiting) > WAITING_BYTES
        ):
            oldest = waiting.pop()
            self.connections.discard(oldest)
            oldest.transport.abort()


class RefusableSocket(WebSocketsSansIOProtocol):
    """A socket whose handshake the application may refuse; uvicorn would log that as an application error."""

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True


def most_connections() -> int:
    """The maximum number of connections: half of the descriptors are reserved for files and children."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MOST_CONNECTIONS, descriptors // 2)


def raise_descriptor_limit() -> None:
    """Raise the limit of open files and connections as far as allowed. Raises OSError, ValueError."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# ---- listeners -------------------------------------------------------------------------------------------

IPV4: Final = "127.0.0.1"
IPV6: Final = "::1"
LAST_PORT: Final = 65_535
PORTS_TRIED: Final = 100
BACKLOG: Final = 128
NO_IPV6: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)


@contextmanager
def listening(port: int, hosts: Sequence[str] = (IPV4,)) -> Iterator[list[socket.socket]]:
    """A socket on each host, all with the same port; port 0: any port that is free on all of them.

    IPv6 is left out if the machine does not have it. Raises Conflict `port_taken`, SystemFailure `port_refused`.
    """
    for _ in range(PORTS_TRIED):
        with ExitStack() as attempt:
            try:
                listeners = _attempted(port, hosts, attempt)
            except OSError as fault:
                if fault.errno == errno.EADDRINUSE and port == 0:
                    # The port that was free on the first host is in use on the next.
                    continue
                raise _refusal(port, fault) from fault
            yield listeners
            return
    raise Conflict("port_taken", "No port is free on all addresses. The server was not started. Try again.")


@contextmanager
def listening_from(port: int, hosts: Sequence[str]) -> Iterator[list[socket.socket]]:
    """As `listening`, on the first port from this one on that is free on all hosts. Raises Conflict `port_taken`."""
    with ExitStack() as stack:
        last = min(port + PORTS_TRIED, LAST_PORT)
        for candidate in range(port, last + 1):
            try:
                listeners = stack.enter_context(listening(candidate, hosts))
            except Conflict:
                continue
            yield listeners
            return
    message = f"All ports from {port} to {last} are in use. The server was not started. Choose another with --port."
    raise Conflict("port_taken", message)


def shared_port(listeners: Sequence[socket.socket]) -> int:
    """The port shared by all sockets."""
    port: int = listeners[0].getsockname()[1]
    return port


def _attempted(port: int, hosts: Sequence[str], attempt: ExitStack) -> list[socket.socket]:
    found: list[socket.socket] = []
    for host in hosts:
        is_ipv6 = ":" in host
        try:
            # TCP is named explicitly, because otherwise asyncio does not send small responses at once.
            listener = attempt.enter_context(
                socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            )
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_ipv6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((host, port))
            # The port is in use only now: two sockets with SO_REUSEADDR can both be bound to it.
            listener.listen(BACKLOG)
        except OSError as fault:
            if is_ipv6 and fault.errno in NO_IPV6:
                continue
            raise
        port = listener.getsockname()[1]
        found.append(listener)
    return found


def _refusal(port: int, fault: OSError) -> Conflict | SystemFailure:
    if fault.errno == errno.EADDRINUSE:
        return Conflict("port_taken", f"Port {port} is in use. The server was not started. Choose another with --port.")
    return SystemFailure("port_refused", f"Port {port} cannot be used: {fault.strerror}. The server was not started.")


# ---- the user of a connection ----------------------------------------------------------------------------

Address = tuple[str, int]
"""Host and port, as `getsockname` returns them; further elements are ignored."""

NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
NLM_F_REQUEST: Final = 1
TCP_LISTEN: Final = 10
ANY_STATE: Final = 0xFFFFFFFF
NO_COOKIE: Final = b"\xff" * 8
ANSWER_BYTES: Final = 4_096

MESSAGE_HEADER: Final = struct.Struct("=IHHII")
"""Length, type, flags, sequence, port: `struct nlmsghdr`."""
REQUEST: Final = struct.Struct("=BBBBI")
"""Family, protocol, extensions, padding, states: `struct inet_diag_req_v2` up to the identity of the socket."""
IDENTITY: Final = struct.Struct("!HH16s16sI")
"""Both ports and both addresses, interface: `struct inet_diag_sockid` up to its cookie."""
ANSWER: Final = struct.Struct("=BBBB48xIIIII")
"""Family, state, timer, retransmits; after the identity expiry, both queues, user, inode: `inet_diag_msg`."""


def is_of_another_user(peer: Address | None, own: Address | None) -> bool:
    """Whether the connection from `peer` to `own` is known to belong to a user other than this one and root."""
    return user_of(peer, own) not in (None, 0, os.geteuid())


def user_of(peer: Address | None, own: Address | None) -> int | None:
    """The id of the user who opened the connection from `peer` to `own`; None if unknown.

    A connection that is closed already has no addresses.
    """
    if sys.platform != "linux" or peer is None or own is None:
        return None
    local, remote = ip_address(peer[0]), ip_address(own[0])
    family = socket.AF_INET6 if local.version == 6 else socket.AF_INET
    identity = IDENTITY.pack(peer[1], own[1], local.packed, remote.packed, 0) + NO_COOKIE
    request = REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, ANY_STATE) + identity
    length = MESSAGE_HEADER.size + len(request)
    message = MESSAGE_HEADER.pack(length, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0) + request
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
            kernel.send(message)
            # The kernel has answered before `send` returns.
            return _user_in(kernel.recv(ANSWER_BYTES, socket.MSG_DONTWAIT))
    except OSError:
        # This kernel has no socket diagnostics.
        return None


def _user_in(answer: bytes) -> int | None:
    """The user in the kernel's answer; None if it describes no open socket."""
    if len(answer) < MESSAGE_HEADER.size + ANSWER.size:
        return None
    _, kind, *_ = MESSAGE_HEADER.unpack_from(answer)
    _, state, _, _, _, _, _, user, _ = ANSWER.unpack_from(answer, MESSAGE_HEADER.size)
    # If this connection has no socket, the kernel returns one that listens at the peer's address.
    return None if kind != SOCK_DIAG_BY_FAMILY or state == TCP_LISTEN else int(user)

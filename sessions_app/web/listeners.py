"""EDGE: sockets that listen on this machine only."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from sessions_app.sessionlog.errors import Conflict, SystemFailure

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
    with ExitStack() as stack:
        yield _listeners(port, hosts, stack)


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
    """The port that all of them share."""
    port: int = listeners[0].getsockname()[1]
    return port


def _listeners(port: int, hosts: Sequence[str], stack: ExitStack) -> list[socket.socket]:
    for _ in range(PORTS_TRIED):
        with ExitStack() as attempt:
            try:
                listeners = _attempted(port, hosts, attempt)
            except OSError as fault:
                if fault.errno == errno.EADDRINUSE and port == 0:
                    # The port that was free on the first host is in use on the next.
                    continue
                raise _refusal(port, fault) from fault
            stack.enter_context(attempt.pop_all())
            return listeners
    raise Conflict("port_taken", "No port is free on all addresses. The server was not started. Try again.")


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

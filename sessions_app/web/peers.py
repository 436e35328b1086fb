"""EDGE: the user of this machine who opened a connection.

On Linux, the kernel's socket diagnostics give it (`sock_diag(7)`), in some 40 microseconds per socket. `/proc/net/tcp`
and `tcp6` have the same data, but to write them the kernel goes through all its sockets, which takes tens of
milliseconds: a client that opens many connections would delay everybody else. If the socket is closed already, and on
other systems, the user is unknown.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from ipaddress import ip_address
from typing import Final

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

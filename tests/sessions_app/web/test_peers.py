"""The client of a connection: other users of the machine are recognised, also by the server."""

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPException
from pathlib import Path
from unittest.mock import Mock

import pytest

from sessions_app.server import connections
from sessions_app.server.connections import IPV4, IPV6, Address, is_of_another_user, listening, user_of
from sessions_app.server.running_server import api_token, browser_host
from tests.processes import NOBODY, become_nobody, in_child
from tests.raw_http import cookie_of, status_at

MAPPED = "::ffff:127.0.0.1"
"""127.0.0.1 in the notation of an IPv6 socket."""
linux = pytest.mark.skipif(not Path("/proc/net").exists(), reason="only Linux says whose a socket is")
ways = pytest.mark.parametrize(("served_at", "asked_at"), [(IPV4, IPV4), (IPV6, IPV6), (IPV4, MAPPED)])


@contextmanager
def connected(served_at: str, asked_at: str) -> Iterator[tuple[socket.socket, Address, Address]]:
    """A connection: the client's end, and both addresses as seen by the server's end."""
    with listening(0, [served_at]) as (listener,), closing(client_of(asked_at)) as client:
        client.connect((asked_at, listener.getsockname()[1]))
        with closing(listener.accept()[0]) as accepted:
            yield client, accepted.getpeername()[:2], accepted.getsockname()[:2]


def client_of(asked_at: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in asked_at else socket.AF_INET)


@linux
@ways
def test_the_user_of_a_connection_is_known_and_distinguished_from_us_and_from_root(served_at, asked_at, monkeypatch):
    with connected(served_at, asked_at) as (_, peer, own):
        assert user_of(peer, own) == os.geteuid()
        assert not is_of_another_user(peer, own)
        for users, is_another in (((0, 1_000), False), ((1_000, 1_000), False), ((1_001, 1_000), True)):
            monkeypatch.setattr(connections, "_user_in", lambda _, user=users[0]: user)
            monkeypatch.setattr(os, "geteuid", lambda user=users[1]: user)
            assert is_of_another_user(peer, own) is is_another


@linux
@ways
def test_a_socket_belongs_to_the_user_who_opened_it(served_at, asked_at):
    """Only root can become another user for this; otherwise it is the same user."""
    with listening(0, [served_at]) as (listener,):

        def tell() -> None:
            with closing(listener.accept()[0]) as accepted:
                found = user_of(accepted.getpeername()[:2], accepted.getsockname()[:2])
                accepted.sendall(str(found).encode())

        def ask() -> str:
            with client_of(asked_at) as client:
                client.connect((asked_at, listener.getsockname()[1]))
                return client.recv(20).decode()

        teller = threading.Thread(target=tell)
        teller.start()
        user = in_child(ask, become_nobody)
        teller.join()
    assert user == str(NOBODY if os.geteuid() == 0 else os.geteuid())


@linux
def test_the_user_of_a_missing_connection_is_unknown():
    with connected(IPV4, IPV4) as (client, peer, own):
        assert user_of((IPV4, 9), own) is None
        assert user_of(own, (IPV4, 9)) is None
        client.close()
    assert user_of(peer, own) in (None, 0)
    assert user_of(None, own) is None


def test_a_listener_at_the_address_of_a_peer_is_not_the_peer():
    with listening(0) as (other,), listening(0) as (own,):
        assert user_of(other.getsockname(), own.getsockname()) is None


@pytest.mark.parametrize("answer", [b"", b"\0" * 15, b"\0" * 500, b"\xff" * 500, b"\x14\0\0\0\x14\0"], ids=range(5))
def test_an_answer_without_a_socket_has_no_user(answer):
    assert connections._user_in(answer) is None


def test_without_socket_diagnostics_nobody_is_refused(monkeypatch):
    monkeypatch.setattr(connections.socket, "socket", Mock(side_effect=OSError(errno.EPROTONOSUPPORT, "not supported")))
    assert not is_of_another_user((IPV4, 1), (IPV4, 2))
    monkeypatch.setattr(connections.sys, "platform", "darwin")
    assert not is_of_another_user((IPV6, 1), (IPV6, 2))


@linux
@pytest.mark.parametrize("at", [IPV4, IPV6, MAPPED])
@pytest.mark.parametrize("path", ["/", "/static/redline/redline.css", "/api/runs/999999"])
def test_another_user_gets_no_answer_whatever_they_send(server, at, path):
    brought = {"Authorization": f"Bearer {api_token(server.data)}"} if path.startswith("/api/") else {}

    def ask() -> str:
        try:
            return str(status_at(at, browser_host(server.data), path, server, Cookie=cookie_of(server), **brought))
        except (OSError, HTTPException):
            return "no answer"

    answered = "404" if path.startswith("/api/") else "200"
    assert in_child(ask) == answered
    # Only root can become another user for this.
    assert in_child(ask, become_nobody) == ("no answer" if os.geteuid() == 0 else answered)

"""The address of a running server: where it is served, how it is found, and how its host name is revoked."""

import contextlib
import errno
import json
import socket
import stat
import tempfile
import urllib.error
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from sessions_app.management.commands import serve
from sessions_app.server import connections
from sessions_app.server.connections import IPV4, IPV6, listening, listening_from, shared_port
from sessions_app.server.running_server import (
    RunningServer,
    api_token,
    browser_host,
    launch_address,
    only_server,
    running_server,
)
from sessions_app.sessionlog.errors import Conflict
from tests.html import missing
from tests.installation import Installation, refusal
from tests.raw_http import cookie_of, status_at
from tests.server import Server, opener, start_server
from tests.wait import WAIT_SECONDS


@pytest.fixture
def of_server(server, settings):
    """Commands in this process that use the data directory of the server."""
    settings.REDLINE_DATA_DIR = server.data
    return Installation(server.data, Path(server.environment["HOME"]))


def ask_for_the_list(socket: ClientConnection, query: str = "") -> None:
    socket.send(json.dumps({"query": query}))
    assert socket.recv(timeout=WAIT_SECONDS)


def closing_code(socket: ClientConnection) -> int:
    """The code with which the server closes a socket, after whatever it still sends."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            socket.recv(timeout=WAIT_SECONDS)
    assert socket.close_code is not None
    return socket.close_code


@pytest.mark.parametrize("at", [IPV4, IPV6])
def test_the_port_is_served_on_both_loopback_addresses(server, at):
    """A browser tries ::1 first: no other process may listen there."""
    name = browser_host(server.data)
    assert status_at(at, name, "/", server, Cookie=cookie_of(server)) == 200
    assert status_at(at, name, "/", server) == 403
    assert status_at(at, "evil.example", "/", server) == 400


def test_the_plain_address_admits_scripts_but_not_browsers(server):
    bearer = {"Authorization": f"Bearer {api_token(server.data)}"}
    for at, host in ((IPV4, "127.0.0.1"), (IPV4, "localhost"), (IPV6, "[::1]")):
        assert status_at(at, host, "/api/runs/999999", server, **bearer) == 404
        assert status_at(at, host, "/", server, **bearer) == 403
        assert status_at(at, host, "/", server, Cookie=cookie_of(server)) == 403
        assert status_at(at, host, "/api/runs/999999", server, Cookie=cookie_of(server)) == 401
    with pytest.raises(InvalidStatus, match="403"):
        server.socket("/ws/sessions", at="127.0.0.1")


def test_the_launch_address_has_the_secret_name_and_a_new_one_admits_another_browser(server, of_server):
    ended = of_server.call("address", "--json")
    assert (ended.code, ended.json.keys()) == (0, {"address"})
    assert opener().open(ended.json["address"]).status == 200
    forwarded = of_server.call("address", "--port", "9", "--json").json["address"]
    for address, port in ((server.address, server.port), (ended.json["address"], server.port), (forwarded, 9)):
        assert address.startswith(f"http://{browser_host(server.data)}:{port}/launch?token=")
    for name in ("server.json", "address_name"):
        assert stat.S_IMODE((server.data / name).stat().st_mode) == 0o600, "its record is private"


def test_without_a_server_there_is_no_address_and_the_host_name_can_be_revoked(redline):
    assert redline.call("address", "--json").refusal == "4 not_served"
    for_people = redline.call("address")
    assert (for_people.code, for_people.out, "redline serve" in for_people.err) == (4, "", True)
    RunningServer(8123, plain=False).keep(redline.data)
    assert redline.call("address", "--json").refusal == "4 not_served", "a server was killed and left its record"
    old = browser_host(redline.data)
    ended = redline.call("address", "--revoke", "--json")
    assert (ended.code, ended.json) == (0, {"address": None})
    assert browser_host(redline.data) != old


def test_the_server_record_is_removed_when_the_server_ends(tmp_path):
    assert running_server(tmp_path) is None
    with only_server(tmp_path):
        assert running_server(tmp_path) is None
        RunningServer(8123, plain=False).keep(tmp_path)
        assert running_server(tmp_path) == RunningServer(8123, plain=False)
        assert launch_address(tmp_path, RunningServer(8123, plain=True)).startswith("http://127.0.0.1:8123/")
        assert refusal(lambda: only_server(tmp_path).__enter__()) == "4 already_served"
    assert running_server(tmp_path) is None
    assert not (tmp_path / "server.json").exists()


def test_revoking_the_host_name_locks_browsers_out_and_closes_open_sockets(tmp_path, settings):
    """Takes the host name of its server away."""
    with start_server(tmp_path) as running, running.socket("/ws/sessions") as socket:
        ask_for_the_list(socket)
        old = browser_host(running.data)
        settings.REDLINE_DATA_DIR = running.data
        ended = Installation(running.data, tmp_path).call("address", "--revoke", "--json")
        assert closing_code(socket) == 4001
        assert status_at(IPV4, old, "/", running, Cookie=cookie_of(running)) == 400
        assert status_at(IPV4, browser_host(running.data), "/", running, Cookie=cookie_of(running)) == 403
        assert opener().open(ended.json["address"]).status == 200
        assert old not in ended.json["address"]


def test_logging_out_closes_only_this_browsers_sockets(server, of_server):
    def another_browser() -> Server:
        address = of_server.call("address", "--json").json["address"]
        one = Server(server.child, address, server.root, server.data, server.environment)
        one.let_in()
        return one

    leaver, other = another_browser(), another_browser()
    with leaver.socket("/ws/sessions") as socket, other.socket("/ws/sessions") as stays:
        ask_for_the_list(socket)
        ask_for_the_list(stays)
        leaver.post("/settings", "/log-out")
        assert closing_code(socket) == 4001
        assert "Sessions" in other.get("/")
        ask_for_the_list(stays, "?show=due")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        leaver.get("/")


def take(stack: ExitStack, host: str, port: int = 0) -> int:
    """A port on which another socket listens."""
    taken = stack.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
    taken.bind((host, port))
    taken.listen()
    return int(taken.getsockname()[1])


@pytest.mark.parametrize(("host", "other"), [(IPV4, IPV6), (IPV6, IPV4)])
def test_a_port_taken_on_either_address_is_not_used_and_the_other_address_is_released(host, other):
    with ExitStack() as stack:
        port = take(stack, host)
        with pytest.raises(Conflict, match=f"Port {port} is in use"):
            stack.enter_context(listening(port, (IPV4, IPV6)))
        take(stack, other, port)
        found = stack.enter_context(listening_from(port, (IPV4, IPV6)))
        assert shared_port(found) > port
        assert [one.getsockname()[0] for one in found] == [IPV4, IPV6]
        assert {one.getsockname()[1] for one in found} == {shared_port(found)}


def test_an_automatic_port_is_free_on_both_addresses(monkeypatch):
    """A port that the system offers for one address may be taken on the other: then another port is tried."""
    usual = socket.socket.bind
    refused: list[Any] = []

    class Taken(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6 and len(refused) < 3:
                refused.append(address)
                raise OSError(errno.EADDRINUSE, "taken")
            usual(self, address)

    monkeypatch.setattr(connections.socket, "socket", Taken)
    with listening(0, (IPV4, IPV6)) as found:
        assert len({one.getsockname()[1] for one in found}) == 1
    assert len(refused) == 3


def test_without_ipv6_only_ipv4_is_served():
    """2001:db8:: is reserved for documentation: no machine has it, just as one without IPv6 has no ::1."""
    with listening(0, (IPV4, "2001:db8::1")) as found:
        assert [one.getsockname()[0] for one in found] == [IPV4]


@pytest.fixture
def unserved(redline, settings, monkeypatch):
    """An installation whose server ends as soon as it has printed its address."""
    settings.REDLINE_PLAIN = False
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    monkeypatch.setattr(serve.uvicorn.Server, "run", lambda *_, **__: None)
    return redline


def test_a_server_without_ipv6_says_so(unserved, monkeypatch):
    monkeypatch.setattr(serve, "HOSTS", (IPV4, "2001:db8::1"))
    assert "no IPv6: the server uses 127.0.0.1 only" in unserved.call("serve", "--port", "0").out
    (listening,) = unserved.call("serve", "--port", "0", "--json").json["listening"]
    assert listening.startswith("127.0.0.1:")


def test_without_a_port_option_the_next_free_port_is_used_and_announced(unserved, monkeypatch):
    with ExitStack() as stack:
        port = take(stack, IPV6)
        monkeypatch.setattr(serve, "DEFAULT_PORT", port)
        assert f"Port {port} is in use; " in unserved.call("serve").out
        used = unserved.call("serve", "--json").json
        assert [one.rpartition(":")[0] for one in used["listening"]] == ["127.0.0.1", "[::1]"]
        assert f".localhost:{port}/" not in used["address"]
        assert unserved.call("serve", "--port", str(port), "--json").refusal == "4 port_taken"
    assert "taken" not in unserved.call("serve").out


def test_a_plain_server_announces_its_weaker_protection(unserved):
    printed = unserved.call("serve", "--port", "0", "--plain").out
    assert not missing(printed, "weaker", "every port", "http://127.0.0.1:")
    assert unserved.call("serve", "--port", "0", "--plain", "--json").json["plain"] is True

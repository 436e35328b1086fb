"""The bytes on the connection, read directly from a socket."""

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from compaction_app.management.commands import fake_provider
from compaction_app.scripted.request import Dialect
from compaction_app.scripted.server import ScriptedProvider, listening
from tests.compaction_app.scripted.official_clients import DIALECTS, PATHS, TOOLS, ask
from tests.installation import Installation
from tests.wait import WAIT_SECONDS


def connected(provider: ScriptedProvider, dialect: Dialect, model: str) -> socket.socket:
    """A connection on which a stream was requested."""
    body: dict[str, Any] = {"model": model, "stream": True, "tools": TOOLS[dialect], "max_tokens": 100}
    body["messages"] = [{"role": "user", "content": "Begin."}]
    raw = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", provider.port), timeout=WAIT_SECONDS)
    connection.sendall(
        f"POST {PATHS[dialect]} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Anthropic-Version: 2023-06-01\r\nContent-Length: {len(raw)}\r\n\r\n".encode()
        + raw
    )
    return connection


def until_closed(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def until_complete(connection: socket.socket) -> bytes:
    """What is received until a chunked body has ended."""
    received = b""
    while b"\r\n0\r\n\r\n" not in received:
        piece = connection.recv(65_536)
        assert piece, received
        received += piece
    return received


@pytest.mark.parametrize("dialect", DIALECTS)
def test_split_bytes_cuts_events_and_characters_and_keep_alives_are_sent_between_events(provider, dialect):
    with connected(provider, dialect, "split-bytes") as connection:
        body = until_complete(connection).partition(b"\r\n\r\n")[2]
    assert body.startswith(b"1\r\n")
    # Each chunk has one byte, even within a character of three bytes.
    assert b"1\r\n\xe5\r\n1\r\n\xa4\r\n1\r\n\xa7\r\n" in body
    with connected(provider, dialect, "pings") as connection:
        received = until_complete(connection)
    assert received.count(b"event: ping" if dialect == "anthropic" else b": keep-alive") >= 3


def test_small_events_are_sent_at_once():
    """Otherwise one waits until the previous one is acknowledged: asyncio lets only sockets that say TCP not wait."""
    with listening() as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_simultaneous_streams_do_not_mix(provider):
    def one(number: int) -> bool:
        read = ask(provider, DIALECTS[number % 2], f"calls-{number + 1}")
        return read.calls == [("context_compaction_budget", {})]

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(one, range(20)))
    assert {request.model for request in provider.requests} == {f"calls-{n + 1}" for n in range(20)}
    assert len(provider.requests) == 20


def test_the_provider_ends_while_clients_are_served():
    with ScriptedProvider() as provider:
        names = ("stalls", "stalls-before", "long-thinking")
        connections = [connected(provider, "openai", name) for name in names]
        provider.wait_for(lambda: len(provider.requests) == 3)
    assert not any(thread.name == "scripted-provider" for thread in threading.enumerate())
    for connection in connections:
        until_closed(connection)
        connection.close()


@contextmanager
def serving(installation: Installation, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process, which ends without a fault when it is interrupted."""
    process = installation.start("fake_provider", "--port", "0", *arguments)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_SECONDS)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.wait()


def test_the_command_serves_both_dialects_until_it_is_interrupted_even_within_a_stream(fresh):
    with serving(fresh, "--json", "--script", "calls-2", "--pace", "0.2") as process:
        printed = json.loads(process.stdout.readline())
        assert printed.keys() == {"anthropic", "openai"}
        names = httpx.get(printed["openai"] + "/models", trust_env=False).json()
        assert names["data"][0]["id"] == "good-plan"
        body = {"model": "any", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "stream": True}
        version = {"anthropic-version": "2023-06-01"}
        address = printed["anthropic"] + "/v1/messages"
        answer = httpx.post(address, json=body, headers=version, timeout=WAIT_SECONDS, trust_env=False)
        assert answer.status_code == 200
        assert "event: message_stop" in answer.text
        with httpx.stream("POST", address, json=body, headers=version, trust_env=False) as stream:
            next(stream.iter_lines())
            process.send_signal(signal.SIGINT)
            process.wait(timeout=WAIT_SECONDS)


def test_the_command_prints_its_addresses_and_its_scripts(redline, monkeypatch):
    ports = set()

    def stopped(sockets: Sequence[socket.socket]) -> None:
        ports.update(each.getsockname()[1] for each in sockets)
        raise KeyboardInterrupt

    monkeypatch.setattr(fake_provider, "server_of", lambda _: SimpleNamespace(run=stopped))
    ended = redline.call("fake_provider", "--port", "0")
    (port,) = ports
    assert ended.code == 0
    for words in (f"http://127.0.0.1:{port}/v1", "Settings › Models", "thinking-signed", "calls-N"):
        assert words in ended.out


def test_an_unknown_script_or_a_taken_port_is_reported(redline):
    with listening() as taken:
        for option, value, code, error in (
            ("--script", "none", 2, "unknown_script"),
            *(("--pace", pace, 2, "bad_arguments") for pace in ("-1", "nan", "much")),
            ("--port", taken.getsockname()[1], 4, "port_taken"),
        ):
            ended = redline.call("fake_provider", option, value, "--json")
            assert (ended.code, ended.error) == (code, error)

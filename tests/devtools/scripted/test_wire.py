"""The bytes on the connection, read directly from a socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from devtools.scripted.response import Dialect
from devtools.scripted.server import ScriptedProvider, listening
from tests.devtools.scripted.official_clients import DIALECTS, TOOLS, ask
from tests.installation import Installation
from tests.wait import WAIT_SECONDS

PATHS: dict[Dialect, str] = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as serving:
        yield serving


def connected(provider: ScriptedProvider, dialect: Dialect, model: str) -> socket.socket:
    """A connection on which a stream was requested."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "Begin."}],
        "stream": True,
    }
    body |= {"tools": TOOLS[dialect], "max_tokens": 100}
    raw = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", provider.port), timeout=WAIT_SECONDS)
    connection.sendall(
        f"POST {PATHS[dialect]} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Anthropic-Version: 2023-06-01\r\nContent-Length: {len(raw)}\r\n\r\n".encode()
        + raw
    )
    return connection


def until_closed(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65_536):
        received += piece
    return received


@pytest.mark.parametrize("dialect", DIALECTS)
def test_cut_before_closes_without_a_byte(provider: ScriptedProvider, dialect: Dialect) -> None:
    with connected(provider, dialect, "cut-before") as connection:
        assert until_closed(connection) == b""
    assert provider.requests[0].was_cut
    assert provider.closed == []


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["cut-inside", "cut-after"])
def test_a_cut_leaves_the_chunked_body_without_its_end(
    provider: ScriptedProvider, dialect: Dialect, name: str
) -> None:
    with connected(provider, dialect, name) as connection:
        received = until_closed(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"text/event-stream" in head
    assert b"context_search_transcript" in body
    assert not body.endswith(b"0\r\n\r\n")
    assert not body.endswith(b"[DONE]\n\n\r\n")
    stopped = body.count(b"event: content_block_stop")
    if dialect == "anthropic":
        assert stopped == (2 if name == "cut-inside" else 3)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_split_bytes_cuts_events_and_characters(provider: ScriptedProvider, dialect: Dialect) -> None:
    with connected(provider, dialect, "split-bytes") as connection:
        received = b""
        while b"\r\n0\r\n\r\n" not in received:
            received += connection.recv(65_536)
    body = received.partition(b"\r\n\r\n")[2]
    assert body.startswith(b"1\r\n")
    # Each chunk has one byte, even within a character of three bytes.
    assert b"1\r\n\xe5\r\n1\r\n\xa4\r\n1\r\n\xa7\r\n" in body


@pytest.mark.parametrize("dialect", DIALECTS)
def test_keep_alives_are_sent_between_events(provider: ScriptedProvider, dialect: Dialect) -> None:
    with connected(provider, dialect, "pings") as connection:
        received = b""
        while b"\r\n0\r\n\r\n" not in received:
            received += connection.recv(65_536)
    assert received.count(b"event: ping" if dialect == "anthropic" else b": keep-alive") >= 3


@pytest.mark.parametrize("dialect", DIALECTS)
def test_small_events_are_sent_at_once(provider: ScriptedProvider, dialect: Dialect) -> None:
    """None waits until the previous one is acknowledged, which takes 40 ms."""
    ends = b"event: content_block_stop" if dialect == "anthropic" else b'"arguments": "{}"'
    arrived: list[float] = []
    received = b""
    with connected(provider, dialect, "slow-calls") as connection:
        while len(arrived) < 40:
            received += connection.recv(65_536)
            arrived += [time.time()] * (received.count(ends) - len(arrived))
        written = provider.requests[0].calls_at
        late = [there - here for here, there in zip(written, arrived, strict=False)]
    assert statistics.median(late) < 0.02


def test_simultaneous_streams_do_not_mix(provider: ScriptedProvider) -> None:
    def one(number: int) -> bool:
        read = ask(provider, DIALECTS[number % 2], f"calls-{number + 1}")
        return read.calls == [("context_compaction_budget", {})]

    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(one, range(40)))
    assert sorted(request.model for request in provider.requests) == sorted(
        f"calls-{n + 1}" for n in range(40)
    )


def test_the_provider_ends_while_clients_are_served() -> None:
    with ScriptedProvider() as provider:
        connections = [
            connected(provider, "openai", name) for name in ("stalls", "stalls-before", "long-thinking")
        ]
        provider.wait_for(lambda: len(provider.requests) == 3)
    assert not any(thread.name == "scripted-provider" for thread in threading.enumerate())
    for connection in connections:
        until_closed(connection)
        connection.close()


# ---- the command -------------------------------------------------------------------------------------------


def test_the_command_serves_both_dialects(fresh: Installation) -> None:
    process = fresh.start("fake_provider", "--port", "0", "--json", "--script", "calls-2", "--pace", "0.01")
    try:
        assert process.stdout is not None
        printed = json.loads(process.stdout.readline())
        assert printed.keys() == {"anthropic", "openai"}
        names = httpx.get(printed["openai"] + "/models", trust_env=False).json()
        assert names["data"][0]["id"] == "good-plan"
        body = {
            "model": "any",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "x"}],
            "stream": True,
        }
        version = {"anthropic-version": "2023-06-01"}
        answer = httpx.post(
            printed["anthropic"] + "/v1/messages", json=body, headers=version, trust_env=False
        )
        assert answer.status_code == 200
        assert "event: message_stop" in answer.text
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_SECONDS)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.wait()


def test_the_command_prints_its_address_and_its_script(fresh: Installation) -> None:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "fake_provider", "--port", "0"],
        env=fresh.environment(),
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        assert process.stdout is not None
        said = ""
        while "calls-N" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        assert "http://127.0.0.1:" in said
        assert "Models page" in said
        assert "thinking-signed" in said
    finally:
        os.kill(process.pid, signal.SIGINT)
        process.wait(timeout=WAIT_SECONDS)
        process.stdout.close()


def test_an_unknown_script_or_a_taken_port_is_reported(redline: Installation) -> None:
    ended = redline.call("fake_provider", "--script", "none", "--json")
    assert (ended.code, ended.error) == (2, "unknown_script")
    for pace in ("-1", "nan", "much"):
        ended = redline.call("fake_provider", "--pace", pace, "--json")
        assert (ended.code, ended.error) == (2, "bad_arguments")
    with listening() as taken:
        ended = redline.call("fake_provider", "--port", taken.getsockname()[1], "--json")
    assert (ended.code, ended.error) == (4, "port_taken")


def test_an_interrupt_ends_the_command_in_the_middle_of_a_stream(fresh: Installation) -> None:
    process = fresh.start("fake_provider", "--port", "0", "--json", "--pace", "0.5")
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["openai"] + "/chat/completions"
        body = {"model": "fifty-searches", "messages": [{"role": "user", "content": "x"}], "stream": True}
        with httpx.stream("POST", address, json=body, trust_env=False) as answer:
            next(answer.iter_lines())
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=WAIT_SECONDS)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.wait()

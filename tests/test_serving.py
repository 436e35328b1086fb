"""Promises of the server: it says where it is, it is alone, it stops when it is told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from tests.building import PROJECT, chain, raw, user


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "a.jsonl").write_bytes(raw(chain(user("hello from a real session"))))
    return {
        **os.environ,
        "REDLINE_DATA_DIR": str(tmp_path / "data"),
        "HOME": str(tmp_path),
        "REDLINE_ROOTS": json.dumps([{"path": str(tmp_path / "sessions"), "agent": "atomic"}]),
        "PYTHONPATH": str(PROJECT),
    }


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "redline", *arguments, "--json"]


@contextmanager
def server(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A running server on a free port, and the address that it printed."""
    child = subprocess.Popen(command("serve", "--port", "0"), env=environment, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        yield child, json.loads(child.stdout.readline())["address"]
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def test_the_printed_address_leads_to_the_pages_and_an_interrupt_ends_it(environment: dict[str, str]) -> None:
    with server(environment) as (child, address):
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        page = opener.open(address).read().decode()
        base = address.split("/launch")[0]
        for _ in range(200):
            if "hello from a real session" in page:
                break
            time.sleep(0.1)  # it is indexed behind, in a process of its own
            page = opener.open(base).read().decode()
        assert "hello from a real session" in page
        assert opener.open(f"{base}/static/redline/redline.css").status == 200
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(base)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=20) == 0


def test_a_second_server_on_the_same_data_is_refused(environment: dict[str, str]) -> None:
    with server(environment):
        second = subprocess.run(
            command("serve", "--port", "0"), env=environment, capture_output=True, check=False
        )
        assert second.returncode == 4
        assert json.loads(second.stdout)["error"]["code"] == "already_served"


def test_a_port_that_is_taken_is_said(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = subprocess.run(
            command("serve", "--port", port), env=environment, capture_output=True, check=False
        )
    assert refused.returncode == 4
    assert json.loads(refused.stdout)["error"]["code"] == "port_taken"


def test_another_address_lets_another_browser_in(environment: dict[str, str]) -> None:
    with server(environment) as (_, first):
        urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar())).open(first).close()
        port = first.split(":")[2].split("/")[0]
        made = subprocess.run(
            command("address", "--port", port), env=environment, capture_output=True, check=True
        )
        address = json.loads(made.stdout)["address"]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        assert opener.open(address).status == 200

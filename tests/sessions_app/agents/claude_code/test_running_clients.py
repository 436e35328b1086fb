"""A session that a running client has registered is open; a file of a killed client, or a link, proves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.claude_code.running_clients import clients_with

SESSION_ID = "8d0ae7c1-54d5-4bd3-9f44-2f1a6e0a3b11"


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / ".claude" / "projects" / "-home-dev-project" / f"{SESSION_ID}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


def register(session: Path, name: str, **values: Any) -> Path:
    directory = session.parents[2] / "sessions"
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(json.dumps({"sessionId": SESSION_ID, **values}))
    return path


def start_of_this_process() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def test_a_running_client_has_its_session_open(session: Path) -> None:
    register(session, f"{os.getpid()}.json", pid=os.getpid())
    assert clients_with(session) == (os.getpid(),)


def test_another_session_of_the_client_is_not_open(session: Path) -> None:
    register(session, f"{os.getpid()}.json", sessionId="another")
    assert clients_with(session) == ()


def test_a_client_that_has_ended_has_nothing_open(session: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    register(session, f"{ended.pid}.json")
    assert clients_with(session) == ()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows when a process started")
def test_a_later_process_with_the_same_id_is_not_the_client(session: Path) -> None:
    register(session, f"{os.getpid()}.json", procStart="1")
    assert clients_with(session) == ()
    register(session, f"{os.getpid()}.json", procStart=start_of_this_process())
    assert clients_with(session) == (os.getpid(),)


@pytest.mark.parametrize(
    "name", ["0.json", "99999999999999999999.json", "-1.json", "x.json", "1.key", "²³.json"]
)
def test_a_name_that_is_not_a_process_id_is_ignored(session: Path, name: str) -> None:
    register(session, name)
    assert clients_with(session) == ()


@pytest.mark.parametrize("content", ["", "[]", "null", '{"sessionId": 7}', "{" * 5_000])
def test_a_damaged_file_is_ignored(session: Path, content: str) -> None:
    register(session, f"{os.getpid()}.json").write_text(content)
    assert clients_with(session) == ()


def test_no_link_is_followed(session: Path, tmp_path: Path) -> None:
    real = register(session, "outside.json").rename(tmp_path / "outside.json")
    (session.parents[2] / "sessions" / f"{os.getpid()}.json").symlink_to(real)
    assert clients_with(session) == ()


def test_a_register_that_is_a_link_is_not_followed(session: Path, tmp_path: Path) -> None:
    register(session, f"{os.getpid()}.json")
    register_of = session.parents[2] / "sessions"
    register_of.rename(tmp_path / "elsewhere")
    register_of.symlink_to(tmp_path / "elsewhere")
    assert clients_with(session) == ()


def test_a_session_outside_the_agents_directory_is_not_known(tmp_path: Path) -> None:
    assert clients_with(tmp_path / f"{SESSION_ID}.jsonl") == ()

"""A session that a running client has registered is open; only a client that has certainly ended has nothing open."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.claude_code import running_clients
from sessions_app.agents.claude_code.running_clients import open_elsewhere

SESSION_ID = "8d0ae7c1-54d5-4bd3-9f44-2f1a6e0a3b11"
ELSEWHERE = "linux:0123456789abcdef0123456789abcdef:pid:[1]"
OWN = os.getpid()
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows when a process started")


@pytest.fixture
def session(tmp_path):
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


def shown(session: Path, configuration: Path | None = None) -> str:
    """What is shown: "open", "uncertain" or nothing."""
    found = open_elsewhere(session, configuration or session.parents[2])
    return "" if found is None else "open" if found.is_certain else "uncertain"


def start_of_this_process() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def own_domain() -> str:
    machine = Path("/etc/machine-id")
    name = machine.read_text().strip() if machine.exists() else ""
    return f"linux:{name}:{Path('/proc/self/ns/pid').readlink()}"


@pytest.fixture
def ended():
    """The id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_running_client_has_its_session_open_and_no_other(session):
    register(session, f"{OWN}.json", pid=OWN)
    found = open_elsewhere(session, session.parents[2])
    assert found == (f"is open in Claude Code (process {OWN})", True)
    register(session, f"{OWN}.json", sessionId="another")
    assert not shown(session)


def test_a_client_that_has_ended_has_nothing_open(session, ended):
    register(session, f"{ended}.json", pidDomain=own_domain())
    assert not shown(session)


@on_linux
def test_a_later_process_with_the_same_id_is_not_the_client(session):
    register(session, f"{OWN}.json", procStart="1")
    assert not shown(session)
    register(session, f"{OWN}.json", procStart=start_of_this_process())
    assert shown(session) == "open"


def test_a_start_of_another_form_proves_nothing(session):
    for start in (None, 1, "", "soon", "1.5", "1795377836210", "Sun Nov 22 20:11:00 2026", ["1"]):
        register(session, f"{OWN}.json", procStart=start)
        assert shown(session) == "open", start


def test_a_start_that_the_system_does_not_show_proves_nothing(session, monkeypatch, tmp_path):
    monkeypatch.setattr(running_clients, "_PROCESSES", tmp_path / "none")
    register(session, f"{OWN}.json", procStart="1", pidDomain=ELSEWHERE)
    assert shown(session) == "open"


def test_a_process_of_another_user_runs(session, monkeypatch):
    def denied(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", denied)
    register(session, f"{OWN}.json")
    assert shown(session) == "open"


@on_linux
def test_a_process_of_another_computer_or_container_cannot_be_seen(session, ended):
    register(session, f"{ended}.json", pidDomain=ELSEWHERE, procStart="1")
    found = open_elsewhere(session, session.parents[2])
    assert found is not None
    assert (f"process {ended}" in found.sentence, found.is_certain) == (True, False)
    register(session, f"{OWN}.json", pidDomain=ELSEWHERE, procStart=start_of_this_process())
    assert shown(session) == "open"


def test_a_name_that_is_not_a_process_id_is_ignored(session):
    for name in ("0.json", "99999999999999999999.json", "-1.json", "x.json", "1.key", "²³.json"):
        register(session, name)
        assert not shown(session), name


def test_a_damaged_file_of_a_running_process_may_be_of_the_session(session, ended):
    own = session.parents[2] / "sessions" / f"{OWN}.json"
    for content in ("", "[]", "null", "{}", '{"sessionId": 7}', "{" * 5_000):
        register(session, own.name).write_text(content)
        assert shown(session) == "uncertain", content
    own.rename(own.with_name(f"{ended}.json"))
    assert not shown(session)


def test_no_link_is_followed_but_it_may_be_of_the_session(session, tmp_path):
    outside = register(session, "outside.json", sessionId="another").rename(tmp_path / "outside.json")
    (session.parents[2] / "sessions" / f"{OWN}.json").symlink_to(outside)
    assert shown(session) == "uncertain"


def test_a_register_that_is_a_link_is_not_followed(session, tmp_path):
    register(session, f"{OWN}.json")
    of_session = session.parents[2] / "sessions"
    of_session.rename(tmp_path / "elsewhere")
    of_session.symlink_to(tmp_path / "elsewhere")
    found = open_elsewhere(session, session.parents[2])
    assert found is not None
    assert (str(of_session) in found.sentence, found.is_certain) == (True, False)


def test_without_a_register_nothing_is_known(session):
    assert not shown(session)
    (session.parents[2] / "sessions").write_text("")
    assert shown(session) == "uncertain"


def test_a_linked_directory_of_sessions_has_the_register_of_the_configuration(session, tmp_path):
    real = tmp_path / "disk" / "sessions of Claude"
    real.parent.mkdir()
    session.parents[1].rename(real)
    session.parents[1].symlink_to(real)
    register(session, f"{OWN}.json")
    found = real / "-home-dev-project" / session.name
    assert shown(found, session.parents[2]) == "open"
    assert not shown(found, tmp_path / "another")


def test_a_copy_outside_the_agents_directory_is_not_open(session, tmp_path):
    register(session, f"{OWN}.json")
    assert not shown(tmp_path / f"{SESSION_ID}.jsonl", session.parents[2])

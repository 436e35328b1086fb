"""The test of a connection: a program that stands in for an agent runs in an empty home, and asks or does not."""

import http.client
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from sessions_app.agents.registry import AGENTS
from sessions_app.connections import ConnectionTest, Listener, try_connection
from sessions_app.server.connection_files import ConnectedAgent
from tests.files import place

CLIENT: Final = """#!/usr/bin/env python3
import json, os, subprocess, sys
if "--version" in sys.argv:
    print("2.1.330")
elif "/compact" in sys.argv:
    assert os.environ["REDLINE_BRIDGE_TEST"] == "1"
    assert "redline-connect-" in os.environ["HOME"]
    settings = json.load(open(os.path.join(os.environ["CLAUDE_CONFIG_DIR"], "settings.json")))
    (entry,) = settings["hooks"]["PreCompact"][0]["hooks"]
    subprocess.run(entry["command"], shell=True)
    print(json.dumps({"result": "Compaction prevented"}))
else:
    print(json.dumps({"session_id": "11111111-1111-4111-8111-111111111111"}))
"""
ASKING: Final = """#!/usr/bin/env python3
import json, os, sys, urllib.request
assert sys.argv[1:3] == ["ask", "claude-code"]
path = os.path.join(os.environ["REDLINE_DATA_DIR"], "connections", sys.argv[4] + ".json")
found = json.load(open(path))
question = json.dumps({"test": True, "agent": "claude-code"}).encode()
headers = {"Authorization": "Bearer " + found["token"]}
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
opener.open(urllib.request.Request(found["url"] + "/api/handshakes", question, headers))
"""
SILENT: Final = "#!/bin/sh\nexit 0\n"


def program(path: Path, text: str) -> Path:
    place(path, text.encode())
    path.chmod(0o755)
    return path


@pytest.fixture
def one():
    return ConnectedAgent("claude-code", "claude-code", "", "t" * 40, 1, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def tried(tmp_path, monkeypatch, one):
    """Tests the connection with these programs in the places of `redline` and of the agent."""

    def test(redline: str, url: str = "", agent: str = CLIENT) -> ConnectionTest:
        program(tmp_path / "bin" / "claude", agent)
        command = program(tmp_path / "bin" / "redline", redline)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
        return try_connection(AGENTS["claude-code"], one, lambda data: f"REDLINE_DATA_DIR={data} {command}", url)

    return test


@pytest.fixture
def server():
    """It stands in for Redline's server: it accepts one token."""
    with Listener("", "") as listener:
        yield listener


@pytest.mark.parametrize(
    ("redline", "agent", "has_asked", "said"),
    [
        (ASKING, CLIENT, True, "Claude Code 2.1.330 was run in an empty home"),
        (SILENT, CLIENT, False, r"did not ask.*Compaction prevented"),
        (SILENT, SILENT, False, "could not be used"),
    ],
    ids=["a bridge that asks", "a bridge that does not ask", "a program that does not run"],
)
def test_whether_the_bridge_asks_is_said(tried, redline, agent, has_asked, said):
    trial = tried(redline, agent=agent)
    assert (trial.has_asked, trial.is_answered) == (has_asked, None)
    assert re.search(said, trial.sentence, re.DOTALL)


def test_the_server_gets_the_question_with_the_token_of_the_connection(tried, one, server):
    server.token = one.token
    trial = tried(ASKING, server.url)
    assert (trial.has_asked, trial.is_answered) == (True, True)
    assert server.requests == [{"test": True, "agent": "claude-code"}]


def test_a_server_that_refuses_the_token_or_is_gone(tried, server):
    refused, unreached = tried(ASKING, server.url), tried(ASKING, "http://127.0.0.1:9")
    assert "status 404" in refused.sentence
    for trial in (refused, unreached):
        assert (trial.has_asked, trial.is_answered) == (True, False)


def test_an_agent_that_is_not_installed(tmp_path, monkeypatch, one):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert try_connection(AGENTS["claude-code"], one, lambda _: "redline").has_asked is None


def test_the_listener_takes_nothing_without_its_token(server):
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    for headers in ({}, {"Authorization": "Bearer x"}):
        connection.request("POST", "/api/handshakes", json.dumps({"test": True}), headers)
        assert connection.getresponse().read() == b"{}"
        connection.close()
    assert server.requests == []

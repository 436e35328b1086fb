"""The files by which bridges find the server, and the tokens that admit them."""

import stat
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
from django.conf import settings

from sessions_app.server import connection_files
from sessions_app.server.running_server import api_token
from sessions_app.web.credentials import Credentials


def connected(name: str = "pi") -> connection_files.ConnectedAgent:
    return connection_files.ConnectedAgent(
        name, "pi", "", connection_files.new_secret(), bridge=1, made_at=datetime(2026, 1, 1, tzinfo=UTC)
    )


def test_a_connection_is_kept_privately_read_again_and_told_the_port_of_a_starting_server(tmp_path):
    one = connected()
    connection_files.write_connection(tmp_path, one)
    assert connection_files.connection(tmp_path, "pi") == one
    assert connection_files.connections(tmp_path) == [one]
    assert stat.S_IMODE(connection_files.connection_path(tmp_path, "pi").stat().st_mode) == 0o600
    assert [path.name for path in connection_files.connection_path(tmp_path, "pi").parent.iterdir()] == ["pi.json"]
    connection_files.announce_server(tmp_path, 8123)
    assert connection_files.connection(tmp_path, "pi") == msgspec.structs.replace(one, url="http://127.0.0.1:8123")


@pytest.mark.parametrize("name", ["", "../pi", "a/b", "Ä", "a.b", "x" * 81])
def test_no_other_file_can_be_named(tmp_path, name):
    with pytest.raises(ValueError, match="is not the name"):
        connection_files.connection_path(tmp_path, name)


def test_the_token_of_a_forgotten_connection_is_nowhere(tmp_path):
    one, other = connected("pi"), connected("codex")
    connection_files.write_connection(tmp_path, one)
    connection_files.write_connection(tmp_path, other)
    assert connection_files.connection_with(tmp_path, one.token) == one
    connection_files.delete_connection(tmp_path, "pi")
    assert connection_files.connection_with(tmp_path, one.token) is None
    assert connection_files.connection_with(tmp_path, other.token) == other
    connection_files.delete_connection(tmp_path, "pi")


@pytest.mark.parametrize("token", ["", "x", "é"])
def test_no_other_token_admits_nor_does_a_connection_without_one(tmp_path, token):
    connection_files.write_connection(tmp_path, connected())
    connection_files.write_connection(tmp_path, msgspec.structs.replace(connected("codex"), token=""))
    assert connection_files.connection_with(tmp_path, token) is None


def test_a_damaged_file_admits_nobody(tmp_path):
    connection_files.write_connection(tmp_path, connected("pi"))
    connection_files.connection_path(tmp_path, "pi").write_text("{")
    connection_files.write_connection(tmp_path, connected("codex"))
    connection_files.connection_path(tmp_path, "codex").rename(connection_files.connection_path(tmp_path, "other"))
    assert connection_files.connections(tmp_path) == []


def test_the_token_of_an_agent_counts_where_agents_ask_and_nowhere_else(redline):
    one = connected()
    connection_files.write_connection(settings.REDLINE_DATA_DIR, one)
    agent = Credentials("127.0.0.1:8000", "", "", f"Bearer {one.token}")
    script = replace(agent, authorization=f"Bearer {api_token(settings.REDLINE_DATA_DIR)}")
    for path in ("/api/handshakes", "/api/handshakes/7"):
        assert agent.admit_to(path)
        assert not script.admit_to(path)
    for path in ("/api/sessions", "/api/handshakesx", "/inbox"):
        assert not agent.admit_to(path)
    assert script.admit_to("/api/sessions")


def test_a_browser_is_not_admitted_where_agents_ask(browser):
    answer = browser.get("/api/handshakes/1")
    assert answer.status_code == 401
    assert "redline connect" in answer.json()["error"]["message"]

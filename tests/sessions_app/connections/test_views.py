"""The pages on which agents are connected: the change is shown, then made; connections are tested and removed."""

import json
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from django.test import Client

from sessions_app.disk import configuration_file
from sessions_app.server.connection_files import connections
from sessions_app.sessionlog.errors import SystemFailure
from tests.clients import page
from tests.files import place, unchanged
from tests.html import element, field, missing, text_of, text_sent

CONNECT = "/settings/agents/claude-code/connect"
REMOVE = "/settings/agents/claude-code/remove"


@pytest.fixture
def settings_file(redline):
    return place(redline.home / ".claude" / "settings.json", b'{\n  "model": "<b>opus</b>"\n}\n')


def words(browser: Client, address: str = "/settings/agents") -> str:
    return text_of(page(browser, address))


def digest(browser: Client, address: str) -> str:
    return field(browser.get(address), "digest")


def connected(browser: Client, project: str = "") -> None:
    shown = digest(browser, f"{CONNECT}?project={quote(project)}")
    answer = browser.post(CONNECT, {"project": project, "digest": shown})
    assert (answer.status_code, answer["Location"]) == (303, "/settings/agents")


def test_all_agents_that_can_ask_are_listed_and_others_have_no_page(browser):
    page = words(browser)
    assert not missing(page, "Claude Code", "Codex", "OpenCode", "pi", "Atomic")
    assert "Amp" not in page
    assert "2.1.330" in page
    assert text_of(element(browser.get("/settings/agents"), "title")) == "Agents · Redline"
    for key in ("amp", "nobody"):
        assert browser.get(f"/settings/agents/{key}/connect").status_code == 404


def test_an_agent_that_is_not_installed_is_still_listed_and_no_test_is_promised(browser, monkeypatch):
    assert "in an empty home" in words(browser, CONNECT)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "The program codex was not found." in words(browser)
    page = words(browser, CONNECT)
    assert "the program claude was not found on the PATH" in page
    assert "in an empty home" not in page


def test_a_connected_agent_whose_program_is_not_found_asks_all_the_same(browser, redline, settings_file, monkeypatch):
    connected(browser)
    monkeypatch.setenv("PATH", "/nowhere")
    page = words(browser)
    assert "Its program claude is not on the PATH with which this server was started." in page
    assert "claude was not found" not in page


def test_the_change_is_shown_and_nothing_is_written(browser, redline, settings_file):
    with unchanged(redline.home):
        answer = browser.get(CONNECT)
        assert not missing(text_of(answer), '+ "hooks": {', "ask claude-code --connection claude-code")
        assert b"<b>opus</b>" not in answer.content
    assert connections(redline.data) == []


def test_connected_and_removed(browser, redline, settings_file):
    before = settings_file.read_bytes()
    connected(browser)
    assert "redline ask" in settings_file.read_text()
    page = words(browser)
    assert "Claude Code is connected in all projects." in page
    # The stand-in for Claude Code begins no session.
    assert not missing(page, "The test did not work", "Changed file")
    assert "byte for byte" in words(browser, REMOVE)
    answer = browser.post(REMOVE, {"project": "", "digest": digest(browser, REMOVE)})
    assert (answer.status_code, settings_file.read_bytes()) == (303, before)
    assert "its token is void" in words(browser)
    assert connections(redline.data) == []


def test_connected_in_a_project(browser, redline, tmp_path):
    project = tmp_path / "a project"
    project.mkdir()
    connected(browser, str(project))
    assert (project / ".claude" / "settings.local.json").exists()
    assert "a project" in words(browser)
    assert "Disconnect it there first" in words(browser, CONNECT)
    address = f"{REMOVE}?project={quote(str(project))}"
    browser.post(REMOVE, {"project": str(project), "digest": digest(browser, address)})
    assert list(project.iterdir()) == []


@pytest.mark.parametrize("address", [CONNECT, REMOVE])
def test_only_the_change_that_was_shown_is_made(browser, redline, settings_file, address):
    if address == REMOVE:
        connected(browser)
    shown = digest(browser, address)
    settings_file.write_text(settings_file.read_text().replace("opus", "sonnet"))
    with unchanged(redline.home):
        assert "changed meanwhile" in text_sent(browser.post(address, {"project": "", "digest": shown}), 409)
    assert browser.post(address, {"project": ""}).status_code == 409


def test_a_file_that_cannot_be_changed_is_reported(browser, settings_file):
    settings_file.write_text("{")
    assert browser.post(CONNECT, {"project": ""}).status_code == 409
    for address, fault in (
        (CONNECT, "cannot be read"),
        (f"{CONNECT}?project=here", "Give the whole path"),
        (f"{CONNECT}?project=/nowhere", "is not a directory"),
        (f"{CONNECT}?project=/{'x' * 300}", "File name too long"),
        (REMOVE, "cannot be read"),
    ):
        assert fault in words(browser, address)
    settings_file.write_text("{}")
    assert "is not connected" in words(browser, REMOVE)


@pytest.mark.parametrize("in_project", [False, True])
def test_the_token_alone_is_revoked_if_the_file_cannot_be_changed(browser, redline, tmp_path, in_project):
    project = str(tmp_path) if in_project else ""
    address = f"{REMOVE}?project={quote(project)}"
    connected(browser, project)
    assert "Revoke the token only" not in words(browser, address)
    (one,) = connections(redline.data)
    Path(one.changed).write_text("{")
    shown = words(browser, address)
    assert not missing(shown, "cannot be read", "Revoke the token only", "lets Claude Code compact as usual")
    answer = browser.post(REMOVE, {"project": project, "revoke": "yes"})
    assert (answer.status_code, answer["Location"]) == (303, "/settings/agents")
    assert not missing(words(browser), "its token is void", f"{one.changed} is not changed")
    assert (connections(redline.data), Path(one.changed).read_text()) == ([], "{")
    again = browser.post(REMOVE, {"project": project, "revoke": "yes"})
    assert "is not connected" in text_sent(again, 409)
    assert "Revoke the token only" not in text_of(again)


def test_the_token_alone_is_revoked_if_the_file_cannot_be_written(browser, redline, settings_file, monkeypatch):
    connected(browser)
    shown = digest(browser, REMOVE)
    full = SystemFailure("disk_full", "The disk is full.")
    monkeypatch.setattr(configuration_file, "replace_configuration_file", Mock(side_effect=full))
    assert "Revoke the token only" in text_sent(browser.post(REMOVE, {"project": "", "digest": shown}), 503)
    assert browser.post(REMOVE, {"project": "", "revoke": "yes"}).status_code == 303
    assert connections(redline.data) == []


def test_a_project_that_cannot_be_meant_revokes_nothing(browser, redline):
    connected(browser)
    assert "Revoke the token only" not in text_sent(browser.post(REMOVE, {"project": "here", "revoke": "yes"}), 422)
    assert len(connections(redline.data)) == 1


def test_a_bridge_without_a_connection_is_shown_and_can_be_removed(browser, redline, settings_file):
    with unchanged(settings_file):
        connected(browser)
        assert "belongs to no connection" not in words(browser)
        assert browser.post(REMOVE, {"project": "", "revoke": "yes"}).status_code == 303
        assert not missing(words(browser), "settings.json still has a bridge", "Remove the bridge…")
        browser.post(REMOVE, {"project": "", "digest": digest(browser, REMOVE)})
    assert "belongs to no connection" not in words(browser)


def test_a_connection_is_tested_again(browser, redline):
    connected(browser)
    browser.get("/settings/agents")
    answer = browser.post("/settings/agents/claude-code/test", {"name": "claude-code"})
    assert (answer.status_code, answer["Location"]) == (303, "/settings/agents")
    assert "could not be used" in words(browser)
    browser.post("/settings/agents/claude-code/test", {"name": "other"})
    assert "is not connected any more" in words(browser)
    assert browser.get("/settings/agents/claude-code/test")["Location"] == "/settings/agents#agent-claude-code"


def test_what_became_of_a_bridge_is_shown(browser, redline, settings_file):
    connected(browser)
    settings_file.write_text("{}")
    assert not missing(words(browser), "missing", "Connect again")
    connected(browser)
    assert json.loads(settings_file.read_text())["hooks"]["PreCompact"]

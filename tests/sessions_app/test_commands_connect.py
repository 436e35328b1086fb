"""The command `connect`: the change is shown, confirmed and written; a connection is listed and removed."""

import json
import re
from pathlib import Path
from unittest import mock

import pytest

from sessions_app.disk import configuration_file
from sessions_app.server.connection_files import connections
from sessions_app.sessionlog.errors import SystemFailure
from tests.files import place, unchanged
from tests.html import missing
from tests.installation import UNSAFE_CHARACTERS, Installation, Result


@pytest.fixture
def settings_file(redline):
    return place(redline.home / ".claude" / "settings.json", b'{\n  "model": "opus"\n}\n')


def connected(redline: Installation, *arguments: object) -> Result:
    """The command that has connected an agent, without a test."""
    return redline.call("connect", *arguments, "--yes", "--no-test").ok()


def test_the_change_is_shown_and_nothing_is_written_without_a_confirmation(redline, settings_file):
    with unchanged(redline.home):
        ended = redline.call("connect", "claude-code")
        assert ended.code == 5
        assert not missing(ended.out, '-  "model": "opus"\n+  "model": "opus",\n', "redline ask claude-code")
        assert "redline connect claude-code --yes" in ended.err
        assert re.match(r"In .*settings\.json, \d+ lines would be added and 1 line deleted\.\n", ended.out)
        assert redline.call("connect", "claude-code", "--json").refusal == "5 not_confirmed"


def test_a_long_change_is_summed_up_and_shown_on_request(redline):
    ended = redline.call("connect", "pi")
    assert ended.code == 5
    summary, more = ended.out.splitlines()
    assert re.fullmatch(r".*/redline\.ts is a new file of \d{3} lines\.", summary)
    assert more == "--full shows them."
    full = redline.call("connect", "pi", "--full").out.splitlines()
    assert (full[0], len(full) > 500, "+" in {line[:1] for line in full}) == (summary, True, True)
    connected(redline, "pi")
    assert "redline.ts is deleted, with its " in redline.call("connect", "pi", "--disconnect").out


def test_connected_listed_and_removed(redline, settings_file):
    before = settings_file.read_bytes()
    ended = connected(redline, "claude-code")
    assert not missing(
        ended.out, "Claude Code is connected in all projects.", "`redline connect claude-code --disconnect`"
    )
    assert "redline ask" in settings_file.read_text()
    assert str(settings_file) in redline.call("connect").out
    assert redline.call("connect", "claude-code", "--disconnect").code == 5
    ended = redline.call("connect", "claude-code", "--disconnect", "--yes")
    assert (ended.code, settings_file.read_bytes()) == (0, before)
    assert "its token is void" in ended.out
    assert "No agent is connected." in redline.call("connect").out


def test_a_hard_link_that_a_change_would_break_is_named_before_the_question(redline, settings_file):
    one, other = settings_file.with_name("one.json"), settings_file.with_name("other.json")
    for link in (one, other):
        link.hardlink_to(settings_file)
    assert "2 other names (hard links), which keep the present content" in redline.call("connect", "claude-code").out
    assert settings_file.samefile(one)
    connected(redline, "claude-code")
    assert "redline ask" not in one.read_text()
    assert "hard link" not in connected(redline, "claude-code").out
    other.unlink()
    other.hardlink_to(settings_file)
    ended = redline.call("connect", "claude-code", "--disconnect")
    assert (ended.code, "another name (a hard link)" in ended.out) == (5, True)


def test_for_programs(redline, settings_file):
    document = connected(redline, "claude-code", "--json").json
    assert document.keys() == {
        *("name", "agent", "project", "path", "bridge", "madeAt", "backup"),
        *("changed", "diff", "remarks", "test", "nextSteps"),
    }
    assert "token" not in json.dumps(document)
    (listed,) = redline.call("connect", "--json").json["connections"]
    assert (listed["name"], listed["state"], listed["detail"]) == ("claude-code", "current", "")
    ended = redline.call("connect", "claude-code", "--disconnect", "--yes", "--json").json
    assert ended == {
        "disconnected": "claude-code",
        "removed": "claude-code",
        "path": str(settings_file),
        "changed": True,
    }


def test_a_failed_test_is_reported_although_the_agent_is_connected(redline, settings_file):
    """The stand-in for Claude Code prints its version and begins no session."""
    ended = redline.call("connect", "claude-code", "--yes", "--json")
    assert (ended.code, ended.json["test"]["has_asked"]) == (1, False)
    assert "redline ask" in settings_file.read_text()


def test_in_a_project(redline, tmp_path):
    project = tmp_path / "-x y\x1b"
    project.mkdir()
    assert not UNSAFE_CHARACTERS.search(connected(redline, "codex", "--project", project).out)
    assert (project / ".codex" / "hooks.json").exists()
    assert "\\x1b" in redline.call("connect").out
    assert redline.call("connect", "codex", "--project", project, "--disconnect", "--yes").code == 0
    assert list(project.iterdir()) == []


@pytest.mark.parametrize("in_project", [False, True])
def test_a_token_is_revoked_although_the_file_cannot_be_changed(redline, tmp_path, in_project):
    arguments = ["claude-code", *(["--project", str(tmp_path)] if in_project else [])]
    made = connected(redline, *arguments, "--json").json
    path = Path(made["path"])
    path.write_text("{")
    flag = f"`redline connect {' '.join(arguments)} --revoke"
    ended = redline.call("connect", *arguments, "--disconnect", "--yes")
    assert (ended.code, f"{flag}`" in ended.err) == (2, True)
    ended = redline.call("connect", *arguments, "--revoke")
    assert (ended.code, f"{flag} --yes`" in ended.err) == (5, True)
    assert f"{path} is not changed" in ended.out
    assert len(redline.call("connect", "--json").json["connections"]) == 1
    revoked = redline.call("connect", *arguments, "--revoke", "--yes", "--json").json
    assert revoked == {"revoked": made["name"], "path": str(path), "changed": False}
    assert path.read_text() == "{"
    assert redline.call("connect", "--json").json["connections"] == []
    assert "--revoke" not in redline.call("connect", *arguments, "--disconnect", "--yes").err


@pytest.mark.parametrize("step", ["read_configuration_file", "replace_configuration_file"])
def test_a_token_is_revoked_although_the_file_cannot_be_used_by_this_user(redline, settings_file, monkeypatch, step):
    connected(redline, "claude-code")
    closed = SystemFailure("permission_denied", "It cannot be used by this user.")
    monkeypatch.setattr(configuration_file, step, mock.Mock(side_effect=closed))
    ended = redline.call("connect", "claude-code", "--disconnect", "--yes")
    assert (ended.code, "`redline connect claude-code --revoke`" in ended.err) == (6, True)
    ended = redline.call("connect", "claude-code", "--revoke", "--yes")
    assert (ended.code, "no longer connected in all projects; its token is void" in ended.out) == (0, True)
    assert connections(redline.data) == []


def test_hostile_content_is_shown_escaped(redline, settings_file):
    settings_file.write_text('{"a": "\u202e \x9b", // \x1b]0;title\x07\n"b": 1}')
    ended = redline.call("connect", "claude-code")
    assert (ended.code, UNSAFE_CHARACTERS.search(ended.out)) == (5, None)


def test_what_cannot_be_done(redline):
    for line, code in {
        "nobody": "unknown_agent",
        "amp": "no_bridge",
        "--disconnect": "no_agent",
        "--revoke": "no_agent",
        "codex --disconnect": "not_connected",
        "codex --revoke": "not_connected",
        "codex --disconnect --revoke": "bad_arguments",
        "codex --project /nowhere/at/all": "no_such_project",
    }.items():
        assert redline.call("connect", *line.split(), "--json").refusal == f"2 {code}"

"""Claude Code compacts where its settings say, and nothing hostile is opened to find that out."""

import json
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.claude_code.settings import config_directory, model_windows, read_settings, user_settings
from sessions_app.sessionlog.context import is_due

MODEL = ("anthropic", "claude-opus-5-5")


@pytest.fixture(autouse=True)
def without_variable(monkeypatch):
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def cwd(tmp_path):
    return tmp_path / "project"


def put(path: Path, **settings: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))
    return path


def compacts_from(home: Path, cwd: Path, window: int = 200_000) -> int:
    """The least number of tokens at which the client compacts."""
    reserve = read_settings(str(cwd), home, MODEL).budget.reserve_tokens
    found = next(n for n in range(1_000, window, 250) if is_due(n, window, reserve))
    assert not is_due(found - 1, window, reserve)
    return found


AUTO, PERCENT = "CLAUDE_CODE_AUTO_COMPACT_WINDOW", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, 167_000),
        ({"autoCompactWindow": 100_000}, 67_000),
        ({"autoCompactWindow": 120_000}, 87_000),
        ({"autoCompactWindow": 20_000}, 67_000),
        ({"autoCompactWindow": 900_000}, 167_000),
        ({"autoCompactWindow": True}, 167_000),
        ({"autoCompactWindow": "many"}, 167_000),
        ({"env": {AUTO: "120000"}}, 87_000),
        ({"env": {AUTO: "120000"}, "autoCompactWindow": 150_000}, 87_000),
        ({"autoCompactWindow": 200_000, "env": {PERCENT: "50"}}, 90_000),
        ({"autoCompactWindow": 150_000, "env": {PERCENT: "50"}}, 65_000),
        ({"autoCompactWindow": 200_000, "env": {PERCENT: "95"}}, 167_000),
        ({"env": {PERCENT: "50"}}, 167_000),
        ({"env": "none"}, 167_000),
    ],
    ids=str,
)
def test_the_client_compacts_from_a_number_of_tokens_on(home, cwd, settings, tokens):
    put(home / ".claude" / "settings.json", **settings)
    assert compacts_from(home, cwd) == tokens


def test_the_local_settings_come_first_then_the_projects_then_the_users(home, cwd):
    user = put(home / ".claude" / "settings.json", autoCompactWindow=110_000)
    assert compacts_from(home, cwd) == 77_000
    project = put(cwd / ".claude" / "settings.json", autoCompactWindow=120_000)
    assert compacts_from(home, cwd) == 87_000
    local = put(cwd / ".claude" / "settings.local.json", autoCompactWindow=130_000)
    assert compacts_from(home, cwd) == 97_000
    assert [found.path for found in read_settings(str(cwd), home).files] == [local, project, user]


@pytest.mark.parametrize(
    ("settings", "is_final"),
    [
        ({"autoCompactEnabled": False}, False),
        ({"env": {"DISABLE_AUTO_COMPACT": "1"}}, True),
        ({"env": {"DISABLE_COMPACT": "true"}, "autoCompactEnabled": True}, True),
    ],
    ids=str,
)
def test_automatic_compaction_can_be_switched_off(home, cwd, settings, is_final):
    assert read_settings(str(cwd), home).switched_off_in is None
    path = put(home / ".claude" / "settings.json", **settings)
    assert read_settings(str(cwd), home).switched_off_in == path
    put(cwd / ".claude" / "settings.json", autoCompactEnabled=True)
    assert (read_settings(str(cwd), home).switched_off_in == path) is is_final


def test_only_settings_of_compaction_are_shown(home):
    others = {"apiKeyHelper": "secret", "env": {"KEY": "secret"}}
    put(home / ".claude" / "settings.json", autoCompactWindow=120_000, **others)
    assert user_settings(home).compaction == {"autoCompactWindow": 120_000}


def test_the_users_directory_can_be_configured(home, cwd, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    path = put(tmp_path / "elsewhere" / "settings.json", autoCompactWindow=120_000)
    assert config_directory(home) == path.parent
    assert user_settings(home).path == path
    assert compacts_from(home, cwd) == 87_000
    # One that is not absolute is ignored.
    assert config_directory(home, {"CLAUDE_CONFIG_DIR": "here"}) == home / ".claude"


def test_a_link_out_of_the_project_is_not_followed(home, cwd, tmp_path):
    secret = put(tmp_path / "secret.json", autoCompactEnabled=False)
    (cwd / ".claude").mkdir(parents=True)
    (cwd / ".claude" / "settings.json").symlink_to(secret)
    (found,) = read_settings(str(cwd), home).files
    assert (found.compaction, bool(found.fault)) == ({}, True)


def test_a_hostile_directory_of_a_session_is_harmless(home):
    for cwd in ("", "relative", "/home/\0", "/dev/null"):
        assert read_settings(cwd, home).files == (), cwd


def test_a_model_with_the_long_window_is_known_by_its_recorded_name(home, cwd):
    assert model_windows(home) == {}
    put(home / ".claude" / "settings.json", model="claude-opus-5-5[1m]")
    assert model_windows(home) == {"claude-opus-5-5": 1_000_000}
    assert compacts_from(home, cwd, 1_000_000) == 967_000

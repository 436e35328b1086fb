"""When Codex compacts, by its configuration; and where its sessions are."""

from pathlib import Path

import pytest

from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.registry import agent_at, agent_of

from .rollouts import Rollout, meta, user


def configured(home: Path, text: str) -> None:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(text)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", 90_000),
        ("model_auto_compact_token_limit = 20000", 20_000),
        ("model_auto_compact_token_limit = 95000", 90_000),
        ("profile = 'p'\n[profiles.p]\nmodel_auto_compact_token_limit = 5000", 5_000),
        ("model_auto_compact_token_limit = true", 90_000),
    ],
)
def test_codex_compacts_at_its_limit_or_at_90_percent(tmp_path, monkeypatch, text, allowed):
    monkeypatch.delenv("CODEX_HOME", raising=False)
    configured(tmp_path, text)
    found = CODEX.settings("/work", tmp_path, ("openai", "gpt-5"))
    assert 100_000 - found.budget.reserve(100_000) == allowed
    assert found.budget.reserve(None) == 0


def test_a_broken_configuration_is_reported(tmp_path, monkeypatch):
    monkeypatch.delenv("CODEX_HOME", raising=False)
    configured(tmp_path, "model = ")
    assert "TOML" in CODEX.user_settings(tmp_path).fault
    (tmp_path / ".codex" / "config.toml").write_bytes(b"\xff")
    assert "TOML" in CODEX.user_settings(tmp_path).fault


def test_the_window_of_the_users_model(tmp_path, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / ".codex"))
    configured(tmp_path, 'model = "own"\nmodel_context_window = 64000')
    assert CODEX.model_windows(Path("/elsewhere")) == {"own": 64_000}


def test_sessions_are_in_the_directory_of_codex():
    assert CODEX.roots({}) == ("~/.codex/sessions", "~/.codex/archived_sessions")
    expected = ("/data/codex/sessions", "/data/codex/archived_sessions")
    assert CODEX.roots({"CODEX_HOME": "/data/codex"}) == expected


def test_a_rollout_is_recognised_anywhere(tmp_path):
    path = Rollout(meta(), user("a")).save(tmp_path)
    assert agent_of(path) == "codex"
    assert agent_at(path) is CODEX
    assert agent_of(Path("/home/x/.codex/sessions/a.jsonl")) == "codex"

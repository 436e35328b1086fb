"""Context windows: the order of precedence of their sources, and no guesses."""

from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.model_facts import KNOWN_WINDOWS, window_of
from sessions_app.sessionlog.sourced_value import SourcedValue
from tests.sessions_app.agents.codex.rollouts import Rollout, line, meta, turn_context, user

HERE = SourcedValue(1, "your configuration")


def test_the_users_setting_precedes_the_agents_then_the_sessions_and_then_the_table():
    model = "claude-opus-4-5"
    everyone = window_of(model, {model: HERE}, {model: 2}, 3)
    agent = window_of(model, {"other": HERE}, {model: 2}, 3)
    session = window_of(model, {"other": HERE}, {"other": 2}, 3)
    found = (everyone, agent, session, window_of(model, {}, {}))
    assert ([one.value for one in found], len({one.source for one in found})) == ([1, 2, 3, 200_000], 4)
    assert window_of("unheard-of", {}, {}, 3) == session


def test_a_model_is_recognised_by_its_prefix_even_after_its_makers_name_and_any_other_has_no_window():
    for model, tokens in {
        "gpt-4.1-mini": 1_047_576,
        "gpt-4o-2024-11-20": 128_000,
        "o3-mini": 200_000,
        "anthropic/claude-sonnet-4.5": 200_000,
        "openrouter/google/gemini-2.5-pro": 1_048_576,
    }.items():
        assert window_of(model, {}, {}).value == tokens
    for model in ("", "/", "unheard-of", "my-claude-x", "Claude-opus", "gpt-3.5-turbo", "claude-/x"):
        assert window_of(model, {"claude-opus-4-5": HERE}, {"gpt-4o": 2}) is None, model
    # A setting applies to exactly one model, and to its dated versions.
    assert window_of("mine-2", {"mine": HERE}, {"mine-": 2}) is None
    for dated in ("mine-20250929", "mine-2025-09-29", "mine@20250929"):
        assert window_of(dated, {"mine": HERE}, {}) == HERE
        assert window_of(dated, {"mine": HERE}, {dated: 2}) == HERE
        assert window_of(dated, {"mine": HERE, dated: SourcedValue(3, "x")}, {}) == SourcedValue(3, "x")


def test_the_longest_prefix_decides(monkeypatch):
    for prefix, tokens in (("gpt-5-small", 7), ("gpt-5-small-2", 8), ("gpt-", 9)):
        monkeypatch.setitem(KNOWN_WINDOWS, prefix, tokens)
    models = ("gpt-5-small-2026", "gpt-5-small", "gpt-5-large", "gpt-6")
    assert [window_of(model, {}, {}).value for model in models] == [8, 7, 400_000, 9]


def test_a_session_that_records_its_window_is_measured_against_it(redline, tmp_path):
    counted = line("event_msg", {"type": "token_count", "info": {"model_context_window": 258_400}})
    session = index_file(Rollout(meta(), turn_context("unheard-of"), user("Go."), counted).save(tmp_path))
    assert (session.window, session.window_source) == (258_400, "the session")
    assert session.due_percent == 90

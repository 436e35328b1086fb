"""Parameters: what a user writes is used if it makes sense, and is the default if it does not."""

import pytest

from compaction_app.core.parameters import compression_ratio, preserve_recent, query
from sessions_app.sessionlog.jsjson import parse
from tests.factories import assistant, compaction, text, transcript_of, user, whole

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize("value", [0.5, 0.01, 0.999])
def test_a_ratio_between_0_and_1_is_used(value):
    assert compression_ratio(value) == value


@pytest.mark.parametrize("value", [0, 1, -0.5, 1.5, 50, 10**400, NAN, INFINITE, True, None, "0.3", [0.3], {}])
def test_any_other_ratio_is_one_half(value):
    assert compression_ratio(value) == 0.5


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), (3, 3), (2.9, 2), (0.5, 0), (-0.5, 0), (-4, 0), (1e9, 10**9), (1e30, 2**53)]
)
def test_the_recent_window_is_rounded_down_and_at_least_0(value, expected):
    assert preserve_recent(value) == expected


@pytest.mark.parametrize("value", [NAN, INFINITE, -INFINITE, 10**400, -(10**400), True, False, None, "3", [3]])
def test_any_other_recent_window_is_two(value):
    assert preserve_recent(value) == 2


def test_a_query_that_is_not_blank_is_used():
    assert query("  the parser \n", ["the user"]) == "the parser"


@pytest.mark.parametrize("value", ["", " \n\t", None, 5, ["x"]])
def test_the_default_query_is_the_users_last_message(value):
    assert query(value, ["", "  ", " fix it ", "before"]) == "fix it"
    assert query(value, ["", " "]) == "auto-detected"
    assert query(value, []) == "auto-detected"


def test_a_query_is_cut_at_a_thousand_utf16_units_and_notes_how_many_were_removed():
    assert query("a" * 1_000, []) == "a" * 1_000
    cut = query("a" * 1_003, [])
    assert cut.startswith("a" * 1_000 + " ")
    assert "3 more" in cut
    astral = query("🙂" * 600, [])
    assert astral.startswith("🙂" * 500 + " ")
    assert "200 more" in astral


def test_the_query_is_the_last_user_message_that_is_still_in_the_context():
    messages = [
        user("the first task"),
        {"role": "user", "content": [text("second"), text("task")]},
        user("a third"),
        user("   "),
        assistant(text("ok")),
    ]
    assert transcript_of(*messages).parameters.query == "a third"
    assert transcript_of(*messages, compaction(whole("e3"))).parameters.query == "second\ntask"
    assert transcript_of(*messages, query="mine").parameters.query == "mine"
    assert transcript_of(assistant(text("a")), assistant(text("b"))).parameters.query == "auto-detected"


def test_settings_as_they_are_written_in_a_file():
    written = parse(b'{"compression_ratio": 1e-400, "preserve_recent": 1e3, "query": null, "enabled": true}')
    parameters = transcript_of(user("go"), assistant(text("ok")), **written).parameters
    assert (parameters.compression_ratio, parameters.preserve_recent, parameters.query) == (0.5, 1_000, "go")

"""What a plan may delete of a thread."""

import pytest

from sessions_app.agents.codex.agent import READER
from sessions_app.agents.codex.rules import CodexRules
from sessions_app.sessionlog.protection import Protection

from .rollouts import Item, answer, call, developer, environment, output, reasoning, thread, user

RULES = CodexRules(READER)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (user("a"), Protection.USER),
        (developer(), Protection.INJECTED),
        (environment(), Protection.INJECTED),
        ({"type": "compaction", "encrypted_content": "x"}, Protection.SUMMARY),
        ({"type": "agent_message", "content": []}, Protection.CUSTOM),
        (answer("a"), None),
        (call(), None),
        (output(), None),
        (reasoning(), None),
    ],
)
def test_what_the_user_said_and_what_codex_adds_or_summarised_stays(item, reason):
    (message,) = RULES.compactable(thread(item).branch)
    assert RULES.protection(message.entry) == reason


def test_no_thinking_is_replayed():
    assert not RULES.replays(thread(reasoning()).entries[1])


def companions(*items: Item) -> dict[str, tuple[str, ...]]:
    return dict(RULES.companions(RULES.compactable(thread(*items).branch)))


def test_reasoning_goes_with_everything_up_to_the_next_prompt_and_its_follower_with_it():
    found = companions(
        user("a"), reasoning("1"), answer("x"), call(), output(), reasoning("2"), answer("y"), user("b"), answer("z")
    )
    assert found == {"2": ("3", "4", "5", "6"), "3": ("2",), "6": ("7",), "7": ("6",)}


def test_reasoning_after_reasoning_is_its_follower():
    expected = {"1": ("2",), "2": ("3", "1"), "3": ("2",)}
    assert companions(reasoning("1"), reasoning("2"), answer("x")) == expected


def test_context_that_codex_adds_is_not_joined():
    assert companions(reasoning("1"), environment(), answer("x")) == {"1": ("3",), "3": ("1",)}


def test_what_has_no_reasoning_before_it_is_free():
    assert companions(user("a"), answer("x"), call(), output(), user("b"), reasoning("1")) == {}

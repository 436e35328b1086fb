"""What a client sent, compared with what it should send."""

from typing import Any

import pytest

from sessions_app.agents.dry_resume.comparison import PROBE, difference, has_probe

Said = dict[str, Any]


def said(role: str, *texts: str, **fields: Any) -> Said:
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts], **fields}


ADDED = [said("user", "<reminder>be kind", PROBE), said("system", "# Rules")]
SESSION = [said("user", "one"), said("assistant", "two")]
END = [said("user", "<reminder>be kind", PROBE), said("system", "# Rules")]


def found(sent: list[Said], expected: list[Said]) -> str:
    return difference(sent, ADDED, expected, ("<reminder>",))


@pytest.mark.parametrize(
    "sent",
    [
        [*SESSION, *END],
        [said("user", "<reminder>be kind", "one"), SESSION[1], said("user", PROBE)],
        [*SESSION, said("user", "<reminder>you are elsewhere", PROBE)],
        [*SESSION, said("system", "the directory is another one"), said("user", PROBE)],
        [{"role": "user", "content": "one"}, SESSION[1], {"role": "user", "content": PROBE}],
        [{**SESSION[0], "id": "x"}, SESSION[1], said("system", output_config={}), *END],
        [
            said("user", "one"),
            {"role": "assistant", "content": [{"type": "text", "text": "two", "cache_control": {}}]},
            *END,
        ],
    ],
    ids=["plain", "before", "elsewhere", "system", "string", "ids", "cache"],
)
def test_what_a_client_adds_is_not_a_difference(sent):
    assert found(sent, SESSION) == ""


def test_what_is_recorded_of_it_is_not_compared():
    recorded = said("user", "<reminder>be kind", "one")
    assert found([*SESSION, *END], [recorded, SESSION[1]]) == ""


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ([SESSION[0], said("assistant", "other"), *END], "message 2, assistant, has another content"),
        ([SESSION[0], said("assistant", "two", "more"), *END], "message 2, assistant, has another content"),
        ([SESSION[0], said("user", "two"), *END], "message 2 is user instead of assistant"),
        ([SESSION[0], *END], "it sends 1 messages instead of 2: message 2 (assistant) is missing"),
        ([*SESSION, said("user", "three"), *END], "after the 2 messages of the session it sends another one, user"),
        (
            [*SESSION, said("assistant", "three"), *END],
            "after the 2 messages of the session it sends another one, assistant",
        ),
        ([*SESSION, said("user", "three", PROBE)], "after the 2 messages of the session it sends another one, user"),
        (
            [SESSION[0], said("assistant", "two", tool_calls=[{"id": "c1"}]), *END],
            "message 2, assistant, has another content",
        ),
        ([said("system", "more rules"), *SESSION, *END], "message 1 is system instead of user"),
    ],
)
def test_the_first_difference_is_named(sent, words):
    assert found(sent, SESSION) == words


def test_the_last_message_may_be_joined_with_the_prompt():
    joined = [said("user", "one", "<reminder>you are elsewhere", PROBE)]
    assert found(joined, SESSION[:1]) == ""
    assert found([said("user", "one", "two", PROBE)], SESSION[:1]) == "message 1, user, has another content"


def test_the_client_may_put_words_around_a_recorded_text():
    worded = [said("system", "While you worked, the user wrote: one. Answer it."), *END]
    assert found(worded, [said("system", "one")]) == ""
    assert found(worded, [said("system", "two")]) == "message 1, system, has another content"
    reminder = [said("user", "<reminder>the user wrote: one", "go"), *END]
    assert found(reminder, [said("user", "one", "go")]) == ""
    assert found([said("user", "he wrote: one"), *END], [said("user", "one")]) != ""


def test_a_text_may_end_with_a_newline_before_the_prompt():
    assert found([said("user", "one\n", PROBE)], SESSION[:1]) == ""


def test_items_without_a_role_are_compared_whole():
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
    thought = {"type": "reasoning", "content": [{"type": "text", "text": "hm"}], "summary": []}
    items = [SESSION[0], thought, call]
    assert found([*items, *END], [SESSION[0], thought, {**call, "id": "fc_2"}]) == ""
    changed = {**call, "arguments": "{ }"}
    assert found([SESSION[0], thought, changed, *END], items) == "message 3, function_call, has another content"
    assert found([SESSION[0], call, *END], items) == "message 2 is function_call instead of reasoning"
    other = {**thought, "content": [{"type": "text", "text": "hm!"}]}
    assert found([SESSION[0], other, call, *END], items) == "message 2, reasoning, has another content"


def test_a_conversation_ends_with_the_prompt():
    assert has_probe([*SESSION, *END])
    assert not has_probe([said("user", PROBE), *SESSION])
    assert not has_probe(SESSION)

"""The rules by which Codex rebuilds a conversation, and what it sends of it."""

from typing import Any

import pytest

from sessions_app.agents.codex.pure import parser
from sessions_app.agents.codex.pure.format import OLDER_READER, READER
from sessions_app.sessionlog.diagnosis import ProviderRule, violations
from sessions_app.sessionlog.entries import EntryKind

from .rollouts import (
    answer,
    call,
    compacted,
    developer,
    environment,
    kept,
    output,
    reasoning,
    rolled_back,
    summarised,
    thread,
    turn_context,
    user,
    world_state,
)

NOTE = user("<turn_aborted>interrupted</turn_aborted>")
FOUR = (user("c"), answer("d"), user("e"))
CONTEXTS: dict[str, tuple[Any, ...]] = {
    "without a compaction every item is sent": (
        (developer(), environment(), user("go"), reasoning(), call(), output(), answer("yes")),
        "1 2 3 4 5 6 7",
    ),
    "the newest compaction decides, and what follows is added": (
        (user("a"), answer("b"), compacted(user("a")), answer("c"), compacted(user("a"), user("x")), answer("d")),
        "1 5.2 6",
    ),
    "lines that make no items do not matter": ((user("a"), world_state(), turn_context(), answer("b")), "1 4"),
    "a summary without items leaves the newest messages of the user only": (
        (user("a"), user("b" * 79_996), user("c"), summarised("so far")),
        "2 3 4.1",
    ),
    "a rollback drops the context added before it in newer versions only": (
        (environment(), user("a"), answer("b"), developer(), environment("2"), *FOUR[:2], rolled_back(1), FOUR[2]),
        "1 2 3 9",
        "1 2 3 4 5 9",
    ),
    "a rollback of no turns drops nothing": ((user("a"), environment(), rolled_back(0)), "1 2"),
    "rollbacks count one after the other": (
        (user("a"), environment(), user("b"), rolled_back(1), *FOUR, rolled_back(1)),
        "1 5 6",
        "1 2 5 6",
    ),
    "a rollback past a summary without items counts it in older versions only": (
        (user("a"), user("b"), summarised("s"), *FOUR, rolled_back(3)),
        "1",
        "1 2",
    ),
    "a note of Codex is no message of the user": ((user("a"), NOTE, user("b"), NOTE, rolled_back(1)), "1", "1 2"),
    "a compaction after a rollback counts alone": (
        (user("a"), answer("b"), rolled_back(1), compacted(user("a"), answer("b")), user("c")),
        "1 2 5",
    ),
}
"""The items of a thread, and the ids of its context in newer and, if they differ, in older versions."""


@pytest.mark.parametrize("name", CONTEXTS)
def test_the_context(name):
    items, newer, *older = CONTEXTS[name]
    assert thread(*items).ids(READER) == newer.split()
    assert thread(*items).ids(OLDER_READER) == [*older, newer][0].split()


def test_the_newest_compaction_is_named_and_a_rollback_is_not_ignored():
    found = thread(user("a"), compacted(user("a")), compacted(user("a")))
    assert found.context().newest_compaction == found.tree.entry("3")
    boundary = thread(user("a"), rolled_back(1)).tree.entry("2")
    assert boundary.kind is EntryKind.BOUNDARY
    assert not READER.ignores(boundary)


def test_a_summary_without_items_leaves_the_text_of_the_users_messages():
    first, image = user("a"), {"type": "input_image", "image_url": "data:"}
    first["content"] += [image, {"type": "input_text", "text": "b"}]
    items = (developer(), environment(), first, answer("x"), user("c"), summarised("so far"), answer("y"))
    assert thread(*items).ids() == ["3", "5", "6.1", "7"]
    assert kept(thread(*items).sent()) == ["a b", "c", "so far", "y"]
    assert kept(thread(user("a"), NOTE, summarised("so far")).sent()) == ["a", "so far"]


def test_a_summary_without_items_leaves_out_an_earlier_one_of_codex(monkeypatch):
    opening = "Of another model: "
    monkeypatch.setattr(parser, "SUMMARY_OPENING", (len(opening), parser.digest_of_text(opening)))
    first, second = summarised(f"{opening}first"), summarised(f"{opening}second")
    found = thread(user("a"), first, user("b"), answer("c"), second, user("d"))
    for reader in (READER, OLDER_READER):
        assert kept(found.sent(reader)) == ["a", "b", "Of another model: second", "d"]
    assert kept(thread(user("a"), first, user("b")).sent()) == ["a", "Of another model: first", "b"]


def test_an_output_without_a_call_is_left_out_and_a_call_without_an_output_answered_after_it():
    assert kept(thread(user("a"), output("c1")).sent()) == ["a"]
    found = thread(user("a"), call("c1"), output("c1"), compacted(user("a"), call("c1"), output("c9")))
    assert kept(found.sent()) == ["a", "function_call c1", "function_call_output c1"]
    custom = {"type": "custom_tool_call", "call_id": "c3", "name": "x", "input": ""}
    found = thread(user("a"), call("c1"), call("c2"), output("c2"), custom)
    assert kept(found.sent()) == [
        *("a", "function_call c1", "function_call_output c1", "function_call c2", "function_call_output c2"),
        *("custom_tool_call c3", "custom_tool_call_output c3"),
    ]
    assert found.sent()[2]["output"] == "aborted"


def test_metadata_is_not_sent_and_ids_only_by_newer_versions():
    note: dict[str, object] = {"internal_chat_message_metadata_passthrough": {}, "metadata": {}}
    found = thread(user("a", id="msg_1", **note))
    assert found.sent(READER) == [user("a", id="msg_1")]
    assert found.sent(OLDER_READER) == [user("a")]


STRAY, UNANSWERED = ProviderRule.STRAY_RESULT, ProviderRule.UNANSWERED_CALL


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([user("a"), call("c1"), call("c2"), answer("x"), output("c2"), user("b"), output("c1")], []),
        ([answer("x"), user("a")], []),
        ([user("a"), call("c1"), output("c2"), answer("x")], [(STRAY, "3"), (UNANSWERED, "2")]),
        ([user("a"), output("c1"), call("c1")], [(STRAY, "2"), (UNANSWERED, "3")]),
    ],
    ids=["results-at-any-distance", "anyone-begins", "two-halves-of-pairs", "a-call-after-its-result"],
)
def test_codex_repairs_what_providers_would_refuse(items, expected):
    found = violations(thread(*items).context())
    assert [(one.rule, one.entry_id, one.is_repaired) for one in found] == [(*one, True) for one in expected]

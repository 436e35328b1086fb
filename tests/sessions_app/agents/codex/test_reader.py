"""The rules by which Codex rebuilds a conversation, and what it sends of it."""

from __future__ import annotations

import pytest

from sessions_app.agents.codex import records
from sessions_app.agents.codex.agent import OLDER_READER, READER
from sessions_app.sessionlog.entries import EntryKind
from sessions_app.sessionlog.provider_rules import ProviderRule, violations

from .rollouts import (
    READERS,
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


@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_without_a_compaction_every_item_is_sent(reader: object) -> None:
    found = thread(developer(), environment(), user("go"), reasoning(), call(), output(), answer("yes"))
    assert found.ids(READER) == ["1", "2", "3", "4", "5", "6", "7"]
    assert len(found.sent()) == 7


def test_the_newest_compaction_decides_and_what_follows_is_added() -> None:
    found = thread(
        user("a"),
        answer("b"),
        compacted(user("a")),
        answer("c"),
        compacted(user("a"), answer("b"), user("x")),
        answer("d"),
    )
    assert found.ids() == ["1", "2", "5.3", "6"]
    assert found.context().newest_compaction == found.tree.entry("5")


def test_lines_that_make_no_items_do_not_matter() -> None:
    assert thread(user("a"), world_state(), turn_context(), answer("b")).ids() == ["1", "4"]


def test_a_summary_without_items_leaves_the_text_of_the_users_messages() -> None:
    image = {"type": "input_image", "image_url": "data:"}
    first = user("a")
    first["content"] += [image, {"type": "input_text", "text": "b"}]
    found = thread(
        developer(), environment(), first, answer("x"), user("c"), summarised("so far"), answer("y")
    )
    assert found.ids() == ["3", "5", "6.1", "7"]
    assert kept(found.sent()) == ["a b", "c", "so far", "y"]


def test_a_summary_without_items_leaves_the_newest_messages_of_the_user_only() -> None:
    found = thread(user("a"), user("b" * 79_996), user("c"), summarised("so far"))
    assert found.ids() == ["2", "3", "4.1"]


def test_a_rollback_drops_the_context_added_before_it_in_newer_versions_only() -> None:
    found = thread(
        environment(),
        user("a"),
        answer("b"),
        developer(),
        environment("2"),
        user("c"),
        answer("d"),
        rolled_back(1),
        user("e"),
    )
    assert found.ids(READER) == ["1", "2", "3", "9"]
    assert found.ids(OLDER_READER) == ["1", "2", "3", "4", "5", "9"]


def test_a_rollback_of_no_turns_drops_nothing() -> None:
    found = thread(user("a"), environment(), rolled_back(0))
    assert found.ids(READER) == ["1", "2"]


def test_rollbacks_count_one_after_the_other() -> None:
    found = thread(
        user("a"), environment(), user("b"), rolled_back(1), user("c"), answer("d"), user("e"), rolled_back(1)
    )
    assert found.ids(READER) == ["1", "5", "6"]
    assert found.ids(OLDER_READER) == ["1", "2", "5", "6"]


def test_a_rollback_past_a_summary_without_items_counts_it_in_older_versions_only() -> None:
    found = thread(user("a"), user("b"), summarised("s"), user("c"), answer("d"), user("e"), rolled_back(3))
    assert found.ids(READER) == ["1"]
    assert found.ids(OLDER_READER) == ["1", "2"]


def test_a_summary_without_items_leaves_out_an_earlier_one_of_codex(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = "Of another model: "
    monkeypatch.setattr(records, "SUMMARY_OPENING", (len(opening), records.digest_of_text(opening)))
    first, second = summarised(f"{opening}first"), summarised(f"{opening}second")
    found = thread(user("a"), first, user("b"), answer("c"), second, user("d"))
    for reader in (READER, OLDER_READER):
        assert kept(found.sent(reader)) == ["a", "b", "Of another model: second", "d"]
    assert kept(thread(user("a"), first, user("b")).sent()) == ["a", "Of another model: first", "b"]


def test_a_note_of_codex_is_no_message_of_the_user() -> None:
    note = user("<turn_aborted>interrupted</turn_aborted>")
    found = thread(user("a"), note, user("b"), note, rolled_back(1))
    assert found.ids(READER) == ["1"]
    assert found.ids(OLDER_READER) == ["1", "2"]
    assert kept(thread(user("a"), note, summarised("so far")).sent()) == ["a", "so far"]


def test_a_compaction_after_a_rollback_counts_alone() -> None:
    found = thread(user("a"), answer("b"), rolled_back(1), compacted(user("a"), answer("b")), user("c"))
    assert found.ids() == ["1", "2", "5"]


def test_entries_of_other_kinds_are_ignored() -> None:
    boundary = thread(user("a"), rolled_back(1)).tree.entry("2")
    assert boundary.kind is EntryKind.BOUNDARY
    assert not READER.ignores(boundary)


# ---- what is sent ---------------------------------------------------------------------------------------------


def test_an_output_without_a_call_is_left_out() -> None:
    assert kept(thread(user("a"), output("c1")).sent()) == ["a"]


def test_a_call_without_an_output_is_answered_directly_after_it() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c3", "name": "x", "input": ""}
    found = thread(user("a"), call("c1"), call("c2"), output("c2"), custom)
    assert kept(found.sent()) == [
        "a",
        "function_call c1",
        "function_call_output c1",
        "function_call c2",
        "function_call_output c2",
        "custom_tool_call c3",
        "custom_tool_call_output c3",
    ]
    assert found.sent()[2]["output"] == "aborted"


def test_pairs_are_completed_in_a_compaction_as_well() -> None:
    found = thread(user("a"), call("c1"), output("c1"), compacted(user("a"), call("c1"), output("c9")))
    assert kept(found.sent()) == ["a", "function_call c1", "function_call_output c1"]


def test_metadata_is_not_sent_and_ids_only_by_newer_versions() -> None:
    note: dict[str, object] = {"internal_chat_message_metadata_passthrough": {}, "metadata": {}}
    found = thread(user("a", id="msg_1", **note))
    assert found.sent(READER) == [user("a", id="msg_1")]
    assert found.sent(OLDER_READER) == [user("a")]


# ---- the rules of providers -----------------------------------------------------------------------------------


def broken(*recorded: dict[str, object]) -> list[tuple[ProviderRule, str, bool]]:
    found = violations(thread(*recorded).context())
    return [(one.rule, one.entry_id, one.is_repaired) for one in found]


def test_a_result_may_follow_its_call_at_any_distance() -> None:
    assert not broken(user("a"), call("c1"), call("c2"), answer("x"), output("c2"), user("b"), output("c1"))


def test_the_conversation_may_begin_with_anyone() -> None:
    assert not broken(answer("x"), user("a"))


def test_codex_repairs_pairs() -> None:
    expected = [(ProviderRule.STRAY_RESULT, "3", True), (ProviderRule.UNANSWERED_CALL, "2", True)]
    assert broken(user("a"), call("c1"), output("c2"), answer("x")) == expected


def test_a_call_after_its_result_is_unanswered() -> None:
    expected = [ProviderRule.STRAY_RESULT, ProviderRule.UNANSWERED_CALL]
    assert [rule for rule, *_ in broken(user("a"), output("c1"), call("c1"))] == expected

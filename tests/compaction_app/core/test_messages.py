"""The conversation with a model: what is sent of results, and that it never exceeds the model's window."""

import json

import pytest
from hypothesis import given, strategies as st

from compaction_app.core.messages import (
    DROPPED,
    LISTED,
    AssistantMessage,
    CallPart,
    CallResult,
    Conversation,
    TextPart,
    ThinkingPart,
    ToolResults,
    UserMessage,
    parsed_arguments,
    result_text,
)
from compaction_app.core.tools import ToolResult


def exchange(conversation: Conversation, name: str, *texts: str) -> None:
    calls = [CallPart(f"{name}{number}", "search", "{}") for number, _ in enumerate(texts)]
    conversation.add(AssistantMessage([TextPart("looking"), *calls]))
    conversation.add(
        ToolResults([CallResult(one.call_id, one.name, text) for one, text in zip(calls, texts, strict=True)])
    )


def talked(names: str) -> Conversation:
    """A conversation with a result of 1,000 characters for each of these."""
    conversation = Conversation("prompt")
    for name in names:
        exchange(conversation, name, name * 1_000)
    return conversation


def texts(conversation: Conversation) -> list[str]:
    return [
        one.text for message in conversation.messages if isinstance(message, ToolResults) for one in message.results
    ]


def test_a_conversation_that_fits_is_left_alone_and_any_other_trimmed_to_two_thirds():
    conversation = Conversation("prompt")
    exchange(conversation, "a", "found")
    assert conversation.fit(1_000) is None
    assert texts(conversation) == ["found"]
    conversation = talked("abcdefghij")
    conversation.fit(9_000)
    assert conversation.characters <= 6_000


def test_old_results_are_dropped_first_and_the_latest_stay_whole():
    conversation = talked("abcdef")
    trimmed = conversation.fit(4_000)
    assert conversation.characters <= 4_000
    left = texts(conversation)
    assert left[-1] == "f" * 1_000
    assert left[0] == left[1] == DROPPED
    assert trimmed.results == left.count(DROPPED)
    assert conversation.fit(4_000) is None, "nothing is counted again"


def test_one_huge_turn_is_cut_before_the_history_is_forgotten():
    conversation = Conversation("prompt")
    for number in range(20):
        exchange(conversation, f"{number}-", "short")
    exchange(conversation, "last", "x" * 50_000)
    exchanges = len(conversation.messages)
    conversation.fit(5_000)
    assert conversation.characters <= 5_000
    assert len(conversation.messages) == exchanges


@pytest.mark.parametrize(
    "block",
    [{"thinking": "t" * 900, "signature": "s" * 100}, {"reasoning_details": [{"data": "d" * 1_000}]}],
    ids=["signed", "in parts"],
)
def test_reasoning_weighs_what_goes_back_of_it(block):
    conversation = Conversation("")
    conversation.add(AssistantMessage([ThinkingPart("short", block)]))
    assert conversation.characters >= 1_000


def test_a_turn_of_many_long_results_is_cut_evenly_and_marked():
    conversation = Conversation("prompt")
    exchange(conversation, "a", *["x" * 5_000] * 9, "short")
    conversation.fit(10_000)
    assert conversation.characters <= 10_000
    left = texts(conversation)
    assert left[-1] == "short"
    assert all("cut to make room" in text and text.startswith("xxx") for text in left[:-1])
    assert len({len(text) for text in left[:-1]}) == 1


def test_whole_exchanges_go_if_blank_results_are_not_enough_but_never_the_prompt_or_the_last():
    conversation = Conversation("p" * 1_000)
    for number in range(50):
        conversation.add(AssistantMessage([TextPart("t" * 500), CallPart(f"c{number}", "search", "{}")]))
        conversation.add(ToolResults([CallResult(f"c{number}", "search", "found")]))
    conversation.fit(5_000)
    assert conversation.characters <= 5_000
    assert conversation.messages[0] == UserMessage("p" * 1_000)
    assert conversation.messages[-1] == ToolResults([CallResult("c49", "search", "found")])


@given(
    st.lists(st.lists(st.integers(0, 3_000), min_size=1, max_size=8), min_size=1, max_size=12),
    st.integers(3_000, 20_000),
)
def test_every_call_keeps_its_result_however_much_is_dropped(turns, limit):
    conversation = Conversation("prompt")
    for number, lengths in enumerate(turns):
        exchange(conversation, f"{number}-", *("z" * length for length in lengths))
        conversation.fit(limit)
        assert conversation.characters <= limit
        for before, message in zip(conversation.messages, conversation.messages[1:], strict=False):
            if isinstance(before, AssistantMessage):
                assert [one.call_id for one in before.calls] == [one.call_id for one in message.results]


def test_a_result_is_its_facts_and_its_sentence_and_a_list_of_thousands_is_cut_and_counted():
    sent = json.loads(result_text(ToolResult("context_read_entry", {"text": "é\ud83d", "callCount": 1}, "5 of 5.")))
    assert sent == {"text": "é\ufffd", "callCount": 1, "message": "5 of 5."}
    skipped = [{"entryId": f"e{number}", "reason": "protected_entry"} for number in range(5_000)]
    sent = json.loads(result_text(ToolResult("context_grep_delete", {"skipped": skipped}, "done")))
    assert sent["skipped"] == skipped[:LISTED]
    assert sent["skippedNotShown"] == 5_000 - LISTED


@pytest.mark.parametrize(
    ("written", "read"),
    [
        *(("", {}), ("  \n", {}), ("{}", {}), ('{"a": [1, null]}', {"a": [1, None]}), ("[1]", [1])),
        *(('{"a": "\\ud83d"}', {"a": "\ufffd"}), ('{"\\ud83d": 1}', {"\ufffd": 1})),
    ],
)
def test_arguments_are_what_their_json_says(written, read):
    assert parsed_arguments(written) == read


@pytest.mark.parametrize(
    "written",
    ['{"a": ', "no", '{"a": NaN}', '{"a": Infinity}', '{"a": 1e999}', "[" * 60 + "]" * 60, "[" * 100_000, "\ud83d"],
    ids=["cut off", "prose", "nan", "infinity", "too large", "deep", "very deep", "half a character"],
)  # fmt: skip
def test_invalid_json_stays_text_that_a_database_accepts(written):
    found = parsed_arguments(written)
    assert isinstance(found, str)
    found.encode()

"""The five tools: their arguments, their results, and that a wrong call only counts as a call."""

from typing import Any

import pytest

from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import TOOLS, ToolCall, Workbench
from sessions_app.sessionlog.entries import Target
from tests.factories import (
    assistant,
    bash,
    block,
    branch_summary,
    call,
    compaction,
    deletions,
    named,
    result,
    text,
    transcript_of,
    user,
    whole,
)

Recorded = dict[str, Any]
SEARCH, READ, BUDGET = "context_search_transcript", "context_read_entry", "context_compaction_budget"
DELETE, GREP = "context_delete", "context_grep_delete"

TALK = [
    user("fix the parser"),
    assistant(text("a needle here"), call("c1", path="a needle")),
    result("c1", "no needle in the hay"),
    assistant(text("needle"), text("thread")),
    bash("grep needle", "one needle"),
    branch_summary("a needle was sought"),
    assistant(text("found the needle")),
]


def bench(*messages: Recorded, window: int | None = None, **settings: Any) -> Workbench:
    return Workbench(DeletionStore(transcript_of(*(messages or TALK), **settings)), window)


def details(workbench: Workbench, tool: str, **arguments: Any) -> dict[str, Any]:
    return dict(workbench.call(ToolCall(tool, arguments)).details)


def chosen(workbench: Workbench) -> str:
    return named(*workbench.store.targets)


def found(shown: dict[str, Any]) -> str:
    return named(*(Target(match["entryId"], match.get("blockIndex")) for match in shown["matches"]))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (SEARCH, {}),
        (SEARCH, {"pattern": 5}),
        (SEARCH, {"pattern": "a", "maxMatches": "5"}),
        (SEARCH, {"pattern": "a", "maxMatches": 1.5}),
        (SEARCH, {"pattern": "a", "maxMatches": True}),
        (SEARCH, {"pattern": "a", "regex": "yes"}),
        (SEARCH, {"pattern": "a", "target": "block"}),
        (SEARCH, {"pattern": "a", "max_matches": 5}),
        (SEARCH, {"pattern": "a", "why": "x"}),
        *((READ, {}), (READ, {"entryId": None}), (READ, {"entryId": "e1", "offset": "0"})),
        (READ, {"entryId": "e1", "blockIndex": "0"}),
        *((BUDGET, {"verbose": True}), (BUDGET, None), (DELETE, None), (DELETE, [whole("e4")])),
        (DELETE, {"deletions": [], "reason": "x"}),
        (GREP, {"regex": True}),
        (GREP, {"pattern": "needle", "maxMatches": 0}),
        (GREP, {"pattern": "needle", "maxMatches": -1}),
        (GREP, {"pattern": "needle", "maxMatches": 201}),
        (GREP, {"pattern": "needle", "expectedMatchCount": -1}),
        (GREP, {"pattern": "needle", "expectedMatchCount": 1.5}),
        (GREP, {"pattern": "needle", "target": "all"}),
        (GREP, "needle"),
    ],
)
def test_malformed_arguments_are_refused_and_do_nothing(tool, arguments):
    workbench = bench()
    answer = workbench.call(ToolCall(tool, arguments))
    assert answer.refusal is not None
    assert answer.details == {"error": "invalid_arguments", "callCount": 1}
    assert tool in answer.sentence
    assert "Nothing was done" in answer.sentence
    assert chosen(workbench) == ""


def test_every_call_counts_also_one_that_fails_or_of_an_unknown_tool():
    workbench = bench()
    calls: list[tuple[str, Recorded]] = [
        *((SEARCH, {"pattern": "needle"}), (SEARCH, {"pattern": ""}), ("nothing", {}), (READ, {"entryId": "e99"})),
        *((DELETE, deletions("e1")), (GREP, {"pattern": "x", "maxMatches": 999}), (BUDGET, {})),
    ]
    for number, (tool, arguments) in enumerate(calls, 1):
        assert details(workbench, tool, **arguments)["callCount"] == workbench.call_count == number
    answer = bench().call(ToolCall("context_summarise", {"pattern": "x"}))
    assert answer.details == {"error": "unknown_tool", "callCount": 1}
    assert all(name in answer.sentence for name in TOOLS)


def test_a_search_covers_deleted_and_protected_entries_and_gives_one_match_per_block():
    workbench = bench()
    details(workbench, DELETE, **deletions("e4"))
    shown = details(workbench, SEARCH, pattern="NEEDLE")
    assert found(shown) == "e2 e3 e4 e5 e6 e7"
    assert [match["entryId"] for match in shown["matches"] if match["protected"]] == ["e6"]
    assert shown["truncated"] is False
    shown = details(bench(), SEARCH, pattern="needle", target="content_block")
    assert found(shown) == "e2[0] e2[1] e3[0] e4[0] e7[0]"
    twice = details(bench(user("x"), assistant(text("ab ab"))), SEARCH, pattern="ab")
    assert [match["matchIndex"] for match in twice["matches"]] == [0]


@pytest.mark.parametrize(("requested", "given"), [(None, 20), (1, 1), (0, 1), (-5, 1), (100, 100), (9_999, 100)])
def test_a_search_clamps_how_many_matches_it_gives(requested, given):
    workbench = bench(user("x"), *(assistant(text("needle")) for _ in range(120)))
    arguments = {} if requested is None else {"maxMatches": requested}
    shown = details(workbench, SEARCH, pattern="needle", **arguments)
    assert len(shown["matches"]) == given
    assert shown["truncated"] is True


def test_a_search_is_truncated_only_if_there_is_a_further_match_and_not_by_a_refused_pattern():
    for pattern, count in (("needle", 6), ("haystack", 0)):
        shown = details(bench(), SEARCH, pattern=pattern, maxMatches=6)
        assert (len(shown["matches"]), shown["truncated"], "error" in shown) == (count, False, False)
    for pattern, code in (("", "invalid_pattern"), ("(", "invalid_pattern"), ("a" * 513, "pattern_too_long")):
        shown = details(bench(), SEARCH, pattern=pattern, regex=True)
        assert (shown["matches"], shown["truncated"], shown["error"]) == ([], False, code)


def first_match(words: str, **arguments: Any) -> tuple[int, str]:
    """The place of the needle in these words, and the snippet of it."""
    match = details(bench(user("x"), assistant(text(words))), SEARCH, pattern="needle", **arguments)["matches"][0]
    return match["matchIndex"], match["snippet"]


@pytest.mark.parametrize(("requested", "around"), [(None, 160), (0, 0), (-1, 0), (10, 10), (500, 500), (10_000, 500)])
def test_a_snippet_reaches_so_far_around_the_start_of_the_match(requested, around):
    arguments = {} if requested is None else {"contextChars": requested}
    expected = ("b" * around) + ("needle" + "a" * 1_000)[:around]
    assert first_match("b" * 1_000 + "needle" + "a" * 1_000, **arguments) == (1_000, f"…{expected}…")


@pytest.mark.parametrize(
    ("words", "around", "place", "snippet"),
    [
        *(("a needle", 6, 2, "a needle"), ("a needle", 5, 2, "a needl…"), ("in a needle", 4, 5, "…n a need…")),
        *(("🙂🙂é needle 🙂 hay", 4, 6, "…🙂é need…"), ("🙂🙂é needle 🙂 hay", 5, 6, "…\ude42🙂é needl…")),
    ],
)
def test_a_snippet_is_marked_if_it_was_cut_and_counts_utf16_units(words, around, place, snippet):
    assert first_match(words, contextChars=around) == (place, snippet)
    read = details(bench(user("x"), assistant(text(words))), READ, entryId="e2", offset=place, maxChars=6)
    assert read["text"] == "needle"


def cut(shown: dict[str, Any]) -> tuple[str, int, bool, bool]:
    """What was read of how much, and on which sides of it more is left."""
    return shown["text"], shown["totalChars"], shown["truncatedBefore"], shown["truncatedAfter"]


def test_a_read_returns_a_slice_from_the_start_at_the_earliest_and_says_where_it_was_cut():
    workbench = bench(user("x"), assistant(text("abc"), text("defg")))
    assert cut(details(workbench, READ, entryId="e2")) == ("abc\ndefg", 8, False, False)
    shown = details(workbench, READ, entryId="e2", blockIndex=1, offset=1, maxChars=2)
    assert (*cut(shown), shown["blockIndex"]) == ("ef", 4, True, True, 1)
    assert cut(details(workbench, READ, entryId="e2", offset=6, maxChars=2)) == ("fg", 8, True, False)
    shown = details(bench(), READ, entryId="e1", offset=-3, maxChars=3)
    assert (shown["offset"], shown["text"], shown["truncatedBefore"]) == (0, "fix", False)


@pytest.mark.parametrize("offset", [8, 9, 10**9])
def test_a_read_past_the_end_reads_nothing(offset):
    shown = details(bench(user("x"), assistant(text("abcdefgh"))), READ, entryId="e2", offset=offset)
    assert (*cut(shown), shown["offset"]) == ("", 8, True, False, offset)


@pytest.mark.parametrize(("requested", "length"), [(None, 4_000), (0, 1), (-7, 1), (12_000, 12_000), (99_999, 12_000)])
def test_a_read_clamps_how_much_it_gives(requested, length):
    arguments = {} if requested is None else {"maxChars": requested}
    shown = details(bench(user("x"), assistant(text("a" * 20_000))), READ, entryId="e2", **arguments)
    assert len(shown["text"]) == shown["maxChars"] == length
    assert shown["truncatedAfter"] is True


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"entryId": "e99"}, "unknown_entry"),
        ({"entryId": ""}, "unknown_entry"),
        ({"entryId": "e99", "blockIndex": 0}, "unknown_block"),
        ({"entryId": "e4", "blockIndex": 2}, "unknown_block"),
        ({"entryId": "e4", "blockIndex": -1}, "unknown_block"),
        ({"entryId": "e1", "blockIndex": 0}, "unknown_block"),
    ],
)
def test_an_unknown_entry_cannot_be_read(arguments, code):
    shown = details(bench(), READ, **arguments)
    assert (shown["error"], *cut(shown)) == (code, "", 0, False, False)


def test_what_is_chosen_can_still_be_read_and_what_was_compacted_before_cannot():
    workbench = bench(*TALK, compaction(block("e4", 0)))
    details(workbench, DELETE, **deletions("e2"))
    assert details(workbench, READ, entryId="e3")["text"] == "no needle in the hay"
    assert details(workbench, READ, entryId="e4")["text"] == "thread"
    assert details(workbench, READ, entryId="e4", blockIndex=0)["error"] == "unknown_block"
    assert details(workbench, READ, entryId="e4", blockIndex=1)["text"] == "thread"


def test_the_budget_counts_in_the_transcripts_own_estimates():
    workbench = bench(user("x" * 400), assistant(text("y" * 244), text("z" * 200)), compression_ratio=0.7)
    target = {"compression_ratio": 0.7, "targetReductionPercent": 30.0, "targetTokensAfter": 147, "tokensBefore": 211}
    nothing = {"currentTokensAfter": 211, "deletedTokens": 0, "currentReductionPercent": 0.0}
    assert details(workbench, BUDGET) == {**target, **nothing, "tokensToDeleteForTarget": 64, "callCount": 1}
    details(workbench, DELETE, **deletions("e2[1]"))
    shown = details(workbench, BUDGET)
    assert (shown["deletedTokens"], shown["currentReductionPercent"]) == (50, 23.7)
    assert shown["tokensToDeleteForTarget"] == 14
    details(workbench, DELETE, **deletions("e2"))
    assert details(workbench, BUDGET)["tokensToDeleteForTarget"] == 0


def test_the_budget_states_the_window_only_if_it_is_known():
    messages = [user("x" * 400), assistant(text("y" * 400))]
    assert not any(key.startswith("contextWindow") for key in details(bench(*messages), BUDGET))
    workbench = bench(*messages, window=1_600)
    details(workbench, DELETE, **deletions("e2"))
    shown = details(workbench, BUDGET)
    assert shown["contextWindow"] == 1_600
    assert (shown["contextWindowBeforePercent"], shown["contextWindowAfterPercent"]) == (12.5, 6.3)


def test_a_deletion_reports_the_progress_and_a_refusal_the_reason():
    workbench = bench()
    answer = workbench.call(ToolCall(DELETE, deletions("e2[1]")))
    assert answer.refusal is None
    assert answer.details["stats"]["objectsDeleted"] == 3
    assert chosen(workbench) == "e2[1] e3"
    refused = workbench.call(ToolCall(DELETE, deletions("e1")))
    assert refused.details == {"stats": answer.details["stats"], "callCount": 2, "error": "protected"}
    assert "entry e1" in refused.sentence
    assert chosen(workbench) == "e2[1] e3"


@pytest.mark.parametrize("arguments", [{}, {"deletions": None}, {"deletions": whole("e4")}])
def test_a_deletion_of_no_list_is_judged_by_the_airlock(arguments):
    assert details(bench(), DELETE, **arguments)["error"] == "request_shape"


def test_as_many_matches_as_expected_and_allowed_are_deleted_and_by_default_at_most_fifty():
    workbench = bench()
    shown = details(workbench, GREP, pattern="needle", expectedMatchCount=5, maxMatches=5)
    assert {skip["reason"] for skip in shown["skipped"]} == {"protected_entry"}
    assert len(workbench.store.targets) == 5
    for count, gone in ((50, 50), (51, 0)):
        workbench = bench(user("x"), *(assistant(text("needle")) for _ in range(count)))
        details(workbench, GREP, pattern="needle")
        assert len(workbench.store.targets) == gone


def test_a_bulk_deletion_without_matches_validates_nothing_and_a_refused_one_keeps_what_was_found():
    shown = details(bench(assistant(text("a")), assistant(text("b"))), GREP, pattern="needle")
    assert (shown["matches"], shown["skipped"], "error" in shown) == ([], [], False)
    workbench = bench(user("x"), assistant(text("needle"), text("needle")), assistant(text("done")))
    shown = details(workbench, GREP, pattern="needle", target="content_block")
    assert shown["error"] == "every_block"
    assert found(shown) == "e2[0] e2[1]"
    assert chosen(workbench) == ""


def test_a_pattern_that_is_refused_deletes_nothing():
    workbench = bench()
    details(workbench, DELETE, **deletions("e4"))
    for pattern, code in (("", "invalid_pattern"), (r"(a)\1", "invalid_pattern"), ("a" * 513, "pattern_too_long")):
        shown = details(workbench, GREP, pattern=pattern, regex=True)
        assert (shown["matches"], shown["skipped"], shown["error"]) == ([], [], code)
        assert chosen(workbench) == "e4"


def test_a_bulk_deletion_ignores_case_and_takes_regular_expressions_only_on_request():
    for arguments, count in (
        ({"pattern": "NEEDLE"}, 5),
        ({"pattern": "NEEDLE", "caseSensitive": True}, 0),
        ({"pattern": "^needle"}, 0),
        ({"pattern": "^needle", "regex": True}, 1),
        ({"pattern": "needle$", "regex": True}, 2),
    ):
        assert len(details(bench(), GREP, **arguments)["matches"]) == count, arguments

"""What a summary would summarise: branches that are left, and the beginning of a context."""

from typing import Any

import pytest

from compaction_app.core.summary_ranges import (
    SummaryRange,
    branch_budget,
    branch_left,
    compaction_range,
    history_output,
    messages_left,
    messages_of,
    prefix_output,
    tokens_before,
    within_budget,
)
from sessions_app.agents.pi.reader import PiReader
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.tree import SessionTree
from tests.factories import (
    HEADER,
    assistant,
    bash,
    branch_of,
    branch_summary,
    call,
    chain,
    context_edit,
    custom,
    message,
    result,
    session_log,
    summary_compaction,
    text,
    user,
)

MODEL = {"type": "model_change", "provider": "p", "modelId": "m"}


def ids(entries: tuple[Entry, ...]) -> list[str]:
    return [entry.id for entry in entries]


def parts(found: SummaryRange | None) -> tuple[list[str], list[str], list[str]]:
    assert found is not None
    return ids(found.replaced), ids(found.prefix), ids(found.kept)


def range_of(*recorded: dict[str, Any], keep: int) -> SummaryRange | None:
    branch = branch_of(chain(*recorded))
    found = compaction_range(branch, keep)
    assert found == compaction_range(branch, keep, PiReader().rebuild(branch))
    return found


def words(tokens: int) -> str:
    return "word" * tokens


def turn(tokens: int) -> list[dict[str, Any]]:
    """A turn of four messages, each with an estimate of `tokens`, except the call."""
    return [
        user(words(tokens)),
        assistant(call("c", path="a.py")),
        result("c", words(tokens)),
        assistant(text(words(tokens))),
    ]


def test_a_branch_is_left_up_to_the_deepest_shared_entry():
    trunk = [message(f"a{n}", f"a{n - 1}" if n else None, user("a")) for n in range(4)]
    others = [message("b", "a1", user("b")), message("root", None, user("r"))]
    tree = SessionTree(session_log([HEADER, *trunk, *others]).entries)
    assert branch_left(tree, "a3", "b") == ("a1", tuple(map(tree.entry, ("a2", "a3"))))
    assert branch_left(tree, "b", "a3") == ("a1", (tree.entry("b"),))
    assert branch_left(tree, "a3", "a1") == ("a1", tuple(map(tree.entry, ("a2", "a3"))))
    assert branch_left(tree, "a1", "a3") == ("a1", ())
    assert branch_left(tree, "b", None) == (None, tuple(map(tree.entry, ("a0", "a1", "b"))))
    assert branch_left(tree, "b", "root") == (None, tuple(map(tree.entry, ("a0", "a1", "b"))))


def test_the_newest_messages_fit_into_a_budget_and_tool_results_are_left_out():
    branch = branch_of(chain(*turn(100), MODEL, *turn(100)))
    found = within_budget(branch, 210)
    assert (ids(found.entries), found.tokens, found.left_out) == (["e6", "e7", "e9"], 205, 3)
    assert ids(within_budget(branch, 10_000).entries) == ["e1", "e2", "e4", "e6", "e7", "e9"]
    assert ids(within_budget(branch, 99).entries) == []
    assert ids(within_budget(branch, 250, removed={"e6"}).entries) == ["e2", "e4", "e7", "e9"]


@pytest.mark.parametrize("summary", [branch_summary(words(500)), summary_compaction(words(500), "e1")])
def test_a_summary_that_does_not_fit_is_taken_unless_the_budget_is_nearly_full(summary):
    branch = branch_of(chain(user("old"), summary, user(words(100))))
    assert ids(within_budget(branch, 112).entries) == ["e2", "e3"]
    assert ids(within_budget(branch, 111).entries) == ["e3"]


def test_a_budget_is_the_window_without_a_reserve():
    assert branch_budget(200_000) == 183_616
    assert branch_budget(None, 8_000) == 120_000
    assert branch_budget(1_000) == 0
    assert (history_output(), prefix_output()) == (13_107, 8_192)


def test_a_cut_at_a_user_message_splits_no_turn():
    found = range_of(*turn(100), *turn(100), keep=300)
    assert parts(found) == (["e1", "e2", "e3", "e4"], [], ["e5", "e6", "e7", "e8"])
    assert found is not None
    assert (found.first_kept_id, found.is_split_turn, found.previous_summary) == ("e5", False, None)


def test_a_cut_within_a_turn_splits_it():
    found = range_of(*turn(100), *turn(100), keep=50)
    assert parts(found) == (["e1", "e2", "e3", "e4"], ["e5", "e6", "e7"], ["e8"])


def test_a_cut_is_never_at_a_tool_result():
    last_call = range_of(*turn(100), *turn(100), keep=150)
    assert parts(last_call) == (["e1", "e2", "e3", "e4"], ["e5", "e6", "e7"], ["e8"])
    last_results = range_of(*turn(100), *turn(100)[:3], keep=100)
    assert parts(last_results) == (["e1", "e2", "e3", "e4"], ["e5"], ["e6", "e7"])


@pytest.mark.parametrize("start", [bash("ls", words(100)), custom(words(100)), branch_summary(words(100))])
def test_what_a_user_adds_starts_a_turn(start):
    found = range_of(*turn(100), start, assistant(text(words(10))), keep=110)
    assert parts(found) == (["e1", "e2", "e3", "e4"], [], ["e5", "e6"])


def test_the_kept_part_begins_with_what_changed_just_before_it():
    found = range_of(*turn(100), MODEL, MODEL, *turn(100), keep=300)
    assert parts(found) == (["e1", "e2", "e3", "e4"], [], [f"e{n}" for n in range(5, 11)])


def test_a_range_begins_with_what_the_previous_compaction_kept():
    recorded = [*turn(100), *turn(100), summary_compaction("Before.", "e5"), *turn(100)]
    found = range_of(*recorded, keep=300)
    assert parts(found) == (["e5", "e6", "e7", "e8"], [], ["e10", "e11", "e12", "e13"])
    assert found is not None
    assert found.previous_summary is not None
    assert found.previous_summary.id == "e9"


def test_a_range_begins_after_a_compaction_that_kept_nothing():
    recorded = [*turn(100), summary_compaction("Before.", "gone"), *turn(100), *turn(100)]
    found = range_of(*recorded, keep=300)
    assert parts(found) == (["e6", "e7", "e8", "e9"], [], ["e10", "e11", "e12", "e13"])


def test_there_may_be_nothing_to_replace():
    assert compaction_range([]) is None
    assert range_of(*turn(100), keep=1_000) is None
    assert range_of(*turn(100), summary_compaction("Before.", "e1"), keep=1) is None
    assert range_of(MODEL, keep=1) is None
    assert range_of(result("c", words(100)), keep=1) is None


def test_what_an_edit_removed_does_not_count():
    branch = branch_of(chain(*turn(100), *turn(100), context_edit("e8", None)))
    found = compaction_range(branch, 150, PiReader().rebuild(branch))
    assert parts(found) == (["e1", "e2", "e3", "e4"], [], [f"e{n}" for n in range(5, 10)])


def test_a_model_is_shown_the_messages_of_the_context():
    branch = branch_of(chain(*turn(10), summary_compaction("Before.", "e4"), user("b"), context_edit("e6", None)))
    assert [one.entry.id for one in messages_of(branch)] == ["e1", "e2", "e3", "e4", "e5", "e6"]
    context = PiReader().rebuild(branch)
    assert [one.entry.id for one in messages_of(branch, context)] == ["e5", "e4"]


def test_a_left_branch_is_shown_as_edited_and_what_was_compacted_as_recorded():
    edits = (context_edit("e3", None), context_edit("e4", {"content": "shorter"}))
    branch = branch_of(chain(user("a"), summary_compaction("Before.", "e3"), user("b"), user("c"), *edits))
    found = messages_left(branch, PiReader().rebuild(branch))
    edited = [(one.entry.id, one.edit is not None) for one in found]
    assert edited == [("e1", False), ("e2", False), ("e4", True)]


def test_a_report_counts_until_the_context_is_edited():
    recorded = [user(words(10)), assistant(text("a"), usage={"totalTokens": 5_000}), user(words(10))]
    assert tokens_before(PiReader().rebuild(branch_of(chain(*recorded)))) == 5_010
    edited = branch_of(chain(*recorded, context_edit("e1", None)))
    assert tokens_before(PiReader().rebuild(edited)) == 11

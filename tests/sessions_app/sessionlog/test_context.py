"""The totals of a context: the agent's own count, and the size that pages show."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessions_app.agents.contexts import Reader
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.context import SAMPLE, Tally, is_due, model_of, thinking_level_of
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.measure import Basis, InheritedMeasure, Measure, Measured
from sessions_app.sessionlog.tree import SessionTree
from tests.factories import (
    assistant,
    bash,
    block,
    branch_of,
    call,
    chain,
    compaction,
    context_edit,
    result,
    session_log,
    summary_compaction,
    text,
    thinking,
    user,
    whole,
)

Recorded = dict[str, Any]
ATOMIC, PI = READERS["atomic-0.8"], READERS["pi"]
FOUR = "x" * 16
"""A text of four tokens."""


def said(usage: object = None, **fields: Any) -> dict[str, Any]:
    """An assistant message of four tokens, with its provider's report."""
    return assistant(text(FOUR), **({} if usage is None else {"usage": usage}), **fields)


def usage(*messages: Recorded, reader: Reader = ATOMIC) -> tuple[int, int, int]:
    found = reader.rebuild(branch_of(chain(*messages))).usage
    return found.tokens, found.usage_tokens, found.trailing_tokens


def size(*messages: Recorded, reader: Reader = ATOMIC) -> tuple[int, Basis]:
    branch = branch_of(chain(*messages))
    found = Tally.of(reader.rebuild(branch), branch, reader.rebuild).size
    return found.tokens, found.basis


# ---- the agent's count --------------------------------------------------------------------------------------


def test_without_a_report_everything_is_estimated():
    assert usage(user(FOUR), said(), result("c", FOUR)) == (12, 0, 12)
    assert size(user(FOUR), said()) == (8, Basis.ABOUT)
    assert Tally.of(PI.rebuild(()), (), PI.rebuild).size.tokens == 0


def test_the_last_report_counts_with_an_estimate_of_what_follows_it():
    talk = (user(FOUR), said({"totalTokens": 100}), user(FOUR), said({"totalTokens": 500}))
    talk = (*talk, user(FOUR), bash("", FOUR))
    assert usage(*talk) == (508, 500, 8)


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_a_report_of_an_assistant_that_did_not_finish_is_ignored(stop):
    unfinished = said({"totalTokens": 9000}, stopReason=stop)
    assert usage(user(FOUR), said({"totalTokens": 100}), unfinished) == (104, 100, 4)
    assert usage(user(FOUR), unfinished) == (8, 0, 8)


def test_a_report_without_a_total_is_the_sum_of_its_parts():
    parts = {"input": 1, "output": 20, "cacheRead": 300, "cacheWrite": 4000}
    assert usage(said(parts), user(FOUR)) == (4325, 4321, 4)
    assert usage(said({"totalTokens": 7, **parts})) == (7, 7, 0)


def test_an_assistant_without_a_report_is_skipped():
    assert usage(said({"totalTokens": 100}), said()) == (104, 100, 4)


def test_a_report_of_zero_tokens_is_none_as_in_a_fork():
    assert usage(user(FOUR), said({}), user(FOUR)) == (12, 0, 12)
    assert usage(user(FOUR), said({"totalTokens": 100}), said({})) == (104, 100, 4)
    assert size(user(FOUR), said({}), user(FOUR)) == (12, Basis.ABOUT)


def test_a_report_of_a_deleted_assistant_does_not_count():
    talk = (user(FOUR), said({"totalTokens": 100}), user(FOUR), said({"totalTokens": 900}))
    assert usage(*talk, compaction(whole("e4"))) == (104, 100, 4)


def test_entries_that_are_not_sent_still_count_as_in_the_agent():
    assert usage(said({"totalTokens": 100}), bash("", FOUR, excludeFromContext=True)) == (104, 100, 4)


# ---- the size -----------------------------------------------------------------------------------------------


def test_a_report_of_exactly_this_context_is_its_size():
    assert size(user(FOUR), said({"totalTokens": 12})) == (12, Basis.REPORTED)
    assert size(user(FOUR), said({"totalTokens": 12}), user(FOUR)) == (18, Basis.ABOUT)


TALK = (user(FOUR), said({"totalTokens": 16}), user(FOUR))


@pytest.mark.parametrize(
    ("reader", "compact", "tokens"),
    [
        (ATOMIC, compaction(whole("e1")), 16),
        (PI, context_edit("e1", None), 16),
        (PI, summary_compaction("x" * 4, "e3"), 10),
    ],
)
def test_a_compaction_takes_what_it_removes_from_a_report(reader, compact, tokens):
    assert size(*TALK, reader=reader) == (24, Basis.ABOUT)
    assert size(*TALK, compact, reader=reader) == (tokens, Basis.ABOUT)
    assert usage(*TALK, compaction(whole("e1"))) == (20, 16, 4), "the agent's own count is not changed"


def test_a_report_of_a_message_that_was_struck_still_gives_the_measure():
    talk = (user(FOUR), user(FOUR), said({"totalTokens": 24}), compaction(whole("e3")))
    assert size(*talk) == (16, Basis.ABOUT)


def test_a_report_after_a_compaction_counts_again():
    talk = (user(FOUR), said({"totalTokens": 16}), compaction(whole("e1")), said({"totalTokens": 12}))
    assert size(*talk) == (12, Basis.REPORTED)
    assert size(*talk, user(FOUR)) == (18, Basis.ABOUT)


def test_a_compaction_that_the_reader_ignores_changes_nothing():
    talk = (user(FOUR), said({"totalTokens": 16}))
    assert size(*talk, compaction(whole("e1")), reader=PI) == (16, Basis.REPORTED)
    assert size(*talk, summary_compaction("s", "e1"), reader=ATOMIC) == (16, Basis.REPORTED)


def test_what_redline_wrote_has_the_measure_of_what_it_compacted():
    """The reports in a new session are of contexts with more in them."""
    branch = branch_of(chain(*TALK))
    inherited = InheritedMeasure(branch[2].offset, Measure(Measured(1_000, 800)))

    def totals(inherited: InheritedMeasure | None) -> Tally:
        return Tally.of(PI.rebuild(branch), branch, PI.rebuild, inherited)

    assert totals(inherited).size.tokens == 15
    assert totals(msgspec.structs.replace(inherited, size=0)).size.tokens == 24, "the report came later"
    assert totals(None).size.tokens == 24


def test_a_count_is_wanted_until_enough_of_the_branch_is_counted():
    entries = session_log(chain(user(FOUR), said({"totalTokens": 1}), user(FOUR))).entries
    tally = Tally()
    for entry in entries[:2]:
        tally.add(entry)
    assert tally.wants_sample, "the report is of another context"
    tally.take_sample(Measured(10, 8))
    assert not tally.wants_sample
    tally.add(entries[2])
    assert tally.wants_sample
    tally.take_sample(Measured(80_000, SAMPLE))
    tally.leaf_id = "later"
    assert not tally.wants_sample


@pytest.mark.parametrize(
    ("tokens", "window", "due"),
    [(84, 100, False), (85, 100, True), (0, 10, True), (10**9, None, False), (85, 101, False)],
)
def test_compaction_is_due_above_the_window_less_the_reserve_and_never_in_an_unknown_one(tokens, window, due):
    assert is_due(tokens, window, reserve_tokens=16) is due


def test_the_first_message_and_a_summary_do_not_count_as_what_pi_can_keep():
    def after_first(*messages: Recorded) -> int | None:
        return PI.rebuild(branch_of(chain(*messages))).after_first

    system = {"role": "system", "content": FOUR}
    assert PI.rebuild(()).after_first is None
    assert after_first(system, result("c", FOUR)) is None
    assert after_first(system, user(FOUR)) == 0
    assert after_first(result("c", FOUR), user(FOUR), said(), result("c", FOUR), system) == 12
    repeated = summary_compaction(FOUR, "e1") | {"systemMessage": system}
    assert after_first(user(FOUR), said(), repeated, user(FOUR)) == 8


# ---- model and thinking level -------------------------------------------------------------------------------


def test_the_model_in_use_is_the_latest_change_or_assistant():
    change = {"type": "model_change", "provider": "p", "modelId": "changed"}
    spoke = said(provider="q", model="spoke")
    assert model_of(branch_of(chain(user("x"), change, spoke))) == ("q", "spoke")
    assert model_of(branch_of(chain(spoke, change, said()))) == ("p", "changed")
    assert model_of(branch_of(chain(user("x"), said()))) is None


def test_the_thinking_level_is_the_latest_one_that_was_set():
    def level(*levels: object) -> str:
        changes = ({"type": "thinking_level_change", "thinkingLevel": one} for one in levels)
        return thinking_level_of(branch_of(chain(user("x"), *changes)))

    assert level() == "off"
    assert level("high", "low") == "low"
    assert level("high", None, 7) == "high"


# ---- incremental totals -------------------------------------------------------------------------------------

reports = st.none() | st.builds(lambda total: {"totalTokens": total}, st.integers(0, 99))
texts = st.integers(0, 30).map("x".__mul__)
targets = st.integers(1, 14).map("e{}".format)
plain_entries = st.one_of(
    st.builds(user, texts),
    st.builds(bash, texts, texts, excludeFromContext=st.booleans()),
    st.builds(result, st.sampled_from(["c1", "c2"]), texts),
    st.builds(
        lambda words, report, stop: assistant(
            thinking(words), text(words), call("c1"), call("c2"), usage=report, stopReason=stop
        ),
        texts,
        reports,
        st.sampled_from(["stop", "error", "aborted"]),
    ),
    st.builds(lambda words: {"type": "custom_message", "content": words}, texts),
    st.builds(lambda words: {"type": "branch_summary", "summary": words}, texts),
    st.builds(lambda words: {"role": "system", "content": words}, texts),
    st.builds(lambda: {"type": "label", "targetId": "e1", "label": "x"}),
    st.builds(lambda: {"type": "from_the_future"}),
)
rebuilding_entries = st.one_of(
    st.builds(summary_compaction, texts, targets),
    st.builds(context_edit, targets, st.none() | st.builds(lambda words: {"content": words}, texts)),
    st.lists(st.builds(whole, targets) | st.builds(block, targets, st.integers(0, 3)), max_size=3).map(
        lambda chosen: compaction(*chosen)
    ),
)
starts = st.lists(plain_entries | rebuilding_entries, max_size=6)


def rebuilt_tally(reader: Reader, entries: list[Entry]) -> Tally:
    tree = SessionTree(entries)
    branch = tree.branch(tree.leaf.id)
    return Tally.of(reader.rebuild(branch), branch, reader.rebuild)


@given(st.sampled_from([ATOMIC, PI]), starts, st.lists(plain_entries, min_size=1, max_size=6))
@example(PI, [context_edit("e3", None)], [user(FOUR)])
@example(ATOMIC, [said({"totalTokens": 5}), compaction(whole("e1"))], [user(FOUR)])
@example(
    ATOMIC,
    [assistant(thinking(FOUR), call("c1")), result("c1", FOUR), compaction(block("e2", 0), whole("e3"))],
    [assistant(text("its thinking is the latest no more"))],
)
def test_incremental_totals_are_those_of_the_branch(reader, start, appended):
    entries = session_log(chain(user("x"), *start, *appended)).entries
    known = len(start) + 1
    tally = rebuilt_tally(reader, entries[:known])
    for end in range(known, len(entries)):
        if not tally.carries(entries[end]):
            return
        tally.add(entries[end])
        whole_branch = rebuilt_tally(reader, entries[: end + 1])
        assert (tally.size, tally.after_first) == (whole_branch.size, whole_branch.after_first)
        assert tally.leaf_id == entries[end].id
        # As an index stores it between two readings.
        tally = msgspec.convert(msgspec.to_builtins(tally), Tally)


@given(st.lists(plain_entries, max_size=8), st.sampled_from([ATOMIC, PI]))
def test_a_session_without_compactions_is_totalled_while_it_is_read(messages, reader):
    entries = session_log(chain(*messages)).entries
    tally = Tally()
    for entry in entries:
        assert tally.carries(entry), "else the whole branch would be read again for every line"
        tally.add(entry)
    if entries:
        assert tally.size == rebuilt_tally(reader, entries).size


def test_totals_are_not_continued_past_a_fork_or_a_compaction():
    entries = session_log(chain(user("x"), user("y"), user("z"))).entries
    tally = rebuilt_tally(ATOMIC, entries[:2])
    assert tally.carries(entries[2])
    assert not tally.carries(msgspec.structs.replace(entries[2], parent_id="e1"))
    assert not tally.carries(msgspec.structs.replace(entries[2], parent_id=None))
    for kind in (EntryKind.DELETION, EntryKind.SUMMARY, EntryKind.EDIT):
        assert not tally.carries(msgspec.structs.replace(entries[2], kind=kind))


def test_totals_continue_after_a_compaction_in_the_same_measure():
    talk = (user(FOUR), said({"totalTokens": 16}), summary_compaction("x" * 4, "e2"))
    entries = session_log(chain(*talk, user(FOUR), said({"totalTokens": 12}))).entries
    tally = rebuilt_tally(PI, entries[:3])
    assert tally.size.tokens == 10
    tally.add(entries[3])
    assert tally.size.tokens == 18
    tally.add(entries[4])
    assert (tally.size.tokens, tally.size.basis) == (12, Basis.REPORTED)

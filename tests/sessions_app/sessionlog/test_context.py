"""The gauge: the agent's own count, and never one that describes an obsolete context."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessions_app.agents.contexts import Reader
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.context import Gauge, Tally, is_due, model_of, thinking_level_of
from sessions_app.sessionlog.entries import Entry, EntryKind
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

ATOMIC, PI = READERS["atomic-0.8"], READERS["pi"]
FOUR = "x" * 16
"""A text of four tokens."""


def said(usage: object = None, **fields: Any) -> dict[str, Any]:
    """An assistant message of four tokens, with its provider's report."""
    return assistant(text(FOUR), **({} if usage is None else {"usage": usage}), **fields)


def usage(*messages: dict[str, Any], reader: Reader = ATOMIC) -> tuple[int, int, int]:
    found = reader.rebuild(branch_of(chain(*messages))).usage
    return found.tokens, found.usage_tokens, found.trailing_tokens


def gauge(*messages: dict[str, Any], reader: Reader = ATOMIC) -> Gauge:
    return reader.rebuild(branch_of(chain(*messages))).gauge


# ---- the agent's count --------------------------------------------------------------------------------------


def test_without_a_report_everything_is_estimated() -> None:
    assert usage(user(FOUR), said(), result("c", FOUR)) == (12, 0, 12)
    assert gauge(user(FOUR), said()) == Gauge(8, "estimate")
    assert ATOMIC.rebuild(()).gauge == PI.rebuild(()).gauge == Gauge(0, "estimate")


def test_the_last_report_counts_with_an_estimate_of_what_follows_it() -> None:
    talk = (
        user(FOUR),
        said({"totalTokens": 100}),
        user(FOUR),
        said({"totalTokens": 500}),
        user(FOUR),
        bash("", FOUR),
    )
    assert usage(*talk) == (508, 500, 8)
    assert gauge(*talk) == Gauge(508, "usage")


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_a_report_of_an_assistant_that_did_not_finish_is_ignored(stop: str) -> None:
    unfinished = said({"totalTokens": 9000}, stopReason=stop)
    assert usage(user(FOUR), said({"totalTokens": 100}), unfinished) == (104, 100, 4)
    assert usage(user(FOUR), unfinished) == (8, 0, 8)


def test_a_report_without_a_total_is_the_sum_of_its_parts() -> None:
    parts = {"input": 1, "output": 20, "cacheRead": 300, "cacheWrite": 4000}
    assert usage(said(parts), user(FOUR)) == (4325, 4321, 4)
    assert usage(said({"totalTokens": 7, **parts})) == (7, 7, 0)


def test_an_assistant_without_a_report_is_skipped() -> None:
    assert usage(said({"totalTokens": 100}), said()) == (104, 100, 4)


def test_a_report_of_zero_tokens_is_none_as_in_a_fork() -> None:
    assert usage(user(FOUR), said({}), user(FOUR)) == (12, 0, 12)
    assert usage(user(FOUR), said({"totalTokens": 100}), said({})) == (104, 100, 4)
    assert gauge(user(FOUR), said({}), user(FOUR)) == Gauge(12, "estimate")


def test_a_report_of_a_deleted_assistant_does_not_count() -> None:
    talk = (user(FOUR), said({"totalTokens": 100}), user(FOUR), said({"totalTokens": 900}))
    assert usage(*talk, compaction(whole("e4"))) == (104, 100, 4)


def test_entries_that_are_not_sent_still_count_as_in_the_agent() -> None:
    assert usage(said({"totalTokens": 100}), bash("", FOUR, excludeFromContext=True)) == (104, 100, 4)


# ---- the gauge ----------------------------------------------------------------------------------------------


def test_a_report_older_than_the_newest_compaction_is_replaced_by_the_estimate() -> None:
    talk = (user(FOUR), said({"totalTokens": 100}), user(FOUR))
    assert gauge(*talk, compaction(whole("e1"))) == Gauge(8, "estimate")
    assert usage(*talk, compaction(whole("e1"))) == (104, 100, 4), "the agent's own count is not changed"
    assert gauge(*talk, summary_compaction("x" * 4, "e3"), reader=PI) == Gauge(5, "estimate")
    assert gauge(*talk, context_edit("e1", None), reader=PI) == Gauge(8, "estimate")


def test_a_report_after_the_newest_compaction_counts_again() -> None:
    talk = (
        user(FOUR),
        said({"totalTokens": 100}),
        compaction(whole("e1")),
        said({"totalTokens": 60}),
        user(FOUR),
    )
    assert gauge(*talk) == Gauge(64, "usage")


def test_a_compaction_that_the_reader_ignores_voids_no_report() -> None:
    talk = (user(FOUR), said({"totalTokens": 100}))
    assert gauge(*talk, compaction(whole("e1")), reader=PI) == Gauge(100, "usage")
    assert gauge(*talk, summary_compaction("s", "e1"), reader=ATOMIC) == Gauge(100, "usage")


def test_the_newest_compaction_voids_the_report() -> None:
    talk = (user(FOUR), compaction(whole("e1")), said({"totalTokens": 60}), compaction())
    assert gauge(*talk) == Gauge(4, "estimate")
    either = (user(FOUR), summary_compaction("", "e1"), said({"totalTokens": 60}), context_edit("e1", None))
    assert gauge(*either, reader=PI) == Gauge(4, "estimate")


@pytest.mark.parametrize(
    ("tokens", "window", "due"),
    [(84, 100, False), (85, 100, True), (0, 10, True), (10**9, None, False), (85, 101, False)],
)
def test_compaction_is_due_above_the_window_less_the_reserve_and_never_in_an_unknown_one(
    tokens: int, window: int | None, due: bool
) -> None:
    assert is_due(Gauge(tokens, "usage"), window, reserve_tokens=16) is due


def test_the_first_message_and_a_summary_do_not_count_as_what_pi_can_keep() -> None:
    def after_first(*messages: dict[str, Any]) -> int | None:
        return PI.rebuild(branch_of(chain(*messages))).after_first

    system = {"role": "system", "content": FOUR}
    assert PI.rebuild(()).after_first is None
    assert after_first(system, result("c", FOUR)) is None
    assert after_first(system, user(FOUR)) == 0
    assert after_first(result("c", FOUR), user(FOUR), said(), result("c", FOUR), system) == 12
    repeated = summary_compaction(FOUR, "e1") | {"systemMessage": system}
    assert after_first(user(FOUR), said(), repeated, user(FOUR)) == 8


# ---- model and thinking level -------------------------------------------------------------------------------


def test_the_model_in_use_is_the_latest_change_or_assistant() -> None:
    change = {"type": "model_change", "provider": "p", "modelId": "changed"}
    spoke = said(provider="q", model="spoke")
    assert model_of(branch_of(chain(user("x"), change, spoke))) == ("q", "spoke")
    assert model_of(branch_of(chain(spoke, change, said()))) == ("p", "changed")
    assert model_of(branch_of(chain(user("x"), said()))) is None


def test_the_thinking_level_is_the_latest_one_that_was_set() -> None:
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
    return Tally.of(reader.rebuild(tree.branch(tree.leaf.id)), tree.leaf.id)


@given(st.sampled_from([ATOMIC, PI]), starts, st.lists(plain_entries, min_size=1, max_size=6))
@example(PI, [context_edit("e3", None)], [user(FOUR)])
@example(ATOMIC, [said({"totalTokens": 5}), compaction(whole("e1"))], [user(FOUR)])
@example(
    ATOMIC,
    [assistant(thinking(FOUR), call("c1")), result("c1", FOUR), compaction(block("e2", 0), whole("e3"))],
    [assistant(text("its thinking is the latest no more"))],
)
def test_incremental_totals_equal_those_of_the_whole_branch(
    reader: Reader, start: list[dict[str, Any]], appended: list[dict[str, Any]]
) -> None:
    entries = session_log(chain(user("x"), *start, *appended)).entries
    known = len(start) + 1
    tally = rebuilt_tally(reader, entries[:known])
    for end in range(known, len(entries)):
        if not tally.carries(entries[end]):
            return
        tally.add(entries[end])
        whole_branch = rebuilt_tally(reader, entries[: end + 1])
        assert (tally.gauge, tally.after_first) == (whole_branch.gauge, whole_branch.after_first)
        assert tally.leaf_id == entries[end].id
        # As an index stores it between two readings.
        tally = msgspec.convert(msgspec.to_builtins(tally), Tally)


@given(st.lists(plain_entries, max_size=8), st.sampled_from([ATOMIC, PI]))
def test_a_session_without_compactions_is_totalled_while_it_is_read(
    messages: list[dict[str, Any]], reader: Reader
) -> None:
    entries = session_log(chain(*messages)).entries
    tally = Tally()
    for entry in entries:
        assert tally.carries(entry), "else the whole branch would be read again for every line"
        tally.add(entry)
    if entries:
        assert tally.gauge == rebuilt_tally(reader, entries).gauge


def test_totals_are_not_continued_past_a_fork_or_a_compaction() -> None:
    entries = session_log(chain(user("x"), user("y"), user("z"))).entries
    tally = rebuilt_tally(ATOMIC, entries[:2])
    assert tally.carries(entries[2])
    assert not tally.carries(msgspec.structs.replace(entries[2], parent_id="e1"))
    assert not tally.carries(msgspec.structs.replace(entries[2], parent_id=None))
    for kind in (EntryKind.DELETION, EntryKind.SUMMARY, EntryKind.EDIT):
        assert not tally.carries(msgspec.structs.replace(entries[2], kind=kind))


def test_a_new_report_counts_after_a_void_one() -> None:
    talk = (user(FOUR), said({"totalTokens": 100}), summary_compaction("x" * 4, "e2"))
    entries = session_log(chain(*talk, user(FOUR), said({"totalTokens": 60}))).entries
    tally = rebuilt_tally(PI, entries[:3])
    assert tally.gauge == Gauge(5, "estimate")
    tally.add(entries[3])
    assert tally.gauge == Gauge(9, "estimate")
    tally.add(entries[4])
    assert tally.gauge == Gauge(60, "usage")

"""The size of a context: the agent's own count, and one number that pages show: reported, counted or about."""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, strategies as st

from sessions_app.agents.pure.formats import Reader
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.context import (
    LEAST,
    MOST,
    NOTHING_MEASURED,
    SAMPLE,
    Basis,
    ContextSize,
    InheritedMeasure,
    Measure,
    Measured,
    Tally,
    is_due,
    model_of,
    significant,
    steady_shares,
    thinking_level_of,
)
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.tree import SessionTree
from tests.factories import (
    assistant,
    bash,
    block,
    branch_of,
    branch_summary,
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
ASK = user(FOUR)


def said(usage: object = None, **fields: Any) -> Recorded:
    """An assistant message of four tokens, with its provider's report."""
    return assistant(text(FOUR), **({} if usage is None else {"usage": usage}), **fields)


def reported(tokens: int, **fields: Any) -> Recorded:
    return said({"totalTokens": tokens}, **fields)


PARTS = {"input": 1, "output": 20, "cacheRead": 300, "cacheWrite": 4000}
TALK = (ASK, reported(16), ASK)
SUMMARISED = summary_compaction("x" * 4, "e2")
USAGES = {
    # The tokens in all, those that are reported, and those estimated after the report, as the agent counts.
    "no report": ((ASK, said(), result("c", FOUR)), (12, 0, 12)),
    "the last report": ((ASK, reported(100), ASK, reported(500), ASK, bash("", FOUR)), (508, 500, 8)),
    "a report without a total": ((said(PARTS), ASK), (4325, 4321, 4)),
    "a report with a total and its parts": ((said({"totalTokens": 7, **PARTS}),), (7, 7, 0)),
    "an assistant without a report": ((reported(100), said()), (104, 100, 4)),
    "a report of zero tokens, as in a fork": ((ASK, said({}), ASK), (12, 0, 12)),
    "a report before one of zero tokens": ((ASK, reported(100), said({})), (104, 100, 4)),
    "a report of a deleted reply": ((ASK, reported(100), ASK, reported(900), compaction(whole("e4"))), (104, 100, 4)),
    "what is not sent": ((reported(100), bash("", FOUR, excludeFromContext=True)), (104, 100, 4)),
    "a report of what was compacted since": ((*TALK, compaction(whole("e1"))), (20, 16, 4)),
    **{
        f"a report of an assistant that ended with {stop}": ((*before, reported(9000, stopReason=stop)), found)
        for stop in ("error", "aborted")
        for before, found in (((ASK, reported(100)), (104, 100, 4)), ((ASK,), (8, 0, 8)))
    },
}


@pytest.mark.parametrize("name", USAGES)
def test_what_counts_as_usage(name):
    messages, expected = USAGES[name]
    found = ATOMIC.rebuild(branch_of(chain(*messages))).usage
    assert (found.tokens, found.usage_tokens, found.trailing_tokens) == expected


SIZES = {
    "no report": (ATOMIC, (ASK, said()), 8, Basis.ABOUT),
    "a report of zero tokens": (ATOMIC, (ASK, said({}), ASK), 12, Basis.ABOUT),
    "a report of exactly this context": (ATOMIC, (ASK, reported(12)), 12, Basis.REPORTED),
    "what comes after a report": (ATOMIC, (ASK, reported(12), ASK), 18, Basis.ABOUT),
    "what comes after a report, in pi": (PI, TALK, 24, Basis.ABOUT),
    "a deletion after a report": (ATOMIC, (*TALK, compaction(whole("e1"))), 16, Basis.ABOUT),
    "an edit after a report": (PI, (*TALK, context_edit("e1", None)), 16, Basis.ABOUT),
    "a summary after a report": (PI, (*TALK, summary_compaction("x" * 4, "e3")), 10, Basis.ABOUT),
    "what follows a summary": (PI, (*TALK[:2], SUMMARISED, ASK), 18, Basis.ABOUT),
    "a report after a summary": (PI, (*TALK[:2], SUMMARISED, ASK, reported(12)), 12, Basis.REPORTED),
    "a report of what was struck": (ATOMIC, (ASK, ASK, reported(24), compaction(whole("e3"))), 16, Basis.ABOUT),
    "a report after a deletion": (ATOMIC, (*TALK[:2], compaction(whole("e1")), reported(12)), 12, Basis.REPORTED),
    "what follows that": (ATOMIC, (*TALK[:2], compaction(whole("e1")), reported(12), ASK), 18, Basis.ABOUT),
    "a deletion that pi ignores": (PI, (*TALK[:2], compaction(whole("e1"))), 16, Basis.REPORTED),
    "a summary that Atomic ignores": (ATOMIC, (*TALK[:2], summary_compaction("s", "e1")), 16, Basis.REPORTED),
}


@pytest.mark.parametrize("name", SIZES)
def test_what_the_size_is(name):
    reader, messages, *expected = SIZES[name]
    branch = branch_of(chain(*messages))
    size = Tally.of(reader.rebuild(branch), branch, reader.rebuild).size
    assert [size.tokens, size.basis] == expected
    assert Tally.of(reader.rebuild(()), (), reader.rebuild).size.tokens == 0


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
    entries = session_log(chain(ASK, reported(1), ASK)).entries
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
    assert after_first(system, ASK) == 0
    assert after_first(result("c", FOUR), ASK, said(), result("c", FOUR), system) == 12
    repeated = summary_compaction(FOUR, "e1") | {"systemMessage": system}
    assert after_first(ASK, said(), repeated, ASK) == 8


def test_the_model_and_the_thinking_level_in_use_are_the_latest_that_were_set():
    change = {"type": "model_change", "provider": "p", "modelId": "changed"}
    spoke = said(provider="q", model="spoke")
    assert model_of(branch_of(chain(user("x"), change, spoke))) == ("q", "spoke")
    assert model_of(branch_of(chain(spoke, change, said()))) == ("p", "changed")
    assert model_of(branch_of(chain(user("x"), said()))) is None

    def level(*levels: object) -> str:
        changes = ({"type": "thinking_level_change", "thinkingLevel": one} for one in levels)
        return thinking_level_of(branch_of(chain(user("x"), *changes)))

    assert level() == "off"
    assert level("high", "low") == "low"
    assert level("high", None, 7) == "high"


NOTE, SYSTEM = {"type": "custom_message"}, {"role": "system"}
reports = st.none() | st.builds(lambda total: {"totalTokens": total}, st.integers(0, 99))
texts = st.integers(0, 30).map("x".__mul__)
targets = st.integers(1, 14).map("e{}".format)
plain_entries = st.one_of(
    st.builds(user, texts),
    st.builds(bash, texts, texts, excludeFromContext=st.booleans()),
    st.builds(result, st.sampled_from(["c1", "c2"]), texts),
    st.builds(
        lambda words, **fields: assistant(thinking(words), text(words), call("c1"), call("c2"), **fields),
        texts,
        usage=reports,
        stopReason=st.sampled_from(["stop", "error", "aborted"]),
    ),
    st.builds(branch_summary, texts),
    *(st.builds(lambda words, kind=kind: {**kind, "content": words}, texts) for kind in (NOTE, SYSTEM)),
    st.sampled_from([{"type": "label", "targetId": "e1", "label": "x"}, {"type": "from_the_future"}]),
)
parts = st.builds(whole, targets) | st.builds(block, targets, st.integers(0, 3))
rebuilding_entries = st.one_of(
    st.builds(summary_compaction, texts, targets),
    st.builds(context_edit, targets, st.none() | st.builds(lambda words: {"content": words}, texts)),
    st.lists(parts, max_size=3).map(lambda chosen: compaction(*chosen)),
)
starts = st.lists(plain_entries | rebuilding_entries, max_size=6)


def rebuilt_tally(reader: Reader, entries: list[Entry]) -> Tally:
    tree = SessionTree(entries)
    branch = tree.branch(tree.leaf.id)
    return Tally.of(reader.rebuild(branch), branch, reader.rebuild)


@given(st.sampled_from([ATOMIC, PI]), starts, st.lists(plain_entries, min_size=1, max_size=6))
@example(PI, [context_edit("e3", None)], [ASK])
@example(ATOMIC, [reported(5), compaction(whole("e1"))], [ASK])
@example(PI, [reported(16), SUMMARISED], [ASK, reported(12)])
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


tokens = st.integers(0, 2_000_000)
measured = st.builds(Measured, tokens, tokens)
measures = st.builds(Measure, st.none() | measured, st.none() | measured)
MOSTLY_ELSEWHERE = Measure(Measured(20_000, 1_000), Measured(1_200, 1_000))
"""Instructions and tools are reported, but not in the session."""
REPORT = Measure(Measured(180_820, 140_000))
COUNT = Measure(sample=Measured(613, 500))
TOO_SMALL = Measure(Measured(300, 1_000), Measured(600, 500))


@pytest.mark.parametrize(
    ("measure", "estimate", "tokens", "basis"),
    [
        pytest.param(REPORT, 140_000, 180_820, Basis.REPORTED, id="exactly what was reported"),
        pytest.param(REPORT, 70_000, 90_410, Basis.ABOUT, id="something was struck since the report"),
        pytest.param(Measure(Measured(180_000, 120_000)), 122_000, 183_000, Basis.ABOUT, id="something came since it"),
        pytest.param(MOSTLY_ELSEWHERE, 500, 19_400, Basis.ABOUT, id="only what is in the session can be struck"),
        pytest.param(TOO_SMALL, 1_000, 1_200, Basis.ABOUT, id="a report so small that it is of another context"),
        pytest.param(COUNT, 500, 613, Basis.COUNTED, id="no report, so it is counted"),
        pytest.param(COUNT, 1_000, 1_226, Basis.ABOUT, id="only its beginning was counted"),
        pytest.param(NOTHING_MEASURED, 77, 77, Basis.ABOUT, id="nothing was measured"),
    ],
)
def test_an_estimate_becomes_a_size_in_the_measure_of_a_report_or_a_count(measure, estimate, tokens, basis):
    size = measure.size_of(estimate)
    assert (size.tokens, size.basis) == (tokens, basis)
    assert measure.size_of(estimate * 2).without(estimate).tokens == tokens


def test_a_report_tells_the_ratio_of_the_present_context_an_earlier_one_and_what_is_not_in_the_session():
    assert Measure(Measured(180_000, 120_000)).size_of(122_000).ratio == 1.5
    assert REPORT.size_of(140_000).without(70_000) == REPORT.size_of(70_000)
    assert TOO_SMALL.is_of_another_context
    assert not Measure(Measured(400, 1_000)).is_of_another_context
    size = Measure(Measured(180_000, 120_000)).size_of(60_000)
    assert (size.at(60_000), size.at(120_000)) == (90_000, 180_000)
    assert Measure(Measured(1_500, 1_000)).size_of(1_000).at(0) == 0
    assert MOSTLY_ELSEWHERE.size_of(1_000).contents([600, 400]) == ([720, 480], 18_800)
    assert Measure(Measured(1_501, 1_000)).size_of(1_000).contents([600, 400]) == ([901, 600], 0)


@pytest.mark.parametrize(("reported", "ratio"), [(250, 2.5), (251, 1.2), (40, 0.4), (39, 1.2)])
def test_a_ratio_out_of_range_is_replaced_by_that_of_a_count(reported, ratio):
    assert Measure(Measured(reported, 100), Measured(120, 100)).size_of(90).ratio == ratio
    assert Measure(Measured(reported, 100)).needs_sample is (ratio == 1.2)


@given(measures, tokens, tokens)
def test_a_deletion_never_raises_the_number(measure, estimate, struck):
    assume(struck <= estimate)
    before, after = measure.size_of(estimate), measure.size_of(estimate - struck)
    assert 0 <= after.tokens <= before.tokens
    assert after.ratio == before.ratio, "both are in one measure"
    assert before.without(struck).tokens == after.tokens


@given(measures, tokens, st.lists(tokens, max_size=12))
def test_parts_add_up_to_the_whole(measure, estimate, parts):
    size = measure.size_of(estimate)
    shares = size.shares(parts)
    assert sum(shares) == size.of(sum(parts))
    assert all(abs(share - size.ratio * part) < 1.5 for share, part in zip(shares, parts, strict=True))


@given(measures, tokens, st.lists(st.integers(0, 90_000), max_size=9))
def test_the_contents_of_a_context_and_what_is_not_in_the_session_add_up_to_it(measure, estimate, weights):
    size = measure.size_of(estimate)
    contents, rest = size.contents(weights)
    assert sum(contents) + rest == size.tokens or not any(weights)
    assert rest >= 0
    assert min(contents, default=0) >= 0


@pytest.mark.parametrize(
    ("exact", "rounded"),
    [(0, 0), (7, 7), (999, 999), (1_004, 1_000), (1_005, 1_010), (71_922, 71_900), (177_657, 178_000)],
)
def test_a_number_that_is_not_exact_has_three_significant_digits(exact, rounded):
    assert significant(exact) == rounded
    assert str(ContextSize(exact, Basis.ABOUT)) == f"about {rounded:,} tokens"
    assert str(ContextSize(exact, Basis.REPORTED)) == f"{exact:,} tokens, reported"
    assert str(ContextSize(exact, Basis.COUNTED)) == f"{exact:,} tokens, counted"


ESTIMATES = st.lists(st.integers(0, 20_000), max_size=60)


@given(ESTIMATES, st.floats(LEAST, MOST), st.integers(-2, 2))
def test_steady_shares_add_up_within_a_token_of_their_own(estimates, ratio, off):
    total = round(ratio * sum(estimates)) + off
    shares = steady_shares(total, estimates, ratio)
    if any(estimates):
        assert sum(shares) == total
    several = sum(map(bool, estimates)) > 5
    for share, estimate in zip(shares, estimates, strict=True):
        assert abs(share - ratio * estimate) <= (2 if several else 6)
        assert estimate or not share


@given(ESTIMATES, st.floats(LEAST, MOST), st.data())
def test_taking_one_away_moves_few_of_the_others_and_by_one_token(estimates, ratio, data):
    assume(estimates)
    place = data.draw(st.integers(0, len(estimates) - 1))
    others = [*estimates[:place], *estimates[place + 1 :]]
    before = list(steady_shares(round(ratio * sum(estimates)), estimates, ratio))
    after = steady_shares(round(ratio * sum(others)), others, ratio)
    del before[place]
    moved = [abs(now - then) for now, then in zip(after, before, strict=True) if now != then]
    assert len(moved) <= 2
    assert set(moved) <= {1}

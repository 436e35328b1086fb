"""Trials: what each strategy and order deletes of a branch, what that loses, and what a summary still says."""

import itertools
from typing import Any

import pytest

from compaction_app.core.store import DeletionStore
from compaction_app.core.transcript import Transcript
from lab_app.pure.strategies import KEYS, ORDERS, STRATEGIES, keep_recent, oldest, strategies_named
from lab_app.pure.trials import (
    BOUND,
    Branch,
    Trial,
    count_trials,
    kinds_of,
    summary_trials,
    tokens_after,
    trials_of,
)
from sessions_app.agents.pi.agent import PI
from sessions_app.sessionlog.entries import Target, request_of
from sessions_app.sessionlog.errors import BadInput, SystemFailure
from tests.budget import long_except, seeds
from tests.compaction_app.core.test_embedded import Session, work
from tests.factories import (
    assistant,
    branch_and_texts,
    call,
    chain,
    result,
    session_bytes,
    summary_compaction,
    text,
    thinking,
    transcript_of,
    user,
)
from tests.lab_app.lab_sessions import NAMES, worked

GENERATION = PI.format.generations[0]


def branch_of(*messages: dict[str, Any]) -> Branch:
    entries, texts = branch_and_texts(session_bytes(chain(*messages)))
    return Branch(PI.format.tree(entries), entries, texts, GENERATION.reader, GENERATION.rules, {"preserve_recent": 0})


@pytest.fixture(scope="module")
def trials():
    return list(trials_of(branch_of(*worked()), strategies_named(KEYS)))


def test_each_strategy_is_tried_at_each_share_and_loses_what_only_a_deleted_output_names(trials):
    cuts = {trial.place for trial in trials}
    assert cuts
    assert len(trials) == len(cuts) * (count_trials(strategies_named(KEYS), (0.7, 0.5, 0.3)) - 1)
    assert {trial.strategy for trial in trials} == {BOUND, *STRATEGIES}
    assert {trial.keep for trial in trials if trial.strategy == "prune"} == {None}
    by_strategy = {(one.strategy, one.keep): one for one in trials}
    assert by_strategy["embedded", 0.5].lost == 0
    lost = by_strategy["oldest", 0.5]
    assert lost.share == 1
    assert [one.reference for one in lost.named] == sorted(one.reference for one in lost.named)
    assert {place for one in lost.named for place in one.stood_in} == {"e3"}
    assert by_strategy[BOUND, 0.5].lost == 0


def test_what_keeps_the_share_is_measured_and_what_it_costs(trials):
    for trial in trials:
        assert not trial.failure
        assert 0 < trial.tokens_after <= trial.tokens_before
        if trial.keep is not None and trial.strategy != "keep_recent":
            assert trial.kept <= trial.keep + 0.001
        if trial.strategy != BOUND:
            deleted = trial.tokens_before - trial.tokens_after
            assert sum(trial.kinds.values()) == pytest.approx(deleted, rel=0.01)
            assert trial.rewritten <= trial.tokens_after
            assert {"20", "40", "100"} >= trial.shares.keys() - {"substrings"}


def test_a_stop_ends_the_trials_and_a_short_branch_or_one_without_summaries_has_none():
    looks = iter([False, False, True])
    done = list(trials_of(branch_of(*worked()), strategies_named(KEYS), is_stopped=lambda: next(looks, True)))
    assert len(done) == 2
    assert not list(trials_of(branch_of(user("go"), assistant(text("done"))), strategies_named(KEYS)))
    assert not list(summary_trials(branch_of(*worked(2))))


def test_what_is_kept_by_keep_recent_begins_where_a_turn_can():
    outputs = [one for n in range(5) for one in (assistant(call(f"c{n}")), result(f"c{n}", "word " * 400))]
    transcript = transcript_of(user("go"), *outputs, user("end"))
    gone = {target.entry_id for target in keep_recent(transcript, 0.5)}
    kept = [entry for entry in transcript.entries if entry.entry_id not in gone and not entry.is_protected]
    assert kept
    assert kept[0].role == "assistant"
    assert sum(entry.tokens for entry in kept) <= transcript.tokens * 0.5


def test_unknown_strategies_are_refused_by_name():
    with pytest.raises(BadInput, match="There is no strategy 'guess'"):
        strategies_named(["embedded", "guess"])
    with pytest.raises(BadInput, match="No strategy is chosen"):
        strategies_named([])


def test_deleted_tokens_are_counted_by_kind():
    transcript = transcript_of(
        user("go"), assistant(thinking("hm"), call("c1")), result("c1", "word " * 90), user("end")
    )
    targets = [Target("e2", 1), Target("e3")]
    deleted = transcript.tokens - tokens_after(transcript, targets)
    assert kinds_of(transcript, targets) == {"output": deleted}
    with pytest.raises(SystemFailure, match="A plan of the benchmark is refused"):
        tokens_after(transcript, [Target("e1")])


def summarised(summary: str) -> list[Trial]:
    messages = worked(12)[:-13]
    later = [assistant(text(f"I change {name}.")) for name in NAMES]
    compacted = summary_compaction(summary, f"e{len(messages)}")
    return list(summary_trials(branch_of(*messages, compacted, *later, user("end"))))


def test_what_a_summary_does_not_say_is_lost_with_its_places():
    (trial,) = summarised(f"It is about {', '.join(NAMES)}.")
    assert (trial.strategy, trial.keep, trial.needed, trial.lost) == ("summary", None, 12, 0)
    assert trial.tokens_after < trial.tokens_before
    (trial,) = summarised(f"It is about {NAMES[0]}, and not about src/module_011.py.")
    assert trial.lost == 11
    assert trial.named[0].stood_in == ("e3",)
    assert NAMES[0] not in {one.reference for one in trial.named}


def transcript() -> Transcript:
    """A wish, five results of growing size with their calls, and two messages."""
    outputs = [(assistant(call(f"c{n}")), result(f"c{n}", "word " * 100 * n)) for n in range(1, 6)]
    return transcript_of(user("go"), *itertools.chain(*outputs), assistant(text("fine")), user("end"))


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("oldest", ["e2", "e3", "e4", "e5"]),
        ("largest", ["e10", "e11"]),
        ("old_results", ["e2", "e3", "e4", "e5"]),
        ("largest_results", ["e4", "e5"]),
    ],
)
def test_what_goes_first(name, first):
    shares = {"oldest": 0.15, "largest": 0.2, "old_results": 0.15, "largest_results": 0.05}
    assert sorted(target.entry_id for target in ORDERS[name](transcript(), shares[name])) == sorted(first)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("share", long_except([0.5], [0.3, 0.5, 0.7]))
def test_an_order_reaches_the_share_with_a_plan_that_the_airlock_accepts(name, share):
    whole = work(Session(), 4, 120).prepare()
    targets = ORDERS[name](whole, share)
    store = DeletionStore(whole.with_ratio(1 - share))
    assert store.delete(request_of(targets)) is None
    assert store.target_met


@pytest.mark.parametrize("seed", seeds(1))
def test_batches_delete_what_single_requests_would(seed):
    whole = work(Session(), seed, 120).prepare().with_ratio(0.5)
    store = DeletionStore(whole)
    for entry in whole.entries:
        if not store.target_met and not entry.is_protected:
            store.delete(request_of([Target(entry.entry_id)]))
    assert set(oldest(whole, 0.5)) == set(store.targets)

"""The store: transactions over one plan, and what a step costs."""

from typing import Any

import pytest

from compaction_app.core.gates import NO_RESTRAINTS, Restraints
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from compaction_app.core.transcript_entries import Object
from sessions_app.sessionlog.targets import Target
from tests.factories import assistant, call, deletions, named, result, text, transcript_of, user, whole

Recorded = dict[str, Any]


def turns(count: int, words: str = "done") -> list[Recorded]:
    """A task and *count* turns of a call and its result; entries 2n and 2n+1 are the turn n, from 1."""
    messages = [user("go")]
    for number in range(1, count + 1):
        messages += [assistant(text(f"turn {number}"), call(f"c{number}")), result(f"c{number}", words)]
    return messages


def store_of(*messages: Recorded, restraints: Restraints = NO_RESTRAINTS, ratio: float = 0.5) -> DeletionStore:
    return DeletionStore(transcript_of(*messages, compression_ratio=ratio), restraints)


def delete(store: DeletionStore, requested: str) -> str | None:
    refusal = store.delete(deletions(requested))
    return None if refusal is None else refusal.code.value


def chosen(store: DeletionStore) -> str:
    return named(*store.targets)


@pytest.mark.parametrize(
    ("requests", "left"),
    [
        pytest.param(["e5", "e2[1]"], "e5 e4[1] e2[1] e3", id="what comes in is appended with what it brings"),
        pytest.param(["e2[1]", "e4", "e2"], "e3 e4 e5 e2", id="an entry takes its blocks out and is appended"),
        pytest.param(["e2", "e4", "e2"], "e2 e3 e4 e5", id="an entry that is chosen keeps its place"),
        pytest.param(["e2 e4[0]", "e2[0]", "e4[0]"], "e2 e4[0] e3", id="a block of a chosen entry is dropped"),
        pytest.param(["e2[0]", "e3"], "e3 e2", id="the last block becomes its calling entry"),
    ],
)
def test_what_comes_in_is_merged_with_what_is_chosen(requests, left):
    store = store_of(*turns(2))
    for requested in requests:
        assert delete(store, requested) is None
    assert chosen(store) == left


def test_a_target_accepted_alone_can_be_refused_with_the_chosen_ones():
    store = store_of(user("go"), assistant(text("a"), text("b")), assistant(text("c")))
    assert delete(store, "e2[0]") is None
    for requested in ("e2[1]", "e2[1] e3"):
        assert delete(store, requested) == "every_block"
        assert chosen(store) == "e2[0]"


def test_stats_follow_every_step_and_match_a_full_validation_also_of_nothing():
    store = store_of(*turns(4, "x" * 400))
    assert store.stats.objects_deleted == 0
    for target in "e2[0] e3 e8".split():
        delete(store, target)
        assert store.stats == store.validated().stats
    assert store.stats.tokens_before - store.stats.tokens_after > 200
    validated = store_of(*turns(1)).validated()
    assert validated.targets == ()
    assert validated.stats.objects_deleted == 0
    assert not validated.target_met


def test_the_target_is_met_if_at_most_the_ratio_remains():
    for ratio, met in ((0.5, True), (0.49, False)):
        store = store_of(user("x" * 40), assistant(text("y" * 20), text("z" * 20)), ratio=ratio)
        delete(store, "e2[0]")
        assert not store.target_met
        delete(store, "e2")
        assert store.target_met is met


def test_an_object_goes_with_its_entry():
    store = store_of(*turns(2))
    delete(store, "e2 e4[0]")
    assert all(found in store for found in (Object(1), Object(1, 0), Object(3, 0)))
    assert not any(found in store for found in (Object(3, 1), Object(3)))


def test_a_bulk_deletion_passes_over_one_pinned_block_of_a_call_that_has_two():
    messages = [user("go"), assistant(text("so"), call("c1", n=1), call("c1", n=2)), assistant(text("done"))]
    for pinned, left in ((1, 2), (2, 1)):
        store = store_of(*messages, restraints=Restraints(frozenset({Target("e2", pinned)})))
        kept, passed_over = store.deletable([Object(1, 1), Object(1, 2)])
        assert (kept, passed_over) == ([Object(1, left)], [Object(1, pinned)])


def cost(store: DeletionStore, tool: str, **arguments: Any) -> int:
    """Objects that one call visits; the call must not fail."""
    before = store.visited
    called = Workbench(store).call(ToolCall(tool, arguments))
    assert called.refusal is None, called.sentence
    return store.visited - before


def test_deleting_one_entry_costs_the_same_in_a_long_transcript_and_with_many_chosen():
    costs = []
    for count in (50, 2_500):
        store = store_of(*turns(count))
        delete(store, "e6")
        costs.append(cost(store, "context_delete", deletions=[whole("e11")]))
        assert len(store.targets) == 4
    assert costs[0] == costs[1] < 20
    store = store_of(*turns(2_500))
    first = cost(store, "context_delete", deletions=[whole("e3")])
    many = [whole(f"e{number}") for number in range(9, 4_009, 2)]
    assert cost(store, "context_delete", deletions=many) < 20 * len(many)
    assert cost(store, "context_delete", deletions=[whole("e5")]) == first


def test_a_bulk_deletion_costs_in_proportion_to_its_matches():
    def bulk(matches: int, count: int) -> int:
        messages = turns(count)
        for number in range(1, matches + 1):
            messages[2 * number] = result(f"c{number}", "needle")
        store = store_of(*messages)
        visited = cost(store, "context_grep_delete", pattern="needle", maxMatches=200)
        assert len(store.targets) == 2 * matches
        return visited

    assert bulk(100, 200) == bulk(100, 2_000)
    assert bulk(200, 400) <= 2 * bulk(100, 400) + 10
    assert bulk(100, 200) < 100 * 20


def test_the_results_of_one_call_share_one_verdict_also_if_the_call_stays():
    messages = [user("go"), assistant(call("c1"))] + [result("c1", f"part {number}") for number in range(1_000)]
    store = store_of(*messages)
    kept, passed_over = store.deletable([Object(position) for position in range(2, 1_002)])
    assert (len(kept), passed_over) == (1_000, [])
    assert store.visited < 10 * 1_000
    messages = [user("go"), assistant(call("c1"), stopReason="error")] + [result("c1")] * 50
    store = store_of(*messages, assistant(text("done")))
    matches = [Object(position) for position in range(2, 52)]
    assert store.deletable(matches) == ([], matches)
    assert store.visited < 10 * 50


def test_judging_candidates_leaves_the_store_as_it_is():
    store = store_of(*turns(3))
    delete(store, "e2[0]")
    before = (store.targets, store.stats)
    store.deletable([Object(2), Object(4), Object(3)])
    assert (store.targets, store.stats) == before

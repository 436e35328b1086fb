"""The store: transactions over one plan, and what a step costs."""

from typing import Any

from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from compaction_app.core.transcript import Object
from tests.factories import assistant, call, deletions, result, text, transcript_of, user, whole

Recorded = dict[str, Any]


def turns(count: int, words: str = "done") -> list[Recorded]:
    """A task and *count* turns of a call and its result; entries 2n and 2n+1 are the turn n, from 1."""
    messages = [user("go")]
    for number in range(1, count + 1):
        messages += [assistant(text(f"turn {number}"), call(f"c{number}")), result(f"c{number}", words)]
    return messages


def store_of(*messages: Recorded) -> DeletionStore:
    return DeletionStore(transcript_of(*messages))


def delete(store: DeletionStore, requested: str) -> None:
    assert store.delete(deletions(requested)) is None


def test_an_object_goes_with_its_entry():
    store = store_of(*turns(2))
    delete(store, "e2 e4[0]")
    assert all(found in store for found in (Object(1), Object(1, 0), Object(3, 0)))
    assert not any(found in store for found in (Object(3, 1), Object(3)))


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

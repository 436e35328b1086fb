"""Simple orders: what they delete first, and that they stop at the share."""

import pytest

from compaction_app.core.store import DeletionStore
from compaction_app.core.transcript import Transcript
from compaction_app.lab.orders import ORDERS, oldest
from sessions_app.sessionlog.targets import Target, request_of
from tests.compaction_app.core.test_embedded import Session, work
from tests.factories import assistant, call, result, text, transcript_of, user


def transcript() -> Transcript:
    """A wish, five results of growing size with their calls, and two messages."""
    outputs = [
        one
        for number in range(1, 6)
        for one in (assistant(call(f"c{number}")), result(f"c{number}", "word " * 100 * number))
    ]
    return transcript_of(user("go"), *outputs, assistant(text("fine")), user("end"))


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
    targets = ORDERS[name](transcript(), shares[name])
    assert sorted(target.entry_id for target in targets) == sorted(first)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_an_order_reaches_the_share_with_a_plan_that_the_airlock_accepts(name, share):
    whole = work(Session(), 4, 120).prepare()
    targets = ORDERS[name](whole, share)
    store = DeletionStore(whole.with_ratio(1 - share))
    assert store.delete(request_of(targets)) is None
    assert store.target_met


@pytest.mark.parametrize("seed", range(3))
def test_batches_delete_what_single_requests_would(seed):
    whole = work(Session(), seed, 120).prepare().with_ratio(0.5)
    store = DeletionStore(whole)
    for entry in whole.entries:
        if not store.target_met and not entry.is_protected:
            store.delete(request_of([Target(entry.entry_id)]))
    assert set(oldest(whole, 0.5)) == set(store.targets)

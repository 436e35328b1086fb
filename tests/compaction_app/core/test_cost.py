"""Promises of the cost: what is saved with each request is set against the cache that is written anew once."""

import pytest
from hypothesis import given, strategies as st

from compaction_app.core.stats import NOTHING, input_cost

tokens = st.integers(0, 1_000_000)
prices = st.floats(0, 100)


def test_the_example_of_a_large_session_pays_and_one_without_deletions_never_does():
    cost = input_cost(177_657, 105_735, 93_000, read=0.30, write=3.75)
    assert (round(cost.before, 3), round(cost.after, 3), round(cost.once, 2)) == (0.053, 0.032, 0.32)
    assert cost.pays_after == 15
    assert input_cost(100, 100, 50, 1, 2).pays_after is None


@pytest.mark.parametrize(
    ("rewritten", "read", "write", "pays_after"),
    [(0, 1, 5, 1), (900, 1, 1, 1), (900, 3, 1, 1), (900, 1, 2, 9), (100, 0, 0, None)],
)
def test_without_a_price_for_writing_it_pays_with_the_first_request(rewritten, read, write, pays_after):
    assert input_cost(200, 100, rewritten, read, write).pays_after == pays_after


@given(tokens, tokens, tokens, prices, prices)
def test_it_pays_exactly_from_then_on(after, struck, rewritten, read, write):
    cost = input_cost(after + struck, after, rewritten, read, write)
    pays = cost.pays_after
    if pays is None:
        assert cost.saved < NOTHING
        return
    slack = 1e-6 * (1 + cost.struck(pays))
    assert cost.struck(pays) <= cost.as_is(pays) + slack
    if pays > 1:
        assert cost.struck(pays - 1) > cost.as_is(pays - 1) - slack

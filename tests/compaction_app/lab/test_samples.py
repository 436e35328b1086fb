"""Means, intervals and the comparison with the best order."""

import pytest

from compaction_app.lab.samples import excess, interval, mean, ratio_to_best

SHARES = [[0.1, 0.2], [0.4], [], [0.3, 0.3, 0.3]]


def test_the_mean_is_over_all_cuts():
    assert mean(SHARES) == pytest.approx(1.6 / 6)
    assert mean([[], []]) is None


def test_the_interval_contains_the_mean_and_is_the_same_each_time():
    found = interval(SHARES)
    assert found is not None
    assert 0.1 < found.low < 1.6 / 6 < found.high < 0.401
    assert interval(SHARES) == found
    assert interval([[0.2], [0.2]]) == pytest.approx((0.2, 0.2))
    assert interval([[]]) is None


def test_an_excess_is_taken_cut_by_cut():
    assert excess([[0.3, 0.2], []], [[0.1, 0.2], []]) == [[pytest.approx(0.2), 0.0], []]


def test_the_best_order_is_chosen_on_other_sessions_than_it_is_measured_on():
    planner = [[0.1]] * 8
    steady, lucky = [[0.2]] * 8, [[0.0]] + [[0.6]] * 7
    assert ratio_to_best(planner, {"steady": steady, "lucky": lucky}) == pytest.approx(0.5)
    assert ratio_to_best(planner, {}) is None
    assert ratio_to_best([[0.1]], {"steady": [[0.2]]}) is None

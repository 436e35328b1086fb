"""One number for a context: reported, counted or about, in one measure, which a deletion never raises."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessions_app.sessionlog.measure import (
    LEAST,
    MOST,
    NOTHING_MEASURED,
    Basis,
    ContextSize,
    Measure,
    Measured,
    significant,
    steady_shares,
)

tokens = st.integers(0, 2_000_000)
measured = st.builds(Measured, tokens, tokens)
measures = st.builds(Measure, st.none() | measured, st.none() | measured)


def shown(size: ContextSize) -> tuple[int, Basis]:
    return size.tokens, size.basis


def test_what_was_reported_of_exactly_this_context_is_the_number():
    measure = Measure(Measured(180_820, 140_000))
    assert shown(measure.size_of(140_000)) == (180_820, Basis.REPORTED)


def test_what_has_come_since_is_added_in_the_measure_of_the_report():
    size = Measure(Measured(180_000, 120_000)).size_of(122_000)
    assert (size.tokens, size.basis, size.ratio) == (183_000, Basis.ABOUT, 1.5)


def test_what_is_struck_is_taken_away_in_the_measure_of_the_report():
    measure = Measure(Measured(180_820, 140_000))
    assert measure.size_of(70_000).tokens == 90_410
    assert measure.size_of(140_000).without(70_000) == measure.size_of(70_000)


@pytest.mark.parametrize(("reported", "ratio"), [(250, 2.5), (251, 1.2), (40, 0.4), (39, 1.2)])
def test_a_ratio_out_of_range_is_replaced_by_that_of_a_count(reported, ratio):
    assert Measure(Measured(reported, 100), Measured(120, 100)).size_of(90).ratio == ratio
    assert Measure(Measured(reported, 100)).needs_sample is (ratio == 1.2)


def test_a_context_of_which_most_is_not_in_the_session_loses_only_what_is_struck():
    """Instructions and tools are reported, but cannot be struck."""
    measure = Measure(Measured(20_000, 1_000), Measured(1_200, 1_000))
    assert measure.size_of(500).tokens == 19_400


def test_a_report_that_is_too_small_is_of_another_context():
    measure = Measure(Measured(300, 1_000), Measured(600, 500))
    assert measure.is_of_another_context
    assert not Measure(Measured(400, 1_000)).is_of_another_context
    assert shown(measure.size_of(1_000)) == (1_200, Basis.ABOUT)


def test_without_a_report_the_context_is_counted():
    measure = Measure(sample=Measured(613, 500))
    assert shown(measure.size_of(500)) == (613, Basis.COUNTED)
    assert shown(measure.size_of(1_000)) == (1_226, Basis.ABOUT), "only its beginning was counted"
    assert shown(NOTHING_MEASURED.size_of(77)) == (77, Basis.ABOUT)


@given(measures, tokens, tokens)
def test_a_deletion_never_raises_the_number(measure, estimate, struck):
    assume(struck <= estimate)
    before, after = measure.size_of(estimate), measure.size_of(estimate - struck)
    assert 0 <= after.tokens <= before.tokens
    assert after.ratio == before.ratio, "both are in one measure"
    assert before.without(struck).tokens == after.tokens


def test_an_earlier_context_is_told_in_the_measure_of_the_present_one():
    size = Measure(Measured(180_000, 120_000)).size_of(60_000)
    assert (size.at(60_000), size.at(120_000)) == (90_000, 180_000)
    assert Measure(Measured(1_500, 1_000)).size_of(1_000).at(0) == 0


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


def test_what_is_not_in_the_session_is_named_apart():
    size = Measure(Measured(20_000, 1_000), Measured(1_200, 1_000)).size_of(1_000)
    assert size.contents([600, 400]) == ([720, 480], 18_800)
    assert Measure(Measured(1_501, 1_000)).size_of(1_000).contents([600, 400]) == ([901, 600], 0)


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

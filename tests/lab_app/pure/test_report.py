"""The figures over many sessions, their exports, and their drawing."""

import csv
import io
import itertools
import json

import pytest

from lab_app.pure.measure import Lost
from lab_app.pure.report import (
    BOTTOM,
    CSV_COLUMNS,
    LABEL_HEIGHT,
    LABELS,
    LEFT,
    RIGHT,
    TOP,
    StrategyResult,
    TriedSession,
    answer,
    as_csv,
    as_document,
    excess,
    interval,
    loss_plot,
    mean,
    ratio_to_best,
    results_of,
)
from lab_app.pure.trials import BOUND, Trial
from sessions_app.sessionlog.model_facts import InputPrices

PRICES = InputPrices(3.0, 0.3, 3.75)


def trial(strategy: str, lost: int, keep: float | None = 0.5, place: str = "e9", **fields: object) -> Trial:
    sizes = {"tokens_before": 1_000_000, "tokens_after": 500_000, "rewritten": 400_000}
    shares = {"kinds": {"output": 300_000, "message": 100_000}, "shares": {"20": 0.5, "40": lost / 10}}
    known: dict[str, object] = {**sizes, "seconds": 0.25, **shares}
    return Trial(strategy=strategy, place=place, keep=keep, needed=10, lost=lost, **{**known, **fields})


def session(*trials: Trial, name: str = "/s.jsonl", prices: InputPrices | None = None) -> TriedSession:
    return TriedSession(name, trials, prices)


def result(strategy: str, *sessions: TriedSession) -> StrategyResult:
    return next(one for one in results_of(sessions) if one.strategy == strategy)


def test_a_mean_is_over_all_cuts_its_interval_over_sessions_and_kinds_and_horizons_are_shares():
    one = session(trial("oldest", 1), trial("oldest", 3, place="e20"))
    found = result("oldest", one, session(trial("oldest", 8)))
    assert (found.cuts, found.loss) == (3, pytest.approx(0.4))
    assert (found.loss_interval.low, found.loss_interval.high) == (pytest.approx(0.2), pytest.approx(0.8))
    found = result("oldest", one)
    assert found.kinds == {"output": 0.75, "message": 0.25}
    assert found.by_horizon == {"20": 0.5, "40": pytest.approx(0.2)}


def test_the_excess_is_over_the_least_at_the_same_cut_and_a_plan_that_failed_is_not_measured():
    cuts = session(trial(BOUND, 1), trial("oldest", 4), trial(BOUND, 0, 0.3), trial("oldest", 9, 0.3))
    assert result("oldest", cuts).excess == pytest.approx(0.3)
    assert result(BOUND, cuts).excess is None
    assert result("oldest", session(trial("oldest", 4))).excess is None
    failed = trial("acme/m", 0, failure="The provider refused.", tokens_after=1_000_000)
    found = result("acme/m", session(failed, trial("acme/m", 2, place="e20")))
    assert (found.cuts, found.failures, found.loss) == (1, 1, 0.2)
    assert result("acme/m", session(failed)).loss is None


def test_what_a_plan_saves_and_when_it_has_paid():
    found = result("oldest", session(trial("oldest", 1), prices=PRICES), session(trial("oldest", 1)))
    # 500,000 tokens at $0.30 a million; 400,000 are written again at $3.75 instead of read at $0.30.
    assert (found.saved, found.pays_after) == (pytest.approx(0.15), 10)
    assert result("oldest", session(trial("oldest", 1))).saved is None
    never = session(trial("oldest", 1, tokens_after=1_000_000), prices=PRICES)
    assert result("oldest", never).pays_after is None


def test_the_results_are_in_the_order_of_the_trials_the_largest_share_first():
    cuts = session(trial("oldest", 1, 0.3), trial("oldest", 1, 0.7), trial("prune", 1, None))
    expected = [("oldest", 0.7), ("oldest", 0.3), ("prune", None)]
    assert [(one.strategy, one.keep) for one in results_of([cuts])] == expected
    assert results_of([session()]) == []


def test_the_table_has_a_line_for_each_trial_and_no_formulas():
    text = as_csv([session(trial("oldest", 4), name="=HYPERLINK(1)"), session(trial("prune", 0, None))])
    lines = list(csv.DictReader(io.StringIO(text)))
    assert tuple(lines[0]) == CSV_COLUMNS
    assert [line["session"] for line in lines] == ["'=HYPERLINK(1)", "/s.jsonl"]
    assert (lines[0]["lost"], lines[0]["loss"], lines[0]["loss_20"]) == ("4", "0.4", "0.5")
    assert lines[1]["keep"] == ""


def test_the_document_has_the_results_and_what_was_lost():
    lost = Lost("src/a.py", "e30", ("e3", "e5"))
    document = as_document([session(trial("oldest", 1, named=(lost,)))], version="1")
    assert (json.loads(json.dumps(document)), document["version"]) == (document, "1")
    (found,) = document["results"]
    assert (found["strategy"], found["loss"], found["keep"]) == ("oldest", 0.1, 0.5)
    (stored,) = document["sessions"][0]["trials"]
    assert stored["lostReferences"] == [{"reference": "src/a.py", "neededIn": "e30", "stoodIn": ["e3", "e5"]}]


def test_lines_go_from_the_most_that_is_kept_to_the_least_within_the_frame():
    cuts = [
        trial(strategy, lost, keep)
        for strategy, all_lost in ((BOUND, (0, 0, 1)), ("embedded", (1, 2, 4)), ("oldest", (2, 5, 9)))
        for keep, lost in zip((0.7, 0.5, 0.3), all_lost, strict=True)
    ]
    plot = loss_plot(results_of([session(*cuts)]), LABELS)
    assert plot is not None
    expected = [("the least possible", "bound"), ("built-in planner", "embedded"), ("oldest first", "other")]
    assert [(line.label, line.kind) for line in plot.lines] == expected
    for line in plot.lines:
        assert [point.x for point in line.points] == [LEFT, (LEFT + RIGHT) / 2, RIGHT]
        assert all(TOP <= point.y <= BOTTOM for point in line.points)
        assert [point.y for point in line.points] == sorted((point.y for point in line.points), reverse=True)
    assert [tick.percent for tick in plot.keeps] == [70, 50, 30]
    assert plot.losses[0].percent == 0


def test_no_label_covers_another_and_one_share_is_not_drawn():
    cuts = [trial(f"s{number}", 3, keep) for number in range(7) for keep in (0.7, 0.3)]
    plot = loss_plot(results_of([session(*cuts)]), {})
    assert plot is not None
    heights = sorted(line.label_y for line in plot.lines)
    assert all(after - before >= LABEL_HEIGHT for before, after in itertools.pairwise(heights))
    assert loss_plot(results_of([session(trial("oldest", 1))]), LABELS) is None


SHARES = [[0.1, 0.2], [0.4], [], [0.3, 0.3, 0.3]]


def test_the_mean_is_over_all_cuts_its_interval_contains_it_and_an_excess_is_taken_cut_by_cut():
    assert mean(SHARES) == pytest.approx(1.6 / 6)
    assert mean([[], []]) is None
    assert excess([[0.3, 0.2], []], [[0.1, 0.2], []]) == [[pytest.approx(0.2), 0.0], []]
    found = interval(SHARES)
    assert found is not None
    assert 0.1 < found.low < 1.6 / 6 < found.high < 0.401
    assert (interval(SHARES), interval([[0.2], [0.2]])) == (found, pytest.approx((0.2, 0.2)))
    assert interval([[]]) is None


def test_the_best_order_is_chosen_on_other_sessions_than_it_is_measured_on():
    planner = [[0.1]] * 8
    steady, lucky = [[0.2]] * 8, [[0.0]] + [[0.6]] * 7
    assert ratio_to_best(planner, {"steady": steady, "lucky": lucky}) == pytest.approx(0.5)
    assert ratio_to_best(planner, {}) is None
    assert ratio_to_best([[0.1]], {"steady": [[0.2]]}) is None


def test_the_answer_compares_the_built_in_planner_with_a_simple_order_at_the_middle_share():
    cuts = [trial(name, lost, keep) for name, lost in (("embedded", 1), ("oldest", 4)) for keep in (0.7, 0.5, 0.3)]
    results = results_of([session(*cuts)])
    own, rival = (one.loss_words for one in results if one.keep == 0.5)
    assert answer(results, LABELS) == (
        f"Keeping half of the tokens, the built-in planner loses {own} of what the agent needed next; "
        f"deleting the oldest first loses {rival}."
    )
    assert answer(results_of([session(trial("provider/m", 2, 0.3))]), {}).startswith(
        "Keeping 30% of the tokens, provider/m"
    )
    assert answer([], LABELS) == ""

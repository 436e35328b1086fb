"""The chart of costs: its parts add up, its labels are apart, and months without a compaction are empty."""

from datetime import date

import pytest

from lab_app.pure.cost_chart import BOTTOM, LABEL_HEIGHT, MONTHS_SHOWN, TOP, MonthSums, cost_chart, short_tokens


def test_a_bar_is_what_was_saved_and_its_dark_part_what_was_read_again():
    chart = cost_chart({date(2026, 1, 1): MonthSums(3, 1_000_000, 250_000), date(2025, 11, 1): MonthSums(1, 0, 0)})
    assert chart is not None
    assert [bar.month for bar in chart.bars] == [date(2025, 11, 1), date(2025, 12, 1), date(2026, 1, 1)]
    bar = chart.bars[-1]
    assert (bar.saved_label, bar.again_label) == ("1M saved", "25% read again")
    assert bar.saved_height == pytest.approx(3 * bar.again_height, abs=0.2)
    assert bar.saved_y + bar.saved_height + bar.again_height == pytest.approx(BOTTOM)
    assert [(tick.y, tick.label) for tick in chart.ticks][:: len(chart.ticks) - 1] == [(BOTTOM, "0"), (TOP, "1M")]
    assert [bar.saved_label for bar in chart.bars[:2]] == ["0 saved", ""]


@pytest.mark.parametrize(("saved", "again"), [(0, 0), (1, 0), (7, 3), (10, 900), (10**12, 1), (10**12, 10**12)])
def test_everything_stays_within_the_frame_and_labels_apart(saved, again):
    chart = cost_chart({date(2026, 1, 1): MonthSums(1, saved, again)})
    assert chart is not None
    (bar,) = chart.bars
    assert all(TOP <= y <= BOTTOM for y in (bar.saved_y, bar.again_y))
    assert min(bar.saved_height, bar.again_height) >= 0
    assert bar.again_label_y - bar.saved_label_y >= LABEL_HEIGHT


def test_the_last_months_are_shown_and_without_any_there_is_no_chart():
    sums = {date(2024, month, 1): MonthSums(1, 5, 1) for month in range(1, 13)}
    chart = cost_chart(sums)
    assert chart is not None
    assert (len(chart.bars), chart.bars[-1].month) == (MONTHS_SHOWN, date(2024, 12, 1))
    rare = cost_chart({date(2020 + number, 3, 1): MonthSums(1, 5, 1) for number in range(5)})
    assert rare is not None
    assert [bar.month for bar in rare.bars] == [date(2024, 3, 1)]
    assert cost_chart({}) is None


def test_numbers_are_short():
    assert [short_tokens(number) for number in (0, 940, 12_800, 5_000_000, 24_100_000, 1_200_000_000)] == [
        *("0", "940", "12.8k", "5M", "24.1M", "1.2G")
    ]

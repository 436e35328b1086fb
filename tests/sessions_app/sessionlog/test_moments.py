"""Promises of recorded times: whatever an entry records, it is a time in UTC or none."""

from datetime import UTC, datetime, timedelta

import pytest

from sessions_app.sessionlog.entries import moment_of
from sessions_app.sessionlog.text import duration_words


@pytest.mark.parametrize(
    "timestamp", ["2026-02-06T12:00:00Z", "2026-02-06T12:00:00.000Z", "2026-02-06T13:00:00+01:00", "2026-02-06T12:00"]
)
def test_a_recorded_time_is_read_in_its_zone_or_as_utc(timestamp):
    assert moment_of(timestamp) == datetime(2026, 2, 6, 12, tzinfo=UTC)
    assert str(moment_of(timestamp)).endswith("+00:00")


@pytest.mark.parametrize("timestamp", ["", "t", "noon", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+14:00"])
def test_what_is_no_time_is_none(timestamp):
    assert moment_of(timestamp) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((-1, "0.0 s"), (0.44, "0.4 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min"), (883, "14 min 43 s")),
        *((3_600, "1 h"), (11_100, "3 h 5 min"), (86_400, "1 day"), (187_200, "2 days 4 h")),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds, words):
    assert duration_words(timedelta(seconds=seconds)) == words

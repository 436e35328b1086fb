"""PURE: the times that entries record, and how long something took, in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def timestamp_of(moment: datetime) -> str:
    """A time as the agents record it: ISO, milliseconds, Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_of(timestamp: str) -> datetime | None:
    """The time that an entry records, in UTC; None if it records none. A time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(timestamp)
        if moment.tzinfo is UTC:
            return moment
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def duration_words(took: timedelta) -> str:
    """A duration in its two largest units: 0.4 s, 33 s, 14 min 43 s, 3 h 5 min, 2 days 4 h."""
    seconds = max(0.0, took.total_seconds())
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return _two(whole // 60, "min", whole % 60, "s")
    if whole < 86_400:
        return _two(whole // 3_600, "h", whole % 3_600 // 60, "min")
    days = whole // 86_400
    return _two(days, "day" if days == 1 else "days", whole % 86_400 // 3_600, "h")


def _two(larger: int, unit: str, smaller: int, smaller_unit: str) -> str:
    return f"{larger:,} {unit}" + (f" {smaller} {smaller_unit}" if smaller else "")

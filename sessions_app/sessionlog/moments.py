"""PURE: the times that entries record."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_of(timestamp: str) -> datetime | None:
    """The time that an entry records, in UTC; None if it records none. A time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(timestamp)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None

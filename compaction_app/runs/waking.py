"""How a row that was queued in the serving process is started soon."""

from __future__ import annotations

from collections.abc import Callable

_wake: Callable[[], object] | None = None


def wake_by(wake: Callable[[], object] | None) -> None:
    """Make this the serving process, whose workers start when this is called; None when it ends."""
    global _wake  # noqa: PLW0603  # there is one server in a process
    _wake = wake


def wake_workers() -> None:
    """Have queued work started soon, if this is the serving process. Other processes poll the rows."""
    if _wake is not None:
        _wake()

"""Waiting for a condition, with a limit that does not depend on speed: a fast machine never waits this long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

WAIT_SECONDS: Final = 120
"""More than the slowest machine needs: a test that waits this long has failed."""

Found = TypeVar("Found")


def wait_until(look: Callable[[], Found], what: str = "it did not happen") -> Found:
    """The first true result of `look`. Raises AssertionError with `what` after WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found

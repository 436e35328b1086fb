"""Waiting for a condition, with a limit that does not depend on speed: a fast machine never waits this long."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

WAIT_SECONDS: Final = 120
"""More than the slowest machine needs: a test that waits this long has failed."""

Found = TypeVar("Found")


FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.3
"""Seconds between two looks. They grow: a look may load a page, and what is waited for needs the processor."""


def wait_until(look: Callable[[], Found], what: str = "it did not happen") -> Found:
    """The first true result of `look`. Raises AssertionError with `what` after WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    pause = FIRST_PAUSE
    while not (found := look()):
        assert time.monotonic() < deadline, what
        time.sleep(pause)
        pause = min(pause * 1.2, LONGEST_PAUSE)
    return found

"""How many examples a property test tries: few in `make test`, more in `make test-all`."""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

from hypothesis import settings

T = TypeVar("T")
FACTOR: Final = int(os.environ.get("REDLINE_TEST_EXAMPLES", "1"))
"""`make test-all` multiplies every budget by this."""
USUAL: Final = 50


def examples(count: int = USUAL) -> settings:
    """A decorator for a test that tries this many examples, or a multiple of them."""
    return settings(max_examples=count * FACTOR)


def some(of: Sequence[T], every: int = 5, first: int = 0) -> Sequence[T]:
    """In `make test` these in steps of `every`, beginning with the first (modulo `every`); in `make test-all` all."""
    return of[first % every :: every] if FACTOR == 1 else of


def seeds(count: int) -> range:
    """The seeds of this many random cases, or of a multiple of them."""
    return range(count * FACTOR)

"""How many examples a property test tries: few in `make test`, more in `make test-all`."""

import os
from collections.abc import Container, Iterable, Sequence
from typing import Any, Final, TypeVar

import pytest
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


def long_except(usual: Container[str], names: Iterable[str]) -> list[Any]:
    """Parameters of a test: `make test` takes the usual ones, `make test-long` all."""
    return [pytest.param(name, marks=() if name in usual else pytest.mark.long) for name in names]


def seeds(count: int) -> range:
    """The seeds of this many random cases, or of a multiple of them."""
    return range(count * FACTOR)

"""Figures, and how they are measured."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One measured value and its limit, in the same unit. `passed` is None if nothing was measured."""

    name: str
    value: float | None
    unit: str
    bar: float | None

    @property
    def passed(self) -> bool | None:
        if self.value is None or self.bar is None:
            return None
        return self.value <= self.bar

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "bar": self.bar,
            "holds": self.passed,
        }


def median_ms(work: Callable[[], object], rounds: int = 9) -> float:
    """The median time of a piece of work in milliseconds, after one warm-up round."""
    work()
    times = []
    # Earlier objects are not part of the work: the garbage collector must not scan them meanwhile.
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1000)
    gc.unfreeze()
    return round(statistics.median(times), 3)

"""A small cache of results that take long to compute."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Recent(Generic[Key, Result]):
    """Caches the results used last, for all threads. A key contains everything on which a result depends.

    Together they weigh at most `size`, and by default each weighs 1; the last one is always kept.
    """

    def __init__(self, size: int, weigh: Callable[[Result], int] = lambda _: 1) -> None:
        self._size, self._weigh = size, weigh
        self._kept: dict[Key, Result] = {}
        """In order of use, the last used last."""
        self._lock = threading.Lock()

    def get(self, key: Key, work_out: Callable[[], Result]) -> Result:
        """The result for a key, computed if it is not cached. Two threads may both compute it."""
        with self._lock:
            if key in self._kept:
                self._kept[key] = found = self._kept.pop(key)
                return found
        made = work_out()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > 1 and sum(map(self._weigh, self._kept.values())) > self._size:
                del self._kept[next(iter(self._kept))]
        return made

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()

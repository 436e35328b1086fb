"""The last few results of something that takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Recent(Generic[Key, Result]):
    """Keeps the results that were last used, for all threads. A key names everything that a result depends on."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: dict[Key, Result] = {}
        """In order of use, the last used last."""
        self._lock = threading.Lock()

    def get(self, key: Key, work_out: Callable[[], Result]) -> Result:
        """The result for a key, worked out if it is not kept. Two threads may both work it out."""
        with self._lock:
            if key in self._kept:
                self._kept[key] = found = self._kept.pop(key)
                return found
        made = work_out()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self._size:
                del self._kept[next(iter(self._kept))]
        return made

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()

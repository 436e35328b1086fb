"""PURE: a cache of rendered texts in memory, by a hash of their sources. The oldest ones are dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from .markup import Markup, sanitized

KEPT_CHARACTERS: Final = 16_000_000
ENTRY_CHARACTERS: Final = 200
"""The size of an entry besides its text, in characters."""


class RenderedTexts:
    """Cached results of renderers, up to a number of characters."""

    def __init__(self, limit: int = KEPT_CHARACTERS) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[bytes, Markup | None] = OrderedDict()
        self._keeping = threading.Lock()

    def get(self, style: str, text: str, render: Callable[[], str | None]) -> Markup | None:
        """The sanitized result of `render`; `style` identifies the renderer and its settings."""
        key = blake2b(f"{style}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._keeping:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        html = render()
        made = sanitized(html) if html is not None else None
        with self._keeping:
            if key not in self._kept:
                self._kept[key] = made
                self._size += _weight(made)
            while self._size > self._limit:
                self._size -= _weight(self._kept.popitem(last=False)[1])
        return made


def _weight(markup: Markup | None) -> int:
    return ENTRY_CHARACTERS + len(markup or "")

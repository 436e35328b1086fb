"""What a model streams, buffered for rows: adjacent pieces of one kind are joined, and a key is hidden.

A provider could echo its key. It is hidden from what is stored and shown, even if it comes in pieces; what runs is
what the model requested.
"""

from __future__ import annotations

import math
import time
from typing import Any, Final

from compaction_app.providers.error_mapping import SHOWN_OF_KEY
from compaction_app.providers.redaction import KeyForms
from compaction_app.providers.types import ArgumentsPiece, CallBegun, Piece, TextPiece, ThoughtPiece
from sessions_app.sessionlog.jsjson import well_formed

from .api_keys import LONG_ENOUGH

ROW_SECONDS: Final = 0.1
"""The shortest time between two reports of what streams, except at the end of an answer."""
Head = tuple[str, *tuple[int, ...]]


class SecretRedactor:
    """Hides a key and its encoded forms (`providers.redaction`) in texts: they are shown as the key's last characters.

    A short key is not a secret: local servers accept any word.
    """

    def __init__(self, key: str) -> None:
        self._key = key if len(key) >= LONG_ENOUGH else ""
        self._shown = f"…{key[-SHOWN_OF_KEY:]}"
        self._forms = KeyForms(self._key)

    def text(self, text: str) -> str:
        if not self._key:
            return text
        return self._forms.hide(text.replace(self._key, self._shown), self._shown)

    def value(self, value: Any) -> Any:
        """The same for all texts in a JSON value."""
        if not self._key:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(str(name)): self.value(one) for name, one in value.items()}
        return value

    def split(self, text: str) -> tuple[str, str]:
        """The part of a text that can be shown now, and its end if that could be the beginning of the key."""
        if not self._key:
            return text, ""
        hidden = self.text(text)
        longest = min(len(self._key) - 1, len(hidden))
        exact = next((size for size in range(longest, 0, -1) if self._key.startswith(hidden[-size:])), 0)
        held = max(exact, self._forms.held(hidden))
        return hidden[: len(hidden) - held], hidden[len(hidden) - held :]


class StreamBuffer:
    """What has come of one answer and is not reported yet."""

    def __init__(self, redactor: SecretRedactor) -> None:
        self._redactor = redactor
        self._heads: list[Head] = []
        self._texts: list[list[str]] = []
        self._held: dict[Head, str] = {}
        """By part: the end of a text that could continue as the key."""
        self._since: float | None = None
        self.characters = 0
        """All that came, reported or not."""

    def add(self, piece: Piece) -> None:
        head, text = _head_and_text(piece)
        self.characters += len(text)
        if self._since is None:
            self._since = time.monotonic()
        self._show_held(head)
        if head[0] == "call":
            # A name comes as a whole.
            self._put(head, self._redactor.text(text))
            return
        shown, held = self._redactor.split(self._held.pop(head, "") + text)
        if held:
            self._held[head] = held
        self._put(head, shown)

    def _show_held(self, head: Head) -> None:
        """Add held-back text before what follows it; the calls of an answer may come interleaved."""
        for other in [other for other in self._held if other != head and other[0] in ("text", "thought")]:
            self._put(other, self._held.pop(other))

    def _put(self, head: Head, text: str) -> None:
        if self._heads and self._heads[-1] == head and head[0] != "call":
            self._texts[-1].append(text)
        elif text:
            self._heads.append(head)
            self._texts.append([text])

    @property
    def wait(self) -> float:
        """Seconds until what has come is due to be reported."""
        return math.inf if self._since is None else max(0.0, self._since + ROW_SECONDS - time.monotonic())

    @property
    def is_due(self) -> bool:
        return self._since is not None and self.wait <= 0

    def take(self, *, last: bool = False) -> list[list[Any]]:
        """What is to be reported now; with `last`, all of it."""
        if last:
            for head, held in self._held.items():
                self._put(head, held)
            self._held = {}
        taken = [[*head, well_formed("".join(texts))] for head, texts in zip(self._heads, self._texts, strict=True)]
        self._heads, self._texts, self._since = [], [], None
        return taken


def _head_and_text(piece: Piece) -> tuple[Head, str]:
    if isinstance(piece, TextPiece):
        return ("text",), piece.text
    if isinstance(piece, ThoughtPiece):
        return ("thought",), piece.text
    if isinstance(piece, CallBegun):
        return ("call", piece.index), piece.name
    assert isinstance(piece, ArgumentsPiece)  # noqa: S101  # the others are not parts of an answer
    return ("arguments", piece.index), piece.text

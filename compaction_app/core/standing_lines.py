"""PURE: the number of a file's lines in one tool call that are also in later kept calls on that file.

    calls on files ──FileHistory──▶ later calls on the same file ──kept calls──▶ 132 of 143

A line stands if a later kept call has the same line: in the result of a read, or in the text of a write or an edit. An
edit says nothing about the rest of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from .file_touches import FileCall
from .transcript_entries import Object

ENOUGH: Final = 0.8
"""The share of lines that must stand for a text to be superseded, and not only in part."""

Stays = Callable[[Object], bool]


class Standing(NamedTuple):
    """The number of a text's lines that stand later."""

    lines: int
    total: int

    @property
    def is_enough(self) -> bool:
        return self.lines >= ENOUGH * self.total

    def __str__(self) -> str:
        return f"{self.lines:,} of {self.total:,}"


class StandingLater(NamedTuple):
    """The lines of a call that stand later, and the last later kept call: one with the whole file, if there is one."""

    standing: Standing
    call: FileCall | None


class FileHistory:
    """The calls on each file of a transcript, in order."""

    def __init__(self, calls: Iterable[FileCall]) -> None:
        self.calls: dict[int, FileCall] = {}
        """By the order of their pairs."""
        self._of_path: dict[str, list[FileCall]] = {}
        for call in calls:
            self.calls[call.order] = call
            self._of_path.setdefault(call.touch.path, []).append(call)
        for same in self._of_path.values():
            same.sort(key=lambda call: call.position)

    def in_order(self) -> list[FileCall]:
        return sorted(self.calls.values(), key=lambda call: call.position)

    def later(self, order: int) -> list[FileCall]:
        """The later calls on the same file."""
        call = self.calls[order]
        return [other for other in self._of_path[call.touch.path] if other.position > call.position]

    def standing(self, stays: Stays) -> Mapping[int, StandingLater]:
        """The lines that stand later, for each call with a later one on the same file, by the order of its pair."""
        found: dict[int, StandingLater] = {}
        for calls in self._of_path.values():
            standing: set[int] = set()
            last: FileCall | None = None
            whole: FileCall | None = None
            for call in reversed(calls):
                if call is not calls[-1]:
                    lines = sum(line in standing for line in call.lines)
                    found[call.order] = StandingLater(Standing(lines, len(call.lines)), whole or last)
                if stays(call.shown):
                    standing.update(call.lines)
                    last = last or call
                    if call.touch.kind in ("read", "write"):
                        whole = whole or call
        return found

    def best(self, order: int, stays: Stays) -> FileCall | None:
        """The later kept call on the same file with most of a call's lines, the last of them; None if none has any."""
        own = set(self.calls[order].lines)
        counted = [
            (len(own.intersection(other.lines)), other.position, other)
            for other in self.later(order)
            if stays(other.shown)
        ]
        most = max(counted, key=lambda one: one[:2], default=None)
        return most[2] if most is not None and most[0] else None

"""PURE: the tool calls that touched each file, the lines that later calls repeat, and the places of names.

| call        | its lines are                | because                                            |
|-------------|------------------------------|----------------------------------------------------|
| read, part  | those of its result          | the result is the file                             |
| write, edit | those of its new text        | the result has no content of the file               |

Lines are compared without the numbers that a tool puts before them and without the spaces around them. Short lines are
ignored: a brace or a `return;` is in every file. A failed call has no lines.

    calls on files ──FileHistory──▶ later calls on the same file ──kept calls──▶ 132 of 143

A line stands if a later kept call has the same line: in the result of a read, or in the text of a write or an edit. An
edit says nothing about the rest of the file.

`name_places` finds the names of deleted entries in kept ones. Later entries are searched before earlier ones, the
nearest first, until every name was found: the model is working with the later ones.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from sessions_app.sessionlog.entries import Protection, call_parts

from .mentions import named_text, references
from .transcript import WHOLE, Object, Transcript

_FILE_TOOL: Final = re.compile(r"read|view|(edit|replace|patch)|(write|create)", re.IGNORECASE)
_PATH: Final = re.compile(r'"(?:path|file_?path|filePath)":"((?:[^"\\]|\\.)+)"')
_PART: Final = re.compile(r'"(?:offset|limit|view_range)":')
_ARGUMENTS: Final = 4_000
"""Characters of a call's arguments in which a path is searched."""
_NEW_TEXT: Final = re.compile(r"(?!old).*(?:new|content|text)", re.IGNORECASE | re.DOTALL)
"""Names of arguments that contain the file's new text."""
_NUMBER: Final = re.compile(r"[ \t]*(\d{1,7})(→|\t|\| ?|: ?)", re.ASCII)
"""A line's number as tools print it: `    12→`, `    12⇥`, `00012| `, `12: `."""
LINE_LENGTH: Final = 9
"""The minimum length of compared lines, in characters."""


class Touch(NamedTuple):
    """The effect of a tool call on a file: `read`, `part` (a read of some lines), `edit` or `write`."""

    kind: str
    path: str

    @property
    def verb(self) -> str:
        return "read" if self.kind == "part" else self.kind

    @property
    def reads(self) -> bool:
        return self.kind in ("read", "part")


class FileCall(NamedTuple):
    """One tool call on a file that did not fail."""

    order: int
    """The order of its pair."""
    position: int
    """The transcript position of its last object."""
    touch: Touch
    shown: Object
    """The object that has its lines: a result, or the block of the call."""
    lines: array[int]
    """The hashes of its lines; see `comparable`."""


def touch_of(tool: str, arguments: str) -> Touch | None:
    """The effect of a call on a file, from its tool's name and the path among its arguments."""
    named = _FILE_TOOL.search(tool)
    path = _PATH.search(arguments, 0, _ARGUMENTS) if named else None
    if named is None or path is None:
        return None
    if named[1] or named[2]:
        return Touch("edit" if named[1] else "write", path[1])
    return Touch("part" if _PART.search(arguments, 0, _ARGUMENTS) else "read", path[1])


def file_calls(transcript: Transcript) -> Iterator[FileCall]:
    """The successful calls on files of a transcript with texts."""
    entries = transcript.entries
    for call in transcript.pairs.calls:
        results = [entries[found.position] for found in call.results]
        failed = any(result.protection is Protection.TOOL_ERROR for result in results)
        if results and call.blocks and not failed and _FILE_TOOL.search(results[0].tool_name):
            tool, arguments = _call_parts(transcript, call.blocks[0])
            touch = touch_of(tool, arguments)
            if touch is not None:
                shown = call.results[0] if touch.reads else call.blocks[0]
                lines = array("q", map(hash, comparable(text_shown(transcript, shown))))
                yield FileCall(call.order, call.objects[-1].position, touch, shown, lines)


def touch_of_call(transcript: Transcript, found: Object) -> Touch | None:
    """The effect of the call in a block on a file, even if it failed."""
    return touch_of(*_call_parts(transcript, found))


def text_shown(transcript: Transcript, shown: Object) -> str:
    """The text of a file that an object contains: the text of a result, or the new text among the arguments of a
    call."""
    if shown.slot == WHOLE:
        return transcript.text(transcript.entries[shown.position])
    return new_text(_call_parts(transcript, shown)[1])


def _call_parts(transcript: Transcript, found: Object) -> tuple[str, str]:
    """The tool of a call, and its arguments as JSON."""
    entry = transcript.entries[found.position]
    block = entry.blocks[found.slot]
    return call_parts(transcript.block_text(entry, block), block.call_id or "")


def new_text(arguments: str) -> str:
    """The text that a write or an edit puts into its file; empty if its arguments have none."""
    try:
        waiting: list[tuple[str, Any]] = [("", json.loads(arguments))]
    except (ValueError, RecursionError):
        return ""
    found: list[str] = []
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(reversed(value.items()))
        elif isinstance(value, list):
            waiting.extend((name, one) for one in reversed(value))
        elif isinstance(value, str) and _NEW_TEXT.match(name):
            found.append(value)
    return "\n".join(found)


def lines_of(text: str) -> list[str]:
    """The lines of a text without the numbers that a tool put before them, and without the spaces around them.

    Numbers count as a tool's if they increase from line to line, or if an arrow follows them.
    """
    lines = text.split("\n")
    numbers = [_NUMBER.match(line) for line in lines]
    found = []
    for at, (line, number) in enumerate(zip(lines, numbers, strict=True)):
        before, after = numbers[max(0, at - 1)], numbers[min(at + 1, len(lines) - 1)]
        if number and (number[2] == "→" or _counts_up(before, number) or _counts_up(number, after)):
            line = line[number.end() :]
        found.append(line.strip())
    return found


def comparable(text: str) -> Iterable[str]:
    """The lines of a text that are long enough to be compared."""
    return (line for line in lines_of(text) if len(line) >= LINE_LENGTH)


def _counts_up(one: re.Match[str] | None, other: re.Match[str] | None) -> bool:
    return one is not None and other is not None and one[2] == other[2] and int(one[1]) + 1 == int(other[1])


def decoded_path(path: str) -> str:
    """A path as it is written in JSON, decoded."""
    try:
        return str(json.loads(f'"{path}"'))
    except ValueError:
        return path


ENOUGH: Final = 0.8
"""The share of a text's lines that must stand for it to count as superseded, rather than partly superseded."""

IsKept = Callable[[Object], bool]


class Standing(NamedTuple):
    """How many of a text's lines stand, and how many lines it has."""

    lines: int
    total: int

    @property
    def is_enough(self) -> bool:
        return self.lines >= ENOUGH * self.total

    def __str__(self) -> str:
        return f"{self.lines:,} of {self.total:,}"


class StandingLater(NamedTuple):
    """How much of a call stands later, and the last later call that is kept: preferably one with the whole file."""

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

    def standing(self, is_kept: IsKept) -> Mapping[int, StandingLater]:
        """For each call followed by a later one on its file: the lines that stand later, by the order of its pair."""
        found: dict[int, StandingLater] = {}
        for calls in self._of_path.values():
            standing: set[int] = set()
            last: FileCall | None = None
            whole: FileCall | None = None
            for call in reversed(calls):
                if call is not calls[-1]:
                    lines = sum(line in standing for line in call.lines)
                    found[call.order] = StandingLater(Standing(lines, len(call.lines)), whole or last)
                if is_kept(call.shown):
                    standing.update(call.lines)
                    last = last or call
                    if call.touch.kind in ("read", "write"):
                        whole = whole or call
        return found

    def best(self, order: int, is_kept: IsKept) -> FileCall | None:
        """The later kept call on the same file with the most of a call's lines, the last of several; None if none has
        any.
        """
        own = set(self.calls[order].lines)
        counted = [
            (len(own.intersection(other.lines)), other.position, other)
            for other in self.later(order)
            if is_kept(other.shown)
        ]
        most = max(counted, key=lambda one: one[:2], default=None)
        return most[2] if most is not None and most[0] else None


def name_places(transcript: Transcript, objects: Collection[Object], is_kept: IsKept) -> dict[str, Object | None]:
    """The nearest place of each name in `objects`, in alphabetical order; None if it occurs nowhere else."""
    own = {name for found in objects for name in references(named_text(transcript, found))}
    places: dict[str, Object | None] = dict.fromkeys(sorted(own))
    missing = set(own)
    for found in _others(transcript, objects):
        if not missing:
            break
        if is_kept(found):
            here = missing & references(named_text(transcript, found))
            places.update(dict.fromkeys(here, found))
            missing -= here
    return places


def _others(transcript: Transcript, objects: Collection[Object]) -> Iterator[Object]:
    """The other objects with texts: those after these from the nearest on, then those before them."""
    last = max((found.position for found in objects), default=-1)
    for position in [*range(last, len(transcript)), *range(last - 1, -1, -1)]:
        blocks = transcript.entries[position].blocks
        slots = range(len(blocks)) if blocks else [WHOLE]
        for slot in slots:
            found = Object(position, slot)
            if found not in objects and Object(position) not in objects:
                yield found

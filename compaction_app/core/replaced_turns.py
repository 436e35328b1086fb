"""What a summary replaced, turn by turn: what the user said, and what was done to which files after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Entry, Role, Texts
from sessions_app.sessionlog.noise import without_images

from .mentions import Passage

WORDS: Final = 160
"""Characters of what the user said."""
_READ: Final = 1_000
"""Characters of it that are read."""


class FileTouch(NamedTuple):
    """What calls of a tool did to a file, and how often."""

    tool: str
    path: str
    times: int


@dataclass(frozen=True, slots=True)
class ReplacedTurn:
    """The replaced messages of one turn. `number` counts the user's messages of the branch; 0 is before the first."""

    number: int
    entry_id: str
    """The first of them."""
    timestamp: str
    words: str
    messages: int
    tokens: int
    files: tuple[FileTouch, ...]


def turn_numbers(branch: Iterable[Entry]) -> dict[str, int]:
    """The number of the turn of each entry of a branch, given root first."""
    numbers: dict[str, int] = {}
    number = 0
    for entry in branch:
        number += entry.role == Role.USER
        numbers[entry.id] = number
    return numbers


def turns_of(
    numbers: Mapping[str, int],
    messages: Sequence[Message],
    passages: Iterable[Passage],
    texts: Mapping[str, Texts],
) -> tuple[ReplacedTurn, ...]:
    """The turns of replaced messages, in order. `passages` are those of the messages, `texts` by their sources."""
    grouped: dict[int, list[Message]] = {}
    for message in messages:
        grouped.setdefault(numbers.get(message.entry.id, 0), []).append(message)
    files: dict[int, Counter[tuple[str, str]]] = {}
    for passage in passages:
        touched = files.setdefault(numbers.get(passage.entry_id, 0), Counter())
        touched.update((passage.tool, path) for path in passage.paths)
    return tuple(_turn(number, grouped[number], texts, files[number]) for number in sorted(grouped))


def _turn(
    number: int, messages: list[Message], texts: Mapping[str, Texts], files: Counter[tuple[str, str]]
) -> ReplacedTurn:
    first = messages[0]
    return ReplacedTurn(
        number,
        first.entry.id,
        first.entry.timestamp,
        next(_said(messages, texts), ""),
        len(messages),
        sum(message.tokens for message in messages),
        tuple(FileTouch(tool, path, times) for (tool, path), times in files.most_common()),
    )


def _said(messages: Iterable[Message], texts: Mapping[str, Texts]) -> Iterator[str]:
    for message in messages:
        if message.role == Role.USER:
            text = message.text(texts[message.source.id])
            yield " ".join(without_images(text[:_READ]).split())[:WORDS]

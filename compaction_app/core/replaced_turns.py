"""The messages that a summary replaced, turn by turn: the user's text, and the changes of files after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Entry, Role, Texts
from sessions_app.sessionlog.titles import title_of

from .mentions import Statement

PROMPT_CHARS: Final = 160
"""Characters of a user message that are kept."""


class FileTouch(NamedTuple):
    """The effect of a tool's calls on a file, and their number."""

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
    """The turn number of each entry of a branch, given root first."""
    numbers: dict[str, int] = {}
    number = 0
    for entry in branch:
        number += entry.role == Role.USER
        numbers[entry.id] = number
    return numbers


def turns_of(
    numbers: Mapping[str, int],
    messages: Sequence[Message],
    users: Iterable[Message],
    statements: Iterable[Statement],
    texts: Mapping[str, Texts],
) -> tuple[ReplacedTurn, ...]:
    """The turns of replaced messages, in order.

    `users` are the user's messages, including those that were not replaced; `statements` are those of the replaced
    messages, and `texts` are by the ids of the messages' sources.
    """
    grouped: dict[int, list[Message]] = {}
    for message in messages:
        grouped.setdefault(numbers.get(message.entry.id, 0), []).append(message)
    asked = {numbers.get(user.entry.id, 0): user for user in users}
    files: dict[int, Counter[tuple[str, str]]] = {number: Counter() for number in grouped}
    for statement in statements:
        touched = files[numbers.get(statement.entry_id, 0)]
        touched.update((statement.tool, path) for path in statement.paths)
    return tuple(
        ReplacedTurn(
            number,
            found[0].entry.id,
            found[0].entry.timestamp,
            _words(asked[number], texts) if number in asked else "",
            len(found),
            sum(message.tokens for message in found),
            tuple(FileTouch(tool, path, times) for (tool, path), times in files[number].most_common()),
        )
        for number, found in sorted(grouped.items())
    )


def _words(user: Message, texts: Mapping[str, Texts]) -> str:
    text = user.text(texts[user.source.id])
    words = title_of(text, PROMPT_CHARS + 1)
    return words if len(words) <= PROMPT_CHARS else f"{words[:PROMPT_CHARS]}…"

"""Tool calls in short: read src/parse.py :1–40, instead of their arguments as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from sessions_app.sessionlog.entries import Block, BlockType, Texts

ARGUMENT_CHARACTERS: Final = 240
PATHS: Final = frozenset({"path", "file_path", "filePath"})
"""The names that agents give the argument with the file of a tool."""


def call_words(text: str, call_id: str, project: str = "") -> tuple[str, str]:
    """A call block's text in short: the tool, and its arguments.

    Paths below `project`, the session's directory, are shown relative to it.
    """
    rest = text.removeprefix(f"{BlockType.TOOL_CALL} {call_id} ")
    name, _, arguments = rest.partition(" ")
    words = _argument_words(arguments)[:ARGUMENT_CHARACTERS]
    return name, words.replace(f"{project.rstrip('/')}/", "") if project.strip("/") else words


def joined_in_short(texts: Texts, blocks: tuple[Block, ...] | None) -> str:
    """The text of an entry with only these of its blocks, as `Texts.joined`, but with its tool calls in short."""
    if blocks is None or texts.whole is not None:
        return texts.joined(blocks)
    return "\n".join(
        (
            " ".join(call_words(texts.block(block.index), block.call_id or ""))
            if block.type == BlockType.TOOL_CALL
            else texts.block(block.index)
        )
        for block in blocks
    )


def beginning_of(text: str, length: int) -> str:
    """The first `length` characters of a text, with a mark if there are more."""
    return text if len(text) <= length else f"{text[:length]}…"


def _argument_words(arguments: str) -> str:
    if len(arguments) > 20_000:
        return arguments
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(values, dict) or not values:
        return arguments
    return " ".join(filter(None, _values(values)))


def _values(values: Mapping[str, object]) -> Iterable[str]:
    """The first argument without its name, a range of lines as :from–to, the others by name."""
    offset, limit = values.get("offset"), values.get("limit")
    has_path = not PATHS.isdisjoint(values)
    for number, (name, value) in enumerate(values.items()):
        if name in ("offset", "limit") and isinstance(value, int) and has_path:
            continue
        words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield words[:ARGUMENT_CHARACTERS] if number == 0 else f"{name}: {words[:80]}"
    if has_path and isinstance(offset, int):
        yield f":{offset}–{offset + limit}" if isinstance(limit, int) else f":{offset}–"
    elif has_path and isinstance(limit, int):
        yield f":1–{limit}"

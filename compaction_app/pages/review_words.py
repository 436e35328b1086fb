"""What the review says in words: calls as one writes them, what stays, what was decided."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..deletion.objects import TranscriptEntry
from ..deletion.review import Step

ARGUMENT_CHARACTERS: Final = 240


def call_words(text: str, call_id: str) -> tuple[str, str]:
    """A call block's text as one writes a call: the tool, and what it was asked for."""
    rest = text.removeprefix(f"toolCall {call_id} ")
    name, _, arguments = rest.partition(" ")
    return name, _argument_words(arguments)[:ARGUMENT_CHARACTERS]


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
    """The first argument bare, a range of lines as :from–to, the others by name."""
    offset, limit = values.get("offset"), values.get("limit")
    for number, (name, value) in enumerate(values.items()):
        if name in ("offset", "limit") and isinstance(value, int) and "path" in values:
            continue
        words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield words[:ARGUMENT_CHARACTERS] if number == 0 else f"{name}: {words[:80]}"
    if "path" in values and isinstance(offset, int):
        yield f":{offset}–{offset + limit}" if isinstance(limit, int) else f":{offset}–"
    elif "path" in values and isinstance(limit, int):
        yield f":1–{limit}"


def fold_words(entries: Sequence[TranscriptEntry]) -> str:
    """Entries in words: 6 entries stay (2 writes, 1 bash)."""
    counts: dict[str, int] = {}
    for entry in entries:
        name = (
            "bash" if entry.role == "bashExecution" else entry.tool_name if entry.role == "toolResult" else ""
        )
        if name:
            counts[name] = counts.get(name, 0) + 1
    among = sorted(counts.items(), key=lambda pair: -pair[1])[:4]
    words = ", ".join(f"{count:,} {_plural(name[:40], count)}" for name, count in among)
    entry_words = "1 entry stays" if len(entries) == 1 else f"{len(entries):,} entries stay"
    return f"{entry_words} ({words})" if words else entry_words


def _plural(name: str, count: int) -> str:
    if count == 1 or not (name.isascii() and name.isalpha() and name.islower()):
        return name
    return f"{name}es" if name.endswith(("s", "x", "ch", "sh")) else f"{name}s"


_DONE: Final = {
    "approve": "approved",
    "reject": "rejected",
    "reopen": "reopened",
    "narrow": "narrowed",
    "add": "added",
    "withdraw": "took back",
}


def said(step: Step) -> str:
    """A decision in words: rejected 0000003c; approved 17 proposals."""
    entries = list(dict.fromkeys(target.entry_id for target in step.targets))
    what = entries[0] if len(entries) == 1 else f"{len(step.targets):,} proposals"
    return f"{_DONE[step.kind]} {what}"

"""Texts of the review."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compaction_app.core.transcript_entries import TranscriptEntry
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.printable import plural

STOPS: Final = (".", "!", "?", "…", "。", "！", "？")
QUOTES: Final = "\"'”’»)"
"""What may follow the full stop of a sentence."""


def as_sentence(words: str) -> str:
    """Words with exactly one full stop at their end; empty if there are none."""
    words = words.rstrip()
    return words if not words or words.rstrip(QUOTES).endswith(STOPS) else f"{words}."


def fold_words(entries: Sequence[TranscriptEntry]) -> str:
    """Entries in words: 6 entries stay (2 writes, 1 bash)."""
    counts: dict[str, int] = {}
    for entry in entries:
        name = {Role.COMMAND: "bash", Role.TOOL_RESULT: entry.tool_name}.get(entry.role, "")
        if name:
            counts[name] = counts.get(name, 0) + 1
    among = sorted(counts.items(), key=lambda pair: -pair[1])[:4]
    words = ", ".join(f"{count:,} {_plural(name[:40], count)}" for name, count in among)
    entry_words = f"{plural(len(entries), 'entry')} {'stays' if len(entries) == 1 else 'stay'}"
    return f"{entry_words} ({words})" if words else entry_words


def _plural(name: str, count: int) -> str:
    if count == 1 or not (name.isascii() and name.isalpha() and name.islower()):
        return name
    return f"{name}es" if name.endswith(("s", "x", "ch", "sh")) else f"{name}s"

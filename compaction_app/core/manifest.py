"""The manifest: what a planner sees of a transcript before it calls a tool.

Never the whole transcript. At most 80 entries, the largest that can be deleted, in transcript order, each with the
beginning of its text; the protected ones as counts.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any, Final

import msgspec

from sessions_app.sessionlog.jsjson import utf16_length, utf16_slice
from sessions_app.sessionlog.protection import Protection

from .transcript import Transcript

ENTRIES: Final = 80
PREVIEW_LENGTH: Final = 240
"""UTF-16 code units of an entry's text that are shown."""


class ManifestEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One deletable entry: ids, weight and the beginning of its text."""

    entry_id: str
    role: str
    tokens: int
    blocks: int
    preview: str


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """The largest deletable entries, and how many entries are protected for which reason."""

    entries: tuple[ManifestEntry, ...]
    deletable: int
    deletable_tokens: int
    protected: dict[Protection, int]

    def to_json(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built


def manifest_of(transcript: Transcript, entries: int = ENTRIES) -> Manifest:
    """The manifest of a transcript, with its `entries` largest entries; only their texts are read."""
    deletable = [entry for entry in transcript.entries if not entry.is_protected]
    largest = heapq.nlargest(entries, deletable, key=lambda entry: entry.tokens)
    largest.sort(key=lambda entry: entry.position)
    return Manifest(
        entries=tuple(
            ManifestEntry(entry.entry_id, entry.role, entry.tokens, len(entry.blocks), _preview(transcript.text(entry)))
            for entry in largest
        ),
        deletable=len(deletable),
        deletable_tokens=sum(entry.tokens for entry in deletable),
        protected=dict(Counter(entry.reason for entry in transcript.entries if entry.reason is not None)),
    )


def _preview(text: str) -> str:
    return text if utf16_length(text) <= PREVIEW_LENGTH else utf16_slice(text, 0, PREVIEW_LENGTH) + "…"

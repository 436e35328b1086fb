"""The compactable transcript: what of a branch could be deleted, and what may not, and why.

Made from a branch by the rules of Atomic's `context_compaction`, whichever agent reads the session: entries
that can be in a model's context, minus what earlier compactions on the branch have hidden, minus what is
held back from the provider anyway. Ids, roles, estimates and protections are kept; texts are looked up
where a tool needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sessions_app.sessionlog.context import keep
from sessions_app.sessionlog.entries import Block, Entry, Texts
from sessions_app.sessionlog.filters import effective_filters

from . import parameters as normal
from .objects import Object, Protection, TranscriptEntry
from .pairing import Pairs
from .parameters import Parameters
from .targets import Target

MINIMUM_ENTRIES: Final = 2


_BY_ROLE: Final = {
    "user": Protection.USER,
    "custom": Protection.CUSTOM,
    "branchSummary": Protection.BRANCH_SUMMARY,
}
_BY_FAILURE: Final = {
    "assistant": Protection.ASSISTANT_ERROR,
    "toolResult": Protection.TOOL_ERROR,
    "bashExecution": Protection.FAILED_COMMAND,
}


class Transcript:
    """The compactable entries of one branch, in order, with their pairs and their texts."""

    def __init__(
        self, entries: Sequence[TranscriptEntry], texts: Mapping[str, Texts], parameters: Parameters
    ) -> None:
        self.entries = tuple(entries)
        self.parameters = parameters
        self._texts = texts
        self._positions = {entry.entry_id: entry.position for entry in self.entries}
        self.pairs = Pairs(self.entries)
        self.tokens = sum(entry.tokens for entry in self.entries)
        self.objects = sum(entry.objects for entry in self.entries)
        self.protected_entry_ids = tuple(entry.entry_id for entry in self.entries if entry.is_protected)
        """In transcript order, as they are recorded with a compaction."""
        self.tasks = sum(entry.bears_task for entry in self.entries)
        latest = next((entry for entry in reversed(self.entries) if entry.role == "assistant"), None)
        self.latest_thinking: tuple[Object, ...] = ()
        """The last assistant and its thinking blocks, where it bears thinking: what providers want unchanged."""
        if latest is not None and latest.bears_thinking:
            thinking = (slot for slot, block in enumerate(latest.blocks) if block.is_thinking)
            self.latest_thinking = (
                Object(latest.position),
                *(Object(latest.position, slot) for slot in thinking),
            )

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._positions

    def entry(self, entry_id: str) -> TranscriptEntry | None:
        """The entry with this id; None where the transcript has none."""
        position = self._positions.get(entry_id)
        return None if position is None else self.entries[position]

    def text(self, entry: TranscriptEntry) -> str:
        """The text of an entry: its blocks' texts joined by newlines, or its string content."""
        return self._texts[entry.entry_id].joined(entry.blocks)

    def block_text(self, entry: TranscriptEntry, block: Block) -> str:
        return self._texts[entry.entry_id].block(block.index)

    def text_of(self, target: Target) -> str:
        """The text that a target deletes. Raises KeyError where the transcript has no such object."""
        entry = self.entries[self._positions[target.entry_id]]
        if target.block_index is None:
            return self.text(entry)
        return self._texts[entry.entry_id].block(target.block_index)


def prepare(
    branch: Sequence[Entry], texts: Mapping[str, Texts], settings: Mapping[str, object]
) -> Transcript | None:
    """The transcript of a branch (root first); None where fewer than two of its entries are compactable.

    `texts` holds at least the branch's messages. `settings` are as a user could write them.
    """
    compactable = list(_compactable(branch))
    if len(compactable) < MINIMUM_ENTRIES:
        return None
    preserved = normal.preserve_recent(settings.get("preserve_recent"))
    first_recent = len(compactable) - preserved
    entries = [
        _transcript_entry(position, entry, blocks, tokens, position >= first_recent)
        for position, (entry, blocks, tokens) in enumerate(compactable)
    ]
    user_texts = (
        texts[entry.entry_id].joined(entry.blocks) for entry in reversed(entries) if entry.role == "user"
    )
    parameters = Parameters(
        compression_ratio=normal.compression_ratio(settings.get("compression_ratio")),
        preserve_recent=preserved,
        query=normal.query(settings.get("query"), user_texts),
    )
    return Transcript(entries, texts, parameters)


def _compactable(branch: Sequence[Entry]) -> Iterator[tuple[Entry, tuple[Block, ...], int]]:
    filters = effective_filters(branch)
    for entry in branch:
        if not entry.is_message or entry.excluded or entry.id in filters.entries:
            continue
        hidden = filters.blocks.get(entry.id)
        if hidden is None:
            yield entry, entry.blocks or (), entry.tokens
            continue
        message = keep(entry, hidden)
        if message is not None:
            yield entry, message.blocks or (), message.tokens


def _transcript_entry(
    position: int, entry: Entry, blocks: tuple[Block, ...], tokens: int, recent: bool
) -> TranscriptEntry:
    protection = _BY_ROLE.get(entry.role)
    if protection is None and entry.failed:
        protection = _BY_FAILURE.get(entry.role)
    return TranscriptEntry(
        position=position,
        entry_id=entry.id,
        entry_type=entry.type,
        role=entry.role,
        tokens=tokens,
        blocks=blocks,
        call_ids=tuple([block.call_id for block in blocks if block.call_id is not None]),
        result_for=entry.result_for,
        recent=recent,
        protection=protection,
        bears_thinking=any(block.is_thinking for block in blocks),
        tool_name=entry.tool_name,
    )

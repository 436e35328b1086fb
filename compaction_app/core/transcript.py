"""The compactable transcript: the deletable parts of a branch, the protected ones, and the reasons.

It is made from a branch by the rules of its agent. Ids, roles, estimates and protections are stored; texts are looked
up when a tool needs them.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from sessions_app.agents.pure.contexts import PlanRules
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import THINKING_TYPES, Block, Entry, Role, Texts
from sessions_app.sessionlog.targets import Target

from . import parameters as normal
from .pairing import Pairs, parts_of
from .parameters import Parameters
from .transcript_entries import Object, TranscriptEntry

MINIMUM_ENTRIES: Final = 2


class Transcript:
    """The compactable entries of one branch, in order, with their pairs and their texts."""

    def __init__(self, entries: Sequence[TranscriptEntry], texts: Mapping[str, Texts], parameters: Parameters) -> None:
        self.entries = tuple(entries)
        self.parameters = parameters
        self._texts = texts
        self._positions = {entry.entry_id: entry.position for entry in self.entries}
        self.tokens = sum(entry.tokens for entry in self.entries)
        self.objects = sum(entry.objects for entry in self.entries)
        self.protected_entry_ids = tuple(entry.entry_id for entry in self.entries if entry.is_protected)
        """In transcript order, as recorded with a compaction."""
        self.tasks = sum(entry.bears_task for entry in self.entries)
        self._thoughts: dict[str, list[TranscriptEntry]] = {}
        """The entries that bear thinking, by their reply."""
        for entry in self.entries:
            if entry.reply and entry.bears_thinking:
                self._thoughts.setdefault(entry.reply, []).append(entry)
        latest = next((entry for entry in reversed(self.entries) if entry.role == Role.ASSISTANT), None)
        self.latest_thinking: tuple[Object, ...] = ()
        """The last assistant and its thinking blocks, if it bears thinking: providers require them unchanged. For a
        reply, those of all its parts."""
        for entry in self.thoughts_with(latest) if latest is not None else ():
            thinking = (slot for slot, block in enumerate(entry.blocks) if block.is_thinking)
            self.latest_thinking += (
                Object(entry.position),
                *(Object(entry.position, slot) for slot in thinking),
            )

    @cached_property
    def pairs(self) -> Pairs:
        """The pairs of the transcript; computed on first use."""
        return Pairs(self.entries)

    @cached_property
    def parts(self) -> Sequence[int]:
        """For each entry by position, its part, by the position of the part's first entry; see `parts_of`."""
        return parts_of(self.entries, self.pairs)

    @cached_property
    def replayed(self) -> tuple[TranscriptEntry, ...]:
        """The messages whose thinking must be unchanged if they are the last that remain, the latest first."""
        return tuple(entry for entry in reversed(self.entries) if entry.replayed)

    def with_ratio(self, compression_ratio: float) -> Transcript:
        """The same transcript, with another fraction of the tokens to keep."""
        same = copy.copy(self)
        same.parameters = msgspec.structs.replace(self.parameters, compression_ratio=compression_ratio)
        return same

    def thoughts_with(self, entry: TranscriptEntry) -> Sequence[TranscriptEntry]:
        """The entries that bear the thinking of an assistant's message, or of the reply to which it belongs."""
        if entry.reply:
            return self._thoughts.get(entry.reply, ())
        return (entry,) if entry.bears_thinking else ()

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._positions

    def entry(self, entry_id: str) -> TranscriptEntry | None:
        """The entry with this id; None if the transcript has none."""
        position = self._positions.get(entry_id)
        return None if position is None else self.entries[position]

    def text(self, entry: TranscriptEntry) -> str:
        """The text of an entry: its blocks' texts joined by newlines, or its string content."""
        return self._texts[entry.entry_id].joined(entry.blocks)

    def block_text(self, entry: TranscriptEntry, block: Block) -> str:
        return self._texts[entry.entry_id].block(block.index)

    def text_of(self, target: Target) -> str:
        """The text that a target deletes. Raises KeyError if the transcript lacks the object."""
        entry = self.entries[self._positions[target.entry_id]]
        if target.block_index is None:
            return self.text(entry)
        return self._texts[entry.entry_id].block(target.block_index)


def prepare(
    branch: Sequence[Entry],
    texts: Mapping[str, Texts],
    settings: Mapping[str, object],
    rules: PlanRules,
    is_noise: Callable[[str], bool] | None = None,
    context: ActiveContext | None = None,
) -> Transcript | None:
    """The transcript of a branch (root first); None if fewer than two of its entries are compactable.

    `texts` contains at least the branch's messages, summaries and edits. `settings` are unvalidated, as the user wrote
    them. If they have no query, the last user message that is not blank is the query, as in the agent; `is_noise` marks
    texts that are also skipped. `context` is the one that the agent's reader rebuilds from the branch, if already
    known.
    """
    preserved = normal.preserve_recent(settings.get("preserve_recent"))
    messages = rules.compactable(branch, context)
    if len(messages) < MINIMUM_ENTRIES:
        return None
    entries = _transcript_entries(messages, rules)
    _join_companions(entries, rules.companions(messages))
    edited = {message.entry.id: message.source.id for message in messages if message.edit is not None}
    if edited:
        texts = _EditedTexts(texts, edited)
    for position in range(max(0, len(entries) - preserved), len(entries)):
        entries[position] = msgspec.structs.replace(entries[position], recent=True)
    user_texts = (texts[entry.entry_id].joined(entry.blocks) for entry in reversed(entries) if entry.role == Role.USER)
    candidates = user_texts if is_noise is None else itertools.filterfalse(is_noise, user_texts)
    parameters = Parameters(
        compression_ratio=normal.compression_ratio(settings.get("compression_ratio")),
        preserve_recent=preserved,
        query=normal.query(settings.get("query"), candidates),
    )
    return Transcript(entries, texts, parameters)


def _transcript_entries(messages: Sequence[Message], rules: PlanRules) -> list[TranscriptEntry]:
    """The compactable messages of a branch as entries, none of them marked as recent yet.

    One loop on plain fields: it runs for every entry of a branch, and takes most of the time.
    """
    entries: list[TranscriptEntry] = []
    protection = rules.protection
    for message in messages:
        entry, blocks = message.entry, message.blocks or ()
        entries.append(
            TranscriptEntry(
                len(entries),
                entry.id,
                entry.type,
                entry.role,
                message.tokens,
                blocks,
                tuple([block.call_id for block in blocks if block.call_id is not None]) if blocks else (),
                entry.result_for,
                False,
                protection(entry),
                not THINKING_TYPES.isdisjoint([block.type for block in blocks]),
                entry.tool_name,
                bool(blocks) and rules.replays(entry),
                (),
                entry.reply,
            )
        )
    return entries


def _join_companions(entries: list[TranscriptEntry], companions: Mapping[str, tuple[str, ...]]) -> None:
    """Add the companions of entries, given by id."""
    if not companions:
        return
    positions = {entry.entry_id: entry.position for entry in entries}
    for position, entry in enumerate(entries):
        joined = companions.get(entry.entry_id)
        if joined:
            places = tuple(sorted(positions[one] for one in joined))
            entries[position] = msgspec.structs.replace(entry, companions=places)


class _EditedTexts(Mapping[str, Texts]):
    """Texts by entry; for an entry whose content an edit replaced, those of the edit."""

    def __init__(self, texts: Mapping[str, Texts], edited: Mapping[str, str]) -> None:
        self._texts, self._edited = texts, edited

    def __getitem__(self, entry_id: str) -> Texts:
        if entry_id not in self._edited:
            return self._texts[entry_id]
        return texts_of_edit(self._texts[self._edited[entry_id]])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def texts_of_edit(found: Texts) -> Texts:
    """The texts of an edit's line for the message that it edits: the agent may turn a text into a block."""
    return found if found.whole is None else Texts(whole=found.whole, blocks=(found.whole,))

"""The compactable transcript: the deletable parts of a branch, the protected ones, and the reasons.

    prepare(branch, texts, settings, rules) -> Transcript
    TargetPlan                              -> one set of targets, closed by repair
    unanswered, moved                       -> the side effects of an accepted plan, about which you are warned

A transcript is made from a branch by the rules of its agent: entries and their content blocks, with their protections.
Ids, roles, estimates and protections are stored; texts are looked up when a tool needs them.

Pairs. Providers reject a conversation that contains a call without a result, or a result without a call. So a plan that
deletes one side is repaired to delete the other:

    block of a call, or its entry  ──▶  every result of the call
    result                         ──▶  every block of the call
    every block of a calling entry ──▶  the entry instead
    entry                          ──▶  its companions, by its agent's rules

until nothing changes. Two blocks of one entry may have the same call id: deleting either deletes the results, and the
other block stays, as in the agent; only a pinned block keeps its answer. If several entries make the same call id, the
last one owns it, in the place of the first. The order in which repair adds targets is part of the format: targets are
recorded in it. A repair visits only the calls that its targets touch. `Pairs` is made once per transcript; a
`TargetPlan` is closed step by step, with a count of the visited objects.

Warnings. In a damaged session several blocks carry the same call id. The agent deletes one of them with the results,
and sends the others without an answer; so the airlock also accepts that, and `unanswered` names them. `moved` are the
kept entries that the agent itself places before others when it orders the messages that remain between two replies:
nothing in them is lost, but the model reads them in a different order.
"""

from __future__ import annotations

import copy
import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from sessions_app.agents.pure.formats import Moved, PlanRules, TurnOrder
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import (
    THINKING_TYPES,
    Block,
    Entry,
    Protection,
    Role,
    Target,
    Texts,
    blocks_by_entry,
    tokens_of,
)

from .parameters import Parameters, effective

TASK_ROLES: Final = frozenset({Role.USER, Role.CUSTOM, Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY})
WHOLE: Final = -1


class Object(NamedTuple):
    """An entry (slot WHOLE) or one of its blocks, by position in the transcript and slot in `blocks`."""

    position: int
    slot: int = WHOLE


class TranscriptEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry that could be deleted, with the blocks that earlier compactions left."""

    position: int
    """Its position in the transcript, from 0."""
    entry_id: str
    entry_type: str
    role: str
    tokens: int
    blocks: tuple[Block, ...]
    """Its content blocks; empty if the content is not an array."""
    call_ids: tuple[str, ...]
    result_for: str | None
    recent: bool
    protection: Protection | None
    """Why it is protected, apart from recency; None if it is not."""
    bears_thinking: bool
    tool_name: str = ""
    replayed: bool = False
    """Whether it is an assistant message whose thinking must be unchanged if it is the last that remains."""
    companions: tuple[int, ...] = ()
    """The positions of the entries that are deleted whenever it is deleted as a whole, besides those of its calls."""
    reply: str = ""
    """The reply to which it belongs, if the agent records one as several entries."""

    @property
    def is_protected(self) -> bool:
        return self.recent or self.protection is not None

    @property
    def bears_task(self) -> bool:
        """Whether its role is one that can carry the model's task."""
        return self.role in TASK_ROLES

    @property
    def reason(self) -> Protection | None:
        """Why it is protected; recency first, as the airlock judges it."""
        return Protection.RECENT if self.recent else self.protection

    @property
    def objects(self) -> int:
        """Its objects as counted in statistics: itself and its blocks."""
        return 1 + len(self.blocks)

    def tokens_without(self, struck: Collection[int] | None) -> int:
        """The estimate of the part that remains without these blocks, or without all of it (None).

        The rest is estimated as a whole; the agent's statistics add the estimates of blocks, each rounded up.
        """
        if struck is None:
            return 0
        left = [block.units for block in self.blocks if block.index not in struck]
        if len(left) == len(self.blocks):
            return self.tokens
        return tokens_of(sum(left)) if left else 0

    def slot(self, block_index: int) -> int | None:
        """The position in `blocks` of the block with this recorded index; None if there is none."""
        blocks = self.blocks
        if block_index < len(blocks) and blocks[block_index].index == block_index:
            return block_index
        return next((slot for slot, block in enumerate(blocks) if block.index == block_index), None)


class ToolPair(NamedTuple):
    """One call id: the entry that owns it, its blocks there, and the results that answer it."""

    order: int
    id: str
    owner: Object
    blocks: tuple[Object, ...]
    results: tuple[Object, ...]
    repeats: tuple[Object, ...] = ()
    """Blocks of earlier entries with the same id. Repair ignores them, as the agent does."""

    @property
    def objects(self) -> tuple[Object, ...]:
        """All objects with the id: the blocks in the order of the transcript, then the results."""
        return (*self.repeats, *self.blocks, *self.results)


class Pairs:
    """The calls of entries and their results, in the order in which repair visits them."""

    def __init__(self, entries: Sequence[TranscriptEntry]) -> None:
        self.wholes: tuple[Object, ...] = tuple(Object(position) for position in range(len(entries)))
        """Every entry as an object, created once: they are needed far more often than entries."""
        owners: dict[str, int] = {}
        results: dict[str, list[Object]] = {}
        for position, entry in enumerate(entries):
            for call_id in entry.call_ids:
                owners[call_id] = position
            if entry.result_for is not None:
                results.setdefault(entry.result_for, []).append(self.wholes[position])
        blocks: dict[str, list[Object]] = {}
        repeats: dict[str, list[Object]] = {}
        for position, entry in enumerate(entries):
            for slot, block in enumerate(entry.blocks if entry.call_ids else ()):
                if block.call_id is not None:
                    side = blocks if owners[block.call_id] == position else repeats
                    side.setdefault(block.call_id, []).append(Object(position, slot))
        self.calls: tuple[ToolPair, ...] = tuple(
            ToolPair(
                order,
                call_id,
                self.wholes[owner],
                tuple(blocks[call_id]),
                tuple(results.get(call_id, ())),
                tuple(repeats.get(call_id, ())),
            )
            for order, (call_id, owner) in enumerate(owners.items())
        )
        self.shared: tuple[ToolPair, ...] = tuple(
            call for call in self.calls if call.results and len(call.blocks) + len(call.repeats) > 1
        )
        """Answered calls whose id several blocks carry; only damaged sessions have them."""
        self._by_id: dict[str, ToolPair] = {call.id: call for call in self.calls}
        touched: dict[int, list[ToolPair]] = {}
        for call in self.calls:
            touched.setdefault(call.owner.position, []).append(call)
        for call in self.calls:
            for result in call.results:
                touched.setdefault(result.position, []).append(call)
        self.touched_by: tuple[tuple[ToolPair, ...], ...] = tuple(
            tuple(touched.get(position, ())) for position in range(len(entries))
        )
        """For each entry by position: the calls that repair visits when the whole entry is deleted."""

    def call(self, call_id: str) -> ToolPair | None:
        return self._by_id.get(call_id)

    def made_in(self, entry: TranscriptEntry, slot: int) -> ToolPair | None:
        """The call that a block makes, if its entry owns it."""
        call_id = entry.blocks[slot].call_id
        call = self._by_id.get(call_id) if call_id is not None else None
        return call if call is not None and call.owner.position == entry.position else None

    def of_block(self, entry: TranscriptEntry, slot: int) -> ToolPair | None:
        """The call whose id a block carries, regardless of the entry that owns that call; None if it makes none."""
        call_id = entry.blocks[slot].call_id
        return self._by_id[call_id] if call_id is not None else None

    def answered_by(self, entry: TranscriptEntry) -> ToolPair | None:
        """The call that an entry answers; None if it answers none, or a call that does not exist."""
        return self._by_id.get(entry.result_for) if entry.result_for is not None else None


MayGo = Callable[[Object], bool]


class TargetPlan:
    """Deletion targets in the order in which they were chosen, with their sums.

    A plan with a `base` contains the additions to that closed plan, which is only read.
    """

    def __init__(self, entries: Sequence[TranscriptEntry], pairs: Pairs, base: TargetPlan | None = None) -> None:
        self._entries = entries
        self._pairs = pairs
        self._base = base
        self._base_chosen: Mapping[Object, None] = base.chosen if base is not None else {}
        self._wholes = pairs.wholes
        self.chosen: dict[Object, None] = {}
        self.tokens = 0
        """The sum of the targets' own estimates."""
        self.objects = 0
        """Deleted objects: an entry counts itself and its remaining blocks."""
        self.entries_gone = 0
        self.tasks_gone = 0
        self.visited = 0
        """The number of visited objects: the cost of a step."""
        self.touched_calls: dict[int, ToolPair] = {}
        self.touched_entries: set[int] = set()
        self._block_counts: dict[int, int] = {}
        self._pending: list[int] = []
        self._next_pass: set[int] = set()
        self._passed = -1
        self._answering = -1
        self._filling: set[int] = set()
        self._accompanied: list[int] = []
        self.lacks_companion = False
        """Whether the last repair failed because of a companion."""

    def __contains__(self, found: Object) -> bool:
        return found in self.chosen or found in self._base_chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def is_complete(self, position: int) -> bool:
        """Whether every block of an entry is chosen individually."""
        count = self.blocks_chosen(position)
        return count > 0 and count == len(self._entries[position].blocks)

    def blocks_chosen(self, position: int) -> int:
        """The number of an entry's blocks that are chosen individually."""
        count = self._block_counts.get(position, 0)
        return count if self._base is None else count + self._base.blocks_chosen(position)

    def add(self, found: Object) -> None:
        """Choose an object; no other target is removed for it. A repeat changes nothing."""
        self.visited += 1
        if found in self.chosen or found in self._base_chosen:
            return
        position, slot = found
        entry = self._entries[position]
        self._count(found, 1)
        self.chosen[found] = None
        self.touched_entries.add(position)
        if slot == WHOLE:
            for call in self._pairs.touched_by[position]:
                self._touch(call)
            if entry.companions:
                self._accompanied.append(position)
            return
        self._block_counts[position] = self._block_counts.get(position, 0) + 1
        if entry.call_ids:
            self._filling.add(position)
        call_made = self._pairs.made_in(entry, slot)
        if call_made is not None:
            self._touch(call_made)

    def add_entry(self, position: int) -> None:
        """Choose an entry and remove its block targets."""
        if self._block_counts.pop(position, 0):
            for slot in range(len(self._entries[position].blocks)):
                self.visited += 1
                block = Object(position, slot)
                if block in self.chosen:
                    del self.chosen[block]
                    self._count(block, -1)
        self.add(self._wholes[position])

    def _count(self, found: Object, sign: int) -> None:
        position, slot = found
        entry = self._entries[position]
        if slot == WHOLE:
            self.tokens += sign * entry.tokens
            self.objects += sign * entry.objects
            self.entries_gone += sign
            self.tasks_gone += sign * entry.bears_task
        else:
            self.tokens += sign * entry.blocks[slot].tokens
            self.objects += sign

    def _touch(self, call: ToolPair) -> None:
        self.touched_calls[call.order] = call
        if call.order == self._answering:
            # Its own results add nothing to a deleted call.
            return
        if call.order > self._passed:
            heapq.heappush(self._pending, call.order)
        else:
            self._next_pass.add(call.order)

    def repair(self, may_go: MayGo) -> Object | None:
        """Close the plan under pairing. Returns the first object that repair needs but may not delete."""
        while self._pending or self._filling or self._accompanied:
            refused = self._repair_companions(may_go) or self._repair_calls(may_go)
            if refused is not None:
                return refused
            for position in sorted(self._filling):
                if self.is_complete(position) and self._wholes[position] not in self:
                    self.add_entry(position)
            self._filling.clear()
            self._pending = sorted(self._next_pass)
            self._next_pass.clear()
            self._passed = -1
        return None

    def _repair_companions(self, may_go: MayGo) -> Object | None:
        while self._accompanied:
            for position in self._entries[self._accompanied.pop()].companions:
                companion = self._wholes[position]
                if companion in self:
                    continue
                if not may_go(companion):
                    self.lacks_companion = True
                    return companion
                self.add_entry(position)
        return None

    def _repair_calls(self, may_go: MayGo) -> Object | None:
        while self._pending:
            order = heapq.heappop(self._pending)
            if order == self._passed:
                continue
            self._passed = order
            refused = self._repair_call(self._pairs.calls[order], may_go)
            if refused is not None:
                return refused
        self._passed = len(self._pairs.calls)
        return None

    def _repair_call(self, call: ToolPair, may_go: MayGo) -> Object | None:
        _, _, owner, blocks, results, _ = call
        chosen, base = self.chosen, self._base_chosen
        self.visited += len(blocks) + len(results)
        if owner in chosen or owner in base or any(block in chosen or block in base for block in blocks):
            pinned = self._pinned_block(call, may_go)
            if pinned is not None:
                return pinned
            self._answering = call.order
            for result in results:
                if result not in chosen and result not in base and not may_go(result):
                    return result
                self.add_entry(result.position)
            self._answering = -1
        elif any(result in chosen or result in base for result in results):
            for block in blocks:
                if owner in chosen:
                    break
                if not may_go(block):
                    return block
                self.add(block)
                if self.is_complete(owner.position):
                    self.add_entry(owner.position)
        return None

    def _pinned_block(self, call: ToolPair, may_go: MayGo) -> Object | None:
        """A pinned block that needs the results of a call whose other block was chosen; None if there is none."""
        if len(call.blocks) == 1 or not call.results or call.owner in self:
            return None
        return next((block for block in call.blocks if block not in self and not may_go(block)), None)

    def copy(self) -> TargetPlan:
        """An independent plan with the same targets in the same order; nothing is pending or counts as visited."""
        plan = TargetPlan(self._entries, self._pairs, self._base)
        plan.chosen = self.chosen.copy()
        plan._block_counts = self._block_counts.copy()
        plan.tokens, plan.objects = self.tokens, self.objects
        plan.entries_gone, plan.tasks_gone = self.entries_gone, self.tasks_gone
        return plan


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
        """For each entry by position: the first entry connected with it by steps of repair in either direction.

        The entries of different parts are never deleted because of each other.
        """
        first = list(range(len(self.entries)))

        def find(position: int) -> int:
            while first[position] != position:
                first[position] = position = first[first[position]]
            return position

        def join(one: int, other: int) -> None:
            low, high = sorted((find(one), find(other)))
            first[high] = low

        for call in self.pairs.calls:
            for found in call.objects:
                join(call.owner.position, found.position)
        for entry in self.entries:
            for companion in entry.companions:
                join(entry.position, companion)
        return [find(position) for position in range(len(self.entries))]

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

    def find(self, target: Target) -> Object | None:
        """The object that a target names; None if the transcript lacks it."""
        entry = self.entry(target.entry_id)
        if entry is None or target.block_index is None:
            return self.pairs.wholes[entry.position] if entry is not None else None
        slot = entry.slot(target.block_index)
        return Object(entry.position, slot) if slot is not None else None

    def target(self, found: Object) -> Target:
        """An object as a target, by its ids."""
        entry = self.entries[found.position]
        return Target(entry.entry_id, None if found.slot == WHOLE else entry.blocks[found.slot].index)

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
    messages = rules.compactable(branch, context)
    if len(messages) < MINIMUM_ENTRIES:
        return None
    entries = _transcript_entries(messages, rules)
    _join_companions(entries, rules.companions(messages))
    edited = {message.entry.id: message.source.id for message in messages if message.edit is not None}
    if edited:
        texts = _EditedTexts(texts, edited)
    user_texts = (texts[entry.entry_id].joined(entry.blocks) for entry in reversed(entries) if entry.role == Role.USER)
    candidates = user_texts if is_noise is None else itertools.filterfalse(is_noise, user_texts)
    parameters = effective(settings, candidates)
    for position in range(max(0, len(entries) - parameters.preserve_recent), len(entries)):
        entries[position] = msgspec.structs.replace(entries[position], recent=True)
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


def unanswered(transcript: Transcript, plan: Iterable[Target]) -> dict[Target, tuple[Target, ...]]:
    """For each target of a plan that removes the answer of a call: the remaining blocks with the call's id."""
    gone = set(plan)
    left: dict[Target, tuple[Target, ...]] = {}
    for call in transcript.pairs.shared:
        taken_by = {found: _taken_by(transcript, found, gone) for found in call.objects}
        staying = tuple(transcript.target(found) for found, taker in taken_by.items() if taker is None)
        if not staying or any(taken_by[result] is None for result in call.results):
            continue
        for taker in filter(None, dict.fromkeys(taken_by.values())):
            left[taker] = (*left.get(taker, ()), *staying)
    return left


def _taken_by(transcript: Transcript, found: Object, gone: set[Target]) -> Target | None:
    """The target that deletes an object: its own, or its entry's; None if it is kept."""
    target = transcript.target(found)
    return next((one for one in (target, Target(target.entry_id)) if one in gone), None)


def moved(
    entries: Sequence[TranscriptEntry], plan: Iterable[Target], turns: TurnOrder | None, line: Callable[[str], bytes]
) -> tuple[Moved, ...]:
    """The kept entries that overtake other kept entries. `line` reads the line of an entry, given by id."""
    if turns is None:
        return ()
    return tuple(turns.moved(entries, list(_staying(entries, plan)), line))


def _staying(entries: Sequence[TranscriptEntry], plan: Iterable[Target]) -> Iterator[TranscriptEntry]:
    deleted = blocks_by_entry(plan)
    for entry in entries:
        if entry.entry_id not in deleted:
            yield entry
            continue
        gone = deleted[entry.entry_id]
        if gone is not None:
            blocks = tuple(block for block in entry.blocks if block.index not in gone)
            calls = tuple(block.call_id for block in blocks if block.call_id is not None)
            yield msgspec.structs.replace(entry, blocks=blocks, call_ids=calls)

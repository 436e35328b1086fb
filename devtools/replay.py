"""Replay loss: how much of what an agent needed later a plan would have deleted.

A branch is cut at 40, 60 and 80% of its messages (moved on past tool results). *Prefix*: the messages before the cut;
*future*: the 40 messages after it. A reference is *needed* if the assistant writes it in the future, it did not occur
earlier in the future, and it occurs in the prefix but not in its last two messages: the model must have taken it from
there. The loss is the share of the needed references that occur nowhere in what a plan keeps of the prefix. Past
sessions cannot show what the agent would have done instead, so the figure serves to compare planners; it is not a
probability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from compaction_app.core.references import references
from compaction_app.core.transcript import Transcript, prepare
from compaction_app.core.transcript_entries import TranscriptEntry
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.sessionlog.entries import BlockType, Entry, Role, Texts
from sessions_app.sessionlog.targets import Target

CUTS: Final = (0.4, 0.6, 0.8)
FUTURE_MESSAGES: Final = 40
MINIMUM_MESSAGES: Final = 40
MINIMUM_TOKENS: Final = 8_000
MINIMUM_NEEDED: Final = 10
RECENT_MESSAGES: Final = 2

PlanTargets = Callable[[Transcript], Sequence[Target]]
"""The targets that a planner would delete from a transcript."""


class Loss(msgspec.Struct, frozen=True):
    """The result for one cut: the number of needed references, and how many of them the plan deleted."""

    cut: float
    needed: int
    lost: int

    @property
    def share(self) -> float:
        return self.lost / self.needed


def replay(
    branch: Sequence[Entry], texts: Mapping[str, Texts], settings: Mapping[str, object], plan: PlanTargets
) -> Iterator[Loss]:
    """The loss at each cut of a branch that is long enough."""
    whole = prepare(branch, texts, {}, ATOMIC.generations[-1].rules)
    if whole is None or len(whole) < MINIMUM_MESSAGES:
        return
    places = {entry.id: place for place, entry in enumerate(branch)}
    for cut in CUTS:
        at = _cut_position(whole.entries, cut)
        if at >= len(whole):
            continue
        prefix = prepare(
            branch[: places[whole.entries[at].entry_id]], texts, settings, ATOMIC.generations[-1].rules
        )
        if prefix is None or prefix.tokens < MINIMUM_TOKENS:
            continue
        needed = _needed(whole, prefix, at)
        if len(needed) < MINIMUM_NEEDED:
            continue
        kept = "\n".join(kept_texts(prefix, plan(prefix)))
        yield Loss(cut, len(needed), sum(reference not in kept for reference in needed))


def kept_texts(transcript: Transcript, targets: Sequence[Target]) -> Iterator[str]:
    """The texts that a plan leaves in a transcript, entry by entry or block by block."""
    gone = set(targets)
    for entry in transcript.entries:
        if Target(entry.entry_id) in gone:
            continue
        if not entry.blocks:
            yield transcript.text(entry)
        for block in entry.blocks:
            if Target(entry.entry_id, block.index) not in gone:
                yield transcript.block_text(entry, block)


def _cut_position(entries: Sequence[TranscriptEntry], cut: float) -> int:
    at = int(len(entries) * cut)
    while at < len(entries) and entries[at].role == Role.TOOL_RESULT:
        at += 1
    return at


def _needed(whole: Transcript, prefix: Transcript, at: int) -> set[str]:
    seen: set[str] = set()
    written: set[str] = set()
    for entry in whole.entries[at : at + FUTURE_MESSAGES]:
        if entry.role == Role.ASSISTANT:
            written |= references(_written_by_assistant(whole, entry)) - seen
        seen |= references(whole.text(entry))
    earlier = "\n".join(prefix.text(entry) for entry in prefix.entries)
    recent = "\n".join(prefix.text(entry) for entry in prefix.entries[-RECENT_MESSAGES:])
    return {reference for reference in written if reference in earlier and reference not in recent}


def _written_by_assistant(transcript: Transcript, entry: TranscriptEntry) -> str:
    written = []
    for block in entry.blocks:
        text = transcript.block_text(entry, block)
        if block.type == BlockType.TOOL_CALL:
            # The id of a call is the provider's, not the model's.
            text = text.split(" ", 2)[2]
        if block.type in (BlockType.TEXT, BlockType.THINKING, BlockType.TOOL_CALL):
            written.append(text)
    return "\n".join(written)

"""The deletable objects: entries and their content blocks, and their protections."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec

from sessions_app.sessionlog.entries import Block, Role, tokens_of
from sessions_app.sessionlog.protection import Protection

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
    """Empty if the content is not an array."""
    call_ids: tuple[str, ...]
    result_for: str | None
    recent: bool
    protection: Protection | None
    """The reason other than recency, if there is one."""
    bears_thinking: bool
    tool_name: str = ""
    replayed: bool = False
    """Whether it is an assistant message whose thinking must be unchanged if it is the last that remains."""
    companions: tuple[int, ...] = ()
    """The positions of the entries that are deleted whenever it is deleted as a whole, beside those of its calls."""
    reply: str = ""
    """The reply to which it belongs, if the agent records one as several entries."""

    @property
    def is_protected(self) -> bool:
        return self.recent or self.protection is not None

    @property
    def bears_task(self) -> bool:
        """Whether it can carry the task that the model has to do."""
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

"""What can be deleted: entries and their content blocks, and what protects them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from sessions_app.sessionlog.entries import Block, Role

TASK_ROLES: Final = frozenset({Role.USER, Role.CUSTOM, Role.BRANCH_SUMMARY})
WHOLE: Final = -1


class Object(NamedTuple):
    """An entry (slot WHOLE) or one of its blocks, by position in the transcript and slot in `blocks`."""

    position: int
    slot: int = WHOLE


class Protection(StrEnum):
    """Why an entry may not be deleted. An entry may be recent beside any of the others."""

    USER = "user"
    CUSTOM = "custom"
    BRANCH_SUMMARY = "branch_summary"
    ASSISTANT_ERROR = "assistant_error"
    TOOL_ERROR = "tool_error"
    FAILED_COMMAND = "failed_command"
    RECENT = "recent"

    @property
    def label(self) -> str:
        """The reason in two words."""
        return _LABELS[self]

    @property
    def sentence(self) -> str:
        """The reason in words."""
        return _SENTENCES[self]


_LABELS: Final = {
    Protection.USER: "user message",
    Protection.CUSTOM: "added context",
    Protection.BRANCH_SUMMARY: "branch summary",
    Protection.ASSISTANT_ERROR: "error",
    Protection.TOOL_ERROR: "tool error",
    Protection.FAILED_COMMAND: "failed command",
    Protection.RECENT: "recent",
}
_SENTENCES: Final = {
    Protection.USER: "it holds what the user said",
    Protection.CUSTOM: "it was added by an extension as context",
    Protection.BRANCH_SUMMARY: "it summarises a branch",
    Protection.ASSISTANT_ERROR: "the assistant stopped there with an error",
    Protection.TOOL_ERROR: "it holds a tool's error",
    Protection.FAILED_COMMAND: "it holds a command that failed",
    Protection.RECENT: "it is among the most recent entries",
}


class TranscriptEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry that could be deleted, with the blocks that earlier compactions have left of it."""

    position: int
    """Its place in the transcript, from 0."""
    entry_id: str
    entry_type: str
    role: str
    tokens: int
    blocks: tuple[Block, ...]
    """Empty where the content is no array."""
    call_ids: tuple[str, ...]
    result_for: str | None
    recent: bool
    protection: Protection | None
    """The reason that is not recency, where there is one."""
    bears_thinking: bool
    tool_name: str = ""

    @property
    def is_protected(self) -> bool:
        return self.recent or self.protection is not None

    @property
    def bears_task(self) -> bool:
        """Whether it can tell a model what it is meant to do."""
        return self.role in TASK_ROLES

    @property
    def reason(self) -> Protection | None:
        """Why it is protected; recency first, as the airlock judges it."""
        return Protection.RECENT if self.recent else self.protection

    @property
    def objects(self) -> int:
        """What it counts in statistics: itself and its blocks."""
        return 1 + len(self.blocks)

    def slot(self, block_index: int) -> int | None:
        """Where the block with this recorded index stands in `blocks`; None where it is not there."""
        blocks = self.blocks
        if block_index < len(blocks) and blocks[block_index].index == block_index:
            return block_index
        return next((slot for slot, block in enumerate(blocks) if block.index == block_index), None)

"""PURE: an entry of an exported branch, and the head of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from compaction_app.rendering.pictures import Picture
from sessions_app.sessionlog.entries import Block, BlockType, Entry, Role, Texts
from sessions_app.sessionlog.moments import moment_of

PROSE: frozenset[str] = frozenset({Role.USER, Role.ASSISTANT, Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY})


class ExportHead(NamedTuple):
    """The description of its session in an exported file."""

    title: str
    facts: Sequence[str]


class SpokenText(NamedTuple):
    """One text of an entry: prose, thinking, a call with its tool, or anything else."""

    kind: str
    """`prose`, `thinking`, `call` or `output`."""
    text: str
    tool: str = ""


class SpokenEntry(NamedTuple):
    """One entry of a branch, with its exported texts and pictures."""

    entry: Entry
    recorded: Texts
    blocks: Sequence[Block]
    pictures: Sequence[Picture] = ()

    @property
    def heading(self) -> str:
        """The author of the entry, and its time."""
        who = self.entry.tool_name if self.entry.role == Role.TOOL_RESULT else self.entry.role
        at = moment_of(self.entry.timestamp)
        when = f", {at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else ""
        return f"{who or self.entry.type}{when}"

    def texts(self) -> Iterator[SpokenText]:
        """Its texts in their order, without empty ones and images."""
        if self.recorded.whole is not None and self.recorded.whole.strip():
            yield SpokenText(self._kind(None), self.recorded.whole)
        for block in self.blocks:
            text = self.recorded.blocks[block.index] if block.index < len(self.recorded.blocks) else ""
            if block.type == BlockType.IMAGE or not text.strip():
                continue
            if block.type == BlockType.TOOL_CALL:
                rest = text.removeprefix(f"{BlockType.TOOL_CALL} {block.call_id} ")
                tool, _, arguments = rest.partition(" ")
                yield SpokenText("call", arguments, tool)
            else:
                yield SpokenText(self._kind(block), text)

    def _kind(self, block: Block | None) -> str:
        if block is not None and block.is_thinking:
            return "thinking"
        return "prose" if self.entry.role in PROSE or not self.entry.role else "output"

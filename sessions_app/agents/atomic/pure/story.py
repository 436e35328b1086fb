"""A generated session in Atomic's format, built step by step: the demo is one."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

PROVIDER: Final = "deepseek"
MODEL: Final = "deepseek-chat"
INSTRUCTIONS: Final = 13_600
"""Tokens of an agent's own instructions and tools, which are not in any entry."""


class StoryStep(NamedTuple):
    """A call with its result, as a compaction deletes it. `characters` is their weight."""

    entry_id: str | None
    block_index: int
    result_id: str | None
    characters: int


class SessionStory:
    """Lines of a session, in order; each follows the leaf."""

    def __init__(self, title: str, project: str, started: datetime) -> None:
        self.now = started
        self.leaf: str | None = None
        self._number = 0
        self._characters: dict[str | None, int] = {None: 0}
        """Characters of a branch up to an entry, from which its usage is computed."""
        header = {"type": "session", "version": 3, "id": "0d3e0000-0000-7000-8000-000000000001"}
        self._lines = [json.dumps({**header, "timestamp": self._time(), "cwd": project})]
        self._add("session_info", 0, name=title)

    def data(self) -> bytes:
        return "".join(f"{line}\n" for line in self._lines).encode()

    def user(self, words: str) -> None:
        self._say({"role": "user", "content": [{"type": "text", "text": words}]}, len(words), seconds=95)

    def say(self, words: str) -> None:
        """The assistant's last message of a turn."""
        self._assistant([{"type": "text", "text": words}], len(words), "stop")

    def step(
        self, words: str, tool: str, result: str, *, thought: str = "", error: bool = False, **arguments: str
    ) -> StoryStep:
        """A call, with the assistant's words and thoughts before it, and its result."""
        call_id = f"call_{self._number:04d}"
        blocks: list[dict[str, Any]] = [{"type": "text", "text": words}]
        if thought:
            blocks.insert(0, {"type": "thinking", "thinking": thought, "thinkingSignature": "reasoning_content"})
        blocks.append({"type": "toolCall", "id": call_id, "name": tool, "arguments": arguments})
        called = len(tool) + len(json.dumps(arguments))
        self._assistant(blocks, len(words) + len(thought) + called, "toolUse")
        calling = self.leaf
        message = {
            "role": "toolResult",
            "toolCallId": call_id,
            "toolName": tool,
            "content": [{"type": "text", "text": result}],
            "isError": error,
        }
        self._say(message, len(result), seconds=4)
        return StoryStep(calling, len(blocks) - 1, self.leaf, called + len(result))

    def compact(self, step: StoryStep) -> None:
        """The agent's own compaction, which deletes a call with its result."""
        before = self._characters[self.leaf]
        after = before - step.characters
        self._add(
            "context_compaction",
            -step.characters,
            promptVersion=1,
            deletedTargets=[
                {"kind": "entry", "entryId": step.result_id},
                {"kind": "content_block", "entryId": step.entry_id, "blockIndex": step.block_index},
            ],
            protectedEntryIds=[],
            stats={
                "tokensBefore": before // 4,
                "tokensAfter": after // 4,
                "percentReduction": round(100 * step.characters / before, 1),
            },
        )

    def label(self, name: str) -> None:
        self._add("label", 0, targetId=self.leaf, label=name)

    def damage(self) -> None:
        """A line that was cut off by a crash."""
        line = json.dumps({"type": "message", "id": self._id(), "parentId": self.leaf, "timestamp": self._time()})
        self._lines.append(line[:-20])

    def _assistant(self, blocks: list[dict[str, Any]], characters: int, stop: str) -> None:
        before = INSTRUCTIONS + self._characters[self.leaf] // 4
        usage = {
            "input": before % 1_024,
            "output": characters // 4,
            "cacheRead": before - before % 1_024,
            "cacheWrite": 0,
            "totalTokens": before + characters // 4,
        }
        message = {
            "role": "assistant",
            "content": blocks,
            "provider": PROVIDER,
            "model": MODEL,
            "usage": usage,
            "stopReason": stop,
        }
        self._say(message, characters, seconds=11)

    def _say(self, message: dict[str, Any], characters: int, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self._add("message", characters, message={**message, "timestamp": int(self.now.timestamp() * 1000)})

    def _add(self, kind: str, characters: int, **fields: Any) -> None:
        entry_id = self._id()
        entry = {"type": kind, "id": entry_id, "parentId": self.leaf, "timestamp": self._time(), **fields}
        self._characters[entry_id] = self._characters[self.leaf] + characters
        self._lines.append(json.dumps(entry, ensure_ascii=False))
        self.leaf = entry_id

    def _id(self) -> str:
        self._number += 1
        return f"{self._number * 2_654_435_761 % 2**32:08x}"

    def _time(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%S.000Z")

"""Sessions as Claude Code records them, line by line."""

from __future__ import annotations

import json
from typing import Any, Final

SESSION_ID: Final = "5e551011-0000-4000-8000-000000000001"
MODEL: Final = "claude-opus-5-5"
VERSION: Final = "2.1.330"


class ClaudeSession:
    """A session under construction. A method adds a line after the last one, or after `parent`, and gives its uuid."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.last: str | None = None

    @property
    def content(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)

    def user(self, text: str, parent: str | None = None, **fields: Any) -> str:
        return self.node("user", parent, message={"role": "user", "content": text}, **fields)

    def reply(
        self, reply_id: str, *blocks: dict[str, Any], parent: str | None = None, **usage: int
    ) -> list[str]:
        """A reply of the model: one line for each block. Without blocks, one line that says the id of the reply."""
        said = blocks or (text(reply_id),)
        return [self.assistant(reply_id, block, parent=parent, **usage) for block in said]

    def assistant(
        self, reply_id: str, *blocks: dict[str, Any], parent: str | None = None, **usage: int
    ) -> str:
        message = {
            "model": MODEL,
            "id": reply_id,
            "type": "message",
            "role": "assistant",
            "content": list(blocks),
            "stop_reason": None,
            "usage": {"input_tokens": 3, "output_tokens": 1, **usage},
        }
        return self.node("assistant", parent, message=message, requestId=f"req_{reply_id}")

    def result(self, call_id: str, content: str, parent: str | None = None) -> str:
        block = {"tool_use_id": call_id, "type": "tool_result", "content": content}
        return self.node(
            "user", parent, message={"role": "user", "content": [block]}, toolUseResult={"stdout": content}
        )

    def attachment(self, kind: str, rendered: str = "", **fields: Any) -> str:
        shown = {"rendered": [{"content": rendered}], "renderedRole": "user"} if rendered else {}
        return self.node("attachment", None, attachment={"type": kind, **fields}, **shown)

    def boundary(self, *kept: str, anchor: str = "") -> str:
        """A compaction; without an anchor, the kept lines hang on the boundary itself."""
        uuid = self.new_id()
        preserved = {"anchorUuid": anchor or uuid, "uuids": list(kept), "allUuids": list(kept)}
        metadata = {"trigger": "manual", "preTokens": 900, "preservedMessages": preserved}
        return self.node(
            "system",
            None,
            uuid=uuid,
            parentUuid=None,
            logicalParentUuid=self.last,
            subtype="compact_boundary",
            content="Compacted",
            compactMetadata=metadata if kept else {"trigger": "manual", "preTokens": 900},
        )

    def node(self, kind: str, parent: str | None, **fields: Any) -> str:
        uuid = self.new_id()
        second = len(self.lines)
        line = {
            "parentUuid": parent or self.last,
            "isSidechain": False,
            "type": kind,
            "uuid": uuid,
            "timestamp": f"2026-11-20T10:{second // 60:02}:{second % 60:02}.000Z",
            "userType": "external",
            "entrypoint": "sdk-cli",
            "cwd": "/home/dev/project",
            "sessionId": SESSION_ID,
            "version": VERSION,
            **fields,
        }
        self.beside(**line)
        self.last = uuid
        return uuid

    def beside(self, **line: Any) -> None:
        """A line of any content."""
        self.lines.append(json.dumps(line, ensure_ascii=False).encode())

    def new_id(self) -> str:
        return f"00000000-0000-4000-8000-{len(self.lines):012}"


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def thinking(thought: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thought, "signature": "c2lnbmVk"}


def call(call_id: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"command": f"echo {call_id}"}}

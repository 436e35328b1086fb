"""Sessions as Claude Code records them: single lines in a short notation, and whole sessions.

A line is named by its uuid. Its text is its name unless another one is given, and lines are a second apart.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

SESSION_ID: Final = "5e551011-0000-4000-8000-000000000001"
MODEL: Final = "claude-opus-5-5"
VERSION: Final = "2.1.330"
DIRECTORY: Final = "/home/dev/project"
Object = dict[str, Any]

# ---- blocks ------------------------------------------------------------------------------------------------


def text(said: str) -> Object:
    return {"type": "text", "text": said}


def thinking(thought: str) -> Object:
    return {"type": "thinking", "thinking": thought, "signature": "c2lnbmVk"}


def call(call_id: str, name: str = "Bash") -> Object:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"command": f"echo {call_id}"}}


def answer(call_id: str, content: Any = None, **fields: Any) -> Object:
    content = f"found {call_id}" if content is None else content
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


# ---- lines -------------------------------------------------------------------------------------------------


def line(name: str, parent: str | None, kind: str, **fields: Any) -> Object:
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "type": kind,
        "uuid": name,
        "userType": "external",
        "entrypoint": "sdk-cli",
        "cwd": DIRECTORY,
        "sessionId": SESSION_ID,
        "version": VERSION,
        **fields,
    }


def user(name: str, parent: str | None, content: Any = None, **fields: Any) -> Object:
    message = {"role": "user", "content": name if content is None else content}
    return line(name, parent, "user", message=message, **fields)


def reply(name: str, parent: str | None, *blocks: Any, of: str | None = None, **fields: Any) -> Object:
    """One line of the model; `of` is the id of its reply."""
    message: Object = {
        "model": MODEL,
        "id": f"reply {name}" if of is None else of,
        "type": "message",
        "role": "assistant",
        "content": [text(block) if isinstance(block, str) else block for block in blocks or (name,)],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    return line(name, parent, "assistant", message=message | fields.pop("message", {}), **fields)


def result(name: str, parent: str | None, *call_ids: str) -> Object:
    return user(name, parent, [answer(call_id) for call_id in call_ids], toolUseResult={"stdout": "raw"})


def summary(name: str, parent: str) -> Object:
    return user(name, parent, isCompactSummary=True, isVisibleInTranscriptOnly=True)


def attachment(name: str, parent: str | None, *texts: str, role: str = "user", **content: Any) -> Object:
    rendered = {"rendered": [{"content": one} for one in texts], "renderedRole": role} if texts else {}
    return line(name, parent, "attachment", attachment={"type": "date", **content}, **rendered)


def system(name: str, parent: str | None, subtype: str, **fields: Any) -> Object:
    return line(name, parent, "system", subtype=subtype, **fields)


def boundary(
    name: str, after: str | None, kept: str = "", anchor: str = "", segment: str = "", parent: str | None = None
) -> Object:
    """A boundary that keeps the lines with these names, and as a segment the first and the last of others; without an
    anchor, the kept lines follow the boundary itself."""
    metadata: Object = {"trigger": "manual", "preTokens": 900, "postTokens": 300}
    if kept:
        metadata["preservedMessages"] = {"anchorUuid": anchor or name, "uuids": kept.split()}
    if segment:
        head, tail = segment.split()
        metadata["preservedSegment"] = {"anchorUuid": anchor or name, "headUuid": head, "tailUuid": tail}
    fields = {"logicalParentUuid": after, "compactMetadata": metadata}
    return system(name, parent, "compact_boundary", **fields)


def prompted(end: str) -> Object:
    """The client's line about the last prompt, which names the end of the session."""
    return {"type": "last-prompt", "lastPrompt": "p", "leafUuid": end, "sessionId": "s"}


def talk(turns: int) -> Sequence[Object]:
    """p1, r1, p2, r2, …: prompts and replies, one after the other."""
    names = [f"{letter}{turn}" for turn in range(1, turns + 1) for letter in "pr"]
    return [
        (user if name[0] == "p" else reply)(name, parent) for parent, name in zip([None, *names], names, strict=False)
    ]


# ---- files -------------------------------------------------------------------------------------------------


def timed(lines: Iterable[Object | str]) -> bytes:
    """The file of these lines; a text is a line as it is."""
    written = []
    for second, one in enumerate(lines):
        if isinstance(one, dict) and "timestamp" not in one and "uuid" in one:
            one = one | {"timestamp": at(second)}
        written.append(one if isinstance(one, str) else json.dumps(one))
    return "".join(f"{one}\n" for one in written).encode()


def at(second: float) -> str:
    return f"2026-11-20T10:{int(second) // 60:02d}:{second % 60:06.3f}Z"


class ClaudeSession:
    """A session under construction. A method adds a line after the last one, or after `parent`, and gives its uuid."""

    def __init__(self, prompt: Any = None, **fields: Any) -> None:
        """A session without lines, or with what the user says first."""
        self.lines: list[bytes] = []
        self.last: str | None = None
        if prompt is not None:
            self.user(prompt, **fields)

    @property
    def content(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)

    def user(self, said: Any, parent: str | None = None, **fields: Any) -> str:
        return self.add(user(self.new_id(), parent or self.last, said, **fields))

    def reply(self, reply_id: str, *blocks: Object, parent: str | None = None, **usage: int) -> list[str]:
        """A reply of the model: one line for each block. Without blocks, one line that says the id of the reply."""
        said = blocks or (text(reply_id),)
        return [self.assistant(reply_id, block, parent=parent, **usage) for block in said]

    def assistant(self, reply_id: str, *blocks: Object, parent: str | None = None, **usage: int) -> str:
        message = {"usage": {"input_tokens": 3, "output_tokens": 1, **usage}}
        return self.add(reply(self.new_id(), parent or self.last, *blocks, of=reply_id, message=message))

    def result(self, call_id: str, content: Any, parent: str | None = None, **fields: Any) -> str:
        return self.user([answer(call_id, content)], parent, **{"toolUseResult": {"stdout": "raw"}, **fields})

    def attachment(self, kind: str, *rendered: str, **content: Any) -> str:
        return self.add(attachment(self.new_id(), self.last, *rendered, type=kind, **content))

    def boundary(self, *kept: str, anchor: str = "") -> str:
        return self.add(boundary(self.new_id(), self.last, " ".join(kept), anchor))

    def node(self, kind: str, parent: str | None, **fields: Any) -> str:
        return self.add(line(self.new_id(), parent or self.last, kind, **fields))

    def add(self, node: Object) -> str:
        self.beside(**node | {"timestamp": node.get("timestamp", at(len(self.lines)))})
        self.last = node["uuid"]
        return str(node["uuid"])

    def beside(self, **recorded: Any) -> None:
        """A line of any content."""
        self.lines.append(json.dumps(recorded).encode())

    def new_id(self) -> str:
        return f"00000000-0000-4000-8000-{len(self.lines):012}"

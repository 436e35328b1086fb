"""Small sessions of Claude Code, and what it sends of them, in a short notation.

A line is named by its uuid; its text is its name unless another one is given, and lines are a second apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.claude_code.tree import ClaudeCodeTree
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.session import ParserState

SESSION = "5e551014-0000-4000-8000-000000000001"
NEWER, OLDER = CLAUDE_CODE.generations
Object = dict[str, Any]


def line(name: str, parent: str | None, kind: str, **fields: Any) -> Object:
    return {"type": kind, "uuid": name, "parentUuid": parent, "sessionId": SESSION, "cwd": "/work", **fields}


def user(name: str, parent: str | None, content: Any = None, **fields: Any) -> Object:
    message = {"role": "user", "content": name if content is None else content}
    return line(name, parent, "user", message=message, **fields)


def text(words: str) -> Object:
    return {"type": "text", "text": words}


def thought(words: str) -> Object:
    return {"type": "thinking", "thinking": words, "signature": "s"}


def call(call_id: str) -> Object:
    return {"type": "tool_use", "id": call_id, "name": "Look", "input": {"at": call_id}}


def answer(call_id: str, content: Any = None, **fields: Any) -> Object:
    content = f"found {call_id}" if content is None else content
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def reply(name: str, parent: str | None, *blocks: Any, of: str | None = None, **fields: Any) -> Object:
    """One line of the model; `of` is the id of its reply."""
    content = [text(block) if isinstance(block, str) else block for block in blocks or (name,)]
    message: Object = {"id": f"reply {name}" if of is None else of, "role": "assistant", "content": content}
    message |= {"model": "claude-test", "stop_reason": "end_turn"}
    message |= {"usage": {"input_tokens": 10, "output_tokens": 5}}
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
    name: str, after: str, kept: str = "", anchor: str = "", segment: str = "", parent: str | None = None
) -> Object:
    """A boundary that keeps the lines with these names, and as a segment the first and the last of others."""
    metadata: Object = {"trigger": "manual", "preTokens": 900, "postTokens": 300}
    if kept:
        metadata["preservedMessages"] = {"anchorUuid": anchor or name, "uuids": kept.split()}
    if segment:
        head, tail = segment.split()
        metadata["preservedSegment"] = {"anchorUuid": anchor or name, "headUuid": head, "tailUuid": tail}
    fields = {"logicalParentUuid": after, "compactMetadata": metadata}
    return system(name, parent, "compact_boundary", **fields)


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


def entries_of(raw: bytes) -> list[Entry]:
    parser = CLAUDE_CODE.parser(ParserState(), [])
    return [recorded.entry for one in split_lines([raw]) for recorded in parser.read(one)]


def tree_of(lines: Iterable[Object | str]) -> ClaudeCodeTree:
    return CLAUDE_CODE.tree(entries_of(timed(lines)))


def sent(lines: Iterable[Object | str], generation: Any = NEWER) -> list[str]:
    """What is sent of a session when it is resumed: see `shown`."""
    raw = timed(lines)
    tree = CLAUDE_CODE.tree(entries_of(raw))
    context = generation.reader.rebuild(tree.branch(tree.leaf.id))
    return shown(CLAUDE_CODE.sent_messages(context, lambda entry: raw[entry.offset :][: entry.length]))


def shown(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Each message as `role: block | block`: a text as it is, `~thinking`, `!call`, `=result` with what is unusual."""
    return [f"{one['role']}: {' | '.join(map(_block, one['content']))}" for one in messages]


def _block(block: Mapping[str, Any]) -> str:
    kind = block["type"]
    if kind == "tool_result":
        content, call_id = block.get("content"), block["tool_use_id"]
        usual = content == f"found {call_id}"
        return f"={call_id}" if usual else f"={call_id} {json.dumps(content)}"
    words = {"text": "text", "thinking": "thinking", "tool_use": "id"}
    return {"thinking": "~", "tool_use": "!"}.get(kind, "") + str(block.get(words.get(kind, ""), f"[{kind}]"))


def talk(turns: int) -> Sequence[Object]:
    """p1, r1, p2, r2, …: prompts and replies, one after the other."""
    names = [f"{letter}{turn}" for turn in range(1, turns + 1) for letter in "pr"]
    return [
        (user if name[0] == "p" else reply)(name, parent)
        for parent, name in zip([None, *names], names, strict=False)
    ]

"""What Claude Code sends of small sessions, in a short notation."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sessions_app.agents.claude_code.agent import CLAUDE_CODE
from sessions_app.agents.claude_code.pure.parser import ClaudeCodeParser
from sessions_app.agents.claude_code.pure.reader import ClaudeCodeTree
from sessions_app.agents.pure.formats import Generation
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import Recorded
from tests.claude_sessions import Object, timed

CURRENT, OLDER = CLAUDE_CODE.format.generations


def parsed(raw: bytes, client: tuple[int, ...] = ()) -> tuple[Any, list[Recorded]]:
    """The parser that has read a file, as this version of the client does, and what it found."""
    parser = ClaudeCodeParser(client=client)
    return parser, [found for line in split_lines([raw]) for found in parser.read(line)]


def entries_of(raw: bytes) -> list[Entry]:
    return [recorded.entry for recorded in parsed(raw)[1]]


def line_in(raw: bytes) -> Callable[[Entry], bytes]:
    """Gives the line of an entry of this file."""
    return lambda entry: raw[entry.offset :][: entry.length]


def tree_of(lines: Iterable[Object | str]) -> ClaudeCodeTree:
    return CLAUDE_CODE.format.tree(entries_of(timed(lines)))


def sent(lines: Iterable[Object | str], generation: Generation = CURRENT) -> list[str]:
    """What is sent of a session when it is resumed: see `shown`."""
    return shown(messages(lines, generation))


def messages(lines: Iterable[Object | str], generation: Generation = CURRENT) -> list[Mapping[str, Any]]:
    """The messages that are sent of a session when it is resumed."""
    raw = timed(lines)
    tree = CLAUDE_CODE.format.tree(entries_of(raw))
    return sent_of(raw, tree.branch(tree.leaf.id), generation)


def sent_of(raw: bytes, branch: Sequence[Entry], generation: Generation = CURRENT) -> list[Mapping[str, Any]]:
    """The messages that are sent of a branch of this file."""
    return list(CLAUDE_CODE.format.sent_messages(generation.reader.rebuild(branch), line_in(raw)))


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

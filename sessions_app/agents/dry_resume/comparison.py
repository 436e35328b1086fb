"""What a client sent of a session, compared with the messages that it should send.

A client adds something to each conversation: reminders, the environment, instructions. What it adds to a new session is
known from a control run, and is left out of both sides. What remains must be equal, message by message and block by
block, up to the turn with PROBE. There, after the session's messages, the client may add texts with known beginnings,
or texts that are not a user's; for example, because the directory is not the recorded one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

PROBE: Final = "REDLINE-PROBE"
"""The prompt with which a session is continued."""
NOT_CONTENT: Final = frozenset({"id", "cache_control", "output_config"})
NO_FIELDS: Final = "{}"
PLAIN_ITEM: Final = '{"type": "message"}'
CLIENT_ROLES: Final = frozenset({"system", "developer"})
"""The roles of messages that are neither the user's nor the model's."""
TEXTS: Final = frozenset({"text", "input_text"})

Block = Mapping[str, Any]


class _Message(NamedTuple):
    role: str
    blocks: tuple[str, ...]
    """Its content, each block as JSON."""
    fields: str
    """Everything else, as JSON."""
    number: int


def has_probe(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a conversation ends with the turn of PROBE."""
    return any(_is_probe(block) for message in messages[-2:] for block in _blocks(message))


def difference(
    sent: Sequence[Mapping[str, Any]],
    added: Sequence[Mapping[str, Any]],
    expected: Iterable[Mapping[str, Any]],
    openings: tuple[str, ...],
) -> str:
    """The first difference between the messages sent and the expected ones, in words; empty if there is none.

    `added` are the messages of the control; `openings` are the beginnings of texts that the client may add at the end.
    """
    fresh = frozenset((_role(message), _json(block)) for message in added for block in _blocks(message))
    last = max(at for at, message in enumerate(sent) if any(map(_is_probe, _blocks(message))))
    found = list(_without(sent, fresh))
    ours = list(_without(expected, fresh))
    for at, (theirs, mine) in enumerate(zip_longest(found, ours)):
        if theirs is None:
            missing = f"message {mine.number + 1:,} ({mine.role}) is missing"
            return f"it sends {len(found):,} messages instead of {len(ours):,}: {missing}"
        is_last = at >= len(ours) - 1 and theirs.number == last
        kept, more = _split(theirs, len(mine.blocks) if mine is not None and is_last else None)
        if mine is None and not _may_be_added(theirs, openings):
            return f"after the {len(ours):,} messages of the session it sends another one, {theirs.role}"
        if mine is None:
            continue
        name = f"message {mine.number + 1:,}"
        if theirs.role != mine.role:
            return f"{name} is {theirs.role} instead of {mine.role}"
        if (kept.fields, kept.blocks) != (mine.fields, mine.blocks) or not _may_be_added(more, openings):
            return f"{name}, {mine.role}, has another content"
    return ""


def _split(message: _Message, count: int | None) -> tuple[_Message, _Message]:
    """A message with its first blocks, and the others; all of them are first if there is no count."""
    end = len(message.blocks) if count is None else count
    return message._replace(blocks=message.blocks[:end]), _Message(
        message.role, message.blocks[end:], NO_FIELDS, message.number
    )


def _without(messages: Iterable[Mapping[str, Any]], fresh: frozenset[tuple[str, str]]) -> Iterator[_Message]:
    """Messages without the blocks of the control, of which PROBE is one."""
    for number, message in enumerate(messages):
        role = _role(message)
        blocks = map(_json, _blocks(message))
        recorded = tuple(block for block in blocks if (role, block) not in fresh)
        left_out = NOT_CONTENT | {"role", "content"} if "role" in message else NOT_CONTENT
        fields = _json(
            {name: value for name, value in message.items() if name not in left_out and value is not None}
        )
        if recorded or fields not in (NO_FIELDS, PLAIN_ITEM):
            yield _Message(role, recorded, fields, number)


def _may_be_added(message: _Message, openings: tuple[str, ...]) -> bool:
    """Whether a client can have added this at the end."""
    if message.fields not in (NO_FIELDS, PLAIN_ITEM):
        return False
    blocks = [json.loads(block) for block in message.blocks]
    if message.role == "user":
        return all(_is_text(one) and str(one["text"]).startswith(openings) for one in blocks)
    return not blocks or (message.role in CLIENT_ROLES and all(map(_is_text, blocks)))


def _role(message: Mapping[str, Any]) -> str:
    return str(message.get("role") or message.get("type") or "")


def _blocks(message: Mapping[str, Any]) -> list[Block]:
    """The content of a message as blocks. An item of Responses that is not a message has none."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or "role" not in message:
        return []
    return [
        {name: value for name, value in block.items() if name not in ("cache_control", "annotations")}
        for block in content
        if isinstance(block, dict) and "role" not in block
    ]


def _is_text(block: Block) -> bool:
    return block.get("type") in TEXTS and "text" in block


def _is_probe(block: Block) -> bool:
    return _is_text(block) and str(block["text"]).strip() == PROBE


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)

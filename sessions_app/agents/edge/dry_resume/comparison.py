"""What a client sent of a session, compared with the messages that it should send.

A client adds something to each conversation: reminders, the environment, instructions. What it adds to a new session is
known from a control run, and is left out of both sides. What remains must be equal, message by message and block by
block. These are no difference:

- after the session's messages, and in the one that PROBE was joined with: texts with known beginnings, or texts that
  are not a user's; for example, because the directory is not the recorded one
- words of the client's own around a recorded text, in such a text
- a newline that a text gets because another one follows it
- U+FFFD in the place of a lone surrogate, and null in the place of nothing
- an image that the client encoded again, perhaps smaller: it has the same shape, and is not another one of the session;
  nor is how closely the model is to look at an image
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.opaque import size_in_base64
from sessions_app.sessionlog.text import plural

PROBE: Final = "REDLINE-PROBE"
"""The prompt with which a session is continued."""
NOT_CONTENT: Final = frozenset({"id", "cache_control", "output_config"})
NOT_IN_BLOCKS: Final = frozenset({"cache_control", "annotations", "citations"})
NO_FIELDS: Final[tuple[Mapping[str, Any], ...]] = ({}, {"type": "message"})
CLIENT_ROLES: Final = frozenset({"system", "developer"})
"""The roles of messages that are neither the user's nor the model's."""
TEXTS: Final = frozenset({"text", "input_text"})
IMAGES: Final = frozenset({"image", "input_image", "image_url"})

Block = Mapping[str, Any]


class _Message(NamedTuple):
    role: str
    blocks: list[Block]
    fields: Mapping[str, Any]
    """Everything but its role and content."""
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

    `added` are the messages of the control; `openings` are the beginnings of texts that the client may add to a user's.
    """
    fresh = frozenset(_identity(message, block) for message in added for block in _blocks(message))
    last = max(at for at, message in enumerate(sent) if any(map(_is_probe, _blocks(message))))
    found = list(_without(sent, fresh))
    ours = list(_without(expected, fresh))
    forms = _Forms(ours)
    for theirs, mine in zip_longest(found, ours):
        if theirs is None:
            missing = f"message {mine.number + 1:,} ({mine.role}) is missing"
            return f"it sends {plural(len(found), 'message')} instead of {len(ours):,}: {missing}"
        if mine is None:
            if not _may_be_added(theirs, theirs.blocks, openings):
                return f"after the {plural(len(ours), 'message')} of the session it sends another one, {theirs.role}"
            continue
        name = f"message {mine.number + 1:,}"
        if theirs.role != mine.role:
            return f"{name} is {theirs.role} instead of {mine.role}"
        if theirs.number == last:
            theirs = _without_additions(theirs, mine, openings, forms)
        if not _is_same(theirs, mine, openings, forms):
            return f"{name}, {mine.role}, has another content"
    return ""


def _without(messages: Iterable[Mapping[str, Any]], fresh: frozenset[tuple[str, str]]) -> Iterator[_Message]:
    """Messages without the blocks of the control, of which PROBE is one."""
    for number, message in enumerate(messages):
        blocks = [block for block in _blocks(message) if _identity(message, block) not in fresh]
        left_out = NOT_CONTENT | {"role", "content"} if "role" in message else NOT_CONTENT
        others = {name: value for name, value in message.items() if name not in left_out and value is not None}
        if blocks or others not in NO_FIELDS:
            yield _Message(_role(message), blocks, others, number)


def _without_additions(theirs: _Message, mine: _Message, openings: tuple[str, ...], forms: _Forms) -> _Message:
    """The message that PROBE was joined with, as it was recorded."""
    kept = [
        block
        for block in theirs.blocks
        if any(_is_same_block(block, one, forms) for one in mine.blocks) or not _may_be_added(theirs, [block], openings)
    ]
    return theirs._replace(blocks=kept)


def _is_same(theirs: _Message, mine: _Message, openings: tuple[str, ...], forms: _Forms) -> bool:
    if len(theirs.blocks) != len(mine.blocks) or not forms.are_equal(theirs.fields, mine.fields):
        return False
    return all(
        _is_same_block(one, other, forms)
        or (_may_be_added(theirs, [one], openings) and _is_text(other) and well_formed(other["text"]) in one["text"])
        for one, other in zip(theirs.blocks, mine.blocks, strict=True)
    )


def _is_same_block(one: Block, other: Block, forms: _Forms) -> bool:
    if _is_text(one) and _is_text(other):
        one, other = ({**block, "text": block["text"].rstrip("\n")} for block in (one, other))
    return forms.are_equal(one, other)


class _Forms:
    """Equality of values that a client sent and recorded ones, whatever their form."""

    def __init__(self, ours: Iterable[_Message]) -> None:
        self._images = frozenset(_images_in([[message.blocks, message.fields] for message in ours]))
        """The recorded images."""

    def are_equal(self, sent: object, recorded: object) -> bool:
        pending: list[tuple[object, object]] = [(sent, recorded)]
        while pending:
            one, other = pending.pop()
            if isinstance(one, dict) and isinstance(other, dict):
                image = _image_in(other)
                if image and self._is_same_image(_image_in(one), image):
                    continue
                one, other = _fields(one), _fields(other)
                if one.keys() != other.keys():
                    return False
                pending += ((one[name], other[name]) for name in one)
            elif isinstance(one, list) and isinstance(other, list):
                if len(one) != len(other):
                    return False
                pending += zip(one, other, strict=True)
            elif isinstance(one, str) and isinstance(other, str):
                if well_formed(one) != well_formed(other):
                    return False
            elif type(one) is not type(other) or one != other:
                return False
        return True

    def _is_same_image(self, sent: str, recorded: str) -> bool:
        """Whether an image is a recorded one that was encoded again, perhaps smaller."""
        ours, theirs = size_in_base64(recorded), size_in_base64(sent)
        if ours is None or theirs is None or sent in self._images:
            return sent == recorded
        scale = max(theirs.width / ours.width, theirs.height / ours.height)
        return scale <= 1 and all(abs(side * scale - other) <= 1 for side, other in zip(ours, theirs, strict=True))


def _fields(value: Mapping[str, Any]) -> dict[str, Any]:
    return {well_formed(name): one for name, one in value.items() if one is not None}


def _image_in(block: Mapping[str, Any]) -> str:
    """The data of a block that is an image, in any of the dialects: Base64, or a data URL; empty if it is none."""
    if fields.text(block, "type") not in IMAGES:
        return ""
    for name, inner in (("source", "data"), ("image_url", "url")):
        value = block.get(name)
        found = value.get(inner) if isinstance(value, dict) else value
        if isinstance(found, str):
            return found
    return ""


def _images_in(value: object) -> Iterator[str]:
    """The data of all images in a value."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            yield from filter(None, (_image_in(one),))
            pending += one.values()
        elif isinstance(one, list):
            pending += one


def _may_be_added(message: _Message, blocks: Sequence[Block], openings: tuple[str, ...]) -> bool:
    """Whether a client can have added these blocks to a message, or as a message."""
    if message.fields not in NO_FIELDS or not all(map(_is_text, blocks)):
        return False
    is_clients = message.role in CLIENT_ROLES
    return is_clients or (message.role == "user" and all(block["text"].startswith(openings) for block in blocks))


def _role(message: Mapping[str, Any]) -> str:
    return str(message.get("role") or message.get("type") or "")


def _blocks(message: Mapping[str, Any]) -> list[Block]:
    """The content of a message as blocks. An item of Responses that is not a message has none."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or "role" not in message:
        return []
    blocks = (block for block in content if isinstance(block, dict) and "role" not in block)
    return [{name: value for name, value in block.items() if name not in NOT_IN_BLOCKS} for block in blocks]


def _identity(message: Mapping[str, Any], block: Block) -> tuple[str, str]:
    return _role(message), json.dumps(block, sort_keys=True)


def _is_text(block: Block) -> bool:
    return fields.text(block, "type") in TEXTS and isinstance(block.get("text"), str)


def _is_probe(block: Block) -> bool:
    return _is_text(block) and block["text"].strip() == PROBE

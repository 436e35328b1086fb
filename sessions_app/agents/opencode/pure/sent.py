"""The messages of a context as OpenCode sends them to a provider with the OpenAI dialect.

One reply of the model is one message with its texts joined, its reasoning and its calls; the results follow it. What a
provider cannot take as a result, an image, follows as a message of the user.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.context import ActiveContext, Message, model_of
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.jsjson import parse, stringify, trim

from .parts import (
    ATTACHED,
    CLEARED,
    CLEARED_STATUS,
    COMPACTION,
    PDF,
    SUBTASK,
    attachments_of,
    input_of,
    is_image,
    output_of,
)

_USERS: Final = frozenset({Role.USER, Role.CUSTOM})
_STANDING_TEXTS: Final = {"compaction": COMPACTION, "subtask": SUBTASK}
Part = tuple[Entry, Mapping[str, Any]]


def sent_messages(context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterator[Mapping[str, Any]]:
    """The messages in the client's form, without its own system message. `line` reads an entry's bytes."""
    sent = [message.entry for message in context.messages if message.sent]
    model = model_of(sent)
    for _, entries in itertools.groupby(sent, key=lambda entry: entry.reply):
        parts = [(entry, _recorded(line(entry), entry)) for entry in entries]
        if parts[0][0].role in _USERS:
            yield {"role": "user", "content": _user_content(parts)}
        else:
            yield from _reply(parts, model)


def _recorded(raw: bytes, entry: Entry) -> Mapping[str, Any]:
    found = fields.as_mapping(parse(raw))
    return found if entry.role == Role.TOOL_RESULT else fields.mapping(found, "data")


def _user_content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    content = [_user_block(entry, part) for entry, part in parts]
    is_one_text = len(content) == 1 and content[0]["type"] == "text"
    return str(content[0]["text"]) if is_one_text else content


def _user_block(entry: Entry, part: Mapping[str, Any]) -> dict[str, Any]:
    if entry.type == "file":
        return _file(part)
    return {"type": "text", "text": _STANDING_TEXTS.get(entry.type) or fields.text(part, "text")}


def _file(part: Mapping[str, Any]) -> dict[str, Any]:
    url = fields.text(part, "url")
    if part.get("mime") == PDF:
        name = fields.text(part, "filename") or "document.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": url}}
    return {"type": "image_url", "image_url": {"url": url}}


def _reply(parts: Sequence[Part], model: tuple[str, str] | None) -> Iterator[Mapping[str, Any]]:
    text, reasoning = "", ""
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    media: list[Mapping[str, Any]] = []
    for entry, part in parts:
        if entry.type == "reasoning":
            thought = fields.text(part, "text")
            if entry.model == model:
                reasoning += thought
            elif trim(thought):
                text += thought
        elif entry.type != "tool":
            text += fields.text(part, "text")
        elif entry.role == Role.TOOL_RESULT:
            files = [] if entry.stop_reason == CLEARED_STATUS else attachments_of(part)
            results.append(_result(entry, part, [file for file in files if not _is_media(file)]))
            media += filter(_is_media, files)
        else:
            calls.append(_call(part))
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    yield message
    yield from results
    if media:
        yield {"role": "user", "content": [{"type": "text", "text": ATTACHED}, *map(_file, media)]}


def _call(part: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": fields.text(part, "tool"), "arguments": stringify(input_of(part))}
    return {"id": fields.text(part, "callID"), "type": "function", "function": function}


def _result(entry: Entry, part: Mapping[str, Any], files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A result; it is cleared if its entry is, as in a context that is not written yet."""
    output = CLEARED if entry.stop_reason == CLEARED_STATUS else output_of(part)
    if files:
        text = [{"type": "text", "text": output}] if output else []
        output = stringify([*text, *map(_attachment, files)])
    return {"role": "tool", "tool_call_id": fields.text(part, "callID"), "content": output}


def _attachment(file: Mapping[str, Any]) -> dict[str, Any]:
    _, _, data = fields.text(file, "url").partition(",")
    return {"type": "media", "mediaType": fields.text(file, "mime"), "data": data}


def _is_media(file: Mapping[str, Any]) -> bool:
    """Whether the client moves an attachment of a result into a message of its own."""
    return is_image(file) or file.get("mime") == PDF


def message_json(message: Message, line: bytes) -> Mapping[str, Any]:
    """One part of a message in the client's form, however its reasoning is sent."""
    part = _recorded(line, message.entry)
    if message.role in _USERS:
        return {"role": "user", "content": [_user_block(message.entry, part)]}
    spoken, *results = _reply([(message.entry, part)], message.entry.model)
    return {"role": "tool", "results": results} if results else spoken

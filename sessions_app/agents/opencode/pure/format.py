"""PURE: the format of OpenCode, and what OpenCode's model sees of a branch, rule by rule, as measured with the client.

| #   | rule                                                                          | where                        |
|-----|-------------------------------------------------------------------------------|------------------------------|
| 1   | the system message is the client's own, and in front; rows are read every time | not part of a session        |
| 2   | reverted messages are deleted with the next prompt                            | `parser`: another branch     |
| 3   | the newest compaction: its question, its summary, the tail, what followed      | `select`                     |
| 4   | of users: texts, files, the question of a compaction, subtasks                | `content_of`                 |
| 5   | a failed reply is left out; an aborted one only if it is nothing but thinking  | `parser`, `_is_left_out`     |
| 6   | of assistants: texts, reasoning, tools; `ignored` does not count               | `content_of`                 |
| 7   | a cleared result is a placeholder; an error, its text; an open call, a note    | `output_of`                  |
| 8   | the reasoning of another model is a text                                      | `_reply`                     |
| 9   | a message without parts is skipped; media of tools follow as a user's message  | `_reply`                     |

The messages are in the OpenAI dialect. One reply of the model is one message with its texts joined, its reasoning and
its calls; the results follow it. What a provider cannot take as a result, an image, follows as a message of the user.
"""

import itertools
import secrets
import string
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sessions_app.agents.pure import fields
from sessions_app.agents.pure.formats import Format, Generation, PlanRules, Reader
from sessions_app.sessionlog.context import ActiveContext, Message, Sending, model_of, newest_of
from sessions_app.sessionlog.entries import BoundaryControl, Entry, EntryKind, Role
from sessions_app.sessionlog.jsjson import parse, stringify, trim
from sessions_app.sessionlog.session import ParserState

from .lines import INFO, MESSAGE
from .parser import (
    ABORTED,
    ATTACHED,
    CLEARED,
    CLEARED_STATUS,
    COMPACTION,
    CURRENT_VERSION,
    PDF,
    SUBTASK,
    OpenCodeParser,
    attachments_of,
    input_of,
    is_image,
    output_of,
)
from .writers import DeleteWriter, PruneWriter, RowForkWriter

SENDING: Final = Sending(drops_empty_messages=True)
"""OpenCode joins the texts of a message, so that an empty one adds nothing. Calls and results are one part."""


class OpenCodeReader(Reader):
    """Reads the contexts of OpenCode 1.1 and newer."""

    name = "opencode"
    honours = frozenset({EntryKind.BOUNDARY})

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        spoken = [message for message in select(branch) if not _is_left_out(message)]
        return ActiveContext(
            self.name,
            tuple(Message.of(entry) for message in spoken for entry in message if entry.is_message),
            newest_of(branch, self.honours),
            sending=SENDING,
        )


def select(branch: Sequence[Entry]) -> list[list[Entry]]:
    """The messages that are sent, in order: each as its own entry and those of its parts.

    The newest completed compaction cuts off what precedes its question, or the start of its tail. Of the remaining
    compactions with a tail, the newest is sent before its tail, up to its first summary, even a failed one. A tail
    whose start is missing changes nothing.
    """
    messages = list(_messages(branch))
    completed = [message for message in messages if _boundary(message) and not message[0].failed]
    messages = messages[_start(messages, _boundary(completed[-1])) :] if completed else messages
    with_tail = [control for message in messages if (control := _boundary(message)) and control.segment]
    return _tail_after_summary(messages, with_tail[-1]) if with_tail else messages


def _start(messages: Sequence[Sequence[Entry]], control: BoundaryControl | None) -> int:
    """The index of the first message that remains after a completed compaction."""
    places = _places(messages)
    question = places.get(control.anchor_id or "") if control is not None else None
    if control is None or question is None:
        return 0
    if control.segment is None:
        return question
    tail = places.get(control.segment[0], len(messages))
    return tail if tail <= question else 0


def _tail_after_summary(messages: list[list[Entry]], control: BoundaryControl) -> list[list[Entry]]:
    places = _places(messages)
    question = places.get(control.anchor_id or "")
    tail = places.get(control.segment[0]) if control.segment is not None else None
    if question is None or tail is None or tail >= question:
        return messages
    answers = (
        at
        for at in range(question + 1, len(messages))
        if (one := _boundary(messages[at])) and one.anchor_id == control.anchor_id
    )
    after = next(answers) + 1
    return [*messages[question:after], *messages[tail:question], *messages[after:]]


def _places(messages: Sequence[Sequence[Entry]]) -> dict[str, int]:
    return {message[0].id: place for place, message in enumerate(messages)}


def _messages(branch: Sequence[Entry]) -> Iterator[list[Entry]]:
    message: list[Entry] = []
    for entry in branch:
        if entry.type == MESSAGE and message:
            yield message
            message = []
        message.append(entry)
    if message:
        yield message


def _boundary(message: Sequence[Entry]) -> BoundaryControl | None:
    control = message[0].control
    return control if isinstance(control, BoundaryControl) else None


def _is_left_out(message: Sequence[Entry]) -> bool:
    """Whether it was aborted before it said or did anything."""
    spoken = [entry for entry in message if entry.is_message]
    return all(entry.stop_reason == ABORTED and entry.bears_thinking for entry in spoken) and bool(spoken)


class OpenCodeRules(PlanRules):
    """Only content that the model sees can be deleted. Messages of the user, summaries, additions of the client, and
    errors are protected. Every part is a separate row; a call and its result are one part.
    """

    def replays(self, entry: Entry) -> bool:
        """True for every assistant entry: its reasoning may have a provider's signature."""
        return entry.role == Role.ASSISTANT


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
            content = [_user_block(entry, part) for entry, part in parts]
            is_one_text = len(content) == 1 and content[0]["type"] == "text"
            yield {"role": "user", "content": str(content[0]["text"]) if is_one_text else content}
        else:
            yield from _reply(parts, model)


def _recorded(raw: bytes, entry: Entry) -> Mapping[str, Any]:
    found = fields.as_mapping(parse(raw))
    return found if entry.role == Role.TOOL_RESULT else fields.mapping(found, "data")


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
        attached: list[dict[str, Any]] = [{"type": "text", "text": output}] if output else []
        for file in files:
            data = fields.text(file, "url").partition(",")[2]
            attached.append({"type": "media", "mediaType": fields.text(file, "mime"), "data": data})
        output = stringify(attached)
    return {"role": "tool", "tool_call_id": fields.text(part, "callID"), "content": output}


def _is_media(file: Mapping[str, Any]) -> bool:
    """Whether the client moves an attachment of a result into a separate message."""
    return is_image(file) or file.get("mime") == PDF


_READER: Final = OpenCodeReader()
_NO_ROWS: Final = (
    "This is an export, not a session in OpenCode's database: nothing can be deleted in it. A fork is a new "
    "export without what is deleted."
)
_ID_CHARACTERS: Final = string.digits + string.ascii_letters
_ID_TIME: Final = 1 << 48
_IDS_IN_A_MILLISECOND: Final = 1 << 12


class OpenCodeFormat(Format):
    """OpenCode 1 since 1.1."""

    name = "opencode"
    label = "OpenCode"
    parser = OpenCodeParser
    sent_messages = staticmethod(sent_messages)
    current_version = CURRENT_VERSION
    generations: Sequence[Generation] = (
        Generation(
            "OpenCode 1.1 and newer, before 2",
            _READER,
            OpenCodeRules(_READER),
            (DeleteWriter(), PruneWriter(), RowForkWriter()),
            can_move_leaf=False,
        ),
    )

    def new_entry_id(self) -> str:
        """A new id without the prefix for its kind; later ids sort after earlier ones."""
        moment = (time.time_ns() * _IDS_IN_A_MILLISECOND // 1_000_000) % _ID_TIME
        rest = "".join(secrets.choice(_ID_CHARACTERS) for _ in range(14))
        return f"{moment:012x}{rest}"

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        """One part of a message in the client's form, however its reasoning is sent."""
        part = _recorded(line, message.entry)
        if message.role in _USERS:
            return {"role": "user", "content": [_user_block(message.entry, part)]}
        spoken, *results = _reply([(message.entry, part)], message.entry.model)
        return {"role": "tool", "results": results} if results else spoken

    def refused_writers(self, state: ParserState) -> Mapping[str, str]:
        """All appending writers, for an export: it has no rows."""
        writers = self.generations[0].writers
        return {writer.name: _NO_ROWS for writer in writers if writer.appends and INFO in state.extra}

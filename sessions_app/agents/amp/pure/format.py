"""PURE: the format of Amp's threads: lines, entries, and what is known of the context.

A thread's document is read as lines: one for the thread, then one for each message. The content is in Anthropic's
blocks. The entries form one chain: a message is entry `mN`, N being the number of its line, and a result is a separate
entry, `mN.K` for the one in block K. The context is all messages; what a continued thread sends is decided on Amp's
servers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from sessions_app.agents.pi.pure.format import ContextRules
from sessions_app.agents.pure import fields
from sessions_app.agents.pure.formats import Format, Generation, NewFile, Reader, SessionWriter, WriteFacts
from sessions_app.sessionlog import entries, jsjson
from sessions_app.sessionlog.context import ActiveContext, Message, keep
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.opaque import IMAGE, IMAGE_UNITS, Opaque
from sessions_app.sessionlog.session import DamageKind, Header, LineParser, Recorded

THREAD: Final = "thread"
MESSAGE: Final = "message"


def lines_of_thread(document: bytes) -> list[bytes] | None:
    """The lines of the thread in a document, each with its newline; None if it is not one."""
    thread = fields.object_in(document)
    if thread is None or not isinstance(thread.get("id"), str):
        return None
    messages = thread.pop("messages", None)
    if not isinstance(messages, list):
        return None
    return [_line(THREAD, thread), *(_line(MESSAGE, message) for message in messages)]


def _line(line_type: str, data: object) -> bytes:
    return jsjson.json_bytes({"type": line_type, "data": data}) + b"\n"


CURRENT_VERSION: Final = 1
_ROLES: Final = {"user": entries.Role.USER, "assistant": entries.Role.ASSISTANT}
_RESULT: Final = "tool_result"


@dataclass(slots=True)
class AmpParser(LineParser):
    """Parses the lines into which `lines_of_thread` divides a thread's document."""

    def read_object(self, data: dict[str, Any], line: jsjson.Line) -> Sequence[Recorded]:
        content = data.get("data")
        if not isinstance(content, dict):
            return self.report(DamageKind.NOT_AN_OBJECT, line, self.describe_value(line.raw, content))
        self.state.version, self.state.recognised = CURRENT_VERSION, True
        if data.get("type") == THREAD:
            return [self._thread(content, line)]
        recorded = list(self._message(content, line)) if data.get("type") == MESSAGE else []
        if recorded:
            self.state.previous_id = recorded[-1].entry.id
        return recorded

    @staticmethod
    def reparse(raw: bytes, place: entries.Entry, version: int) -> tuple[entries.Entry, entries.Texts] | None:
        """The entry at the place of an earlier one; None if no such entry is there any more."""
        found = fields.object_in(raw)
        if found is None:
            return None
        if place.role == entries.Role.TOOL_RESULT:
            return _described_result(found, place)
        return _described(_blocks(fields.mapping(found, "data")), place) if place.role else (place, entries.NO_TEXTS)

    def describe_value(self, raw: bytes, value: object) -> str:
        return "contains no object"

    def _thread(self, data: dict[str, Any], line: jsjson.Line) -> Recorded:
        moment = fields.moment(data, "created")
        created = moment.isoformat(timespec="milliseconds") if moment is not None else ""
        thread_id = fields.stored_text(data, "id")
        self.state.header = Header(thread_id, CURRENT_VERSION, _directory(data), created, "")
        name = entries.NameControl(fields.stored_text(data, "title") or None)
        place = _place(line, thread_id, None)
        entry = msgspec.structs.replace(
            place, type=THREAD, kind=entries.EntryKind.OFF_BRANCH, timestamp=created, control=name
        )
        return Recorded(entry, entries.NO_TEXTS, data)

    def _message(self, data: dict[str, Any], line: jsjson.Line) -> Iterator[Recorded]:
        recorded_role = fields.stored_text(data, "role")
        role = _ROLES.get(recorded_role, recorded_role)
        blocks = _blocks(data)
        parent = self.state.previous_id
        results = [at for at, block in enumerate(blocks) if fields.has_type(block, _RESULT)]
        data_start = jsjson.members(line.raw)["data"].start if results else 0
        spans = jsjson.items(line.raw, jsjson.members(line.raw, data_start)["content"].start) if results else []
        for at in results:
            (start, end), place_id = spans[at], f"m{line.number}.{at}"
            place = entries.Entry(line.number, line.offset + start, end - start, place_id, parent, _RESULT)
            yield Recorded(*_described_result(blocks[at], place), blocks[at])
            parent = place.id
        if len(results) < len(blocks):
            place = _place(line, f"m{line.number}", parent)
            entry, texts = _described(blocks, msgspec.structs.replace(place, role=role))
            usage = fields.mapping(data, "usage")
            # Amp records no time with other messages than answers.
            answered = fields.stored_text(usage, "timestamp")
            entry = msgspec.structs.replace(entry, model=fields.model("amp", usage.get("model")), timestamp=answered)
            yield Recorded(entry, texts, data)


def _blocks(data: Mapping[str, Any]) -> list[Any]:
    """The content of a message, of which a text is one block."""
    content = data.get("content")
    return content if isinstance(content, list) else [{"type": "text", "text": fields.text(data, "content")}]


def text_of_result(block: Mapping[str, Any]) -> str:
    """The text of a result: a string, texts and the names of images, or whatever was recorded."""
    content = block.get("content", block.get("run"))
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(one, dict) and ("text" in one or _is_image(one)) for one in content
    ):
        return "\n".join(IMAGE if _is_image(one) else fields.text(one, "text") for one in content)
    return jsjson.stringify(content) if content is not None else ""


def _described(blocks: Sequence[object], place: entries.Entry) -> tuple[entries.Entry, entries.Texts]:
    """A message without its results; its other blocks are counted without them."""
    own = without_results(blocks)
    found = [_block(block, at) for at, block in enumerate(own)]
    kept = tuple(block for block, _ in found)
    tokens = entries.tokens_of(sum(block.units for block in kept))
    entry = msgspec.structs.replace(place, kind=entries.EntryKind.MESSAGE, blocks=kept, tokens=tokens)
    images = tuple(_image(block, at) for at, block in enumerate(own) if _is_image(block))
    return entry, entries.Texts(None, tuple(text for _, text in found), images)


def without_results(blocks: Sequence[object]) -> list[object]:
    return [block for block in blocks if not fields.has_type(block, _RESULT)]


def _described_result(block: Mapping[str, Any], place: entries.Entry) -> tuple[entries.Entry, entries.Texts]:
    text = text_of_result(block)
    images = tuple(_image(one) for one in fields.items(block, "content") if _is_image(one))
    entry = msgspec.structs.replace(
        place,
        kind=entries.EntryKind.MESSAGE,
        role=entries.Role.TOOL_RESULT,
        tokens=entries.tokens_of(jsjson.utf16_length(text) + sum(image.units for image in images)),
        result_for=fields.stored_text(block, "tool_use_id" if block.get("tool_use_id") else "toolUseID"),
        failed=block.get("is_error") is True,
    )
    return entry, entries.Texts(text, (), images)


def _image(block: Any, at: int | None = None) -> Opaque:
    return Opaque.image(fields.text(fields.mapping(block, "source"), "data"), at)


def _block(block: object, at: int) -> tuple[entries.Block, str]:
    found = fields.as_mapping(block)
    kind = fields.text(found, "type")
    call_id = None
    if kind == "text":
        block_type, text = entries.BlockType.TEXT, fields.text(found, "text")
    elif kind == "thinking":
        block_type, text = entries.BlockType.THINKING, fields.text(found, "thinking")
    elif kind == "tool_use":
        block_type, call_id = entries.BlockType.TOOL_CALL, fields.stored_text(found, "id")
        text = f"toolCall {call_id} {fields.text(found, 'name')} {jsjson.stringify(found.get('input'))}"
    elif kind == "image":
        return entries.Block.of(at, entries.BlockType.IMAGE, IMAGE_UNITS), IMAGE
    else:
        block_type, text = jsjson.well_formed(kind) or entries.BlockType.UNKNOWN, jsjson.stringify(block)
    units = jsjson.utf16_length(text)
    return entries.Block(at, block_type, entries.block_tokens(units), units, call_id), text


def _place(line: jsjson.Line, entry_id: str, parent: str | None) -> entries.Entry:
    return entries.Entry(line.number, line.offset, len(line.raw), entry_id, parent, MESSAGE)


def _is_image(block: object) -> bool:
    return fields.has_type(block, "image")


def _directory(data: Mapping[str, Any]) -> str:
    """The directory of the first tree that a thread was started in."""
    trees = fields.items(fields.mapping(fields.mapping(data, "env"), "initial"), "trees")
    tree = fields.as_mapping(trees[0]) if trees else {}
    return fields.stored_text(tree, "uri").removeprefix("file://")


class AmpReader(Reader):
    """Amp's local threads."""

    name = "amp"
    honours = frozenset()

    def rebuild(self, branch: Sequence[entries.Entry]) -> ActiveContext:
        messages = (keep(entry) for entry in branch if entry.is_message)
        return ActiveContext(self.name, tuple(message for message in messages if message is not None), None)


class HandoffWriter(SessionWriter):
    """Refuses every write: Amp honours no form of deletion."""

    name = "handoff"
    appends = False
    effect = (
        "Nothing can be written: Amp keeps its threads on its servers, and imports none. What is kept can be pasted "
        "into a new thread, as Markdown."
    )
    undo = "There is nothing to undo."

    def write(self, branch: Sequence[entries.Entry], deletion: entries.Deletion, facts: WriteFacts) -> NewFile:
        raise BadInput(
            "read_only_agent",
            f"{facts.session} is a thread of Amp, which keeps its threads on its servers and imports none. Nothing was "
            "written. Start a new thread in Amp, and paste what you keep into it.",
        )


_READER: Final = AmpReader()


class AmpFormat(Format):
    """The format of Amp's local threads, from before they moved to its servers."""

    name = "amp"
    label = "Amp"
    parser = AmpParser
    current_version = CURRENT_VERSION
    generations: Sequence[Generation] = (
        Generation("Amp", _READER, ContextRules(_READER), (HandoffWriter(),), can_move_leaf=False),
    )

    def sent_messages(
        self, context: ActiveContext, line: Callable[[entries.Entry], bytes]
    ) -> Iterator[Mapping[str, Any]]:
        """The messages as recorded: how a thread is sent is not known."""
        for message in context.messages:
            yield self.message_json(message, line(message.entry), None)

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        found = jsjson.parse(line)
        if message.role == entries.Role.TOOL_RESULT:
            return {"role": "user", "content": [found]}
        content = found["data"].get("content")
        return {"role": message.role, "content": without_results(content) if isinstance(content, list) else content}

"""Parses the lines of a session file of pi or Atomic: header, entries and damage.

Three versions of the format are supported. Version 1 has neither `version` nor ids: its entries form a chain in file
order, and the id of an entry is the index of its line, so that it is the same each time and a damaged line shifts
nothing. Version 2 has ids and calls the `custom` role `hookMessage`. Version 3 is the current one. Older versions are
migrated while they are read; the file is not changed.

A line that cannot be used is skipped, as the agent skips it, but it is counted and shown.

    line ──parse──▶ object ──describe──▶ (Entry, Texts)

Token estimates are written into sessions, so they match the agent's: UTF-16 units / 4, rounded up. Every object becomes
an entry, whatever its fields contain: sessions are damaged, and hostile.
"""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from sessions_app.agents.pure import fields
from sessions_app.sessionlog import entries
from sessions_app.sessionlog.context import READ_CHARACTERS, overflown_window
from sessions_app.sessionlog.jsjson import Line, parse, stringify, to_string, utf16_length, well_formed
from sessions_app.sessionlog.model_facts import MILLION, InputPrices
from sessions_app.sessionlog.opaque import IMAGE, IMAGE_UNITS, Opaque
from sessions_app.sessionlog.session import DamageKind, Header, LineParser, Recorded

VERBATIM_LINES: Final = "verbatim-lines"


def deletion_control(data: Mapping[str, Any]) -> entries.DeletionControl:
    percent = fields.number(fields.mapping(data, "stats"), "percentReduction")
    return entries.DeletionControl(
        targets=tuple(_targets(data)),
        percent=percent if percent is not None and 0 <= percent <= 100 else None,
        backup=fields.text(data, "backupPath"),
    )


def _targets(data: Mapping[str, Any]) -> Iterator[entries.Target]:
    """The recorded deletions. Invalid ones are skipped."""
    for target in fields.objects(data, "deletedTargets"):
        entry_id, index = fields.text_or_none(target, "entryId"), fields.integer(target, "blockIndex")
        if entry_id is not None and target.get("kind") == "entry":
            yield entries.Target(entry_id)
        elif entry_id is not None and target.get("kind") == "content_block" and index is not None:
            yield entries.Target(entry_id, index)


def summary_control(data: Mapping[str, Any], system_tokens: int | None) -> entries.SummaryControl:
    is_verbatim = fields.mapping(data, "details").get("strategy") == VERBATIM_LINES
    return entries.SummaryControl(fields.text_or_none(data, "firstKeptEntryId"), is_verbatim, system_tokens)


def edit_control(data: Mapping[str, Any]) -> entries.EditControl:
    target_id = fields.text_or_none(data, "targetId")
    if "replacement" not in data:
        return entries.EditControl(target_id, "undefined")
    if data["replacement"] is None:
        return entries.EditControl(target_id, "removes")
    return entries.EditControl(target_id, "replaces", is_text=isinstance(new_content(data), str))


def new_content(data: Mapping[str, Any]) -> object:
    """The content by which a `context_edit` replaces another; None if it has none."""
    return fields.mapping(data, "replacement").get("content")


UNDO: Final = "redline.undo"
"""The type of custom entries with which Redline moves the leaf to before a compaction."""
MOVE: Final = "redline.move"
"""The type of custom entries with which Redline moves the leaf to any other entry."""
_OF_ASSISTANTS: Final = frozenset({entries.BlockType.THINKING, entries.BlockType.TOOL_CALL})
_NOT_OF_ASSISTANTS: Final = frozenset({entries.BlockType.IMAGE})
_COUNTS: Final = ("input", "output", "cacheRead", "cacheWrite")
_PERHAPS_OPAQUE: Final = frozenset(
    {entries.BlockType.IMAGE, entries.BlockType.REDACTED_THINKING, entries.BlockType.THINKING}
)

KEY: Final = "pi"

_Start = tuple[int, int, int, str, str | None, str, entries.EntryKind, str]
"""The first fields of an entry: number, offset, length, id, parent_id, type, kind and timestamp."""


class _Type(NamedTuple):
    """The kind of an entry type, the parser of its control, and the only agent that writes it."""

    kind: entries.EntryKind
    control: Callable[[Mapping[str, Any]], entries.Control] | None = None
    sole_agent: str = ""


_TYPES: Final[Mapping[str, _Type]] = {
    "message": _Type(entries.EntryKind.MESSAGE),
    "custom_message": _Type(entries.EntryKind.MESSAGE),
    "branch_summary": _Type(entries.EntryKind.MESSAGE),
    "context_compaction": _Type(entries.EntryKind.DELETION, deletion_control),
    "compaction": _Type(entries.EntryKind.SUMMARY),
    "context_edit": _Type(entries.EntryKind.EDIT, sole_agent=KEY),
    "label": _Type(
        entries.EntryKind.LABEL,
        lambda data: entries.LabelControl(fields.text_or_none(data, "targetId"), fields.text(data, "label")),
    ),
    "model_change": _Type(
        entries.EntryKind.MODEL,
        lambda data: entries.ModelControl(fields.text(data, "provider"), fields.text(data, "modelId")),
    ),
    "session_info": _Type(entries.EntryKind.NAME, lambda data: entries.NameControl(fields.text_or_none(data, "name"))),
    "thinking_level_change": _Type(
        entries.EntryKind.THINKING_LEVEL,
        lambda data: entries.ThinkingLevelControl(fields.text_or_none(data, "thinkingLevel")),
    ),
    "custom": _Type(entries.EntryKind.OTHER),
    "usage": _Type(entries.EntryKind.OTHER, sole_agent=KEY),
}
"""The types that agents write today. Others are kept and shown as well. pi's own exist since 0.86."""
KNOWN_TYPES: Final = frozenset(_TYPES)
_UNKNOWN: Final = _Type(entries.EntryKind.OTHER)


def describe(
    data: Mapping[str, Any], *, number: int, offset: int, length: int, entry_id: str, parent_id: str | None
) -> tuple[entries.Entry, entries.Texts]:
    """The digest and the texts of one recorded object, which is of version 3 or converted to it."""
    recorded_type = fields.word(data, "type")
    known = _TYPES.get(recorded_type, _UNKNOWN)
    # Given by position: to match more than twenty names takes as long as everything else of an entry.
    timestamp = fields.stored_text(data, "timestamp")
    start = number, offset, length, entry_id, parent_id, recorded_type, known.kind, timestamp
    if recorded_type == "message":
        return _describe_message(fields.mapping(data, "message"), start)
    if recorded_type == "custom_message":
        return _describe_content(data, entries.Role.CUSTOM, start)
    if recorded_type == "branch_summary":
        return _describe_summary(data, entries.Role.BRANCH_SUMMARY, start)
    if recorded_type == "compaction":
        return _describe_compaction(data, start)
    if recorded_type == "context_edit":
        return _describe_edit(data, start)
    if data.get("customType") == UNDO:
        start = (*start[:6], entries.EntryKind.UNDO, timestamp)
    control = known.control(data) if known.control is not None else None
    model = fields.model(data.get("provider"), data.get("modelId")) if known.kind is entries.EntryKind.MODEL else None
    return entries.Entry(*start, model=model, sole_agent=known.sole_agent, control=control), entries.NO_TEXTS


def _describe_summary(
    data: Mapping[str, Any], role: str, start: _Start, **more: Any
) -> tuple[entries.Entry, entries.Texts]:
    summary = fields.text(data, "summary")
    entry = entries.Entry(
        *(*start, role, entries.tokens_of(utf16_length(summary))),
        empty=not summary,
        excluded=data.get("excludeFromContext") is True,
        **more,
    )
    return entry, entries.Texts(whole=summary, blocks=())


def _describe_compaction(data: Mapping[str, Any], start: _Start) -> tuple[entries.Entry, entries.Texts]:
    """A summary, and the system message that pi since 0.86 repeats with it."""
    system = data.get("systemMessage")
    if not isinstance(system, dict):
        return _describe_summary(data, entries.Role.COMPACTION_SUMMARY, start, control=summary_control(data, None))
    blocks, instructions, units = _system_content(system)
    control = summary_control(data, entries.tokens_of(units))
    entry, texts = _describe_summary(data, entries.Role.COMPACTION_SUMMARY, start, control=control, sole_agent=KEY)
    return entry, entries.Texts(whole=texts.whole, blocks=(instructions.joined(blocks),))


def _describe_edit(data: Mapping[str, Any], start: _Start) -> tuple[entries.Entry, entries.Texts]:
    """An edit, with the blocks of the new content. The role of its target is not known here."""
    control, content = edit_control(data), new_content(data)
    blocks, texts, units = describe_content(text_block(content), None)
    if control.is_text:
        texts = entries.Texts(whole=texts.joined(blocks), blocks=texts.blocks)
    return entries.Entry(*start, tokens=entries.tokens_of(units), blocks=blocks, sole_agent=KEY, control=control), texts


def text_block(content: object) -> object:
    """A text content as an array of one block; any other content unchanged."""
    return [{"type": entries.BlockType.TEXT, "text": content}] if isinstance(content, str) else content


def _describe_message(message: Mapping[str, Any], start: _Start) -> tuple[entries.Entry, entries.Texts]:
    role = fields.word(message, "role")
    if role == entries.Role.COMMAND:
        command, output = to_string(message.get("command", "")), to_string(message.get("output", ""))
        exit_code = message.get("exitCode")
        entry = entries.Entry(
            *(*start, role, entries.tokens_of(utf16_length(command) + utf16_length(output))),
            failed=isinstance(exit_code, int | float) and exit_code != 0,
            excluded=message.get("excludeFromContext") is True,
        )
        return entry, entries.Texts(whole=f"Ran {command}\n{output}", blocks=())
    if role == entries.Role.SYSTEM:  # pi's instructions and tools
        blocks, texts, units = _system_content(message)
        return entries.Entry(*start, entries.Role.SYSTEM, entries.tokens_of(units), blocks, sole_agent=KEY), texts
    return _describe_content(message, entries.Role.CUSTOM if role == "hookMessage" else role, start)


def _system_content(message: Mapping[str, Any]) -> tuple[tuple[entries.Block, ...] | None, entries.Texts, int]:
    """Blocks, texts and units of a system message. pi counts the content, the sections and the added tools as JSON."""
    blocks, texts, units = describe_content(message.get("content"), entries.Role.SYSTEM)
    tools = message.get("toolsAdded")
    sections = [one for one in fields.mapping(message, "sections").values() if isinstance(one, str)]
    units += sum(map(utf16_length, sections))
    if isinstance(tools, list | dict):
        units += utf16_length(stringify(tools))
    if not texts.whole and blocks is None:
        texts = entries.Texts(whole="\n\n".join(sections), blocks=())
    return blocks, texts, units


def _describe_content(message: Mapping[str, Any], role: str, start: _Start) -> tuple[entries.Entry, entries.Texts]:
    blocks, texts, units = describe_content(message.get("content"), role)
    weighed_start = (*start, role, entries.tokens_of(units), blocks)
    if role == entries.Role.ASSISTANT:
        stop_reason = fields.word(message, "stopReason")
        entry = entries.Entry(
            *weighed_start,
            failed=stop_reason == "error",
            stop_reason=stop_reason,
            usage=_usage(message),
            model=fields.model(message.get("provider"), message.get("model")),
            overflown=_overflown(message, stop_reason),
            sole_agent=KEY if isinstance(message.get("thinkingLevel"), str) else "",
        )
    elif role == entries.Role.TOOL_RESULT:
        tool_name, is_error = fields.word(message, "toolName"), message.get("isError") is True
        entry = entries.Entry(*weighed_start, fields.stored_text_or_none(message, "toolCallId"), tool_name, is_error)
    else:
        excluded = role == entries.Role.CUSTOM and message.get("excludeFromContext") is True
        entry = entries.Entry(*weighed_start, excluded=excluded)
    return entry, texts


def describe_content(content: object, role: str | None) -> tuple[tuple[entries.Block, ...] | None, entries.Texts, int]:
    """The blocks of a message's content, their texts, and its total UTF-16 units."""
    if not isinstance(content, list):
        text = content if isinstance(content, str) else ""
        return None, entries.Texts(whole=text, blocks=()), utf16_length(text)
    uncounted = _uncounted(role)
    blocks, texts, opaque, units = [], [], [], 0
    for index, recorded in enumerate(content):
        block, text = _describe_block(recorded, index, uncounted)
        blocks.append(block)
        texts.append(text)
        if block.type in _PERHAPS_OPAQUE and (found := _opaque(recorded, index, text)) is not None:
            opaque.append(found)
        units += block.units
    return tuple(blocks), entries.Texts(None, tuple(texts), tuple(opaque)), units


def weighed(blocks: tuple[entries.Block, ...], role: str) -> tuple[entries.Block, ...]:
    """The blocks of an edit with the units that they have in a message of this role."""
    uncounted = _uncounted(role)
    return tuple(msgspec.structs.replace(block, units=0) if block.type in uncounted else block for block in blocks)


def _uncounted(role: str | None) -> frozenset[str]:
    """The types of blocks that add nothing to the estimate of a message of this role; none if it is unknown."""
    if role is None:
        return frozenset()
    return _NOT_OF_ASSISTANTS if role == entries.Role.ASSISTANT else _OF_ASSISTANTS


def _describe_block(recorded: object, index: int, uncounted: frozenset[str]) -> tuple[entries.Block, str]:
    if not isinstance(recorded, dict):
        text = stringify(recorded)
        return entries.Block(index, entries.BlockType.UNKNOWN, entries.block_tokens(utf16_length(text)), 0), text
    kind = recorded.get("type")
    if kind == entries.BlockType.TEXT:
        text = to_string(recorded.get("text", ""))
        return entries.Block.of(index, entries.BlockType.TEXT, utf16_length(text)), text
    if kind == entries.BlockType.TOOL_CALL:
        return _describe_call(recorded, index, uncounted)
    if kind == entries.BlockType.THINKING:
        text = to_string(recorded.get("thinking", ""))
        length = utf16_length(text)
        units = 0 if entries.BlockType.THINKING in uncounted else length
        return entries.Block(index, entries.BlockType.THINKING, entries.block_tokens(length), units), text
    if kind == entries.BlockType.IMAGE:
        units = 0 if entries.BlockType.IMAGE in uncounted else IMAGE_UNITS
        return entries.Block(index, entries.BlockType.IMAGE, entries.tokens_of(IMAGE_UNITS), units), IMAGE
    text = stringify(recorded)
    return entries.Block(
        index, fields.word(recorded, "type") or entries.BlockType.UNKNOWN, entries.block_tokens(utf16_length(text)), 0
    ), text


def _opaque(recorded: Mapping[str, Any], index: int, text: str) -> Opaque | None:
    """The part of a block that is not text. The agents themselves estimate only images."""
    if recorded["type"] == entries.BlockType.IMAGE:
        return Opaque.image(fields.text(recorded, "data"), index)
    if recorded["type"] == entries.BlockType.REDACTED_THINKING:
        return Opaque.encrypted(fields.text(recorded, "data"), index, text)
    signature = fields.text(recorded, "thinkingSignature")
    return Opaque.encrypted(signature, index) if signature and not text else None


def _describe_call(recorded: dict[str, Any], index: int, uncounted: frozenset[str]) -> tuple[entries.Block, str]:
    name = to_string(recorded["name"]) if "name" in recorded else "undefined"
    arguments = stringify(recorded["arguments"]) if "arguments" in recorded else "undefined"
    shown_id = to_string(recorded["id"]) if "id" in recorded else "undefined"
    block, text = entries.Block.of_call(index, fields.stored_text_or_none(recorded, "id"), name, arguments, shown_id)
    return (msgspec.structs.replace(block, units=0) if entries.BlockType.TOOL_CALL in uncounted else block), text


def _usage(message: Mapping[str, Any]) -> int | None:
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    return fields.tokens(usage, "totalTokens") or sum(fields.tokens(usage, name) for name in _COUNTS)


def _overflown(message: Mapping[str, Any], stop_reason: str) -> int | None:
    usage = fields.mapping(message, "usage")
    return overflown_window(
        stop_reason,
        fields.text(message, "errorMessage")[:READ_CHARACTERS],
        sent=fields.tokens(usage, "input") + fields.tokens(usage, "cacheRead"),
        output=fields.tokens(usage, "output"),
    )


NAMES: Final = ("input", "cacheRead", "cacheWrite")
DIGITS: Final = 6
"""Decimal places of a price: the recorded cost is a floating-point product."""


def recorded_prices(lines: Iterable[bytes], model: str) -> InputPrices | None:
    """The prices of a model in replies, the latest first; None if the price of input is not in them.

    Replies of models without a price record a cost of 0, which is not a price.
    """
    found: dict[str, float] = {}
    for line in lines:
        for name, price in _prices(line, model):
            found.setdefault(name, price)
        if len(found) == len(NAMES):
            break
    if "input" not in found:
        return None
    return InputPrices(found["input"], found.get("cacheRead"), found.get("cacheWrite"))


def _prices(line: bytes, model: str) -> Iterator[tuple[str, float]]:
    message = fields.mapping(fields.object_in(line.removeprefix(BOM_UTF8)) or {}, "message")
    usage = fields.mapping(message, "usage")
    cost = fields.mapping(usage, "cost")
    if message.get("model") != model:
        return
    for name in NAMES:
        tokens, charged = fields.number(usage, name) or 0, fields.number(cost, name) or 0
        if 0 < charged <= tokens:
            yield name, round(charged / tokens * MILLION, DIGITS)


CURRENT_VERSION: Final = 3
MAX_VERSION: Final = 2**31 - 1


@dataclass(slots=True)
class SessionParser(LineParser):
    """Parses the lines of a session; a line has at most one entry."""

    mark: ClassVar[bytes] = BOM_UTF8

    def read_object(self, data: dict[str, Any], line: Line) -> Sequence[Recorded]:
        if data.get("type") == "session":
            return self._read_header(data, line)
        state = self.state
        if not state.version:
            # Without a header, ids distinguish the versions; 2 and 3 do not differ in anything relevant.
            state.version = CURRENT_VERSION if "id" in data else 1
            self.report(DamageKind.NO_HEADER, line, "the session has no header line")
        if state.version == 1:
            entry_id, parent_id = version_1_id(line.number), state.previous_id
            data = as_version_3(data, state.version)
        else:
            entry_id, parent_id = fields.identifier(data, "id"), fields.stored_text(data, "parentId") or None
            if not entry_id:
                return self.report(DamageKind.NO_ID, line, "the entry has no usable id")
            if parent_id == state.previous_id:
                # One object for the id and the reference to it: sessions of 366,000 lines are kept in memory.
                parent_id = state.previous_id
        entry, texts = describe(
            data, number=line.number, offset=line.offset, length=len(line.raw), entry_id=entry_id, parent_id=parent_id
        )
        state.recognised = state.recognised or entry.type in KNOWN_TYPES
        state.previous_id = entry_id
        return (Recorded(entry, texts, data),)

    @staticmethod
    def reparse(raw: bytes, place: entries.Entry, version: int) -> tuple[entries.Entry, entries.Texts] | None:
        """The entry on a line that is read again, from a file of this version; None if the line is not an object.

        Only the position of `place` in the file and in the tree counts.
        """
        data = fields.object_in(raw if place.offset else raw.removeprefix(BOM_UTF8))
        if data is None:
            return None
        return describe(
            as_version_3(data, version),
            number=place.number,
            offset=place.offset,
            length=place.length,
            entry_id=place.id,
            parent_id=place.parent_id,
        )

    def _read_header(self, data: dict[str, Any], line: Line) -> Sequence[Recorded]:
        if self.state.version:
            return self.report(DamageKind.SECOND_HEADER, line, "a second header; the first one counts")
        self.state.recognised = True
        self.state.header = header_of(data)
        self.state.version = self.state.header.version
        return ()

    def describe_fault(self, raw: bytes, fault: ValueError) -> str:
        if not raw.strip(b"\0"):
            return "contains only NUL bytes"
        return LineParser.describe_fault(self, raw, fault)

    def describe_value(self, raw: bytes, value: object) -> str:
        names = {type(None): "null", bool: "a truth value", str: "a string", list: "an array"}
        return f"contains {names.get(type(value), 'a number')} instead of an object"


def header_of(data: dict[str, Any]) -> Header:
    """The header that an object records."""
    return Header(
        id=_shown(data.get("id")),
        # For the agent it is a double, and here it must fit into a database column.
        version=int(min(max(fields.number(data, "version") or 1, 1), MAX_VERSION)),
        cwd=_shown(data.get("cwd")),
        timestamp=_shown(data.get("timestamp")),
        parent_session=_shown(data.get("parentSession") or data.get("branchedFrom")),
    )


def parse_line(raw: bytes) -> Any:
    """The value on a line that the parser has read. Only the first line of a file may have a byte order mark.

    Raises ValueError, with a message, if the agent would throw.
    """
    return parse(raw.removeprefix(BOM_UTF8))


def version_1_id(number: int) -> str:
    """The id given to an entry of a version 1 file: the index of its line, the header's being 0."""
    return f"{number - 1:08x}"


def as_version_3(data: dict[str, Any], version: int) -> dict[str, Any]:
    """A recorded object with version 3 fields instead of older ones. The argument is not changed."""
    if version == 1 and data.get("type") == "compaction":
        index = data.get("firstKeptEntryIndex")
        return {**data, "firstKeptEntryId": version_1_id(index + 1) if isinstance(index, int) and index >= 0 else ""}
    return data


def _shown(value: object) -> str:
    return "" if value is None else well_formed(to_string(value))

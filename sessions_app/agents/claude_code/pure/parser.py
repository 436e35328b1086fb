"""Parses the lines of a session file of Claude Code: entries, the header that they imply, and damage.

A session has no header line: its id, its directory and its start are those of the first lines that have them. A line
is read up to the end of its first value, and a byte order mark at the start of the file is passed over, as 2.1.143 and
newer do; older ones skip a line with more than one value. A line that is not an object is skipped, as the client skips
it. What is skipped is counted and shown.

`ParserState.extra` has what later lines, or writers, depend on: the tools of the calls without a result, which of
several titles counts, whether the file is that of a subagent, and the version of the client that wrote the last line.

    line ──parse──▶ object ──describe──▶ [(Entry, Texts), …]

| line                                   | entry                                                                  |
|----------------------------------------|------------------------------------------------------------------------|
| `assistant`                            | one block of a reply, or several; `reply` is the id of the reply       |
| `user` with a text or blocks           | a user's message                                                       |
| `user` with tool results               | one entry for each result, and one for all other blocks                |
| `user` with `isCompactSummary`         | the summary of a compaction                                            |
| `attachment`                           | context that the client added                                          |
| `system`, `local_command`              | a command that the user ran in the client                              |
| `system`, `compact_boundary`           | a boundary                                                             |
| `progress`, and others with a `uuid`   | part of the branch, never sent; so are those with `isVirtual`          |
| titles, and others without a `uuid`    | beside the conversation; `last-prompt` names the entry to continue     |

Of several entries of one line the last one has the line's `uuid`, so that what follows the line follows all of them.
The blocks of a tool result are those of its own content. Every object becomes an entry, whatever its fields contain.

Newer versions record an attachment as they rendered it. An older line has what the attachment adds, without the words
that the client puts around it:

    {"attachment": {"type": "file", "filename", "displayPath", "content": {"type": "image", "file": {"base64", …}}},
     "rendered": [{"content": text}, …], "renderedRole"}
"""

import sys
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from sessions_app.agents.pi.pure.parser import describe_content
from sessions_app.agents.pure import fields
from sessions_app.sessionlog import entries, jsjson
from sessions_app.sessionlog.context import READ_CHARACTERS, overflown_window
from sessions_app.sessionlog.opaque import IMAGE_UNITS, ImageSize, Opaque, bytes_of, document_units, size_in_base64
from sessions_app.sessionlog.session import DamageKind, Header, LineParser, Recorded, released_version

SNAPSHOT: Final = "prompt_snapshot"
"""The type of attachments that are not part of the conversation."""
REMINDER: Final = "todo_reminder"
"""The type of attachments that are only sent if they were rendered."""
QUEUED: Final = "queued_command"
FILES: Final = ("file", "directory", "nested_memory")
"""The types of attachments with content from the project."""
_CONTENTS: Final = ("prompt", "content", "snippet")
"""The fields with the content of an attachment."""
_NAMES: Final = ("displayPath", "filename", "path", "name")
_MEDIA: Final = ("image", "document")
_DATA: Final = frozenset({"base64", "data", "blob"})
"""The fields with Base64 data."""
NAME_CHARACTERS: Final = 200
LEVELS: Final = 20
"""The maximum depth at which data is searched for in a value: real ones are never this deep, only hostile ones."""


class Media(NamedTuple):
    """The label of an image or a document, and its estimate in UTF-16 units."""

    label: str
    units: int
    is_text: bool = False
    size: ImageSize | None = None

    def opaque(self, block: int | None = None) -> tuple[Opaque, ...]:
        """The part of it that is not text, in this block or in an attachment."""
        return () if self.is_text else (Opaque(self.units, block, self.label, self.size),)


def media_of(block: object) -> Media | None:
    """An image or a document, given as a content block; None for any other block. A document may be a text."""
    if not isinstance(block, dict) or block.get("type") not in _MEDIA:
        return None
    source, name = fields.mapping(block, "source"), fields.text(block, "title")[:NAME_CHARACTERS]
    data = fields.text(source, "data")
    if source.get("type") == "text":
        return Media("\n".join(filter(None, (name, data))), jsjson.utf16_length(data), is_text=True)
    kind = fields.text(source, "media_type")[:NAME_CHARACTERS] or str(block["type"])
    is_image = block["type"] == "image"
    size = f"{bytes_of(data):,} bytes" if data else ""
    where = fields.text(source, "url" if source.get("url") else "file_id")[:NAME_CHARACTERS]
    label = f"[{', '.join(filter(None, (name, kind, size, where)))}]"
    return Media(label, IMAGE_UNITS, size=size_in_base64(data)) if is_image else Media(label, document_units(data))


def rendered_texts(data: Mapping[str, Any]) -> Sequence[str] | None:
    """The texts of an attachment as the client rendered them; None if the line has none, as in older versions."""
    if not isinstance(data.get("rendered"), list):
        return None
    contents = (one.get("content") for one in fields.objects(data, "rendered"))
    return [one for one in contents if isinstance(one, str)]


def shown_text(data: Mapping[str, Any]) -> str:
    """The displayed text of an attachment: as rendered, otherwise its name and content. Empty if no content was
    recorded, or if the file of a `file` attachment is missing, which the client does not send.
    """
    texts, attachment = rendered_texts(data), fields.mapping(data, "attachment")
    if attachment.get("type") == "file" and not attachment.get("content"):
        return ""
    if texts is not None:
        return "\n\n".join(texts)
    text, images = unrendered_text(attachment), images_of(attachment)
    labels = [media.label for media in map(media_of, images) if media is not None]
    name = next((name for field in _NAMES if (name := fields.text(attachment, field))), "")[:NAME_CHARACTERS]
    return "\n".join(filter(None, (name, text, *labels))) if text or labels else ""


def unrendered_text(attachment: Mapping[str, Any]) -> str:
    """The content of an attachment as text, without the client's words; empty if no text was recorded."""
    if attachment.get("type") == REMINDER:
        return ""
    value = next((value for name in _CONTENTS if (value := attachment.get(name))), "")
    value = fields.as_mapping(value).get("contents", value)  # those of a resource
    if isinstance(value, list):
        texts = [block.get("text") if isinstance(block, dict) else block for block in value if not media_of(block)]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    file = fields.mapping(fields.as_mapping(value), "file")
    if isinstance(file.get("content"), str):
        return str(file["content"])
    if "base64" in file:
        return fields.text(file, "filePath")
    return value if isinstance(value, str) else jsjson.stringify(_without_data(value))


def images_of(attachment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The images that an attachment adds, as content blocks."""
    found = [block for block in fields.items(attachment, "prompt") if media_of(block)]
    content = fields.mapping(attachment, "content")
    file = fields.mapping(content, "file")
    if content.get("type") == "image" and isinstance(file.get("base64"), str):
        source = {"type": "base64", "data": file["base64"], "media_type": fields.text(file, "type")}
        found.append({"type": "image", "source": source})
    return found


def _without_data(value: Any, levels: int = LEVELS) -> Any:
    """A recorded value in which data is replaced by its size, down to this many levels."""
    if levels == 0:
        return value
    if isinstance(value, list):
        return [_without_data(one, levels - 1) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: f"[{bytes_of(one):,} bytes]" if name in _DATA and isinstance(one, str) else _without_data(one, levels - 1)
        for name, one in value.items()
    }


KEY: Final = "claude-code"
PROVIDER: Final = "anthropic"
SYNTHETIC: Final = "<synthetic>"
"""The model of messages that the client wrote itself."""
SIDECHAIN: Final = "sidechain"
"""The type of a subagent's lines that an old client wrote into the file of the session."""
LOCAL_COMMAND: Final = "local_command"
LAST_PROMPT: Final = "last-prompt"
BOUNDARY: Final = "compact_boundary"
TITLES: Final[Mapping[str, str]] = {
    LAST_PROMPT: "lastPrompt",
    "summary": "summary",
    "ai-title": "aiTitle",
    "custom-title": "customTitle",
}
"""The lines that name the session, and the field with the name. A later one of these takes precedence."""
CONVERSATION: Final = frozenset({"user", "assistant"})
NODES: Final = CONVERSATION | {"attachment", "system", "progress"}
_SAID: Final = frozenset({entries.Role.USER, entries.Role.COMPACTION_SUMMARY})
_STATIONS: Final = NODES - {"progress"} | {SIDECHAIN}
KNOWN_TYPES: Final = (
    NODES
    | TITLES.keys()
    | {"file-history-snapshot", "queue-operation", "mode", "permission-mode", "atis-latch", "cost-state"}
    | {"tools-used", "agent-name", "api-request-shape", "api-request-blob", "api-request"}
)
"""The types that clients write today. Others are kept and shown as well."""
_USAGE: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")

Described = list[tuple[entries.Entry, entries.Texts]]


def describe(data: Mapping[str, Any], line: jsjson.Line, line_id: str, *, is_subagent: bool = False) -> Described:
    """The entries of one recorded object, usually one: the last one has the id of the line. `is_subagent`: the file is
    that of a subagent."""
    recorded_type = fields.word(data, "type")
    common: dict[str, Any] = {
        "number": line.number,
        "offset": line.offset,
        "length": len(line.raw),
        "id": line_id,
        "parent_id": fields.stored_text(data, "parentUuid") or None,
        "type": recorded_type,
        "timestamp": fields.stored_text(data, "timestamp"),
    }
    if not is_node(data):
        title = fields.stored_text(data, TITLES[recorded_type]) if recorded_type in TITLES else ""
        named = fields.stored_text(data, "leafUuid") or None if recorded_type == LAST_PROMPT else None
        beside = {**common, "parent_id": named, "control": entries.NameControl(title) if title else None}
        return [(entries.Entry(**beside, kind=entries.EntryKind.OFF_BRANCH), entries.NO_TEXTS)]
    if data.get("isSidechain") is True and not is_subagent:
        common["type"] = SIDECHAIN
    message = data.get("message") if data.get("isVirtual") is not True else None
    if recorded_type == "user" and isinstance(message, dict):
        return _describe_user(data, message.get("content"), common, line.raw)
    if recorded_type == "assistant" and isinstance(message, dict):
        return [_describe_assistant(data, message, common)]
    if recorded_type == "attachment":
        return [_describe_attachment(data, common)]
    if recorded_type == "system":
        return [_describe_system(data, common)]
    return [(entries.Entry(**common), entries.NO_TEXTS)]


def is_node(data: Mapping[str, Any]) -> bool:
    """Whether a line is a node of the tree. The client sends conversation lines even if they have no id."""
    return isinstance(data.get("uuid"), str) or fields.word(data, "type") in CONVERSATION


def is_passed(entry: entries.Entry) -> bool:
    """Whether the client skips an entry in the tree, so that the entries that follow it follow its parent instead."""
    return entry.type not in _STATIONS and entry.type.partition(":")[0] not in _STATIONS


def shares_line(entry: entries.Entry) -> bool:
    """Whether an entry has the blocks of a line other than its tool results."""
    parent = entry.parent_id
    if parent is None or not parent.startswith(entry.id):
        return False
    return parent.startswith(".", len(entry.id)) and entry.role in _SAID


# ---- what was said -----------------------------------------------------------------------------------------


def _describe_user(data: Mapping[str, Any], content: object, common: dict[str, Any], raw: bytes) -> Described:
    if not isinstance(content, str | list):
        return [(entries.Entry(**common), entries.NO_TEXTS)]
    common["kind"] = entries.EntryKind.MESSAGE
    role = entries.Role.COMPACTION_SUMMARY if data.get("isCompactSummary") is True else entries.Role.USER
    if isinstance(content, str):
        return [_described(content, role, common)]
    results = [index for index, block in enumerate(content) if is_result(block)]
    if not results:
        return [_described(content, role, common)]
    if len(content) == 1:
        # The subagent of a call; several results on one line do not show which of them it belongs to.
        subagent = fields.stored_text(fields.mapping(data, "toolUseResult"), "agentId")
        return [describe_result(content[0], {**common, "subagent": subagent})]
    spans = jsjson.items(raw, jsjson.members(raw, jsjson.members(raw)["message"].start)["content"].start)
    found = []
    for part, index in enumerate(results):
        part_id, (start, end) = f"{common['id']}.{part}", spans[index]
        at = {"id": part_id, "offset": common["offset"] + start, "length": end - start}
        found.append(describe_result(content[index], {**common, **at}))
        common["parent_id"] = part_id
    if len(results) < len(content):
        entry, texts = _described(content, role, common)
        blocks = tuple(block for block in entry.blocks or () if block.index not in results)
        tokens = entries.tokens_of(sum(block.units for block in blocks))
        return [*found, (msgspec.structs.replace(entry, blocks=blocks, tokens=tokens), texts)]
    return [*found[:-1], describe_result(content[-1], {**common, "parent_id": found[-1][0].parent_id})]


def is_result(block: object) -> bool:
    return fields.has_type(block, "tool_result")


def describe_result(block: Mapping[str, Any], common: Mapping[str, Any]) -> tuple[entries.Entry, entries.Texts]:
    """The entry of one result, which may be a part of its line."""
    call_id = fields.stored_text_or_none(block, "tool_use_id")
    failed = block.get("is_error") is True
    return _described(
        block.get("content"), entries.Role.TOOL_RESULT, {**common, "result_for": call_id, "failed": failed}
    )


def _describe_assistant(
    data: Mapping[str, Any], message: Mapping[str, Any], common: dict[str, Any]
) -> tuple[entries.Entry, entries.Texts]:
    content = message.get("content")
    if not isinstance(content, str | list):
        return entries.Entry(**common), entries.NO_TEXTS
    model = fields.stored_text(message, "model")
    is_error = data.get("isApiErrorMessage") is True
    stop_reason = "error" if is_error else fields.word(message, "stop_reason")
    common |= {
        "kind": entries.EntryKind.MESSAGE,
        "reply": fields.stored_text(message, "id"),
        "stop_reason": stop_reason,
        "failed": is_error,
        "excluded": is_error and model == SYNTHETIC,
        "usage": _usage(message),
        "model": fields.model(PROVIDER, model) if model not in ("", SYNTHETIC) else None,
    }
    entry, texts = _described(content, entries.Role.ASSISTANT, common | {"overflown": None})
    if is_error:
        words = texts.joined(entry.blocks)[:READ_CHARACTERS]
        overflown = overflown_window(stop_reason, words, sent=0, output=0)
        return _described(content, entries.Role.ASSISTANT, common | {"overflown": overflown})
    return entry, texts


def _described(content: object, role: str, common: Mapping[str, Any]) -> tuple[entries.Entry, entries.Texts]:
    media: dict[int, Media] = {}
    if isinstance(content, list):
        media = {index: found for index, block in enumerate(content) if (found := media_of(block))}
        content = [_as_shared(block) for block in content]
    blocks, texts, units = describe_content(content, role)
    if blocks is not None and (media or texts.opaque):
        sealed = [one for one in texts.opaque if one.block not in media]
        weights = {one.block: one.units for one in sealed} | {index: found.units for index, found in media.items()}
        blocks = tuple(_weighing(block, weights.get(block.index)) for block in blocks)
        shown = (media[index].label if index in media else text for index, text in enumerate(texts.blocks))
        opaque = (one for index, found in media.items() for one in found.opaque(index))
        texts, units = entries.Texts(None, tuple(shown), (*sealed, *opaque)), sum(block.units for block in blocks)
    return entries.Entry(**common, role=role, blocks=blocks, tokens=entries.tokens_of(units)), texts


def _weighing(block: entries.Block, units: int | None) -> entries.Block:
    """A block with the estimate of its content that is not text, if it has any."""
    if units is None:
        return block
    return msgspec.structs.replace(block, tokens=entries.block_tokens(units), units=units)


def _as_shared(block: object) -> object:
    """A block in the form common to all agents, without data."""
    if not isinstance(block, dict):
        return block
    if block.get("type") == "tool_use":
        shared = {"type": entries.BlockType.TOOL_CALL, "name": block.get("name"), "arguments": block.get("input")}
        return {**shared, "id": block["id"]} if "id" in block else shared
    if block.get("type") == entries.BlockType.THINKING and "signature" in block:
        return {**block, "thinkingSignature": block["signature"]}
    return {"type": block["type"]} if media_of(block) else block


# ---- what the client adds ----------------------------------------------------------------------------------


def _describe_attachment(data: Mapping[str, Any], common: dict[str, Any]) -> tuple[entries.Entry, entries.Texts]:
    """An attachment; the type of the entry has that of the attachment."""
    attachment, whole = fields.mapping(data, "attachment"), shown_text(data)
    kind = fields.word(attachment, "type")
    if kind and common["type"] != SIDECHAIN:
        common["type"] = sys.intern(f"{common['type']}:{kind}")
    common["kind"] = entries.EntryKind.MESSAGE if kind != SNAPSHOT and whole else entries.EntryKind.OTHER
    images = [] if rendered_texts(data) is not None else images_of(attachment)
    media = [found for found in map(media_of, images) if found is not None]
    units = jsjson.utf16_length(whole) + sum(found.units for found in media)
    opaque = tuple(one for found in media for one in found.opaque())
    return entries.Entry(**common, role=entries.Role.CUSTOM, tokens=entries.tokens_of(units)), entries.Texts(
        whole, (), opaque
    )


def _describe_system(data: Mapping[str, Any], common: dict[str, Any]) -> tuple[entries.Entry, entries.Texts]:
    subtype = fields.word(data, "subtype")
    text = data.get("content")
    if subtype and common["type"] != SIDECHAIN:
        common["type"] = sys.intern(f"{common['type']}:{subtype}")
    if subtype == LOCAL_COMMAND and isinstance(text, str):
        tokens = entries.tokens_of(jsjson.utf16_length(text))
        return entries.Entry(
            **common, kind=entries.EntryKind.MESSAGE, role=entries.Role.COMMAND, tokens=tokens
        ), entries.Texts(text, ())
    if subtype == BOUNDARY:
        common["parent_id"] = common["parent_id"] or fields.stored_text(data, "logicalParentUuid") or None
        return entries.Entry(
            **common, kind=entries.EntryKind.BOUNDARY, control=_boundary(data, common["id"])
        ), entries.NO_TEXTS
    return entries.Entry(**common), entries.NO_TEXTS


def _boundary(data: Mapping[str, Any], own_id: str) -> entries.BoundaryControl:
    metadata = fields.mapping(data, "compactMetadata")
    messages, segment = fields.mapping(metadata, "preservedMessages"), fields.mapping(metadata, "preservedSegment")
    ends = fields.stored_text(segment, "headUuid"), fields.stored_text(segment, "tailUuid")
    anchor = fields.stored_text(messages or segment, "anchorUuid")
    return entries.BoundaryControl(
        kept=tuple(jsjson.well_formed(one) if isinstance(one, str) else "" for one in fields.items(messages, "uuids")),
        anchor_id=anchor if anchor != own_id else None,
        segment=ends if all(ends) else None,
        trigger=fields.stored_text(metadata, "trigger"),
        tokens_before=_count(metadata, "preTokens"),
        tokens_after=_count(metadata, "postTokens"),
    )


def _usage(message: Mapping[str, Any]) -> int | None:
    """The tokens of the context and of the reply."""
    usage = message.get("usage")
    return sum(max(0, fields.tokens(usage, name)) for name in _USAGE) if isinstance(usage, dict) else None


def _count(data: Mapping[str, Any], name: str) -> int | None:
    """A token count; None if it is not a valid one."""
    found = fields.number(data, name)
    return int(found) if found is not None and 0 <= found < 2**53 else None


CURRENT_VERSION: Final = 1
OPEN_CALLS: Final = 1_000
"""The maximum number of calls without a result that are remembered."""
CALLS: Final = "calls"
"""The key in `ParserState.extra` for the tool names of calls without a result, by call id."""
CLIENT: Final = "client"
"""The key in `ParserState.extra` for the client's version; an empty one is unreadable."""
SINCE: Final = (2, 1, 143)
"""The first version that reads the list of a boundary, continues at the entry that a `last-prompt` line names, and
reads a line with more text after its first value."""
_LONG_LINE: Final = b'{"parentUuid":'
"""The beginning of lines that may be longer than the first bytes of a file, such as one with an image."""
_OWN_NAMES: Final = (b'"parentUuid"', b'"leafUuid"')
"""Field names that no other agent uses."""
_PRECEDENCE: Final = {name: rank for rank, name in enumerate(TITLES)}


@dataclass(slots=True)
class ClaudeCodeParser(LineParser):
    """Parses the lines of a session; a line may have several entries."""

    client: tuple[int, ...] = ()
    """The version of the client that will read the session; if empty, that of the client that wrote the last line."""

    def __post_init__(self) -> None:
        # The previous holder of the state may read on from it.
        self.state.extra = {**self.state.extra, CALLS: dict(self.state.extra.get(CALLS, {}))}

    def read_line(self, line: jsjson.Line) -> Sequence[Recorded]:
        if not line.raw.strip(self.blanks):
            return ()
        if not line.offset and line.raw.startswith(BOM_UTF8):
            line = line._replace(offset=len(BOM_UTF8), raw=line.raw[len(BOM_UTF8) :])
        try:
            data, end = _first_value(line.raw)
        except ValueError as fault:
            return self.report_unreadable(line, self.describe_fault(line.raw, fault))
        if end < len(line.raw):
            self.report(DamageKind.MORE_ON_LINE, line, "has more behind its first value, which is not read")
            if self._is_older:
                return ()
            line = line._replace(raw=line.raw[:end])
        if isinstance(data, dict):
            return self.read_object(data, line)
        return self.report(DamageKind.NOT_AN_OBJECT, line, "does not contain an object")

    def read_object(self, data: dict[str, Any], line: jsjson.Line) -> Sequence[Recorded]:
        state = self.state
        line_id = fields.identifier(data, "uuid")
        if not line_id:
            line_id = f"line-{line.number}"
            if fields.word(data, "type") in NODES:
                self.report(DamageKind.NO_ID, line, "the entry has no usable id")
        if is_node(data):
            if "subagent" not in state.extra:
                state.extra["subagent"] = data.get("isSidechain") is True
            if "version" in data:
                state.extra[CLIENT] = list(released_version(fields.stored_text(data, "version")))
        if line.complete or state.header is None:
            self._read_header(data)
        state.version = CURRENT_VERSION
        state.recognised = state.recognised or fields.word(data, "type") in KNOWN_TYPES
        _remember_calls(data, state.extra[CALLS])
        described = describe(data, line, line_id, is_subagent=state.extra.get("subagent") is True)
        return [Recorded(self._in_context(entry), texts, data) for entry, texts in described]

    @staticmethod
    def reparse(raw: bytes, place: entries.Entry, version: int) -> tuple[entries.Entry, entries.Texts] | None:
        """The entry in bytes that are read again: a line, or one tool result of it; None if they are not an object.

        Of `place`, only the position in the file and in the tree and the tool's name are used.
        """
        data = fields.object_in(raw)
        if data is None:
            return None
        if is_result(data):
            common = {**place.position(), "type": place.type, "timestamp": place.timestamp, "kind": place.kind}
            entry, texts = describe_result(data, common)
        else:
            line = jsjson.Line(place.number, place.offset, raw)
            entry, texts = describe(data, line, place.id, is_subagent=place.type != SIDECHAIN)[-1]
        return msgspec.structs.replace(entry, tool_name=place.tool_name), texts

    def _read_header(self, data: dict[str, Any]) -> None:
        """Fill in missing header fields: the first lines of a session have no directory."""
        header = self.state.header or Header("", CURRENT_VERSION, "", "", "")
        if header.id and header.cwd and header.timestamp:
            return
        is_subagent = self.state.extra.get("subagent") is True
        session_id = fields.stored_text(data, "sessionId")
        parent = fields.stored_text(fields.mapping(data, "forkedFrom"), "sessionId")
        if is_subagent:
            # The lines of a subagent have the id of the session that started it.
            session_id, parent = fields.stored_text(data, "agentId"), session_id
        found = Header(
            id=header.id or session_id,
            version=CURRENT_VERSION,
            cwd=header.cwd or fields.stored_text(data, "cwd"),
            timestamp=header.timestamp or fields.stored_text(data, "timestamp"),
            parent_session=header.parent_session or parent,
            is_subagent=is_subagent,
        )
        self.state.header = found if found.id or found.cwd or found.timestamp else None

    @property
    def _is_older(self) -> bool:
        """Whether the client is older than SINCE."""
        return () < (self.client or tuple(self.state.extra.get(CLIENT, ()))) < SINCE

    def _in_context(self, entry: entries.Entry) -> entries.Entry:
        """An entry completed with information from earlier lines."""
        if entry.result_for is not None:
            name = self.state.extra[CALLS].pop(entry.result_for, "")
            return msgspec.structs.replace(entry, tool_name=name) if name else entry
        if entry.type == LAST_PROMPT and self._is_older:
            entry = msgspec.structs.replace(entry, parent_id=None)
        if isinstance(entry.control, entries.NameControl):
            rank = _PRECEDENCE[entry.type]
            if rank < self.state.extra.get("title", 0):
                return msgspec.structs.replace(entry, control=None)
            self.state.extra["title"] = rank
        return entry


def _first_value(raw: bytes) -> tuple[Any, int]:
    """The first value of a line, and the position of its end; the client ignores the rest.

    Raises ValueError if the line begins with none.
    """
    try:
        return jsjson.parse(raw), len(raw)
    except ValueError:
        span = jsjson.first_object(raw)
        if span.start == span.end:
            raise
        return jsjson.parse(span.of(raw)), span.end


def _remember_calls(data: Mapping[str, Any], calls: dict[str, str]) -> None:
    """Record the names of the tools that a reply calls, by call id."""
    if data.get("type") == "assistant":
        for block in fields.objects(fields.mapping(data, "message"), "content"):
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                calls[jsjson.well_formed(block["id"])] = fields.word(block, "name")
    while len(calls) > OPEN_CALLS:
        del calls[next(iter(calls))]


def shows_format(head: bytes) -> bool:
    """Whether the first bytes of a file contain a line that only Claude Code writes."""
    if not any(name in head for name in _OWN_NAMES):
        return False
    for raw in head.removeprefix(BOM_UTF8).split(b"\n"):
        try:
            data, _ = _first_value(raw)
        except ValueError:
            if raw.startswith(_LONG_LINE):
                return True
            continue
        if isinstance(data, dict) and ({"uuid", "parentUuid"} <= data.keys() or "leafUuid" in data):
            return True
    return False

"""Converts one recorded object of Claude Code to entries and their texts.

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
| titles, and others without a `uuid`    | beside the conversation; `last-prompt` names the entry to go on from   |

Of several entries of one line the last one has the line's `uuid`, so that what follows the line follows all of them.
The blocks of a tool result are those of its own content. Every object becomes an entry, whatever its fields contain.
"""
# WAS sessions_app/agents/claude_code/pure/attachments: """What attachments add to a conversation, and what is shown of images and documents in the place of their data.
#
#     {"attachment": {"type": "file", "filename", "displayPath", "content": {"type": "image", "file": {"base64", …}}},
#      "rendered": [{"content": text}, …], "renderedRole"}
#
# Newer versions record an attachment as they rendered it. Otherwise it adds what its content has, and words of the
# client's that are not recorded.
# """

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sessions_app.agents.pi.pure.records import describe_content
from sessions_app.agents.pure import fields
from sessions_app.sessionlog.context import READ_CHARACTERS, overflown_window
from sessions_app.sessionlog.entries import (
    NO_TEXTS,
    Block,
    BlockType,
    BoundaryControl,
    Entry,
    EntryKind,
    NameControl,
    Role,
    Texts,
    block_tokens,
    tokens_of,
)
from sessions_app.sessionlog.jsjson import Span, items, members, stringify, utf16_length, well_formed
from sessions_app.sessionlog.opaque import IMAGE_UNITS, ImageSize, Opaque, bytes_of, document_units, size_in_base64

SNAPSHOT: Final = "prompt_snapshot"
"""The attachment that is not part of the conversation."""
REMINDER: Final = "todo_reminder"
"""The attachment of which nothing is sent unless it was rendered."""
QUEUED: Final = "queued_command"
FILES: Final = ("file", "directory", "nested_memory")
"""The attachments of what is in the project."""
_CONTENTS: Final = ("prompt", "content", "snippet")
"""The fields of an attachment that have what it adds."""
_NAMES: Final = ("displayPath", "filename", "path", "name")
_MEDIA: Final = ("image", "document")
_DATA: Final = frozenset({"base64", "data", "blob"})
"""The fields that have data as Base64."""
NAME_CHARACTERS: Final = 200
LEVELS: Final = 20
"""How deep data is looked for in a value: those that are recorded are nested by hundreds only to do harm."""


class Media(NamedTuple):
    """What is shown of an image or a document, and its estimate in UTF-16 units."""

    label: str
    units: int
    is_text: bool = False
    size: ImageSize | None = None

    def opaque(self, block: int | None = None) -> tuple[Opaque, ...]:
        """What of it is not text, in this block or in an attachment."""
        return () if self.is_text else (Opaque(self.units, block, self.label, self.size),)


def media_of(block: object) -> Media | None:
    """An image or a document, given as a content block; None for any other block. A document may be a text."""
    if not isinstance(block, dict) or block.get("type") not in _MEDIA:
        return None
    source, name = fields.mapping(block, "source"), fields.text(block, "title")[:NAME_CHARACTERS]
    data = fields.text(source, "data")
    if source.get("type") == "text":
        return Media("\n".join(filter(None, (name, data))), utf16_length(data), is_text=True)
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
    """What is shown of the attachment on a line: as it was rendered, else its name and what it adds; empty if it adds
    nothing that is recorded, or is that of a file without the file, which the client does not send."""
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
    """The text that an attachment adds, without the client's words; empty if it adds none that is recorded."""
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
    return value if isinstance(value, str) else stringify(_without_data(value))


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
    """A recorded value with the size of its data in the place of the data, down to this many levels."""
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
_SAID: Final = frozenset({Role.USER, Role.COMPACTION_SUMMARY})
_STATIONS: Final = NODES - {"progress"} | {SIDECHAIN}
KNOWN_TYPES: Final = (
    NODES
    | TITLES.keys()
    | {"file-history-snapshot", "queue-operation", "mode", "permission-mode", "atis-latch", "cost-state"}
    | {"tools-used", "agent-name", "api-request-shape", "api-request-blob", "api-request"}
)
"""The types that clients write today. Others are kept and shown as well."""
_USAGE: Final = (
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "output_tokens",
)

Described = list[tuple[Entry, Texts]]


class LinePlace(NamedTuple):
    """A line in its file, and the id of its last entry."""

    number: int
    offset: int
    raw: bytes
    id: str

    def content_items(self) -> list[Span]:
        """The positions in the line of the blocks of its message."""
        message = members(self.raw)["message"]
        return items(self.raw, members(self.raw, message.start)["content"].start)


def describe(data: Mapping[str, Any], place: LinePlace, *, is_subagent: bool = False) -> Described:
    """The entries of one recorded object, usually one. `is_subagent`: the file is that of a subagent."""
    recorded_type = fields.word(data, "type")
    common: dict[str, Any] = {
        "number": place.number,
        "offset": place.offset,
        "length": len(place.raw),
        "id": place.id,
        "parent_id": fields.stored_text(data, "parentUuid") or None,
        "type": recorded_type,
        "timestamp": fields.stored_text(data, "timestamp"),
    }
    if not is_node(data):
        return [_describe_beside(data, recorded_type, common)]
    if data.get("isSidechain") is True and not is_subagent:
        common["type"] = SIDECHAIN
    message = data.get("message") if data.get("isVirtual") is not True else None
    if recorded_type == "user" and isinstance(message, dict):
        return _describe_user(data, message.get("content"), common, place)
    if recorded_type == "assistant" and isinstance(message, dict):
        return [_describe_assistant(data, message, common)]
    if recorded_type == "attachment":
        return [_describe_attachment(data, common)]
    if recorded_type == "system":
        return [_describe_system(data, common)]
    return [(Entry(**common), NO_TEXTS)]


def is_node(data: Mapping[str, Any]) -> bool:
    """Whether a line takes part in the tree. The client sends what was said even if it has no id."""
    return isinstance(data.get("uuid"), str) or fields.word(data, "type") in CONVERSATION


def is_passed(entry: Entry) -> bool:
    """Whether the client takes what follows an entry to follow the entry before it: it knows nothing of the line."""
    return entry.type not in _STATIONS and entry.type.partition(":")[0] not in _STATIONS


def shares_line(entry: Entry) -> bool:
    """Whether an entry is what a line has beside results."""
    parent = entry.parent_id
    if parent is None or not parent.startswith(entry.id):
        return False
    return parent.startswith(".", len(entry.id)) and entry.role in _SAID


def _describe_beside(data: Mapping[str, Any], recorded_type: str, common: dict[str, Any]) -> tuple[Entry, Texts]:
    title = fields.stored_text(data, TITLES[recorded_type]) if recorded_type in TITLES else ""
    control = NameControl(title) if title else None
    named = fields.stored_text(data, "leafUuid") or None if recorded_type == LAST_PROMPT else None
    return Entry(**{**common, "parent_id": named}, kind=EntryKind.OFF_BRANCH, control=control), NO_TEXTS


# ---- what was said -----------------------------------------------------------------------------------------


def _describe_user(data: Mapping[str, Any], content: object, common: dict[str, Any], place: LinePlace) -> Described:
    if not isinstance(content, str | list):
        return [(Entry(**common), NO_TEXTS)]
    common["kind"] = EntryKind.MESSAGE
    role = Role.COMPACTION_SUMMARY if data.get("isCompactSummary") is True else Role.USER
    if isinstance(content, str):
        return [_described(content, role, common)]
    results = [index for index, block in enumerate(content) if is_result(block)]
    if not results:
        return [_described(content, role, common)]
    if len(content) == 1:
        # The subagent of a call; several results on one line do not show which of them it belongs to.
        subagent = fields.stored_text(fields.mapping(data, "toolUseResult"), "agentId")
        return [describe_result(content[0], {**common, "subagent": subagent})]
    spans, found = place.content_items(), []
    for part, index in enumerate(results):
        offset, length = place.offset + spans[index].start, spans[index].end - spans[index].start
        found.append(
            describe_result(content[index], {**common, "id": f"{place.id}.{part}", "offset": offset, "length": length})
        )
        common["parent_id"] = f"{place.id}.{part}"
    if len(results) < len(content):
        return [*found, _without(results, *_described(content, role, common))]
    return [*found[:-1], describe_result(content[-1], {**common, "parent_id": found[-1][0].parent_id})]


def is_result(block: object) -> bool:
    return fields.has_type(block, "tool_result")


def _without(results: Sequence[int], entry: Entry, texts: Texts) -> tuple[Entry, Texts]:
    """The entry of a line without the blocks that are results."""
    blocks = tuple(block for block in entry.blocks or () if block.index not in results)
    tokens = tokens_of(sum(block.units for block in blocks))
    return msgspec.structs.replace(entry, blocks=blocks, tokens=tokens), texts


def describe_result(block: Mapping[str, Any], common: Mapping[str, Any]) -> tuple[Entry, Texts]:
    """The entry of one result, which may be a part of its line."""
    call_id = fields.stored_text_or_none(block, "tool_use_id")
    failed = block.get("is_error") is True
    return _described(block.get("content"), Role.TOOL_RESULT, {**common, "result_for": call_id, "failed": failed})


def _describe_assistant(
    data: Mapping[str, Any], message: Mapping[str, Any], common: dict[str, Any]
) -> tuple[Entry, Texts]:
    content = message.get("content")
    if not isinstance(content, str | list):
        return Entry(**common), NO_TEXTS
    model = fields.stored_text(message, "model")
    is_error = data.get("isApiErrorMessage") is True
    stop_reason = "error" if is_error else fields.word(message, "stop_reason")
    common |= {
        "kind": EntryKind.MESSAGE,
        "reply": fields.stored_text(message, "id"),
        "stop_reason": stop_reason,
        "failed": is_error,
        "excluded": is_error and model == SYNTHETIC,
        "usage": _usage(message),
        "model": fields.model(PROVIDER, model) if model not in ("", SYNTHETIC) else None,
    }
    entry, texts = _described(content, Role.ASSISTANT, common | {"overflown": None})
    if is_error:
        words = texts.joined(entry.blocks)[:READ_CHARACTERS]
        overflown = overflown_window(stop_reason, words, sent=0, output=0)
        return _described(content, Role.ASSISTANT, common | {"overflown": overflown})
    return entry, texts


def _described(content: object, role: str, common: Mapping[str, Any]) -> tuple[Entry, Texts]:
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
        texts, units = Texts(None, tuple(shown), (*sealed, *opaque)), sum(block.units for block in blocks)
    return Entry(**common, role=role, blocks=blocks, tokens=tokens_of(units)), texts


def _weighing(block: Block, units: int | None) -> Block:
    """A block with the estimate of what it has beside text, if it has that."""
    if units is None:
        return block
    return msgspec.structs.replace(block, tokens=block_tokens(units), units=units)


def _as_shared(block: object) -> object:
    """A block in the form that all agents' blocks are described in, without data."""
    if not isinstance(block, dict):
        return block
    if block.get("type") == "tool_use":
        shared = {"type": BlockType.TOOL_CALL, "name": block.get("name"), "arguments": block.get("input")}
        return {**shared, "id": block["id"]} if "id" in block else shared
    if block.get("type") == BlockType.THINKING and "signature" in block:
        return {**block, "thinkingSignature": block["signature"]}
    return {"type": block["type"]} if media_of(block) else block


# ---- what the client adds ----------------------------------------------------------------------------------


def _describe_attachment(data: Mapping[str, Any], common: dict[str, Any]) -> tuple[Entry, Texts]:
    """An attachment; the type of the entry has that of the attachment."""
    attachment, whole = fields.mapping(data, "attachment"), shown_text(data)
    kind = fields.word(attachment, "type")
    if kind and common["type"] != SIDECHAIN:
        common["type"] = sys.intern(f"{common['type']}:{kind}")
    common["kind"] = EntryKind.MESSAGE if kind != SNAPSHOT and whole else EntryKind.OTHER
    images = [] if rendered_texts(data) is not None else images_of(attachment)
    media = [found for found in map(media_of, images) if found is not None]
    units = utf16_length(whole) + sum(found.units for found in media)
    opaque = tuple(one for found in media for one in found.opaque())
    return Entry(**common, role=Role.CUSTOM, tokens=tokens_of(units)), Texts(whole, (), opaque)


def _describe_system(data: Mapping[str, Any], common: dict[str, Any]) -> tuple[Entry, Texts]:
    subtype = fields.word(data, "subtype")
    text = data.get("content")
    if subtype and common["type"] != SIDECHAIN:
        common["type"] = sys.intern(f"{common['type']}:{subtype}")
    if subtype == LOCAL_COMMAND and isinstance(text, str):
        tokens = tokens_of(utf16_length(text))
        return Entry(**common, kind=EntryKind.MESSAGE, role=Role.COMMAND, tokens=tokens), Texts(text, ())
    if subtype == BOUNDARY:
        common["parent_id"] = common["parent_id"] or fields.stored_text(data, "logicalParentUuid") or None
        return Entry(**common, kind=EntryKind.BOUNDARY, control=_boundary(data, common["id"])), NO_TEXTS
    return Entry(**common), NO_TEXTS


def _boundary(data: Mapping[str, Any], own_id: str) -> BoundaryControl:
    metadata = fields.mapping(data, "compactMetadata")
    messages, segment = fields.mapping(metadata, "preservedMessages"), fields.mapping(metadata, "preservedSegment")
    ends = fields.stored_text(segment, "headUuid"), fields.stored_text(segment, "tailUuid")
    anchor = fields.stored_text(messages or segment, "anchorUuid")
    return BoundaryControl(
        kept=tuple(well_formed(one) if isinstance(one, str) else "" for one in fields.items(messages, "uuids")),
        anchor_id=anchor if anchor != own_id else None,
        segment=ends if all(ends) else None,
        trigger=fields.stored_text(metadata, "trigger"),
        tokens_before=_count(metadata, "preTokens"),
        tokens_after=_count(metadata, "postTokens"),
    )


def _usage(message: Mapping[str, Any]) -> int | None:
    """The tokens of the context and of the reply."""
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    counts = [fields.number(usage, name) or 0 for name in _USAGE]
    return sum([int(count) for count in counts if 0 <= count < 2**53])


def _count(data: Mapping[str, Any], name: str) -> int | None:
    """A number of tokens."""
    found = fields.number(data, name)
    return int(found) if found is not None and 0 <= found < 2**53 else None

"""An entry in words: its author and the beginning of its text, with tool calls in short. The same on every page."""
# WAS compaction_app/entries/unit_words: """One unit of a transcript on one line: the call that it belongs to, or the beginning of its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from compaction_app.core.transcript import WHOLE, Object, Transcript
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import THINKING_TYPES, Block, BlockType, Entry, EntryKind, Role, Target, Texts
from sessions_app.sessionlog.text import spoken

NAME_CHARACTERS: Final = 120
"""The maximum length of a recorded name, a label or a model, in characters."""
_NAMES: Final = {
    Role.COMMAND: "your bash",
    Role.CUSTOM: "added context",
    Role.INJECTED: "added context",
    Role.BRANCH_SUMMARY: "branch summary",
    Role.COMPACTION_SUMMARY: "summary",
}


def author_of(role: str, tool_name: str = "", block_type: str = "", otherwise: str = "") -> str:
    """The author of an entry, or of one of its blocks; `otherwise` if it has no role."""
    if role == Role.TOOL_RESULT:
        return (tool_name or "result")[:NAME_CHARACTERS]
    if role == Role.ASSISTANT and block_type in THINKING_TYPES:
        return "thinking"
    if role == Role.ASSISTANT and block_type == BlockType.TOOL_CALL:
        return "call"
    return _NAMES.get(role, role or otherwise)[:NAME_CHARACTERS]


ARGUMENT_CHARACTERS: Final = 240
PATHS: Final = frozenset({"path", "file_path", "filePath", "notebook_path"})
"""The names that agents give the argument with the file of a tool."""
ARGUMENTS_READ: Final = 200_000
"""Longer arguments are not parsed, in characters."""
READS: Final = frozenset({"read", "read_file", "view"})
"""Tools whose result is the text of a file."""
COMMANDS: Final = ("command", "cmd")
"""The names that agents give the argument with a command."""
_PRINTED: Final = re.compile(
    r"(?:cat(?: -n)?|nl -ba|(?:head|tail)(?: -n)?(?: -?\d+)?|sed -n ['\"]?\d+(?:,\d+)?p['\"]?)"
    r" ['\"]?([\w@%+=:,./~-]+)['\"]?"
)
"""A command that prints a file, or a part of it."""


def call_words(text: str, call_id: str, project: str = "", *, only_file: bool = False) -> tuple[str, str]:
    """A call block's text in short: the tool, and its arguments, or only the file among them.

    Paths below `project`, the session's directory, are shown relative to it.
    """
    name, arguments = call_parts(text, call_id)
    words = (_file_in(arguments) if only_file else _argument_words(arguments))[:ARGUMENT_CHARACTERS]
    return name, words.replace(f"{project.rstrip('/')}/", "") if project.strip("/") else words


def call_parts(text: str, call_id: str) -> tuple[str, str]:
    """A call block's text in parts: the tool, and its arguments as recorded."""
    name, _, arguments = text.removeprefix(f"{BlockType.TOOL_CALL} {call_id} ").partition(" ")
    return name, arguments


def call_path(text: str, call_id: str, project: str = "") -> str:
    """The file that a call block names, relative to `project`; empty if it names none."""
    path = _file_in(call_parts(text, call_id)[1])[:ARGUMENT_CHARACTERS]
    return path.removeprefix(f"{project.rstrip('/')}/") if project.strip("/") else path


def path_read(tool: str, arguments: str) -> str:
    """The file that a call reads, by a tool or by a command that prints it; empty if there is none."""
    if tool.lower() in READS:
        return _file_in(arguments)
    values = _object_of(arguments)
    commands = (values[name] for name in COMMANDS if name in values)
    words = (command[-1] if isinstance(command, list) and command else command for command in commands)
    found = (_PRINTED.fullmatch(command.strip()) for command in words if isinstance(command, str))
    return next((one[1] for one in found if one), "")


def joined_in_short(texts: Texts, blocks: tuple[Block, ...] | None) -> str:
    """The text of an entry with only these blocks, like `Texts.joined`, but with its tool calls in short."""
    if blocks is None or texts.whole is not None:
        return texts.joined(blocks)
    return "\n".join(
        (
            " ".join(call_words(texts.block(block.index), block.call_id or ""))
            if block.type == BlockType.TOOL_CALL
            else texts.block(block.index)
        )
        for block in blocks
    )


def beginning_of(text: str, length: int) -> str:
    """The first `length` characters of a text, with a mark if there are more."""
    return text if len(text) <= length else f"{text[:length]}…"


def _argument_words(arguments: str) -> str:
    values = _object_of(arguments)
    return " ".join(filter(None, _values(values))) if values else arguments


def _file_in(arguments: str) -> str:
    values = _object_of(arguments)
    return next((value for name in sorted(PATHS) if isinstance(value := values.get(name), str)), "")


def _object_of(arguments: str) -> Mapping[str, object]:
    """The arguments by name; empty if they are not an object, or too long to parse."""
    if len(arguments) > ARGUMENTS_READ:
        return {}
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _values(values: Mapping[str, object]) -> Iterable[str]:
    """The file, or the first argument, without its name, a range of lines as :from–to, the others by name."""
    offset, limit = values.get("offset"), values.get("limit")
    has_path = not PATHS.isdisjoint(values)
    named = sorted(values.items(), key=lambda item: item[0] not in PATHS)
    for number, (name, value) in enumerate(named):
        if name in ("offset", "limit") and isinstance(value, int) and has_path:
            continue
        words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield words[:ARGUMENT_CHARACTERS] if number == 0 else f"{name}: {words[:80]}"
    if has_path and isinstance(offset, int):
        yield f":{offset}–{offset + limit}" if isinstance(limit, int) else f":{offset}–"
    elif has_path and isinstance(limit, int):
        yield f":1–{limit}"


# ---- an entry in a line --------------------------------------------------------------------------------------

ENTRY_PREVIEW_CHARS: Final = 160
"""The length of the text, in characters."""


class EntryWords(NamedTuple):
    """One line for an entry, or for some of its blocks."""

    entry_id: str
    author: str
    words: str
    """The beginning of its text."""
    tokens: int

    @classmethod
    def of_message(cls, message: Message, texts: Texts, length: int = ENTRY_PREVIEW_CHARS) -> EntryWords:
        """An entry's message in the context; `texts` are those of `message.source`."""
        entry, blocks = message.entry, message.blocks or ()
        block_type = blocks[0].type if len(blocks) == 1 else ""
        is_instruction = message.role == Role.SYSTEM and entry.kind is EntryKind.SUMMARY
        text = message.text(texts) if is_instruction else joined_in_short(texts, message.blocks)
        author = author_of(message.role, entry.tool_name, block_type)
        return cls(entry.id, author, beginning_of(text, length), message.tokens)

    @classmethod
    def of_entry(cls, entry: Entry, texts: Texts, length: int = ENTRY_PREVIEW_CHARS) -> EntryWords:
        """An entry as recorded."""
        author = author_of(entry.role, entry.tool_name) if entry.is_message else entry.type
        return cls(entry.id, author, beginning_of(joined_in_short(texts, entry.blocks), length), entry.tokens)


BEGINNING: Final = 1_000
CHARACTERS: Final = 160


def named_object(transcript: Transcript, target: Target) -> Object | None:
    """The object that best describes what a target deletes: for a result, its call; None if it is not in the
    transcript."""
    entry = transcript.entry(target.entry_id)
    if entry is None:
        return None
    call = transcript.pairs.answered_by(entry) if target.block_index is None else None
    if call is not None and call.blocks:
        return call.blocks[0]
    slot = entry.slot(target.block_index) if target.block_index is not None else None
    if slot is None and len(entry.blocks) == 1:
        slot = 0
    return Object(entry.position, slot if slot is not None else WHOLE)


def unit_words(transcript: Transcript, found: Object, texts: Mapping[str, Texts], project: str) -> str:
    """An object on one line; paths below the project are relative to it."""
    entry = transcript.entries[found.position]
    known = texts[entry.entry_id]
    if found.slot == WHOLE:
        text = known.joined(entry.blocks)
    else:
        block = entry.blocks[found.slot]
        text = known.block(block.index)
        if block.type == BlockType.TOOL_CALL:
            return " ".join(call_words(text, block.call_id or "", project))[:CHARACTERS]
    return " ".join(spoken(text[:BEGINNING], entry.role).split())[:CHARACTERS]

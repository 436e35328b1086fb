"""Summaries as pi and Atomic record them: their lines, their lists of files, and the text that they are made from.

    messages ──conversation──▶ [User]: …  [Assistant]: …  [Assistant tool calls]: read(path="a.py")  [Tool result]: …
    messages ──files──▶ FileLists ──files_text──▶ <read-files>…</read-files>  <modified-files>…</modified-files>

The text is that of pi's `serializeConversation`: sections joined by a blank line, empty ones left out, JSON as
JavaScript prints it. Only what precedes an earlier summary is in Redline's own words.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sessions_app.agents.pure import fields
from sessions_app.agents.pure.format import FileLists, RecordedSummary
from sessions_app.sessionlog.entries import BlockType, Role
from sessions_app.sessionlog.jsjson import (
    property_order,
    stringify,
    to_string,
    utf16_length,
    utf16_slice,
    well_formed,
)

from .writers import new_line

RESULT_UNITS: Final = 2_000
"""The UTF-16 units of a tool result that a model is shown."""
SPLIT_TURN: Final = "Turn Context (split turn)"
READS: Final = frozenset({"read"})
MODIFIES: Final = frozenset({"write", "edit"})
_SUMMARIES: Final = frozenset({"branch_summary", "compaction"})


class PiSummaryFormat:
    """The format that pi and Atomic share. Atomic honours only summaries of branches."""

    def __init__(self, *, honours_compactions: bool) -> None:
        self._honours_compactions = honours_compactions

    @property
    def honours_compactions(self) -> bool:
        return self._honours_compactions

    def conversation(self, messages: Sequence[Mapping[str, Any]]) -> str:
        sections = (f"[{name}]: {text}" for message in messages for name, text in _sections(message) if text)
        # A result that was cut within a pair of surrogates cannot be sent.
        return well_formed("\n\n".join(sections))

    def files(self, messages: Sequence[Mapping[str, Any]], earlier: Sequence[Mapping[str, Any]] = ()) -> FileLists:
        read: set[str] = set()
        modified: set[str] = set()
        for line in earlier:
            lists = None if _is_from_hook(line) else _recorded_lists(line)
            if lists is not None:
                read.update(lists.read)
                modified.update(lists.modified)
        for tool, path in _file_calls(messages):
            if tool in READS:
                read.add(path)
            elif tool in MODIFIES:
                modified.add(path)
        return FileLists(_sorted(read - modified), _sorted(modified))

    def files_text(self, files: FileLists) -> str:
        named = (("read-files", files.read), ("modified-files", files.modified))
        return "\n\n".join(f"<{name}>\n{_lines(paths)}\n</{name}>" for name, paths in named if paths)

    def split_turn_text(self, history: str, prefix: str) -> str:
        parts = (history, "---", f"**{SPLIT_TURN}:**", prefix)
        return "\n\n".join(parts if history else parts[2:])

    def branch_summary_line(
        self,
        entry_id: str,
        parent_id: str | None,
        moment: datetime,
        *,
        from_id: str,
        summary: str,
        files: FileLists,
        from_hook: bool = False,
    ) -> bytes:
        recorded = {"fromId": from_id, "summary": summary, **_origin(files, from_hook)}
        return new_line("branch_summary", entry_id, parent_id, moment, **recorded)

    def compaction_line(
        self,
        entry_id: str,
        parent_id: str,
        moment: datetime,
        *,
        summary: str,
        first_kept_id: str,
        tokens_before: int,
        files: FileLists,
        from_hook: bool = False,
    ) -> bytes:
        recorded = {"summary": summary, "firstKeptEntryId": first_kept_id, "tokensBefore": tokens_before}
        return new_line("compaction", entry_id, parent_id, moment, **recorded, **_origin(files, from_hook))

    def recorded_summary(self, line: bytes) -> RecordedSummary | None:
        recorded = fields.object_in(line.removeprefix(BOM_UTF8))
        if recorded is None or fields.text(recorded, "type") not in _SUMMARIES:
            return None
        return RecordedSummary(
            fields.text(recorded, "summary"),
            _recorded_lists(recorded),
            _is_from_hook(recorded),
            fields.text_or_none(recorded, "fromId"),
            fields.text_or_none(recorded, "firstKeptEntryId"),
            fields.integer(recorded, "tokensBefore"),
        )

    def recorded_files(self, line: bytes) -> FileLists | None:
        recorded = self.recorded_summary(line)
        return recorded.files if recorded is not None else None


# ---- the conversation as text ----------------------------------------------------------------------------


def _sections(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The sections of one message, each with its name; some may be empty."""
    role = message.get("role")
    if role == Role.ASSISTANT:
        yield from _assistant_sections(message)
    elif role == Role.TOOL_RESULT:
        yield "Tool result", _cut(_content_text(message, ""))
    elif role in (Role.USER, Role.CUSTOM):
        yield "User", _content_text(message, "")
    elif role == Role.COMMAND:
        yield "User", _command_text(message)
    elif role == Role.BRANCH_SUMMARY:
        yield "User", _after("Summary of another branch of this conversation:", fields.text(message, "summary"))
    elif role == Role.COMPACTION_SUMMARY:
        yield "User", _after("Summary of the conversation before this point:", fields.text(message, "summary"))


def _assistant_sections(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    blocks = fields.objects(message, "content")
    thinking = (block.get("thinking", "") for block in blocks if block.get("type") == BlockType.THINKING)
    calls = (_call_text(block) for block in blocks if block.get("type") == BlockType.TOOL_CALL)
    yield "Assistant thinking", "\n".join(map(to_string, thinking))
    yield "Assistant", _content_text(message, "\n")
    yield "Assistant tool calls", "; ".join(calls)


def _call_text(block: Mapping[str, Any]) -> str:
    """A call as `name(key=json, …)`."""
    arguments = fields.mapping(block, "arguments")
    values = (f"{to_string(key)}={stringify(arguments[key])}" for key in property_order(arguments))
    return f"{to_string(block.get('name', ''))}({', '.join(values)})"


def _content_text(message: Mapping[str, Any], separator: str) -> str:
    """The texts of a message's content, which may be one text or blocks."""
    texts = (block for block in fields.objects(message, "content") if block.get("type") == BlockType.TEXT)
    return fields.text(message, "content") or separator.join(to_string(block.get("text", "")) for block in texts)


def _command_text(message: Mapping[str, Any]) -> str:
    output = to_string(message.get("output", ""))
    ran = f"Ran `{to_string(message.get('command', ''))}`\n"
    text = ran + (f"```\n{output}\n```" if output else "(no output)")
    code = message.get("exitCode")
    return f"{text}\n\nCommand exited with code {to_string(code)}" if code else text


def _after(heading: str, summary: str) -> str:
    return f"{heading}\n\n{summary}" if summary else ""


def _cut(text: str) -> str:
    more = utf16_length(text) - RESULT_UNITS
    if more <= 0:
        return text
    return f"{utf16_slice(text, 0, RESULT_UNITS)}\n\n[... {more} more characters truncated]"


# ---- files -----------------------------------------------------------------------------------------------


def _file_calls(messages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The tool and the path of each call that names one."""
    for message in messages:
        for block in fields.objects(message, "content") if message.get("role") == Role.ASSISTANT else ():
            tool, path = fields.text(block, "name"), fields.text(fields.mapping(block, "arguments"), "path")
            if block.get("type") == BlockType.TOOL_CALL and path:
                yield tool, path


def _recorded_lists(line: Mapping[str, Any]) -> FileLists | None:
    """The lists in the details of a summary as recorded; None if there are none."""
    details, names = fields.mapping(line, "details"), ("readFiles", "modifiedFiles")
    if not any(isinstance(details.get(name), list) for name in names):
        return None
    return FileLists(*(tuple(fields.texts(details, name)) for name in names))


def _is_from_hook(line: Mapping[str, Any]) -> bool:
    """Whether an extension wrote a summary: a derivative of pi has another name for it."""
    return any(line.get(name) is True for name in ("fromHook", "fromExtension"))


def _origin(files: FileLists, from_hook: bool) -> dict[str, Any]:
    details = {"readFiles": list(files.read), "modifiedFiles": list(files.modified)}
    return {"details": details, **({"fromHook": True} if from_hook else {})}


def _sorted(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths in JavaScript's order, which compares UTF-16 units."""
    return tuple(sorted(paths, key=lambda path: path.encode("utf-16-be", "surrogatepass")))


def _lines(paths: Iterable[str]) -> str:
    return "\n".join(paths)

"""The writer that makes a new thread of this one, which is only read.

    paginated    its header names the thread that it continues and the end of its file, so that Codex may have that open
    legacy       its header names no file: the other lines follow it, as in the forks that Codex itself makes

In both, a `compacted` line at the end has the items that are left. Versions before 0.169 do not know what a paginated
thread is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

from sessions_app.agents.changes import ContextWriter, NewFile, WriteFacts
from sessions_app.agents.pure.contexts import Reader
from sessions_app.agents.pure.notes import note_text, notes_before
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.jsjson import json_bytes
from sessions_app.sessionlog.moments import timestamp_of
from sessions_app.sessionlog.targets import blocks_by_entry

from .compacted import compacted_lines, surviving_items
from .lines import KeptItem, new_line, recorded_payload
from .parser import IS_PAGINATED

ARCHIVED: Final = "archived_sessions"
NOT_MADE: Final = "No new session was made."
ID_LENGTH: Final = 36
"""A file's name ends with the id by which others name it as their base: that of the thread, or of its segment."""


class ThreadForkWriter(ContextWriter):
    """Writes a new thread beside the original one."""

    name: Final = "fork"
    appends: Final = False
    holds_notes = True
    effect: Final = (
        "Makes a new thread that continues this one without the deleted items. This session is not changed, and may be "
        "open in Codex, unless it was recorded by a version that did not number its lines."
    )
    undo: Final = "Delete the new thread, or continue the original one."

    def __init__(self, reader: Reader, *, knows_bases: bool = True) -> None:
        """`knows_bases`: whether the versions that read it know threads that are based on others."""
        super().__init__(reader)
        self._knows_bases = knows_bases

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> NewFile:
        """Raises BadInput `archived_thread`, `newer_thread` and `no_header`, Conflict `open_in_agent`."""
        end = _end(facts)
        self._require_forkable(facts, is_legacy=end is None)
        messages = self._reader.rebuild(branch).messages
        kept = _with_notes(messages, surviving_items(messages, blocks_by_entry(deletion.targets), facts), facts)
        provenance = {"backup": str(facts.backup), "stats": deletion.stats.to_json()}
        header = new_line("session_meta", facts.written_at, end, _header(branch, facts, end))
        before = _copied(branch, facts, header) if end is None else [header]
        ordinal, window = (None, "") if end is None else (end + 1, facts.session_id)
        lines = compacted_lines(branch, kept, provenance, facts, ordinal, window)
        return NewFile(
            f"rollout-{facts.written_at:%Y-%m-%dT%H-%M-%S}-{facts.session_id}.jsonl",
            (line + b"\n" for line in chain(before, lines)),
        )

    def _require_forkable(self, facts: WriteFacts, *, is_legacy: bool) -> None:
        if ARCHIVED in facts.session.parts:
            raise BadInput(
                "archived_thread",
                f"{facts.session} is archived, and Codex does not resume what is beside it. {NOT_MADE} Run `codex "
                "unarchive` first.",
            )
        if not (is_legacy or self._knows_bases):
            raise BadInput(
                "newer_thread",
                f"{facts.session} was recorded by a newer Codex than the one that reads it, which does not know "
                f"threads that are based on others. {NOT_MADE} Use the writer compacted, or a newer Codex.",
            )
        if facts.is_open and is_legacy:
            raise Conflict(
                "open_in_agent",
                f"{facts.session} is open in Codex. Its lines are not numbered, so that a new thread cannot refer to "
                f"them and would be a copy, without what is still being said. {NOT_MADE} Close it in Codex first.",
            )


def _with_notes(messages: Sequence[Message], kept: Sequence[KeptItem], facts: WriteFacts) -> list[KeptItem]:
    """The items that stay with the notes between them, which stand for no entry."""
    notes = notes_before([message.entry for message in messages], {item.entry_id for item in kept}, facts.notes)
    noted = chain.from_iterable((*map(_note_item, notes.get(item.entry_id, ())), item) for item in kept)
    return [*noted, *map(_note_item, notes.get(None, ()))]


def _note_item(words: str) -> KeptItem:
    content = [{"type": "input_text", "text": note_text(words)}]
    return KeptItem("", json_bytes({"type": "message", "role": "user", "content": content}))


def _end(facts: WriteFacts) -> int | None:
    """The ordinal after the last one of a paginated thread; None for a legacy one."""
    last: int | None = facts.state.extra.get("ordinal")
    return last + 1 if last is not None and facts.state.extra.get(IS_PAGINATED) else None


def _header(branch: Sequence[Entry], facts: WriteFacts, end: int | None) -> bytes:
    """The original's header with the id of the new thread, and with the end of the original as its base."""
    own = recorded_payload(facts.line(_header_entry(branch, facts)))
    meta: dict[str, Any] = {
        **own,
        **dict.fromkeys({"session_id", "id"} & own.keys(), facts.session_id),
        "timestamp": timestamp_of(facts.written_at),
        "forked_from_id": facts.header.id,
    }
    if end is not None:
        meta |= {
            "forked_from_ordinal_exclusive": end,
            "history_base": {
                "thread_id": facts.session.stem[-ID_LENGTH:],
                "end_ordinal_exclusive": end,
                "end_byte_offset": facts.state.next_offset - facts.state.extra["own_offset"],
            },
            "context_window": {"window_id": facts.session_id},
        }
    return json_bytes(meta)


def _header_entry(branch: Sequence[Entry], facts: WriteFacts) -> Entry:
    """The header of the thread, or that of its base if the branch ends there."""
    recorded = [entry for entry in branch if entry.type == "session_meta"]
    if not recorded:
        raise BadInput("no_header", f"{facts.session} has no header before {branch[-1].id}. {NOT_MADE}")
    own = (entry for entry in recorded if recorded_payload(facts.line(entry)).get("id") == facts.header.id)
    return next(own, recorded[-1])


def _copied(branch: Sequence[Entry], facts: WriteFacts, header: bytes) -> Iterator[bytes]:
    """All lines of the session, each in its place, with another header."""
    replaced = _header_entry(branch, facts).number
    for number, line in enumerate(facts.lines(), 1):
        yield header if number == replaced else line

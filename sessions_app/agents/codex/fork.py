"""The writer that makes a new thread based on this one, which is only read; so Codex may have it open.

The new file has no copy of the conversation: its header names the thread that it continues and the end of its file, and
a `compacted` line has the items that are left. Legacy threads have no such headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sessions_app.agents.changes import NewFile, WriteFacts
from sessions_app.agents.contexts import Reader
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse, stringify
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.targets import Target, blocks_by_entry

from .compacted import compacted_lines, surviving_items
from .lines import new_line, payload_bytes, timestamp_of

ARCHIVED: Final = "archived_sessions"
ID_LENGTH: Final = 36
"""A file's name ends with the id by which others name it as their base: that of the thread, or of its segment."""


class ThreadForkWriter:
    """Writes a new thread beside the original one."""

    name: Final = "fork"
    appends: Final = False
    effect: Final = (
        "Makes a new thread that continues this one without the deleted items. This session is not changed, and may be "
        "open in Codex."
    )
    undo: Final = "Delete the new thread, or continue the original one."

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @property
    def universal(self) -> ThreadForkWriter:
        return self

    def protection(self, entry: Entry) -> Protection | None:
        del entry
        return None

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> NewFile:
        """Raises BadInput `legacy_thread`, `archived_thread` and `no_header`."""
        _require_forkable(facts)
        thread_id = facts.session_id
        kept = surviving_items(
            self._reader.rebuild(branch).messages, blocks_by_entry(deletion.targets), facts
        )
        provenance = {"backup": str(facts.backup), "stats": deletion.stats.to_json()}
        end = facts.state.extra["ordinal"] + 1
        header = new_line("session_meta", facts.written_at, end, _header(branch, thread_id, end, facts))
        lines = compacted_lines(branch, kept, provenance, facts, skipped=1)
        return NewFile(
            f"rollout-{facts.written_at:%Y-%m-%dT%H-%M-%S}-{thread_id}.jsonl",
            (line + b"\n" for line in (header, *lines)),
        )

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        del branch, targets
        return ()


def _require_forkable(facts: WriteFacts) -> None:
    if facts.state.extra.get("ordinal") is None or not facts.state.extra.get("is_paginated"):
        raise BadInput(
            "legacy_thread",
            f"{facts.session} was recorded by an older Codex, whose threads cannot be continued in another file. No "
            "new session was made. Close Codex and use the writer compacted.",
        )
    if ARCHIVED in facts.session.parts:
        raise BadInput(
            "archived_thread",
            f"{facts.session} is archived, and Codex does not resume what is beside it. No new session was made. Run "
            "`codex unarchive` first.",
        )


def _header(branch: Sequence[Entry], thread_id: str, end: int, facts: WriteFacts) -> bytes:
    """The original's header with the id of the new thread, and the end of the original as its base."""
    own = facts.state.extra["own_offset"]
    recorded = next((entry for entry in reversed(branch) if entry.type == "session_meta"), None)
    if recorded is None:
        raise BadInput(
            "no_header", f"{facts.session} has no header before {branch[-1].id}. No new session was made."
        )
    meta: dict[str, Any] = parse(payload_bytes(facts.line(recorded)))
    meta |= {
        "session_id": thread_id,
        "id": thread_id,
        "timestamp": timestamp_of(facts.written_at),
        "forked_from_id": facts.header.id,
        "forked_from_ordinal_exclusive": end,
        "history_base": {
            "thread_id": facts.session.stem[-ID_LENGTH:],
            "end_ordinal_exclusive": end,
            "end_byte_offset": facts.state.next_offset - own,
        },
        "context_window": {"window_id": thread_id},
    }
    return stringify(meta).encode()

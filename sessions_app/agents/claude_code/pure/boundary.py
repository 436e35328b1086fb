"""The writer for Claude Code 2.1.143 and newer: one appended `compact_boundary` that lists the lines that remain.

    system / compact_boundary    parentUuid null, anchored on itself
        preservedMessages        what remains, in the order of the context: the client hangs it under the boundary
        preservedSegment         the first and the last line of the old conversation, for versions that read no list:
                                 they show all of it instead of nothing

If one listed line is not in the file, the client ignores the whole list; so only lines of the branch are listed, which
was read under the lock. A line is listed or left out as a whole, and what an earlier boundary left out can be listed
again: that is how an undo is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sessions_app.agents.changes import Append, ContextWriter, RestoreLines, WriteFacts
from sessions_app.agents.pure.contexts import Reader
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.deletion import Deletion, Stats
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import json_bytes
from sessions_app.sessionlog.moments import timestamp_of
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.session import ParserState
from sessions_app.sessionlog.targets import blocks_by_entry

from .lines import is_nameless, is_one_of_several, lines_of_context
from .parser import CLIENT, SINCE

NO_STATS: Final = Stats()
NAME: Final = "boundary"
CONTENT: Final = "Conversation curated with Redline"
MARK: Final = "redline"
"""The key by which Redline recognises a boundary of its own; the client ignores it."""


class BoundaryWriter(ContextWriter):
    """Appends one line; everything that it does not list stays in the file, and is not sent."""

    name: Final = NAME
    appends: Final = True
    effect: Final = "Appends one line to the session; Claude Code leaves out what the line does not list."
    undo: Final = "One more line lists everything again; single entries can be brought back at any time."

    def protection(self, entry: Entry) -> Protection | None:
        """A line goes as a whole: a fork can leave out a part of it."""
        is_partial = len(entry.blocks or ()) > 1 or is_one_of_several(entry)
        return Protection.NOT_EDITABLE if is_partial else None

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Append:
        gone = blocks_by_entry(deletion.targets)
        lines = lines_of_context(self._reader.rebuild(branch), branch)
        kept = [parts[-1] for parts in lines if parts[-1].id not in gone]
        return Append((boundary_line(branch, kept, facts, deletion.stats),))


def refusal(state: ParserState) -> str:
    """Why no boundary must be appended to a session; empty if one may be. `state` is that of its parser at its end.

    The client that wrote the last line may be the one that continues the session, here or on another computer.
    """
    version = tuple(state.extra.get(CLIENT, ()))
    if version >= SINCE:
        return ""
    since, last = ".".join(map(str, SINCE)), ".".join(map(str, version))
    known = f"was last continued with version {last}" if last else "does not show which version continued it last"
    return (
        f"The session {known} of Claude Code, and no version before {since} honours what the writer {NAME} appends. "
        "Continue the session once with the installed client first, or use the writer fork."
    )


def restore_lines_by(reader: Reader) -> RestoreLines:
    """One more boundary, which lists what the context has now and what comes back, at its place."""

    def restore_lines(
        branch: Sequence[Entry],
        messages: Sequence[Message],
        deleted: Mapping[str, frozenset[int] | None],
        facts: WriteFacts,
    ) -> tuple[bytes, ...]:
        del deleted  # whole lines come back
        now = {message.entry.id for message in reader.rebuild(branch).messages}
        wanted = now | {message.entry.id for message in messages}
        earlier = _context_with(reader, branch, {message.entry.id for message in messages})
        kept = [parts[-1] for parts in lines_of_context(earlier, branch) if parts[-1].id in wanted]
        return (boundary_line(branch, kept, facts),)

    return restore_lines


def _context_with(reader: Reader, branch: Sequence[Entry], sought: Collection[str]) -> ActiveContext:
    """The context of a branch without its last boundaries, as few as possible, so that it has these entries."""
    left = list(branch)
    context = reader.rebuild(left)
    for boundary in reversed([entry for entry in branch if entry.kind is EntryKind.BOUNDARY]):
        if set(sought) <= {message.entry.id for message in context.messages}:
            break
        left.remove(boundary)
        context = reader.rebuild(left)
    return context


def boundary_line(branch: Sequence[Entry], kept: Sequence[Entry], facts: WriteFacts, stats: Stats = NO_STATS) -> bytes:
    """A boundary after which the context consists of these lines; without its newline.

    Raises BadInput `no_line_id` if one of them has no id: the client would ignore the whole list.
    """
    nameless = next(filter(is_nameless, kept), None)
    if nameless is not None:
        raise BadInput(
            "no_line_id",
            f"Line {nameless.number} of {facts.session} has no uuid, so no boundary can list it. Nothing was written. "
            "Use the writer fork.",
        )
    boundary_id, ids = facts.new_id(), [entry.id for entry in kept]
    head, tail = _segment(branch)
    metadata = {
        "trigger": "manual",
        "preTokens": stats.tokens_before,
        "postTokens": stats.tokens_after,
        "durationMs": 0,
        "cumulativeDroppedTokens": stats.tokens_before - stats.tokens_after,
        "preCompactOrganizationsCoverStart": False,
        "preservedSegment": {"headUuid": head, "anchorUuid": boundary_id, "tailUuid": tail},
        "preservedMessages": {"anchorUuid": boundary_id, "uuids": ids, "allUuids": ids},
        MARK: {"backup": str(facts.backup)},
    }
    return json_bytes(
        {
            "parentUuid": None,
            "logicalParentUuid": tail,
            "isSidechain": False,
            "type": "system",
            "subtype": "compact_boundary",
            "content": CONTENT,
            "isMeta": False,
            "level": "info",
            "uuid": boundary_id,
            "timestamp": timestamp_of(facts.written_at),
            "cwd": facts.header.cwd,
            "sessionId": facts.session.stem,
            "compactMetadata": metadata,
        }
    )


def _segment(branch: Sequence[Entry]) -> tuple[str, str]:
    """The first and the last line of the chain of recorded parents that ends with a branch, without a boundary."""
    entries = {entry.id: entry for entry in branch}
    head = tail = branch[-1]
    seen = {tail.id}
    while (above := entries.get(head.parent_id or "")) is not None and above.id not in seen:
        if above.kind is EntryKind.BOUNDARY:
            break
        seen.add(above.id)
        head = above
    return head.id, tail.id

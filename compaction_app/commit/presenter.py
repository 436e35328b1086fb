"""A commit on its page: the lines to be written, the place, the required confirmations; and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from compaction_app.changes.change import RequiredConfirmation, lines_of, write_facts
from compaction_app.changes.compaction import Preflight, approval, preflight_of
from compaction_app.changes.proof import approved_messages
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.effects import tokens_back
from compaction_app.core.moved import moved
from compaction_app.core.states import RunState
from compaction_app.models import Compaction, Run
from compaction_app.planning.snapshots import is_prepared, snapshot_of
from compaction_app.session_activity import Activity, effect_of
from sessions_app.agents.changes import Append, Change, NewFile, RowChanges
from sessions_app.agents.programs import AgentServer
from sessions_app.agents.pure.contexts import Moved
from sessions_app.agents.registry import reading_by
from sessions_app.cli import shell_quoted
from sessions_app.index.roots import managed_path
from sessions_app.index.session_reading import indexed_reading
from sessions_app.models import Session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.handoff import handoff
from sessions_app.sessionlog.targets import Target

from .certificate import stored_certificate
from .notes import SHOWN, DeletedSpan, spans_of

MOMENT: Final = "YYYY-MM-DDThh-mm-ss-mmmZ"
"""A placeholder of the same length for the time in the backup's name."""
LINES_SHOWN: Final = 4_000
"""Bytes of the appended lines that the page shows."""


@dataclass(frozen=True, slots=True)
class WriterChoice:
    """A way to record the plan: its name, what it does to the file, how it is undone, and whether it is chosen."""

    name: str
    effect: str
    undo: str
    is_chosen: bool
    appends: bool


@dataclass(frozen=True, slots=True)
class CommitView:
    """The lines to be written, the place, and the requirements."""

    run: Run
    path: str
    validated: ValidatedDeletion
    writers: list[WriterChoice]
    refused: tuple[str, ...]
    """Why other writers cannot be used."""
    appends: bool
    lines: str
    """The beginning of the text that would be appended."""
    line_count: int
    line_bytes: int
    file_bytes: int
    """The present size of the session's file in bytes."""
    file_bytes_after: int
    """Its size with the lines appended, in bytes."""
    rows: int
    """The number of database rows that would be changed, or copied into a new session."""
    server: str
    """The address of the agent's server that would change them, if any."""
    created: str
    """The name of the new session, if one would be made."""
    backup: str
    confirmations: list[RequiredConfirmation]
    brought_back: tuple[str, ...]
    tokens_back: int
    """The struck tokens that are nevertheless kept, in the measure of the context."""
    reader: str
    reader_reason: str
    activity: Activity
    """The activity of other processes in the session."""
    appended_after: str
    holds_notes: bool
    """Whether the writer writes the user's notes in place of deleted entries."""
    spans: Sequence[DeletedSpan]
    """The deleted spans, if it does."""
    moved: Sequence[Moved]
    """The messages that are sent before something that precedes them now."""
    digest: str
    """Identifies this plan: a confirmation is valid for this plan only."""
    preflight: Preflight

    @property
    def more_spans(self) -> int:
        """The folded spans."""
        return max(0, len(self.spans) - SHOWN)

    @property
    def keep(self) -> str:
        """The fraction to be kept, in percent."""
        return f"{100 * self.run.compression_ratio:g}"

    @property
    def is_blocked(self) -> bool:
        """Whether nothing can be written by this writer, because the agent has the session open."""
        return self.appends and self.activity.is_open_elsewhere and not self.preflight.approved.is_awaited

    @property
    def is_cut(self) -> bool:
        """Whether the appended text is longer than the part that the page shows."""
        return self.line_bytes > LINES_SHOWN

    @property
    def writer(self) -> str:
        return next(choice.name for choice in self.writers if choice.is_chosen)


def view_commit(run: Run, now: datetime, writer: str = "") -> CommitView:
    """The effect a commit of this run by a writer would have now. Raises the errors of `preflight_of`."""
    approved = approval(run)
    preflight = preflight_of(approved, now, writer)
    validated, path = preflight.validated, approved.document.path
    backup = path.with_name(f"{path.name}.{MOMENT}.compact.bak")
    branch = preflight.present.tree.branch(preflight.parent_id)
    unapplied = preflight.writer.unapplied(branch, validated.targets)
    with lines_of(preflight.present) as line:
        change = preflight.make(write_facts(preflight.present, line, backup, now))
        lines = change.lines if isinstance(change, Append) else ()
        moves = moved(
            snapshot_of(run).transcript.entries,
            validated.targets,
            preflight.present.reading.generation.turns,
            lambda entry_id: line(preflight.present.tree.entry(entry_id)),
        )
    text = b"\n".join(lines)
    present = preflight.present
    ends_with_newline = present.fingerprint.size == present.state.size
    return CommitView(
        run=run,
        path=str(path),
        validated=validated,
        writers=[
            WriterChoice(
                one.name,
                effect_of(one, preflight.activity),
                one.undo,
                one.name == preflight.writer.name,
                one.appends,
            )
            for one in preflight.present.reading.writers
        ],
        refused=tuple(preflight.present.reading.refused.values()),
        appends=preflight.writer.appends,
        lines=text[:LINES_SHOWN].decode("utf-8", "replace"),
        line_count=len(lines),
        line_bytes=len(text) + 1,
        file_bytes=present.state.size,
        file_bytes_after=present.state.size + (not ends_with_newline) + len(text) + 1,
        rows=_row_count(change, preflight.server),
        server=preflight.server.address if preflight.server is not None else "",
        created=_created(change),
        backup=backup.name,
        confirmations=preflight.confirmations,
        brought_back=tuple(map(str, unapplied)),
        tokens_back=tokens_back(run.context_size, snapshot_of(run).transcript, validated.targets, unapplied),
        reader=preflight.present.reading.reader.name,
        reader_reason=preflight.present.reading.reason,
        activity=preflight.activity,
        appended_after=preflight.parent_id,
        holds_notes=preflight.writer.holds_notes,
        spans=spans_of(branch, validated.targets, run.notes) if preflight.writer.holds_notes else (),
        moved=moves,
        digest=preflight.digest(),
        preflight=preflight,
    )


def _row_count(change: Change, server: AgentServer | None) -> int:
    if not isinstance(change, RowChanges):
        return 0
    changed = (one for one in change.changes if server is None or server.changes(one.table))
    return len(list(changed)) + len(change.copies)


def _created(change: Change) -> str:
    """The name of the new session that a change makes; empty if it makes none."""
    if isinstance(change, NewFile):
        return change.name
    return change.created if isinstance(change, RowChanges) else ""


def handoff_of(run: Run) -> str:
    """The conversation that an approved plan leaves, as Markdown. Raises the errors of `approval`."""
    approved = approval(run)
    loaded = approved.document
    reading = reading_by(approved.reader, "it was planned so")
    context = reading.reader.rebuild(loaded.tree.branch(approved.leaf_id))
    kept = [message for message in approved_messages(context, approved.targets) if message.sent]
    return handoff(kept, loaded.texts([message.source for message in kept]))


def other_writers(run: Run, writer: str) -> list[str]:
    """The names of the other writers, for a plan that this one, or the best one, cannot write."""
    reading = indexed_reading(run.session)
    if reading is None or not is_prepared(run):
        return []
    names = [one.name for one in reading.writers]
    return [name for name in names if name != (writer or snapshot_of(run).prepared.writer or names[0])]


# ---- the result ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultView:
    """A compaction that was written: its figures, and the last appended line or the new session."""

    compaction: Compaction
    entries: int
    blocks: int
    line: str
    line_number: int | None
    line_bytes: int
    resume: str
    """The command that continues the session, or the new one."""
    is_in_database: bool
    """Whether rows were changed instead of lines appended."""
    can_restore: bool
    """Whether a backup can replace the session."""
    new_session: Session | None
    certificate: Certificate | None

    @property
    def notes(self) -> list[tuple[str, str]]:
        """The user's notes in the new session, each with the first entry of its span."""
        run = self.compaction.run
        if run is None or not self.compaction.created:
            return []
        gone = {raw["entryId"] for raw in self.compaction.origins if raw.get("blockIndex") is None}
        return [(entry_id, words) for entry_id, words in run.notes.items() if entry_id in gone]

    @property
    def continued(self) -> Session:
        """The session from which the agent continues."""
        return self.new_session or self.compaction.session

    @property
    def is_imported(self) -> bool:
        """Whether the session is in Redline's own directory, where no agent looks for it."""
        return self.compaction.session.root.path == str(managed_path())

    @property
    def is_restored(self) -> bool:
        """Whether the compaction was undone since, or a restore has removed its line."""
        run = self.compaction.run
        return run is not None and run.state == RunState.RESTORED

    @property
    def is_undone(self) -> bool:
        """Whether it was undone, and the undo is not removed by a restore."""
        return self.is_restored and self.compaction.undos.filter(is_whole=True).exists()

    @property
    def percent_left(self) -> float:
        return round(100 - float(self.compaction.stats["percentReduction"]), 1)

    @property
    def keep(self) -> str:
        """The fraction that was to be kept, in percent."""
        return f"{100 * float(self.compaction.parameters['compression_ratio']):g}"

    @property
    def backup_name(self) -> str:
        return Path(self.compaction.backup.path).name


def view_result(compaction: Compaction) -> ResultView:
    """The result of a compaction."""
    targets = [Target(raw["entryId"], raw.get("blockIndex")) for raw in compaction.origins]
    line, number, length = _appended_line(compaction)
    is_in_database = compaction.session.agent.store.database(compaction.session.path) is not None
    return ResultView(
        compaction=compaction,
        entries=sum(target.block_index is None for target in targets),
        blocks=sum(target.block_index is not None for target in targets),
        line=line,
        line_number=number,
        line_bytes=length,
        resume=_resume_command(compaction),
        is_in_database=is_in_database,
        can_restore=not (is_in_database or compaction.session.agent.store.is_append_only),
        new_session=_new_session(compaction),
        certificate=stored_certificate(compaction),
    )


def _resume_command(compaction: Compaction) -> str:
    path = Path(compaction.created) if compaction.created else compaction.session.path
    command = compaction.session.agent.client.resume_command(path)
    return " ".join(map(shell_quoted, command))


def _new_session(compaction: Compaction) -> Session | None:
    """The new session in the index; None if none was made, or it no longer exists."""
    created = Path(compaction.created)
    if not compaction.created:
        return None
    beside = compaction.session.root.sessions.present()
    name = str(Path(compaction.session.relative_path).with_name(created.name))
    return beside.filter(relative_path=name).select_related("root").first()


def _appended_line(compaction: Compaction) -> tuple[str, int | None, int]:
    """The present line in the file; empty if it is no longer there, or not indexed yet."""
    row = compaction.session.entries.filter(entry_id=compaction.entry_id).first()
    if row is None:
        return "", None, 0
    try:
        with compaction.session.agent.store.open(compaction.session.real_path()) as reader:
            raw = reader.read_at(row.offset, row.length)
    except RedlineError:
        return "", None, 0
    return raw[:LINES_SHOWN].decode("utf-8", "replace"), row.number, row.length

"""The present state of a compaction in its session: its lines, what it still deletes, and what followed.

The file decides, not the rows: a restore may have removed an undo. The rows have only the facts that a line lacks: what
a new session omits, and which lines bring entries back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from compaction_app.core.undo_ways import UndoWay
from compaction_app.models import Compaction, Undo
from sessions_app.agents.base import AgentServer
from sessions_app.agents.registry import agent_at
from sessions_app.disk.files import file_state
from sessions_app.models import Session
from sessions_app.sessionlog.entries import DeletionControl, Entry, EntryKind, Target, Texts
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.storage.row_steps import RowStep, backed_up_steps
from sessions_app.storage.rows import found_steps, preview_rows
from sessions_app.storage.session_loader import LoadedSession, reparse_entry

from .change import changed_session

OF_ANY_BRANCH: Final = frozenset({EntryKind.LABEL, EntryKind.NAME})
"""Kinds of entries that count for the whole session: leaving their branch changes nothing."""
NOT_IN_FORCE: Final = frozenset({"undone_already", "not_in_session", "other_branch"})
"""The errors which mean that a compaction does not have to be undone."""
DELETION_WRITER: Final = "context-compaction"
"""The writer of the lines that a session itself describes."""


class LineRange(NamedTuple):
    """Consecutive lines of a branch: after one entry, up to and including another."""

    after: str
    last: str


@dataclass(frozen=True, slots=True)
class CompactionState:
    """A compaction in a session."""

    undone_id: str
    """The entry of the compaction, or the id of the session that it made."""
    row: Compaction | None
    """None if Redline has no record of it."""
    writer: str
    leaf_id: str
    """The entry before its lines."""
    targets: tuple[Target, ...]
    """What it still deletes, in the order of recording."""
    branch: tuple[Entry, ...]
    """The branch without the compaction: without its lines, and those that brought back a part of it."""
    last_line: int
    """The number of its last line in the file; 0 if it made a new session."""
    is_last: bool
    """Whether no message followed."""

    @property
    def created(self) -> Path | None:
        """The new session that the compaction made."""
        return Path(self.row.created) if self.row is not None and self.row.created else None


class _Version(NamedTuple):
    """The lines of a compaction, or of a smaller one that replaced it."""

    lines: LineRange
    targets: tuple[Target, ...]


def targets_of(recorded: Iterable[dict[str, Any]]) -> tuple[Target, ...]:
    """Targets from the form in which rows store them."""
    return tuple(Target(raw["entryId"], raw.get("blockIndex")) for raw in recorded)


def compaction_state(row: Compaction, present: LoadedSession) -> CompactionState:
    """The state of a recorded compaction.

    Raises Conflict with a code of NOT_IN_FORCE; for a compaction of rows also `rows_changed` and `backup_gone`.
    """
    if agent_at(present.path).store.database(present.path) is not None:
        return _state_of_rows(row, present)
    if row.created:
        return _state_of_fork(row, present)
    branch = present.tree.branch(present.leaf_id)
    places = {entry.id: place for place, entry in enumerate(branch)}
    version = next((one for one in reversed(_versions(row)) if one.lines.last in places), None)
    if version is None:
        raise _not_in_force(row, present)
    partly = [undo for undo in row.undos.filter(way=UndoWay.EDITS).order_by("pk") if undo.entry_id in places]
    ours = [version.lines, *map(_lines_of, partly), *_taken_back(row.session, row.pk)]
    back = {target for undo in partly for target in targets_of(undo.targets)}
    targets = tuple(target for target in version.targets if target not in back)
    if not targets or any(undo.is_whole for undo in partly):
        raise _undone_already(row, present.path)
    return _state(row.entry_id, row, row.writer, version.lines, targets, branch, ours)


def unrecorded_state(entry_id: str, present: LoadedSession) -> CompactionState:
    """The state of a compaction known only from its line. Raises BadInput `not_ours`, Conflict `other_branch`."""
    entry = present.tree.entry(entry_id)
    control, parent_id = entry.control, entry.parent_id
    if not _is_beside(entry, present.path) or not isinstance(control, DeletionControl) or parent_id is None:
        raise BadInput(
            "not_ours",
            f"Redline has no record of {entry_id} in {present.path} as a compaction. Nothing was undone. Restore a "
            "backup: `redline backups` lists them.",
        )
    branch = present.tree.branch(present.leaf_id)
    if entry not in branch:
        raise _other_branch(entry_id, present.path)
    lines = LineRange(parent_id, entry_id)
    return _state(entry_id, None, DELETION_WRITER, lines, control.targets, branch, [lines])


def latest_state(session: Session, present: LoadedSession) -> CompactionState:
    """The latest compaction that can be undone: one on the active branch, otherwise a new session that was made.

    Of compactions that changed rows, only the latest is considered, as it may hide earlier ones. Raises BadInput
    `no_compaction`, Conflict `rows_changed` and `backup_gone`.
    """
    is_in_database = agent_at(present.path).store.database(present.path) is not None
    found = list(islice(_states(session, present), 1 if is_in_database else None))
    recorded = session.own_entries
    for entry in reversed(present.tree.branch(present.leaf_id)):
        if entry.id not in recorded and _is_beside(entry, present.path):
            found.append(unrecorded_state(entry.id, present))
            break
    if not found:
        raise BadInput(
            "no_compaction",
            f"{present.path} has no compaction by Redline on its active branch that can be undone. Nothing was undone. "
            "A backup can be restored: `redline backups` lists them.",
        )
    return max(found, key=lambda state: state.last_line)


def state_named(name: str, session: Session, present: LoadedSession) -> CompactionState:
    """The compaction with this entry id or this id of the session that it made."""
    row = session.compactions.select_related("backup", "session__root").filter(entry_id=name).last()
    if row is None:
        smaller = session.undos.filter(entry_id=name, way=UndoWay.SMALLER, compaction__isnull=False).last()
        row = smaller.compaction if smaller is not None else None
    return compaction_state(row, present) if row is not None else unrecorded_state(name, present)


def _states(session: Session, present: LoadedSession) -> Iterator[CompactionState]:
    """The recorded compactions in force, the latest first."""
    for row in session.compactions.select_related("backup", "session__root").order_by("-pk"):
        try:
            yield compaction_state(row, present)
        except Conflict as conflict:
            if conflict.code not in NOT_IN_FORCE:
                raise


def _state_of_rows(row: Compaction, present: LoadedSession) -> CompactionState:
    """The state of a compaction that changed rows of a database, or copied them into a new session."""
    created = Path(row.created) if row.created else None
    is_gone = created is not None and agent_at(created).store.state(created) is None
    if is_gone or row.undos.filter(is_whole=True).exists():
        raise _undone_already(row, present.path)
    back = {target for undo in row.undos.all() for target in targets_of(undo.targets)}
    targets = tuple(target for target in targets_of(row.origins) if target not in back)
    return CompactionState(
        undone_id=row.entry_id,
        row=row,
        writer=row.writer,
        leaf_id=present.leaf_id,
        targets=targets,
        branch=_branch_with(row, targets, present),
        last_line=row.pk,
        is_last=False,
    )


def _branch_with(row: Compaction, back: Sequence[Target], present: LoadedSession) -> tuple[Entry, ...]:
    """The branch with these targets brought back. Raises Conflict `backup_gone` and `rows_changed`."""
    backup = row.backup.path
    if file_state(Path(backup)) is None:
        raise Conflict(
            "backup_gone",
            f"{backup}, the backup of the rows that the compaction {row.entry_id} of {present.path} changed, is gone. "
            "Nothing was undone. Nothing else has these rows, unless you have a copy of the backup: put it back there.",
        )
    try:
        return branch_with(row, back, present)
    except Conflict as conflict:
        if conflict.code != "session_changed":
            raise
        raise Conflict(
            "rows_changed",
            f"A row that the compaction {row.entry_id} of {present.path} changed was changed again since, and an undo "
            f"would discard that. Nothing was undone. Take the later change back first. {backup} has the row as it "
            "was.",
        ) from conflict


def _state_of_fork(row: Compaction, present: LoadedSession) -> CompactionState:
    if not Path(row.created).exists():
        raise Conflict(
            "undone_already",
            f"{row.created}, the session that this compaction made, is gone. Nothing has to be undone: "
            f"{present.path} was never changed.",
        )
    branch = tuple(present.tree.branch(row.leaf_id))
    return CompactionState(
        undone_id=row.entry_id,
        row=row,
        writer=row.writer,
        leaf_id=row.leaf_id,
        targets=targets_of(row.origins),
        branch=branch,
        last_line=0,
        is_last=present.leaf_id == row.leaf_id,
    )


def _state(
    undone_id: str,
    row: Compaction | None,
    writer: str,
    lines: LineRange,
    targets: tuple[Target, ...],
    branch: Sequence[Entry],
    ours: Iterable[LineRange],
) -> CompactionState:
    places = {entry.id: place for place, entry in enumerate(branch)}
    own = {place for found in ours for place in _places_of(found, places)}
    last = places[lines.last]
    later = (entry for place, entry in enumerate(branch[last + 1 :], last + 1) if place not in own)
    return CompactionState(
        undone_id=undone_id,
        row=row,
        writer=writer,
        leaf_id=lines.after,
        targets=targets,
        branch=tuple(entry for place, entry in enumerate(branch) if place not in own),
        last_line=branch[last].number,
        is_last=all(entry.kind in OF_ANY_BRANCH for entry in later),
    )


def _versions(row: Compaction) -> list[_Version]:
    """The original lines, then those that replaced them."""
    versions = [_Version(LineRange(row.leaf_id, row.entry_id), targets_of(row.origins))]
    for undo in row.undos.filter(way=UndoWay.SMALLER).order_by("pk"):
        back = set(targets_of(undo.targets))
        left = tuple(target for target in versions[-1].targets if target not in back)
        versions.append(_Version(_lines_of(undo), left))
    return versions


def _taken_back(session: Session, besides: int) -> Iterator[LineRange]:
    """The lines of other compactions that were undone completely, and of their undos: together they change nothing."""
    for undo in session.undos.filter(is_whole=True, created="").exclude(compaction=besides):
        if undo.way in (UndoWay.LEAF, UndoWay.EDITS):
            yield _lines_of(undo)
        if undo.way == UndoWay.EDITS and undo.compaction is not None:
            yield from (version.lines for version in _versions(undo.compaction))
            yield from map(_lines_of, undo.compaction.undos.filter(way=UndoWay.EDITS))


def _lines_of(undo: Undo) -> LineRange:
    return LineRange(undo.leaf_id, undo.entry_id)


def _places_of(lines: LineRange, places: dict[str, int]) -> range:
    """The places of lines on a branch; empty if they are not on it."""
    if lines.last not in places or lines.after not in places:
        return range(0)
    return range(places[lines.after] + 1, places[lines.last] + 1)


def _is_beside(entry: Entry, path: Path) -> bool:
    """Whether an entry is a compaction whose backup has the name of one of this session; compared as text only."""
    control = entry.control
    return isinstance(control, DeletionControl) and Path(control.backup).name.startswith(f"{path.name}.")


def _not_in_force(row: Compaction, present: LoadedSession) -> Conflict:
    if row.entry_id not in present.tree:
        return Conflict(
            "not_in_session",
            f"{present.path} no longer contains the compaction {row.entry_id}: a backup was restored since. Nothing "
            "has to be undone.",
        )
    if row.undos.filter(is_whole=True).exists():
        return _undone_already(row, present.path)
    return _other_branch(row.entry_id, present.path)


def _undone_already(row: Compaction, path: Path) -> Conflict:
    return Conflict(
        "undone_already",
        f"The compaction {row.entry_id} of {path} is undone already. Nothing was changed. To apply it again, plan "
        "again.",
    )


def _other_branch(entry_id: str, path: Path) -> Conflict:
    return Conflict(
        "other_branch",
        f"The active branch of {path} does not contain the compaction {entry_id}, so nothing on it has to be undone. "
        "Nothing was changed.",
    )


# ---- rows of a database --------------------------------------------------------------------------------------


def steps_back(
    row: Compaction,
    back: Sequence[Target],
    database: Path,
    *,
    is_whole: bool,
    server: AgentServer | None = None,
) -> list[RowStep]:
    """The changes that bring back these targets of a compaction, limited to what the server can do if there is one.

    The compaction's other changes are reverted with the last target. Raises BadInput `not_a_backup`, Conflict
    `session_changed`, and the errors of reading the backup and the database.
    """
    steps = [step.reversed for step in backed_up_steps(Path(row.backup.path))]
    every = {raw["entryId"] for raw in row.origins}
    wanted = {target.entry_id for target in back}
    chosen = [
        step
        for step in steps
        if (step.row_id in wanted or (is_whole and step.row_id not in every))
        and (server is None or server.changes(step.table))
    ]
    return found_steps(row.session.agent, database, chosen)


def branch_with(row: Compaction, back: Sequence[Target], present: LoadedSession) -> tuple[Entry, ...]:
    """The active branch with these targets brought back; nothing is changed."""
    with _preview(row, back, present) as connection:
        if connection is None:
            return tuple(present.tree.branch(present.leaf_id))
        with changed_session(present.path, connection) as (loaded, _):
            return tuple(loaded.tree.branch(loaded.leaf_id))


def texts_with(
    row: Compaction, back: Sequence[Target], present: LoadedSession, entries: Iterable[Entry]
) -> dict[str, Texts]:
    """The texts of entries of the branch with these targets brought back, by id; nothing is changed.

    Raises Conflict `session_rewritten` if the session no longer has these entries.
    """
    agent = agent_at(present.path)
    with _preview(row, back, present) as connection:
        if connection is None:
            return present.texts(entries)
        with agent.store.open_within(present.path, connection) as reader:
            return {entry.id: reparse_entry(agent, reader, entry)[1] for entry in entries if entry.has_text}


@contextmanager
def _preview(row: Compaction, back: Sequence[Target], present: LoadedSession) -> Iterator[sqlite3.Connection | None]:
    """A copy of the session's rows with these targets brought back; None if the compaction changed no rows of the
    session."""
    agent = agent_at(present.path)
    database = agent.store.database(present.path)
    if database is None or row.created:
        yield None
        return
    steps = steps_back(row, back, database, is_whole=True)
    with preview_rows(database, agent.store.session_tables, present.path.name, steps) as connection:
        yield connection

"""The backups of a session: the list, and the deletion of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from compaction_app.models import Backup, Compaction
from sessions_app.agents.registry import agent_at
from sessions_app.index.index_store import require_name
from sessions_app.index.session_locks import lock_session
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.storage import backups as backup_files
from sessions_app.storage.rows import list_row_backups


@dataclass(frozen=True, slots=True)
class ListedBackup:
    """A backup of a session, with its expected hash, if Redline recorded one, and the reason for it."""

    file: backup_files.Backup
    recorded: str | None
    reason: str
    compaction: Compaction | None = None
    """The compaction for which it was made, if the database has it."""
    has_rows: bool = False
    """Whether it has rows of an agent's database, which an undo restores. Other backups have a whole session."""

    @property
    def name(self) -> str:
        return self.file.path.name


def list_backups(session: Path) -> list[ListedBackup]:
    """The files beside a session that have the names of its backups, or of those of its rows, newest first."""
    require_name(session)
    data, has_rows = settings.REDLINE_DATA_DIR, agent_at(session).store.database(session) is not None
    found = list_row_backups(data, session) if has_rows else backup_files.list_backups(session)
    rows = {
        row.path: row
        for row in Backup.objects.filter(path__in=[str(one.path) for one in found]).select_related("compaction__run")
    }
    return [_listed(one, rows.get(str(one.path)), has_rows) for one in found]


def _listed(found: backup_files.Backup, row: Backup | None, has_rows: bool) -> ListedBackup:
    if row is None:
        return ListedBackup(found, found.recorded_sha256, "", has_rows=has_rows)
    compaction = row.compaction if hasattr(row, "compaction") else None
    return ListedBackup(found, row.sha256, row.reason, compaction, has_rows)


def find_backup(session: Path, name: str) -> ListedBackup:
    """The backup of a session with this name. Raises BadInput `no_such_backup`; a name is not a path."""
    for listed in list_backups(session):
        if listed.name == name:
            return listed
    raise BadInput(
        "no_such_backup",
        f"{session.name} has no backup named {name}. Nothing was done. Choose one of the listed backups.",
    )


def delete(session: Path, backup: Path, *, is_only_backup: bool) -> None:
    """Delete a backup of a session permanently. Its row in the database is kept: a compaction keeps the record of its
    backup.

    `is_only_backup` is whether that was known when it was confirmed. Raises Conflict `only_backup` if it has become the
    only one since, and the errors of `backups.delete_backup`.
    """
    with lock_session(session) as locked:
        others = [one for one in list_backups(locked.path) if one.name != backup.name]
        if not others and not is_only_backup:
            raise Conflict(
                "only_backup",
                f"{backup} has become the only backup of {locked.path}. It was not deleted. "
                "If it should be deleted anyway, confirm again.",
            )
        backup_files.delete_backup(backup)

"""The changes of sessions by kind, and how many backups there are: what all pages of the history show in their head."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from django.db.models import Count, Min, Q

from compaction_app.models import AuditEntry, Backup
from sessions_app.disk.files import file_state

_Action = AuditEntry.Action
KINDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "compactions": ("Compactions", (_Action.COMMIT,)),
    "undone": ("Undone", (_Action.UNDO, _Action.BRING_BACK, _Action.RESTORE)),
    "other": ("Other changes", (_Action.FORK, _Action.MOVE, _Action.LABEL, _Action.SUMMARY)),
}
"""The kinds of changes by key: their title, and the actions of the audit log."""


@dataclass(frozen=True, slots=True)
class BackupsOnDisk:
    """The backups of shown sessions whose file exists."""

    count: int
    bytes: int


def view_history() -> dict[str, Any]:
    """The head: the number of all changes and of each kind, the time of the first, and the backups."""
    counted = AuditEntry.objects.aggregate(
        total=Count("pk"),
        since=Min("at"),
        **{key: Count("pk", filter=Q(action__in=actions)) for key, (_, actions) in KINDS.items()},
    )
    kinds = [(key, title, counted[key]) for key, (title, _) in KINDS.items() if counted[key]]
    return {"total": counted["total"], "since": counted["since"], "kinds": kinds, "backups": _backups_on_disk()}


def _backups_on_disk() -> BackupsOnDisk:
    paths = Backup.objects.filter(session__root__configured=True).values_list("path", flat=True)
    states = [state for path in paths if (state := file_state(Path(path))) is not None]
    return BackupsOnDisk(len(states), sum(state.size for state in states))

"""The page of a session's diagnosis: what is wrong, and what a repaired copy would change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sessions_app.index.session_copies import lost_path, new_header, repaired_path
from sessions_app.models import Session
from sessions_app.sessionlog.diagnosis import Diagnosis, Finding
from sessions_app.sessionlog.repair_pieces import RepairAccount, RepairChange
from sessions_app.sessionlog.session import DamageKind
from sessions_app.storage.examination import diagnose
from sessions_app.storage.repair import planned_repair

FINDINGS_SHOWN: Final = 200
CHANGES_SHOWN: Final = 200
_UNREAD: Final = frozenset(
    {DamageKind.NOT_JSON, DamageKind.TORN_LINE, DamageKind.NOT_AN_OBJECT, DamageKind.MORE_ON_LINE}
)


@dataclass(frozen=True, slots=True)
class DoctorView:
    """A diagnosis, and the account of a repair if one is possible."""

    diagnosis: Diagnosis
    account: RepairAccount | None
    copy: Session | None
    """The repaired copy, if there is one already."""
    copy_name: str
    lost_name: str

    @property
    def findings(self) -> Sequence[Finding]:
        return self.diagnosis.findings[:FINDINGS_SHOWN]

    @property
    def has_unread_lines(self) -> bool:
        """Whether there are lines that are not read, or not whole: not every agent's sessions can be repaired."""
        return any(finding.kind in _UNREAD for finding in self.diagnosis.findings)

    @property
    def more_findings(self) -> int:
        return self.diagnosis.total - len(self.findings)

    @property
    def changes(self) -> Sequence[RepairChange]:
        return self.account.changes[:CHANGES_SHOWN] if self.account is not None else ()

    @property
    def more_changes(self) -> int:
        return len(self.account.changes) - len(self.changes) if self.account is not None else 0


def view_diagnosis(session: Session) -> DoctorView:
    """Raises the errors of `diagnose`."""
    path = session.real_path()
    diagnosis = diagnose(path)
    beside = repaired_path(Path(session.relative_path))
    return DoctorView(
        diagnosis,
        planned_repair(path, new_header(path)) if diagnosis.is_repairable else None,
        Session.objects.shown().filter(root=session.root_id, relative_path=str(beside)).first(),
        beside.name,
        lost_path(path).name,
    )

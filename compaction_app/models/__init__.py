"""The rows of plans, reviews and changes."""

from .changes import (
    AuditEntry as AuditEntry,
    Backup as Backup,
    Compaction as Compaction,
    Undo as Undo,
    written_by_redline as written_by_redline,
)
from .drafts import SummaryDraft as SummaryDraft
from .handshakes import Handshake as Handshake, PassRule as PassRule, WaitRule as WaitRule
from .providers import Agreement as Agreement, PlannerModel as PlannerModel, Provider as Provider
from .runs import (
    WHOLE_ENTRY as WHOLE_ENTRY,
    Decision as Decision,
    Opening as Opening,
    Proposal as Proposal,
    Run as Run,
    RunEvent as RunEvent,
    RunQuerySet as RunQuerySet,
    Snapshot as Snapshot,
)

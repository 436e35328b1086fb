"""The rows of plans, reviews and changes."""

from .changes import AuditEntry as AuditEntry
from .changes import Backup as Backup
from .changes import Compaction as Compaction
from .changes import Undo as Undo
from .changes import written_by_redline as written_by_redline
from .drafts import SummaryDraft as SummaryDraft
from .handshakes import Handshake as Handshake
from .handshakes import PassRule as PassRule
from .handshakes import WaitRule as WaitRule
from .providers import Agreement as Agreement
from .providers import PlannerModel as PlannerModel
from .providers import Provider as Provider
from .runs import WHOLE_ENTRY as WHOLE_ENTRY
from .runs import Decision as Decision
from .runs import Opening as Opening
from .runs import Proposal as Proposal
from .runs import Run as Run
from .runs import RunEvent as RunEvent
from .runs import RunQuerySet as RunQuerySet
from .runs import Snapshot as Snapshot

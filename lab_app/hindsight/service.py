"""The costs of past compactions in indexed sessions: one session when it is shown, all of them in the background.

look_back ──▶ hindsights of a branch, kept with the document
update    ──▶ rows of all sessions with compactions that have changed since they were looked at
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from compaction_app.core.stats import MILLION, input_cost
from compaction_app.entries.branches import BranchState, branch_state
from compaction_app.models import Compaction, written_by_redline
from compaction_app.planning.model_registry import prices_of_session
from lab_app.models import CompactionCost, HindsightCheck
from lab_app.pure.hindsight import Hindsight, Way, hindsights
from sessions_app.document.document import Document
from sessions_app.models import HAS_ENTRIES, Session
from sessions_app.sessionlog.context import ContextSize
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.model_facts import InputPrices

VERSION: Final = 2
"""The version of the figures: rows of another version are computed again."""
REST: Final = timedelta(minutes=5)
"""An evaluated session is evaluated again only after it was not written to for this long."""


STORED: Final = ("requests", "saved", "again", "sent", "files", "memory", "dollars_saved", "dollars_cost")
"""The figures that a `CompactionCost` has, in fields of the same names."""


class Figures(NamedTuple):
    """The saving and the cost of a compaction, in the session's measure of tokens, and in US dollars if known."""

    requests: int
    removed: int
    saved: int
    again: int
    sent: int
    files: int
    commands: int
    memory: int | None
    shown_again: int
    """References that were written again after something had shown them."""
    dollars_saved: float | None
    """The additional cost that the requests would have had; negative if writing the cache again cost more than that."""
    dollars_cost: float | None

    @property
    def percent(self) -> float | None:
        """The tokens sent again, in percent of those not sent; None if nothing was saved."""
        return 100 * self.sent / self.saved if self.saved else None


class LookBack(NamedTuple):
    """The compactions of a branch that were followed by a request."""

    leaf_id: str
    hindsights: tuple[Hindsight, ...]
    size: ContextSize
    changes: frozenset[str]
    """The entries that end a change of the branch's context."""


def look_back(session: Session, leaf_id: str = "") -> LookBack:
    """The hindsights of a branch, by default of the one from which the agent continues. Raises the errors of
    `branch_state`."""
    document, state = Document.of_index(session), branch_state(session, leaf_id)
    return document.derived(
        ("look back", state.leaf_id), lambda: _work_out(document, state), lambda _: len(state.branch)
    )


def figures_of(found: Hindsight, size: ContextSize, prices: InputPrices | None) -> Figures:
    """The figures of one compaction."""
    fetched = [(size.of(one.again), one.requests) for one in found.fetched]
    removed = size.of(found.point.tokens_removed)
    saved, cost = _dollars(found, size, fetched, prices) if prices is not None else (None, None)
    memory = found.count(Way.MEMORY)
    return Figures(
        requests=found.requests,
        removed=removed,
        saved=removed * found.requests,
        again=sum(again for again, _ in fetched),
        sent=sum(again * requests for again, requests in fetched),
        files=found.files,
        commands=sum(one.kind == "command" for one in found.fetched),
        memory=None if found.is_encrypted else memory,
        shown_again=len(found.returned) - memory,
        dollars_saved=saved,
        dollars_cost=cost,
    )


def due_sessions(now: datetime) -> QuerySet[Session]:
    """The sessions with compactions to be evaluated, those never evaluated first."""
    written = Compaction.objects.filter(session=OuterRef("pk"), created="")
    current = HindsightCheck.objects.filter(session=OuterRef("pk"), version=VERSION)
    since = int((now - REST).timestamp() * 1e9)
    is_quiet = Q(mtime_ns__isnull=True) | Q(mtime_ns__lt=since)
    found = Session.objects.filter(HAS_ENTRIES, fault="").filter(Q(compaction_count__gt=0) | Exists(written))
    changed = ~Exists(current.filter(indexed_at=OuterRef("indexed_at")))
    return (
        found.filter(changed)
        .filter(is_quiet | ~Exists(current))
        .select_related("root")
        .order_by(F("hindsight_check__version").asc(nulls_first=True), "-last_used", "pk")
    )


def update(now: datetime, report: Callable[[int, int], object] | None = None) -> int:
    """Evaluate the due sessions; returns their number. `report` is called with the number done and the total.

    Each session is stored when it is done, so that the evaluation can be stopped at any time.
    """
    keys = list(due_sessions(now).values_list("pk", flat=True))
    for done, key in enumerate(keys):
        if report is not None:
            report(done, len(keys))
        session = Session.objects.select_related("root").filter(pk=key).first()
        if session is not None:
            _store(session)
    return len(keys)


def _store(session: Session) -> None:
    """Compute the rows of a session again; a session that cannot be read has none."""
    rows: list[CompactionCost] = []
    fault = ""
    try:
        rows = _rows(session, look_back(session))
    except RedlineError as failure:
        fault = failure.message
    check = {"indexed_at": session.indexed_at, "version": VERSION, "fault": fault}
    with transaction.atomic():
        session.compaction_costs.all().delete()
        CompactionCost.objects.bulk_create(rows)
        HindsightCheck.objects.update_or_create(session=session, defaults=check)


def _rows(session: Session, found: LookBack) -> list[CompactionCost]:
    if not found.hindsights:
        return []
    known = prices_of_session(session, Path.home())
    prices = known.value if known is not None else None
    own = written_by_redline(session)
    rows = {}
    for one in found.hindsights:
        figures = figures_of(one, found.size, prices)
        rows[one.entry_id] = CompactionCost(
            session=session,
            entry_id=one.entry_id,
            at=one.point.last.moment,
            agent=session.agent_key,
            by_redline=one.entry_id in own,
            **{name: getattr(figures, name) for name in STORED},
        )
    return list(rows.values())


def _work_out(document: Document, state: BranchState) -> LookBack:
    found = tuple(hindsights(state.branch, state.reading.reader, document.texts, document.log.cwd))
    changes = frozenset(entry.id for entry in state.branch if entry.rebuilds)
    return LookBack(state.leaf_id, found, state.size, changes)


def _dollars(
    found: Hindsight, size: ContextSize, fetched: Iterable[tuple[int, int]], prices: InputPrices
) -> tuple[float, float]:
    """The money saved, and the money spent on content fetched again: written to the cache once, then read from it."""
    point = found.point
    cost = input_cost(
        size.of(point.tokens_before),
        size.of(point.tokens_after),
        size.of(found.rewritten),
        prices.read,
        prices.write,
    )
    spent = sum(again * (prices.write + prices.read * (requests - 1)) for again, requests in fetched if requests)
    return cost.saved * found.requests - cost.once, spent / MILLION

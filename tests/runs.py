"""Runs of the embedded planner, executed in this process, and their approval and commit."""

from django.utils import timezone

from compaction_app.changes.change import Applied, Confirmations
from compaction_app.changes.compaction import approval, commit, preflight_of
from compaction_app.core.review_fold import Kind
from compaction_app.core.states import RunState
from compaction_app.models import Proposal, Run
from compaction_app.runs.commands import start_run
from compaction_app.runs.reviews import decide
from compaction_app.runs.worker import work
from sessions_app.jobs.job import worker_name
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Target


def finish_run(run: Run) -> Run:
    """Execute the run to its end, as a worker does."""
    work(run.pk, worker_name())
    run.refresh_from_db()
    return run


def plan_session(session: Session, *, leaf_id: str = "", **parameters: object) -> Run:
    """A finished run of the embedded planner."""
    return finish_run(start_run(session, planner="embedded", requested_parameters=parameters, leaf_id=leaf_id))


def approve_proposals(run: Run, *, first: int | None = None) -> Run:
    """Approve the planner's proposals: all of them, or the first ones."""
    proposals = run.proposals.filter(source=Proposal.Source.PLANNER).order_by("order")[:first]
    decide(run, Kind.APPROVE, [Target(row.entry_id, row.block_index) for row in proposals], timezone.now())
    return run


def failure_of(run: Run) -> str:
    run.refresh_from_db()
    assert run.state == RunState.FAILED
    return run.failure


def commit_approved(run: Run, writer: str = "", **confirmations: bool) -> Applied:
    """Commit what is approved, as the page of the commit shows it now."""
    now = timezone.now()
    approved = approval(run, writer)
    return commit(approved, Confirmations(**confirmations), now, shown=preflight_of(approved, now).digest())

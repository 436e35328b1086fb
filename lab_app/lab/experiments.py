"""Starting, stopping and deleting experiments, and a worker's work on one.

    claim → session ─▶ branch ─▶ trials ⇄ row → done | stopped | failed

Of each session, the branch from which its agent continues is measured, and its trials are stored once all of them are
made. A session that cannot be read is recorded as such, and the others are measured.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
from django.db import transaction
from django.utils import timezone

from compaction_app.core.gates import NO_RESTRAINTS
from compaction_app.core.loop import Event
from compaction_app.core.transcript import Transcript
from compaction_app.planning.model_registry import ResolvedModel
from compaction_app.planning.plan import EffectiveParameters, Plan, confirmed_model, effective_parameters, planner_named
from lab_app.models import Experiment, MeasuredSession
from lab_app.pure.strategies import Strategy, strategies_named
from lab_app.pure.trials import Branch, Trial, trials_of
from sessions_app.document.document import Document
from sessions_app.jobs.pool import wake_workers
from sessions_app.jobs.recorder import JobRecorder, work_under_lease
from sessions_app.models import Session
from sessions_app.sessionlog.context import model_of
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError, Stopped

State = Experiment.State


def start_experiment(
    sessions: Sequence[Session],
    strategies: Sequence[Strategy],
    keeps: Sequence[float],
    model: ResolvedModel | None = None,
) -> Experiment:
    """Queue an experiment. A planning model is stored with its confirmed address. Raises BadInput `no_sessions`."""
    if not sessions:
        raise BadInput("no_sessions", "No session matches. Nothing was tested. Choose others.")
    with transaction.atomic():
        experiment = Experiment.objects.create(
            strategies=[one.key for one in strategies],
            keeps=sorted(set(keeps), reverse=True),
            planner=model.planner if model is not None else "",
            base_url=model.base_url if model is not None else "",
            version=version("redline"),
            created_at=timezone.now(),
        )
        MeasuredSession.objects.bulk_create(
            MeasuredSession(experiment=experiment, session=session) for session in sessions
        )
        transaction.on_commit(wake_workers)
    return experiment


def stop_experiment(experiment: Experiment) -> None:
    """Request that the worker stops, or end a queued experiment. Raises Conflict `wrong_state`."""
    if Experiment.end(experiment.pk, State.STOPPED, leaving={State.QUEUED}):
        return
    if not Experiment.objects.working().filter(pk=experiment.pk).update(stop_requested=True):
        raise Conflict("wrong_state", f"Benchmark {experiment.pk} has ended. Nothing was stopped.")


def delete_experiment(experiment: Experiment) -> None:
    """Delete an experiment that has ended. Raises Conflict `wrong_state`."""
    ended = Experiment.objects.exclude(pk__in=Experiment.objects.active().values("pk"))
    if not ended.filter(pk=experiment.pk).delete()[0]:
        raise Conflict(
            "wrong_state",
            f"Benchmark {experiment.pk} is not finished. Nothing was deleted. Stop it first.",
        )


def branch_to_measure(document: Document) -> Branch:
    """The branch of the last entry, with the settings of its project. Raises the errors of reading texts."""
    reading, entries = document.reading, document.branch() if document.tree.entries else []
    agent_settings = reading.agent.settings.for_project(document.log.cwd, Path.home(), model_of(entries))
    return Branch(
        document.tree,
        entries,
        document.texts(entries),
        reading.reader,
        reading.rules() if reading.writers else reading.generation.rules,
        effective_parameters(agent_settings, {}).values,
    )


STORE_SECONDS: Final = 0.3
"""The shortest time between two updates of the progress."""


@dataclass
class ExperimentRecorder(JobRecorder[Experiment]):
    """Stores the progress of an experiment, as long as its worker has the lease."""

    trials: int = 0
    usage: Mapping[str, Any] | None = None
    _stored: float = field(default=0.0, init=False)

    def begin(self, plan: Plan) -> None:
        """Record that a model begins to plan."""

    def step(self, plan: Plan, event: Event, place: Mapping[str, int] | None = None) -> None:
        """Record a call of a model."""

    def on_event(self, kind: str, data: dict[str, Any], usage: dict[str, Any]) -> None:
        """Store the totals of the data sent to a model."""
        del kind, data
        self.usage = usage
        self._progress()

    def made(self) -> None:
        """Record one more finished trial."""
        self.trials += 1
        self._progress()

    def _progress(self) -> None:
        if time.monotonic() - self._stored >= STORE_SECONDS:
            self.store_progress()

    def store_progress(self) -> None:
        """Store the progress. Raises LostLease."""
        self._stored = time.monotonic()
        self.store(trials=self.trials, usage=self.usage)

    def stopped(self) -> None:
        self.end(State.STOPPED, f"You stopped it. {Experiment.KEPT}")

    def end(self, to: str, failure: str = "", **fields: Any) -> None:
        """End the experiment with its progress; does nothing if the lease is lost."""
        super().end(to, failure, trials=self.trials, usage=self.usage, **fields)


def measure_experiment(experiment_id: int, worker: str, ending: threading.Event | None = None) -> None:
    """Work on a queued experiment to its end, unless another worker has it. Every outcome is recorded in its row.

    `ending` is set if this process must end and its main thread is another one: see `Terminated`. A bug is raised, as
    is a SystemFailure of the database.
    """
    experiment = Experiment.claim(experiment_id, worker)
    if experiment is not None:
        recorder = ExperimentRecorder(experiment, worker, ending)
        work_under_lease(recorder, lambda: _measure(recorder))


def _measure(recorder: ExperimentRecorder) -> None:
    experiment = recorder.job
    strategies = strategies_named(experiment.strategies) if experiment.strategies else []
    if experiment.planner:
        asked = "this benchmark was started for"
        model = confirmed_model(experiment.planner, experiment.base_url, asked, "Start another one.")
        strategies.append(_strategy_of(model, recorder))
    for measured in experiment.measured.select_related("session__root").order_by("pk"):
        trials, failure = _trials_of(measured, strategies, recorder)
        if recorder.is_stopped():
            raise Stopped
        # Only this worker's: if the lease is lost, another worker may be storing its own.
        recorder.store_progress()
        measured.trials, measured.failure, measured.measured_at = trials, failure, timezone.now()
        measured.save(update_fields=["trials", "failure", "measured_at"])
    recorder.end(State.DONE)


def _trials_of(
    measured: MeasuredSession, strategies: Sequence[Strategy], recorder: ExperimentRecorder
) -> tuple[list[Any], str]:
    """The trials of a session as JSON values, and why it could not be read."""
    session = measured.session
    trials: list[Trial] = []
    try:
        branch = branch_to_measure(Document.of_session(session))
        for trial in trials_of(branch, strategies, recorder.job.keeps, recorder.is_stopped):
            trials.append(trial)
            recorder.made()
    except RedlineError as fault:
        return [], fault.message
    return msgspec.to_builtins(trials), ""


def _strategy_of(model: ResolvedModel, recorder: ExperimentRecorder) -> Strategy:
    """A model as a strategy: it plans with the tools of a run, and only the totals of its plans are recorded."""

    def plan_for(transcript: Transcript, share: float) -> tuple[Target, ...]:
        """Plan with the model. Raises Stopped, and the errors of the planner."""
        wanted = transcript.with_ratio(1 - share)
        plan = Plan(wanted.entries[-1].entry_id, wanted, EffectiveParameters(), NO_RESTRAINTS)
        plan.complete(lambda: planner_named(model.planner, "", plan, recorder, recorder.usage, model), recorder)
        if plan.is_stopped:
            raise Stopped
        return plan.store.targets

    return Strategy(model.planner, model.planner, "What the model chooses.", plan_for)

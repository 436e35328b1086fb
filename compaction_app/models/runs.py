"""Planning and review: runs with their events and proposals, and the decisions on them."""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec
from django.db import models, transaction
from django.db.models import Exists, OuterRef, Q
from django.urls import reverse
from django.utils import timezone

from compaction_app.core.handshake_states import HandshakeState
from compaction_app.core.loop import Origin
from compaction_app.core.parameters import DEFAULT_RATIO
from compaction_app.core.review_fold import Kind
from compaction_app.core.states import BROKEN_OFF, FINISHED, REVIEWABLE, TRANSITIONS, WRITTEN, EventKind, RunState
from compaction_app.core.stats import target_reduction, tokens_to_delete, tokens_to_go
from sessions_app.jobs.job import JobQuerySet
from sessions_app.models import Session
from sessions_app.server.broadcast import publish, run_group
from sessions_app.sessionlog.context import Basis, ContextSize
from sessions_app.sessionlog.entries import Stats, Target
from sessions_app.sessionlog.errors import Conflict

from .model_jobs import ModelJob

WHOLE_ENTRY: Final = -1
_OF_LLM: Final = Q(planner__contains="/")
"""The rule of `Run.is_by_llm`."""


class RunQuerySet(JobQuerySet["Run"]):
    def reviewable(self) -> Self:
        return self.filter(state__in=REVIEWABLE)

    def unseen(self) -> Self:
        """Runs whose finished proposal the user has not seen, unless a later plan of the session replaces it.

        A plan that an agent requested is announced while the agent waits, and is not counted afterwards.
        """
        return self._latest().filter(reviewed_at=None, state__in=FINISHED, dismissed_at=None)

    def waiting(self) -> Self:
        """Runs that wait for the user, opened or not: the latest of their sessions, with a plan or a failure that was
        not dismissed. A run that was stopped counts if it proposes something.
        """
        proposes = Q(state=RunState.CANCELLED, stats__objectsDeleted__gt=0)
        return self._latest().filter(Q(state__in=(*FINISHED, *BROKEN_OFF)) | proposes, dismissed_at=None)

    def _latest(self) -> Self:
        """The latest runs of their sessions, without those that agents requested."""
        later = self.model.objects.filter(session=OuterRef("session"), pk__gt=OuterRef("pk"))
        return self.shown().filter(handshakes=None).exclude(Exists(later))

    def being_committed(self) -> Self:
        """Runs whose commit is under way or was killed; not those that wait for an agent."""
        waiting = Q(handshakes__state=HandshakeState.APPROVED)
        return self.filter(committing_since__isnull=False).exclude(waiting)

    def of_llm(self) -> Self:
        """Runs of LLM planners, which mostly wait for an answer."""
        return self.filter(_OF_LLM)

    def of_embedded(self) -> Self:
        """Runs of planners without a model, which need the processor."""
        return self.exclude(_OF_LLM)


class Run(ModelJob):
    """The planning of one branch: its parameters, its state, and the worker that has its lease."""

    NOUN = "run"
    TRANSITIONS = TRANSITIONS
    WORKING = RunState.RUNNING
    ABANDONED = RunState.INTERRUPTED
    FAILED = RunState.FAILED
    NOTHING_DONE = "Nothing was planned."
    KEPT = "What had been validated is kept."
    WORK = "compaction_app.runs.worker.work"

    class Reason(models.TextChoices):
        """The reason for its start, as in the agent."""

        MANUAL = "manual"
        THRESHOLD = "threshold"
        OVERFLOW = "overflow"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="runs")
    leaf_id = models.TextField(blank=True, default="")
    """The leaf of its branch. Until it is prepared, empty means the file's last entry."""
    planner = models.TextField()
    """`embedded`, `prune`, or a model as `provider/name`."""
    thinking = models.CharField(max_length=10, blank=True, default="")
    """The thinking level of its model; empty for none."""
    reason = models.CharField(max_length=10, choices=Reason, default=Reason.MANUAL)
    automatic = models.BooleanField(default=False)
    """Whether automatic planning started it."""
    planner_note = models.TextField(blank=True, default="")
    """Why automatic planning did not use the configured planner; empty if it did."""
    reviewed_at = models.DateTimeField(null=True)
    """The time at which its proposals were last opened, or first if the run was not automatic; null if never."""
    dismissed_at = models.DateTimeField(null=True)
    """When the user dismissed its plan or its failure, so that it no longer waits in the inbox; null if never."""
    requested_parameters: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """The parameters that were given for this run; the settings supply the rest."""
    parameters: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The effective parameters, once it is prepared."""
    sources: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """The source of each parameter."""
    thinking_guard = models.CharField(max_length=10, default="latest")
    writer = models.CharField(max_length=30, blank=True, default="")
    """The writer for which it is planned; empty for the best one of the session's agent."""
    replaces = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="replaced_by")
    """The run whose decisions this one continues."""

    state = models.CharField(
        max_length=12, choices=[(state.value, state.value) for state in RunState], default=RunState.QUEUED
    )
    heartbeat = models.DateTimeField(null=True)
    """The time of the last heartbeat, by the worker's clock. For display only: nothing depends on it."""
    started_at = models.DateTimeField(null=True)
    committing_since = models.DateTimeField(null=True)
    """The time since which its plan is being written; meanwhile no decisions are accepted."""
    last_seq = models.PositiveIntegerField(default=0)
    """The number of its last event."""
    calls = models.PositiveIntegerField(default=0)
    stats: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The statistics of the present plan, as `stats.Stats.to_json`."""
    context: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The size of the planned context, as a `sessionlog.context.ContextSize`; null until then."""
    struck_estimate = models.PositiveBigIntegerField(null=True)
    """The tokens that its plan removes from the estimate of the context: the proposed plan, and from the commit on the
    approved one. Null until it has ended."""
    notes: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """Notes of the user in place of deleted entries: one line of text by the first entry of each span. A writer that
    does not support notes omits them."""

    objects = RunQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["session", "-id"], name="run_by_session"),
            models.Index(fields=["state"], name="run_by_state"),
        ]

    def get_absolute_url(self) -> str:
        return reverse("compaction:review", args=(self.pk,))

    @property
    def log_address(self) -> str:
        """The page with its planner's log."""
        return reverse("compaction:run", args=(self.pk,))

    # ---- its state -----------------------------------------------------------------------------------------

    @property
    def sentence(self) -> str:
        return RunState(self.state).sentence

    @property
    def is_stopping(self) -> bool:
        return self.stop_requested and self.state == RunState.RUNNING

    @property
    def is_written(self) -> bool:
        """Whether there is a result to show."""
        return self.state in WRITTEN

    @property
    def is_broken_off(self) -> bool:
        """Whether it failed or lost its worker."""
        return self.state in BROKEN_OFF

    @property
    def is_reviewable(self) -> bool:
        """Whether there is a plan to review. A run that did not end as planned counts if it proposes something."""
        if self.state not in REVIEWABLE or self.parameters is None:
            return False
        return self.state in FINISHED or self.plan_stats.objects_deleted > 0

    @property
    def can_resume(self) -> bool:
        """Whether it was interrupted, or failed with an LLM planner, after it was prepared."""
        is_broken_off = self.state == RunState.INTERRUPTED or (self.state == RunState.FAILED and self.is_by_llm)
        return is_broken_off and self.parameters is not None

    @property
    def seconds(self) -> float | None:
        """Its duration; None until it has ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0.1, round((self.ended_at - self.started_at).total_seconds(), 1))

    def was_planned_at(self, leaf_id: str) -> bool:
        """Whether it was planned on the branch with this leaf."""
        # The row does not record where it was prepared, so that it can continue elsewhere.
        return self.events.filter(kind=EventKind.PREPARED, data__leafId=leaf_id).exists()

    def require_state(self, allowed: frozenset[RunState], not_done: str) -> None:
        """Raise Conflict `wrong_state` if it is in none of these states."""
        if self.state not in allowed:
            raise self.wrong_state(not_done)

    def wrong_state(self, not_done: str) -> Conflict:
        return Conflict("wrong_state", f"Run {self.pk}: {self.sentence}. {not_done}")

    @classmethod
    def _changeable(cls, rows: models.QuerySet[Any], to: str) -> models.QuerySet[Any]:
        # While it is being written, it is not planned again or resumed.
        return rows if to == RunState.COMMITTED else rows.filter(committing_since=None)

    @classmethod
    def _announce(cls, key: int, to: str) -> None:
        publish(run_group(key), state=str(to))

    @classmethod
    def to_work_on(cls) -> RunQuerySet:
        return cls.objects.with_session().select_related("replaces")

    @classmethod
    def renew(cls, key: int, worker: str, **fields: Any) -> bool | None:
        return super().renew(key, worker, heartbeat=timezone.now(), **fields)

    @classmethod
    def fail_unstarted(cls, key: int, why: str) -> bool:
        """End a queued run because no worker can be started for it; returns whether it was queued. If an earlier worker
        had validated something, the run is interrupted, and can be reviewed."""
        with transaction.atomic():
            if not cls.objects.queued().filter(pk=key, last_seq__gt=0).exists():
                return super().fail_unstarted(key, why)
            # As if a worker had claimed it and died: the table has no other transition.
            cls.change(key, RunState.RUNNING)
            failure = f"Its worker could not be started ({why}); the log says why. {cls.KEPT}"
            return cls.end(key, RunState.INTERRUPTED, failure)

    # ---- its plan ------------------------------------------------------------------------------------------

    @property
    def plan_stats(self) -> Stats:
        """The statistics of the present plan; all zero until it is prepared."""
        return msgspec.convert(self.stats or {}, Stats)

    @property
    def context_size(self) -> ContextSize:
        """The size of the planned context."""
        if self.context is None:
            tokens = self.plan_stats.tokens_before
            return ContextSize(tokens, Basis.ABOUT, estimate=tokens)
        return msgspec.convert(self.context, ContextSize)

    @property
    def struck(self) -> int:
        """The tokens that its plan deletes, in the measure of the context; approximate during planning."""
        size, stats = self.context_size, self.plan_stats
        counted = stats.tokens_before - stats.tokens_after
        return size.tokens - size.without(counted if self.struck_estimate is None else self.struck_estimate).tokens

    @property
    def left(self) -> int:
        """The tokens of the context that its plan keeps."""
        return self.context_size.tokens - self.struck

    @property
    def goal(self) -> int:
        """The tokens that its target deletes, in the measure of the context."""
        return self.context_size.of(tokens_to_delete(self.plan_stats.tokens_before, self.compression_ratio))

    @property
    def percent(self) -> float:
        """The reduction so far, as the agent counts, at most 100: estimates are rounded up one by one and can exceed
        it.
        """
        return min(100.0, self.plan_stats.percent_reduction)

    @property
    def compression_ratio(self) -> float:
        values = self.parameters if self.parameters is not None else self.requested_parameters
        return float(values.get("compression_ratio", DEFAULT_RATIO))

    @property
    def target_percent(self) -> float:
        return target_reduction(self.compression_ratio)

    @property
    def keep_percent(self) -> float:
        """The share of the tokens that it is to keep."""
        return round(100 - self.target_percent, 1)

    @property
    def percent_left(self) -> float:
        """The share of the tokens that its plan keeps, as the agent counts."""
        return round(100 - self.percent, 1)

    @property
    def tokens_to_go(self) -> int:
        return tokens_to_go(self.plan_stats, self.compression_ratio)

    @property
    def meets_target(self) -> bool:
        return self.plan_stats.tokens_before > 0 and not self.tokens_to_go

    # ---- its planner ---------------------------------------------------------------------------------------

    @property
    def is_by_llm(self) -> bool:
        """A model is named `provider/name`; no other planner has a slash in its name."""
        return "/" in self.planner

    @property
    def model_host(self) -> str:
        """Host and port of its requests, as confirmed before the start; empty without a model."""
        return super().model_host or (self.usage or {}).get("host", "")


class Snapshot(models.Model):
    """The basis of a run's plan: the prepared transcript without its texts. Only a resume replaces it."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="snapshot")
    mark = models.CharField(max_length=16)
    """Identifies the preparation: each one has a different mark."""
    packed = models.BinaryField()
    """A `planning.snapshots.Prepared`, compressed."""

    def __str__(self) -> str:
        return f"snapshot of run {self.pk}"


class RunEvent(models.Model):
    """One event of a run. It is stored before it is announced."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events", db_index=False)
    seq = models.PositiveIntegerField()
    """The number of the event in its run, from 1, without gaps."""
    kind = models.CharField(max_length=10, choices=[(kind.value, kind.value) for kind in EventKind])
    at = models.DateTimeField()
    data: models.JSONField[Any, Any] = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="event_by_seq")]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.seq} {self.kind}"


class Proposal(models.Model):
    """A deletion that a planner proposed, after its last call. A human's decisions are stored separately."""

    class Source(models.TextChoices):
        PLANNER = "planner"
        REPAIR = "repair"
        HUMAN = "human"
        HOOK = "hook"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="proposals", db_index=False)
    order = models.PositiveIntegerField()
    """Its position in the plan, which is the order of recording."""
    entry_id = models.TextField()
    block_index = models.PositiveIntegerField(null=True)
    source = models.CharField(max_length=10, choices=Source)
    call = models.PositiveIntegerField()
    """The number of the call that chose it or its pair; 0 if it was carried over from another run."""
    tool = models.TextField()
    reason = models.TextField(blank=True, default="")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "order"], name="proposal_by_order")]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.order} {self.entry_id}"

    @property
    def target(self) -> Target:
        return Target(self.entry_id, self.block_index)

    @property
    def origin(self) -> Origin:
        return Origin(self.call, self.tool, self.reason, by_repair=self.source == self.Source.REPAIR)


class Decision(models.Model):
    """One step of a human's review. The review is the result of applying the steps that were not undone.

    Rows are only added: `undo` undoes the last row that is not undone. Number 0 is not a step: it has the pins of
    hooks, each target with `by`, the hook and its reason (`planning.hook_runner`).
    """

    UNDO = "undo"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="decisions", db_index=False)
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=10, choices=[(kind, kind) for kind in (*(kind.value for kind in Kind), UNDO)])
    targets: models.JSONField[Any, Any] = models.JSONField()
    """Its targets, each as `entries.Target.to_json`. For `narrow`: the deleted blocks; for `undo`: none."""
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="decision_by_seq")]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.seq} {self.kind}"


class Opening(models.Model):
    """The first time that a user opened an object of a review. Objects that were only listed have none."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="openings", db_index=False)
    entry_id = models.TextField()
    block = models.IntegerField(default=WHOLE_ENTRY)
    """The index of the block, or WHOLE_ENTRY. Not null, so that the constraint covers entries as well."""
    at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("run", "entry_id", "block"), name="opening_by_target"),)

    def __str__(self) -> str:
        return f"{self.run_id}: {self.target}"

    @property
    def target(self) -> Target:
        return Target(self.entry_id, None if self.block == WHOLE_ENTRY else self.block)

"""Planning, reviewing and writing: runs with their events and proposals, what a human decided, what was written."""

from __future__ import annotations

from typing import Any

from django.db import models

from sessions_app.models import Session

from .deletion.states import State


class Backup(models.Model):
    """A byte-exact copy beside a session, with the hash that it must have."""

    COMPACT, RESTORE = "compact", "restore"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="backups")
    path = models.TextField(unique=True)
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField()
    taken_at = models.DateTimeField()
    reason = models.CharField(max_length=10, choices=[(COMPACT, COMPACT), (RESTORE, RESTORE)])

    def __str__(self) -> str:
        return self.path


class Run(models.Model):
    """One planning of one branch: what was asked for, where it stands, and who works on it."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="runs")
    leaf_id = models.TextField(blank=True, default="")
    """The branch: its leaf. Empty until it is prepared, where the file's last entry was meant."""
    planner = models.TextField()
    reason = models.CharField(max_length=10, default="manual")
    asked: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """The parameters that were given for this run alone."""
    parameters: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The effective parameters, once it is prepared."""
    sources: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """Where each parameter comes from."""
    thinking_guard = models.CharField(max_length=10, default="latest")
    replaces = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="replaced_by"
    )
    """The run whose decisions this one goes on from."""

    state = models.CharField(max_length=12, choices=[(state, state) for state in State], default=State.QUEUED)
    failure = models.TextField(blank=True, default="")
    """Why it failed or was interrupted, in words."""
    stop_asked = models.BooleanField(default=False)
    worker = models.TextField(blank=True, default="")
    """Who has the lease."""
    lease_until = models.DateTimeField(null=True)
    heartbeat = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    committing_since = models.DateTimeField(null=True)
    """Since when its plan is being written: until then nobody decides on it."""
    last_seq = models.PositiveIntegerField(default=0)
    """The number of its last event."""
    calls = models.PositiveIntegerField(default=0)
    stats: models.JSONField[Any, Any] = models.JSONField(null=True)
    """What is planned so far, as `stats.Stats.to_json`."""

    class Meta:
        indexes = [
            models.Index(fields=["session", "-id"], name="run_by_session"),
            models.Index(fields=["state"], name="run_by_state"),
        ]

    def __str__(self) -> str:
        return f"run {self.pk}"


class Snapshot(models.Model):
    """What a run was planned on: the prepared transcript without its texts. Never changed, but by a resume."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="snapshot")
    mark = models.CharField(max_length=16)
    """Another one for each preparation: by it a review knows what it was made on."""
    packed = models.BinaryField()
    """A `services.snapshots.Prepared`, compressed."""

    def __str__(self) -> str:
        return f"snapshot of run {self.pk}"


class RunEvent(models.Model):
    """One thing that happened in a run. It is a row before it is announced."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events", db_index=False)
    seq = models.PositiveIntegerField()
    """From 1, without gaps."""
    kind = models.CharField(max_length=10)
    """`prepared`, `carried`, `called`, `nudged` or `ended`: see `services.running`."""
    at = models.DateTimeField()
    data: models.JSONField[Any, Any] = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="event_by_seq")]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.seq} {self.kind}"


class Proposal(models.Model):
    """A deletion that a planner proposed, as it stands at the end of its last call. A human's edits lie beside it."""

    PLANNER, REPAIR, HUMAN, HOOK = "planner", "repair", "human", "hook"
    SOURCES = (PLANNER, REPAIR, HUMAN, HOOK)

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="proposals", db_index=False)
    order = models.PositiveIntegerField()
    """Its place in the plan, in which it would be recorded."""
    entry_id = models.TextField()
    block_index = models.PositiveIntegerField(null=True)
    source = models.CharField(max_length=10, choices=[(source, source) for source in SOURCES])
    call = models.PositiveIntegerField()
    """The number of the call that chose it, or that it goes with; 0 where it was carried over from another run."""
    tool = models.TextField()
    reason = models.TextField(blank=True, default="")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "order"], name="proposal_by_order")]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.order} {self.entry_id}"


class Decision(models.Model):
    """One step of a human's review. The review is what the steps that were not undone make of the proposals."""

    APPROVE, REJECT, REOPEN, NARROW, ADD, WITHDRAW = (
        "approve",
        "reject",
        "reopen",
        "narrow",
        "add",
        "withdraw",
    )
    KINDS = (APPROVE, REJECT, REOPEN, NARROW, ADD, WITHDRAW)

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="decisions", db_index=False)
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=10, choices=[(kind, kind) for kind in KINDS])
    targets: models.JSONField[Any, Any] = models.JSONField()
    """What it is about, each as `targets.Target.to_json`. For `narrow`: the blocks that go."""
    at = models.DateTimeField()
    undone = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="decision_by_seq")]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.seq} {self.kind}"


class Compaction(models.Model):
    """One `context_compaction` that Redline appended, with what the entry itself does not hold."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="compactions")
    backup = models.OneToOneField(Backup, on_delete=models.PROTECT, related_name="compaction")
    run = models.OneToOneField(
        Run, on_delete=models.SET_NULL, null=True, blank=True, related_name="compaction"
    )
    """The run it came from; none where it was made on the command line."""
    entry_id = models.TextField()
    leaf_id = models.TextField()
    planner = models.TextField()
    reason = models.CharField(max_length=10, default="manual")
    written_at = models.DateTimeField()
    parameters: models.JSONField[Any, Any] = models.JSONField()
    stats: models.JSONField[Any, Any] = models.JSONField()
    origins: models.JSONField[Any, Any] = models.JSONField()
    """For each deleted target: which call proposed it, and why."""

    def __str__(self) -> str:
        return self.entry_id

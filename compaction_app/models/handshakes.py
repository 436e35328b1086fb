"""Running agents that request a review before they compact."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from django.db import models

from compaction_app.core.handshake_states import OPEN, OUTCOMES, HandshakeState, NextStep
from sessions_app.agents.registry import AGENTS
from sessions_app.models import Root, Session

from .runs import Run


class HandshakeQuerySet(models.QuerySet["Handshake"]):
    def shown(self) -> Self:
        """Those of sessions in configured roots: pages show no others."""
        return self.filter(session__root__configured=True)

    def open(self) -> Self:
        """Those for whose decision an agent waits."""
        return self.filter(state__in=OPEN)

    def approved(self) -> Self:
        """Those whose approved plan is not applied yet."""
        return self.filter(state=HandshakeState.APPROVED)

    def unfinished(self) -> Self:
        return self.filter(state__in=(*OPEN, HandshakeState.APPROVED))

    def with_session(self) -> Self:
        return self.select_related("session__root", "run")


class Handshake(models.Model):
    """One review request of a running agent that is about to compact a session, and its outcome."""

    connection = models.TextField()
    """The name of the connection, see `sessions_app.connections.connection_files`."""
    agent = models.CharField(max_length=20)
    version = models.TextField(blank=True, default="")
    """The agent's version, as it says."""
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="handshakes")
    run = models.ForeignKey(Run, on_delete=models.SET_NULL, null=True, related_name="handshakes")
    """The run that plans for it; null before, and if it could not be planned."""
    reason = models.CharField(max_length=10)
    """As `Run.reason`."""
    honours = models.CharField(max_length=10)
    """What the agent can do itself with an approved plan, as in docs/handshake.md."""
    leaf_id = models.TextField(blank=True, default="")
    """The entry after which the agent continues; empty if it did not say."""
    preparation: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """What else the agent said about its compaction."""

    state = models.CharField(
        max_length=10,
        choices=[(one.value, one.value) for one in HandshakeState],
        default=HandshakeState.ASKED,
    )
    asked_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    """Until when it waits for a decision."""
    polled_at = models.DateTimeField()
    """When the agent last polled for the answer."""
    ended_at = models.DateTimeField(null=True)
    """When it was decided or ended."""
    then = models.CharField(max_length=10, choices=[(one.value, one.value) for one in OUTCOMES])
    """What the agent does if nobody decides in time."""
    step = models.CharField(max_length=10, blank=True, default="")
    """What the agent does now that it has ended, a `NextStep`; empty before."""
    message = models.TextField(blank=True, default="")
    """How it ended, as sentences for the person at the agent."""
    writer = models.CharField(max_length=30, blank=True, default="")
    """The writer of the approved plan; empty before."""
    rule = models.TextField(blank=True, default="")
    """The rule that approved it in a human's place, in words; empty if none did."""
    handed: models.JSONField[Any, Any] = models.JSONField(null=True)
    """What the agent is given to apply itself, as long as it may ask for it; null if it is given nothing."""
    note: models.JSONField[Any, Any] = models.JSONField(null=True)
    """What is recorded once the plan is applied, as a `records.CommitNote`; null if the agent applies nothing."""
    approved_context: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The context that it leads to, as a `handshakes.applied.ContextDigest`."""
    confirmations: models.JSONField[Any, Any] = models.JSONField(default=list)
    """The confirmations that were given for a plan that Redline writes once the session is closed."""
    reported_at = models.DateTimeField(null=True)
    """When the agent reported that it applied the plan; null if it did not."""

    objects = HandshakeQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["state"], name="handshake_by_state")]

    def __str__(self) -> str:
        return f"question {self.pk} of {self.agent_label}"

    @property
    def agent_label(self) -> str:
        return AGENTS[self.agent].label if self.agent in AGENTS else self.agent

    @property
    def is_open(self) -> bool:
        """Whether the agent waits for a decision."""
        return self.state in OPEN

    @property
    def is_manual(self) -> bool:
        """Whether the person at the agent asked for the compaction."""
        return self.reason == Run.Reason.MANUAL

    @property
    def sentence(self) -> str:
        return HandshakeState(self.state).sentence

    @property
    def then_sentence(self) -> str:
        """What the agent does if nobody decides in time, without its name."""
        return NextStep(self.then).sentence

    def seconds_left(self, now: datetime) -> float:
        return max(0.0, (self.ends_at - now).total_seconds())


class WaitRule(models.Model):
    """How long an agent may wait for a review, and what happens then: chosen on the page of agents."""

    agent = models.CharField(max_length=20)
    reason = models.CharField(max_length=10)
    seconds = models.PositiveIntegerField()
    then = models.CharField(max_length=10, choices=[(one.value, one.value) for one in OUTCOMES])
    planner = models.TextField(default="embedded")
    """As `plan_by_itself_with` of the configuration."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "reason"], name="one_wait_rule")]

    def __str__(self) -> str:
        return f"{self.agent}, {self.reason}"


class PassRule(models.Model):
    """Which plans of a root are approved without a review: those that touch only what it names."""

    root = models.OneToOneField(Root, on_delete=models.CASCADE, related_name="pass_rule")
    superseded = models.BooleanField(default=False)
    """Reads whose lines all still stand in what stays."""
    repeated = models.BooleanField(default=False)
    """Outputs that stand again, letter for letter, in what stays."""
    empty = models.BooleanField(default=False)
    """Calls whose result is empty."""
    most_tokens = models.PositiveIntegerField(default=0)
    """The most tokens that such a plan may delete."""

    def __str__(self) -> str:
        return f"rule of {self.root}"

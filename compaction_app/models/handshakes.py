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
        """The handshakes of sessions in configured roots: pages show no others."""
        return self.filter(session__root__configured=True)

    def open(self) -> Self:
        """The handshakes whose agent waits for a decision."""
        return self.filter(state__in=OPEN)

    def approved(self) -> Self:
        """The handshakes whose approved plan is not applied yet."""
        return self.filter(state=HandshakeState.APPROVED)

    def unfinished(self) -> Self:
        return self.filter(state__in=(*OPEN, HandshakeState.APPROVED))

    def with_session(self) -> Self:
        return self.select_related("session__root", "run")


class Handshake(models.Model):
    """One review request of a running agent that is about to compact a session, and its outcome."""

    connection = models.TextField()
    """The name of the connection: see `sessions_app.server.connection_files`."""
    agent = models.CharField(max_length=20)
    version = models.TextField(blank=True, default="")
    """The agent's version, as it reports it."""
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="handshakes")
    run = models.ForeignKey(Run, on_delete=models.SET_NULL, null=True, related_name="handshakes")
    """The run that plans for it; null before planning, and if planning was impossible."""
    reason = models.CharField(max_length=10)
    """The reason for the compaction, as in `Run.reason`."""
    honours = models.CharField(max_length=10)
    """The agent's abilities with an approved plan, as in docs/handshake.md."""
    leaf_id = models.TextField(blank=True, default="")
    """The entry after which the agent continues; empty if it sent none."""
    preparation: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """The agent's other data about its compaction."""

    state = models.CharField(
        max_length=10,
        choices=[(one.value, one.value) for one in HandshakeState],
        default=HandshakeState.ASKED,
    )
    asked_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    """The time until which it waits for a decision."""
    polled_at = models.DateTimeField()
    """When the agent last polled for the answer."""
    ended_at = models.DateTimeField(null=True)
    """The time of its decision or end."""
    then = models.CharField(max_length=10, choices=[(one.value, one.value) for one in OUTCOMES])
    """The agent's action if there is no decision in time."""
    step = models.CharField(max_length=10, blank=True, default="")
    """The agent's action after the end, a `NextStep`; empty until then."""
    message = models.TextField(blank=True, default="")
    """The outcome, as sentences for the user at the agent."""
    writer = models.CharField(max_length=30, blank=True, default="")
    """The writer of the approved plan; empty until it is approved."""
    rule = models.TextField(blank=True, default="")
    """The rule that approved it instead of a human, in words; empty if none did."""
    handed: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The data with which the agent applies the plan itself, as long as it may request it; null if it gets none."""
    note: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The record to be written once the plan is applied, as a `records.CommitNote`; null if the agent applies
    nothing."""
    approved_context: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The resulting context, as a `handshakes.outcomes.ContextDigest`."""
    confirmations: models.JSONField[Any, Any] = models.JSONField(default=list)
    """The confirmations that were given for a plan that Redline writes once the session is closed."""
    reported_at = models.DateTimeField(null=True)
    """The time of the agent's report that it applied the plan; null if there is none."""

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
        """Whether the user at the agent requested the compaction."""
        return self.reason == Run.Reason.MANUAL

    @property
    def sentence(self) -> str:
        return HandshakeState(self.state).sentence

    @property
    def then_sentence(self) -> str:
        """The agent's action if there is no decision in time, without its name."""
        return NextStep(self.then).sentence

    def seconds_left(self, now: datetime) -> float:
        return max(0.0, (self.ends_at - now).total_seconds())


class WaitRule(models.Model):
    """How long an agent may wait for a review, and what happens then: configured on the page of agents."""

    agent = models.CharField(max_length=20)
    reason = models.CharField(max_length=10)
    seconds = models.PositiveIntegerField()
    then = models.CharField(max_length=10, choices=[(one.value, one.value) for one in OUTCOMES])
    planner = models.TextField(default="embedded")
    """The planner, as in the configuration's `plan_by_itself_with`."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "reason"], name="one_wait_rule")]

    def __str__(self) -> str:
        return f"{self.agent}, {self.reason}"


class PassRule(models.Model):
    """The plans of a root that are approved without a review: those that touch only the objects it names."""

    root = models.OneToOneField(Root, on_delete=models.CASCADE, related_name="pass_rule")
    superseded = models.BooleanField(default=False)
    """Reads whose lines are all in kept entries."""
    repeated = models.BooleanField(default=False)
    """Outputs that are repeated, letter for letter, in kept entries."""
    empty = models.BooleanField(default=False)
    """Calls whose result is empty."""
    most_tokens = models.PositiveIntegerField(default=0)
    """The maximum number of tokens that such a plan may delete."""

    def __str__(self) -> str:
        return f"rule of {self.root}"

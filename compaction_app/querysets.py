"""Filters of runs that are used in more than one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from django.db.models import Exists, OuterRef, Q, QuerySet

from .core.handshake_states import HandshakeState
from .core.states import ACTIVE, FINISHED, REVIEWABLE, RunState

if TYPE_CHECKING:
    from .models import Run  # noqa: F401  # the base class below names it

_OF_LLM: Final = Q(planner__contains="/")
"""The rule of `Run.is_by_llm`."""


class RunQuerySet(QuerySet["Run"]):
    def shown(self) -> Self:
        """Those of sessions in configured roots: pages and the API show no others."""
        return self.filter(session__root__configured=True)

    def with_session(self) -> Self:
        return self.select_related("session__root")

    def queued(self) -> Self:
        return self.filter(state=RunState.QUEUED)

    def running(self) -> Self:
        return self.filter(state=RunState.RUNNING)

    def active(self) -> Self:
        return self.filter(state__in=ACTIVE)

    def reviewable(self) -> Self:
        return self.filter(state__in=REVIEWABLE)

    def unseen(self) -> Self:
        """Those whose finished proposal nobody has looked at: a later plan of its session takes its place.

        An agent that asked for a plan is announced while it waits, and its plan counts for nothing afterwards.
        """
        later = self.model.objects.filter(session=OuterRef("session"), pk__gt=OuterRef("pk"))
        own = self.shown().filter(reviewed_at=None, state__in=FINISHED, handshakes=None)
        return own.exclude(Exists(later))

    def being_committed(self) -> Self:
        """Those whose commit has begun and is still under way, or was killed; not those that wait for an agent."""
        waiting = Q(handshakes__state=HandshakeState.APPROVED)
        return self.filter(committing_since__isnull=False).exclude(waiting)

    def of_llm(self) -> Self:
        """Those of LLM planners, which mostly wait for an answer."""
        return self.filter(_OF_LLM)

    def of_embedded(self) -> Self:
        """Those of planners without a model, which need the processor."""
        return self.exclude(_OF_LLM)

    def numbers(self) -> list[int]:
        """Their keys, the oldest first."""
        return list(self.order_by("pk").values_list("pk", flat=True))

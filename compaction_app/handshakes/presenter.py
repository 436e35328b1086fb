"""The waiting agents, as every page shows them; and one handshake on its own page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from compaction_app.core.handshake_states import HandshakeState, NextStep
from compaction_app.models import Compaction, Handshake
from sessions_app.agents.registry import AGENTS
from sessions_app.connections.connection_files import connections
from sessions_app.sessionlog.printable import one_line
from sessions_app.sqlite import UntilWritten

TITLE_CHARACTERS: Final = 80
ASKED_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class WaitingAgent:
    """An agent that waits for a review, for the banner."""

    handshake: Handshake
    title: str
    """The title of its session."""
    address: str
    """The page on which its plan is reviewed, or watched during planning."""
    is_planned: bool


def waiting_agents() -> list[WaitingAgent]:
    """The waiting agents, the one whose time ends first at the beginning."""
    # Every page queries this, and usually no agent waits.
    if not _is_any_open():
        return []
    found = Handshake.objects.open().shown().with_session().order_by("ends_at")
    return [
        WaitingAgent(
            one,
            one_line(one.session.heading, TITLE_CHARACTERS),
            address_of(one),
            one.state == HandshakeState.WAITING,
        )
        for one in found
    ]


_is_any_open: Final = UntilWritten(lambda: Handshake.objects.open().exists())


def asking_agents() -> list[str]:
    """The keys of the connected agents, in the order of the registry. Raises OSError."""
    connected = {one.agent for one in connections(settings.REDLINE_DATA_DIR)}
    return [key for key in AGENTS if key in connected]


def asked_lately() -> list[Handshake]:
    """The latest review requests."""
    return list(Handshake.objects.shown().with_session().order_by("-pk")[:ASKED_SHOWN])


def address_of(handshake: Handshake) -> str:
    """The page on which a handshake can be decided or watched."""
    if handshake.run_id is None:
        return reverse("compaction:handshake", args=(handshake.pk,))
    name = "compaction:review" if handshake.state == HandshakeState.WAITING else "compaction:run"
    return reverse(name, args=(handshake.run_id,))


def waiting(request: HttpRequest) -> dict[str, Callable[[], Sequence[WaitingAgent]]]:
    """The waiting agents, for every page; queried only if a page shows them."""
    del request
    return {"waiting_agents": cache(waiting_agents)}


def view_handshake(handshake: Handshake) -> dict[str, Any]:
    """One handshake, for its page."""
    compaction = Compaction.objects.filter(run=handshake.run_id).first() if handshake.run_id else None
    return {
        "handshake": handshake,
        "compaction": compaction,
        "address": address_of(handshake),
        "can_decline": handshake.is_open,
        "can_take_back": handshake.state == HandshakeState.APPROVED and handshake.note is None,
        "is_moving": handshake.is_open or handshake.state == HandshakeState.APPROVED,
        "steps": {one.value: one.sentence for one in (NextStep.COMPACT, NextStep.CONTINUE, NextStep.STOP)},
        "now": timezone.now(),
    }

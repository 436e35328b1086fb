"""What a bridge is answered: the fields of docs/handshake.md."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from django.urls import reverse

from compaction_app.core.handshake_states import HandshakeState, NextStep
from compaction_app.models import Handshake
from sessions_app.sessionlog.printable import one_line

POLL_SECONDS: Final = 0.5
PLANNING_POLL_SECONDS: Final = 0.2
"""Planning takes about a second, which somebody waits for."""
GRACE_SECONDS: Final = 30
"""How long polls may fail before Redline counts as lost: it may be restarting."""
MESSAGE_CHARACTERS: Final = 1_000

TESTED: Final = {"state": "tested", "do": NextStep.CONTINUE, "message": "Redline answers."}


def answer(handshake: Handshake, now: datetime, page: Callable[[str], str]) -> dict[str, Any]:
    """The answer to a question, a poll or a report. `page` makes an address from a path."""
    step = step_of(handshake)
    return {
        "id": handshake.pk,
        "state": handshake.state,
        "do": step,
        "message": one_line(_message(handshake, page), MESSAGE_CHARACTERS),
        "seconds": round(handshake.seconds_left(now), 1) if step == NextStep.WAIT else 0,
        "poll": POLL_SECONDS if handshake.state == HandshakeState.WAITING else PLANNING_POLL_SECONDS,
        "grace": GRACE_SECONDS,
        "review": _review(handshake, page),
        **((handshake.handed or {}) if step == NextStep.APPLY else {}),
    }


def step_of(handshake: Handshake) -> NextStep:
    """What the agent does now."""
    if handshake.is_open:
        return NextStep.WAIT
    if handshake.state == HandshakeState.APPROVED and handshake.handed is not None:
        return NextStep.APPLY
    return NextStep(handshake.step or NextStep.CONTINUE)


def _review(handshake: Handshake, page: Callable[[str], str]) -> str:
    if handshake.run is None:
        return ""
    is_waiting = handshake.state == HandshakeState.WAITING
    name = "compaction:review" if is_waiting else "compaction:run"
    return page(reverse(name, args=(handshake.run.pk,)))


def _message(handshake: Handshake, page: Callable[[str], str]) -> str:
    if handshake.state == HandshakeState.WAITING:
        return f"Redline waits for your review: {_review(handshake, page)}"
    if handshake.is_open and handshake.run is None:
        return "Redline stops an earlier plan for this session first."
    if handshake.is_open:
        return f"Redline plans the compaction: {_review(handshake, page)}"
    if handshake.state == HandshakeState.APPROVED and handshake.handed is not None:
        return "The approved plan is being applied."
    return handshake.message

"""The review requests and reports of running agents, and the answers: the fields of docs/handshake.md.

Only connected agents are admitted.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final, Literal

import pydantic
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils import timezone
from pydantic import BaseModel, ConfigDict

from compaction_app.core.handshake_states import HandshakeState, NextStep
from compaction_app.handshakes import review_requests
from compaction_app.handshakes.approval import confirm, report_applied, report_failed, report_withdrawn
from compaction_app.handshakes.lifecycle import advance
from compaction_app.handshakes.sweep import approve_by_rule
from compaction_app.models import Handshake
from sessions_app.server.connection_files import ConnectedAgent
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.text import one_line
from sessions_app.web.credentials import Credentials, page_address

from .views import json_view

POLL_SECONDS: Final = 0.5
PLANNING_POLL_SECONDS: Final = 0.2
"""Shorter during planning, which takes about a second while the user waits."""
GRACE_SECONDS: Final = 30
"""How long polls may fail before Redline counts as lost: it may be restarting."""
MESSAGE_CHARACTERS: Final = 1_000
"""The maximum length of an answer's message."""
TESTED: Final = {"state": "tested", "do": NextStep.CONTINUE, "message": "Redline answers."}
POLL_RECORDED: Final = timedelta(seconds=5)
"""The minimum interval between recorded polls: agents poll twice a second."""
REPORT_CHARACTERS: Final = 1_000
"""The maximum length of a report's message."""


class AgentReport(BaseModel):
    """The outcome that a bridge reports."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    outcome: Literal["applied", "failed", "withdrawn"]
    message: str = pydantic.Field(default="", max_length=REPORT_CHARACTERS)


@json_view("POST")
def handshakes(request: HttpRequest) -> HttpResponse:
    """Accept a review request; a test is answered without recording anything."""
    connection = _connection(request)
    requested = review_requests.review_request_in(request.body, connection)
    if requested.test:
        return JsonResponse(TESTED)
    return _answer(request, review_requests.request_review(requested, connection, timezone.now()), status=201)


@json_view("GET", "POST")
def handshake(request: HttpRequest, handshake: int) -> HttpResponse:
    """Answer a poll, or record a report."""
    connection = _connection(request)
    found = Handshake.objects.with_session().filter(pk=handshake, connection=connection.name).first()
    if found is None:
        raise Http404(f"{connection.name} has not requested a review with the number {handshake}.")
    now = timezone.now()
    try:
        review_requests.require_in_scope(found.session, connection)
    except BadInput as fault:
        report_failed(found, fault.message, now)
        raise
    if now - found.polled_at > POLL_RECORDED:
        Handshake.objects.filter(pk=found.pk).update(polled_at=now)
        found.polled_at = now
    if request.method == "POST":
        _report(found, request.body)
    elif found.is_open:
        review_requests.start_requested(found, now)
        approve_by_rule(advance(found, now), now)
    elif found.state == HandshakeState.APPROVED and found.note is not None:
        confirm(found, now)
    found.refresh_from_db()
    return _answer(request, found)


def _report(found: Handshake, body: bytes) -> None:
    try:
        report = AgentReport.model_validate_json(body)
    except pydantic.ValidationError as fault:
        raise BadInput("bad_body", "The body is not a report. Nothing was recorded.") from fault
    now = timezone.now()
    if report.outcome == "applied":
        report_applied(found, now)
    elif report.outcome == "failed":
        report_failed(found, report.message or "it gave no reason.", now)
    else:
        report_withdrawn(found, now)


def _connection(request: HttpRequest) -> ConnectedAgent:
    """The connected agent that sends a request. The middleware admits only connected agents."""
    found = Credentials.of_request(request).connection()
    if found is None:
        raise BadInput("unauthorized", "The agent was disconnected a moment ago. Nothing was done.")
    return found


def _answer(request: HttpRequest, handshake: Handshake, status: int = 200) -> JsonResponse:
    """The answer to a review request, a poll or a report."""
    now, step, page = timezone.now(), _step_of(handshake), partial(page_address, request)
    fields = {
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
    return JsonResponse(fields, status=status)


def _step_of(handshake: Handshake) -> NextStep:
    """The agent's next action."""
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

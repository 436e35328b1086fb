"""The commit of a reviewed run, and its result."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from compaction_app.changes.change import CHANGE_IS_MADE
from compaction_app.changes.compaction import commit_run
from compaction_app.changes.forms import ConfirmationField, missing_in
from compaction_app.changes.records import NOT_RECORDED
from compaction_app.changes.undo import undo_rows
from compaction_app.core.handshake_states import HandshakeState
from compaction_app.handshakes.approval import ReviewedPlan, applied_by, approve
from compaction_app.handshakes.lifecycle import waiting_handshake
from compaction_app.lookups import compaction_of, known_run
from compaction_app.models import Compaction, Run
from compaction_app.planning.snapshots import is_prepared, mark_of
from compaction_app.review import account
from compaction_app.review.account import LastLook, ReviewAccount, account_of, last_look, samples_of, undecided_look
from compaction_app.review.notes import notes_in, save_notes
from compaction_app.runs.commands import record_opened
from compaction_app.runs.reviews import approve_undecided, require_same_plan
from sessions_app.database.sqlite import left_out_if_busy
from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError, TargetNotMet
from sessions_app.web.credentials import is_shown
from sessions_app.web.pages import acts_on_post, redirect, require_valid, status_of

from .presenter import certify_again, handoff_of, other_writers, removals_of, view_commit, view_cost, view_result

PLAN_AGAIN: Final = frozenset({"plan_changed", "plan_refused", "other_branch", "reader_changed", "session_rewritten"})
"""Errors that a new plan on the current session can fix."""
WRITER_FAILS: Final = frozenset(
    {
        "not_writable",
        "unknown_writer",
        "refused_writer",
        "open_in_agent",
        "not_proven",
        "no_line_id",
        "archived_thread",
        "newer_thread",
        "closing_unseen",
    }
)
"""The failures of one writer that another one may not have."""
READ_ONLY: Final = "read_only_agent"
"""The failure for an agent whose sessions Redline cannot write."""
WRITTEN: Final = CHANGE_IS_MADE | {NOT_RECORDED}
"""Failures after which the change is made."""


class CommitForm(forms.Form):
    """The confirmations, the writer, and the digest of the plan that the page showed."""

    writer = forms.CharField(required=False)
    plan = forms.CharField(required=False)
    yes = ConfirmationField()


class RestForm(forms.Form):
    """The approval of everything undecided: the version of the review, and the plan, that the page showed."""

    seen = forms.IntegerField(min_value=0, max_value=999_999_999)
    mark = forms.CharField(required=False)


@require_http_methods(["GET", "HEAD", "POST"])
def commit(request: HttpRequest, run: int) -> HttpResponse:
    """The lines to be written, and the required confirmations; with them, they are written."""
    found = known_run(run)
    if Compaction.objects.filter(run=found).exists():
        # A second click, or a second window: show the result.
        return redirect("compaction:result", found.pk)
    if request.method != "POST":
        return _show_undecided(request, found) if "undecided" in request.GET else _show(request, found)
    form = CommitForm(request.POST)
    try:
        require_valid(form)
        data = form.cleaned_data
        save_notes(found, notes_in(request.POST))
        asked = waiting_handshake(found, timezone.now())
        if asked is not None:
            approve(asked, ReviewedPlan(data["yes"], timezone.now(), data["plan"], data["writer"]))
            return redirect("compaction:handshake", asked.pk)
        commit_run(found, data["yes"], data["plan"], timezone.now(), data["writer"])
    except (ConfirmationNeeded, TargetNotMet) as unconfirmed:
        return _show(request, found, unconfirmed, form)
    except RedlineError as fault:
        return _show(request, found, fault)
    return redirect("compaction:result", found.pk)


def _show(
    request: HttpRequest, run: Run, fault: RedlineError | None = None, form: CommitForm | None = None
) -> HttpResponse:
    view = look = None
    form = form or CommitForm()
    asked = waiting_handshake(run, timezone.now())
    writer = (request.POST or request.GET).get("writer", "")
    was_written = fault is not None and fault.code in WRITTEN
    if not was_written:
        try:
            view = view_commit(run, timezone.now(), writer)
            look = last_look(account_of(run))
        except RedlineError as unshown:
            fault = fault or unshown
    missing = []
    if view is not None and isinstance(fault, ConfirmationNeeded | TargetNotMet):
        missing = missing_in(form, view.confirmations)
    context: dict[str, Any] = {
        "run": run,
        "view": view,
        "fault": fault,
        "can_plan_again": fault is not None and fault.code in PLAN_AGAIN,
        "was_written": was_written,
        "is_read_only": fault is not None and fault.code == READ_ONLY,
        "other_writers": other_writers(run, writer) if fault and fault.code in WRITER_FAILS else (),
        "form": form,
        "missing": missing,
        "kept_query": f"{urlencode({'writer': writer})}&" if writer else "",
        "active_nav": "runs",
        "asked": asked,
        "applied_by": applied_by(asked, view.preflight.writer).name if asked is not None and view is not None else "",
    }
    if view is not None and look is not None:
        context |= {"look": look, "cost": view_cost(look.account), **_samples(request, look)}
    return render(request, "commit/commit.html", context, status=status_of(fault))


def _show_undecided(request: HttpRequest, run: Run, fault: RedlineError | None = None) -> HttpResponse:
    """The additional approvals if everything undecided is approved, shown before that."""
    context: dict[str, Any] = {"run": run, "fault": fault, "undecided": True, "active_nav": "runs"}
    context["kept_query"] = "undecided=1&"
    try:
        look = undecided_look(account_of(run))
        context |= {"look": look, "mark": mark_of(run), **_samples(request, look)}
    except RedlineError as unshown:
        context["fault"] = fault = fault or unshown
    return render(request, "commit/undecided.html", context, status=status_of(fault))


def _samples(request: HttpRequest, look: LastLook) -> dict[str, Any]:
    """The spot check of the group that an address names, which marks the shown units as opened."""
    key = request.GET.get("look", "")
    group = look.group(key)
    if group is None:
        return {}
    run, samples = look.account.run, samples_of(look.account, group.unopened)
    if is_shown(request):
        with left_out_if_busy(f"The spot check of run {run.pk}"):
            record_opened(run, [sample.unit.target for sample in samples], timezone.now())
    return {"samples": samples, "sampled": group, "looked_at": key}


@acts_on_post(lambda run: f"{reverse('compaction:commit', args=[run])}?undecided=1")
def approve_rest(request: HttpRequest, run: int) -> HttpResponse:
    """Approve everything undecided: one decision, which can be undone like any other."""
    found, form = known_run(run), RestForm(request.POST)
    try:
        require_valid(form)
        require_same_plan(found, form.cleaned_data["mark"], mark_of(found))
        approve_undecided(found, timezone.now(), form.cleaned_data["seen"])
    except RedlineError as fault:
        return _show_undecided(request, found, fault)
    return redirect("compaction:commit", found.pk)


@require_safe
def handoff(request: HttpRequest, run: int) -> HttpResponse:
    """The conversation that the approved plan leaves, as Markdown: for agents whose sessions Redline cannot write."""
    found = known_run(run)
    try:
        text = handoff_of(found)
    except RedlineError as fault:
        return _show(request, found, fault)
    headers = {"Content-Disposition": f'attachment; filename="run-{found.pk}-handoff.md"'}
    return HttpResponse(text.encode("utf-8", "replace"), "text/markdown; charset=utf-8", headers=headers)


@require_safe
def result(request: HttpRequest, run: int) -> HttpResponse:
    """The result, before and after, and how to undo it."""
    return _show_result(request, known_run(run))


@acts_on_post(lambda run: reverse("compaction:result", args=[run]))
def certify(request: HttpRequest, run: int) -> HttpResponse:
    """Check the written session again, with the agent's own package if it is installed."""
    found = known_run(run)
    try:
        certify_again(compaction_of(found), timezone.now())
    except RedlineError as fault:
        return _show_result(request, found, fault)
    return redirect("compaction:result", found.pk)


def _show_result(request: HttpRequest, run: Run, fault: RedlineError | None = None) -> HttpResponse:
    compaction = compaction_of(run)
    context: dict[str, Any] = {
        "run": run,
        "view": view_result(compaction),
        "rows": undo_rows(compaction),
        "asked": run.handshakes.filter(state=HandshakeState.APPLIED).last(),
        "fault": fault,
        "active_nav": "runs",
    }
    if is_prepared(run):
        removals = removals_of(account_of(run))
        context |= {"removals": removals, "cost": view_cost(removals.account)}
        context["chosen"] = next((row for row in removals.rows if row.key == request.GET.get("reason")), None)
    return render(request, "commit/result.html", context, status=status_of(fault))


@require_safe
def review_markdown(request: HttpRequest, run: int) -> HttpResponse:
    """The review as a Markdown file."""
    del request
    text = account.review_markdown(*_reviewed(run))
    headers = {"Content-Disposition": f'attachment; filename="run-{run}-review.md"'}
    return HttpResponse(text.encode("utf-8", "replace"), "text/markdown; charset=utf-8", headers=headers)


@require_safe
def review_json(request: HttpRequest, run: int) -> HttpResponse:
    """The review as a JSON file."""
    del request
    headers = {"Content-Disposition": f'attachment; filename="run-{run}-review.json"'}
    return JsonResponse(account.review_document(*_reviewed(run)), headers=headers)


def _reviewed(number: int) -> tuple[ReviewAccount, Compaction | None]:
    """The account of a run's review, and its compaction. Raises Http404 if there is nothing to review."""
    run = known_run(number)
    if not is_prepared(run):
        raise Http404(f"Run {number} was never prepared, so there is nothing to review.")
    return account_of(run), Compaction.objects.select_related("backup").filter(run=run).first()

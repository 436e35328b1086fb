"""The undo of a compaction: its effect, and the undo itself."""

from __future__ import annotations

from typing import Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from compaction_app.changes.forms import ConfirmationField, missing_in
from compaction_app.changes.undo import undo as undo_compaction
from compaction_app.changes.undo import undo_of_run
from compaction_app.lookups import compaction_of, known_run
from compaction_app.models import Compaction, Run
from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError
from sessions_app.web.error_handlers import status_of
from sessions_app.web.forms import require_valid
from sessions_app.web.redirects import redirect

from .presenter import undo_rows, view_undo


class UndoForm(forms.Form):
    """The confirmations, and the digest of the plan that the page showed."""

    plan = forms.CharField(required=False)
    yes = ConfirmationField()


CHOICE: Final = "choice"
"""The name of the button that shows which entries would come back: a request with it needs chosen entries."""


@require_http_methods(["GET", "HEAD", "POST"])
def undo(request: HttpRequest, run: int) -> HttpResponse:
    """How a compaction, or the chosen entries of it, would be undone; with the confirmations, it is undone."""
    found = known_run(run)
    compaction = compaction_of(found)
    chosen = (request.POST if request.method == "POST" else request.GET).getlist("entry")
    if request.method != "POST":
        return _show(request, found, compaction, chosen, is_choice_missing=CHOICE in request.GET and not chosen)
    form = UndoForm(request.POST)
    try:
        require_valid(form)
        data = form.cleaned_data
        undone = undo_compaction(undo_of_run(compaction, chosen), data["yes"], timezone.now(), shown=data["plan"])
    except RedlineError as fault:
        return _show(request, found, compaction, chosen, fault, form)
    messages.success(request, render_to_string("undo/done.html", {"undone": undone}), extra_tags="done")
    return redirect("compaction:result", found.pk)


def _show(
    request: HttpRequest,
    run: Run,
    compaction: Compaction,
    chosen: list[str],
    fault: RedlineError | None = None,
    form: UndoForm | None = None,
    *,
    is_choice_missing: bool = False,
) -> HttpResponse:
    view = None
    try:
        view = view_undo(compaction, chosen, timezone.now())
    except RedlineError as unshown:
        fault = fault or unshown
    if form is None or view is None or form["plan"].value() != view.digest:
        # Boxes ticked for another plan do not confirm this one.
        form = UndoForm()
    missing = []
    if view is not None and isinstance(fault, ConfirmationNeeded):
        missing = missing_in(form, view.confirmations)
    context = {
        "run": run,
        "compaction": compaction,
        "view": view,
        "rows": undo_rows(compaction),
        "chosen": chosen,
        "fault": fault,
        "form": form,
        "missing": missing,
        "is_choice_missing": is_choice_missing,
        "active_nav": "runs",
    }
    return render(request, "undo/undo.html", context, status=status_of(fault))

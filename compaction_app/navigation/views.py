"""The pages of a move, a label and a fork: its effect, and the form that does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from compaction_app.changes.entries import LONGEST_LABEL, append_entries, destination_of, move_to, set_label
from compaction_app.changes.fork import fork_session
from compaction_app.changes.forms import ConfirmationField, missing_in
from compaction_app.lookups import known_session
from sessions_app.cli import shell_quoted
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded, RedlineError
from sessions_app.web.error_handlers import status_of
from sessions_app.web.forms import InlineField, require_valid
from sessions_app.web.redirects import redirect

from .presenter import ForkView, LabelView, MoveView, view_fork, view_label, view_move


class AppendForm(forms.Form):
    """The confirmations, and the digest of the plan that the page showed."""

    plan = forms.CharField(required=False)
    yes = ConfirmationField()


class LabelForm(forms.Form):
    """The label, and the confirmations; an empty label removes the entry's."""

    bound_field_class = InlineField
    yes = ConfirmationField()
    label = forms.CharField(
        label="Label",
        required=False,
        max_length=LONGEST_LABEL,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


MOVE: Final = "navigation/move.html"
LABEL: Final = "navigation/label.html"
FORK: Final = "navigation/fork.html"
View = MoveView | LabelView | ForkView


@require_http_methods(["GET", "HEAD", "POST"])
def move(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The entry after which the agent would continue, and the form that moves it there."""
    found, entry_id = known_session(root, path), _entry_id(request)
    is_leaf = "leaf" in (request.POST if request.method == "POST" else request.GET)
    view_of = partial(view_move, is_leaf=is_leaf)
    if request.method != "POST":
        return _show(request, found, entry_id, MOVE, view_of, AppendForm())
    form = AppendForm(request.POST)
    try:
        require_valid(form)
        data = form.cleaned_data
        done = append_entries(
            found.real_path(),
            move_to(entry_id, is_leaf=is_leaf),
            data["yes"],
            timezone.now(),
            shown=data["plan"],
        )
    except RedlineError as fault:
        return _show(request, found, entry_id, MOVE, view_of, form, fault)
    is_before = destination_of(done.plan.present.tree, entry_id, is_leaf=is_leaf).is_before
    _say(request, "move", session=found, left=done.plan.present.leaf_id, is_before=is_before)
    return redirect(_tree(found, again=entry_id if is_before else ""))


@require_http_methods(["GET", "HEAD", "POST"])
def label(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The label of an entry, to be set, changed or removed."""
    found, entry_id = known_session(root, path), _entry_id(request)
    if request.method != "POST":
        return _show(request, found, entry_id, LABEL, view_label, None)
    form = LabelForm(request.POST)
    try:
        require_valid(form)
        words = "" if "remove" in request.POST else form.cleaned_data["label"]
        append_entries(found.real_path(), set_label(entry_id, words), form.cleaned_data["yes"], timezone.now())
    except RedlineError as fault:
        return _show(request, found, entry_id, LABEL, view_label, form, fault)
    _say(request, "label", words=" ".join(words.split()))
    return redirect(_tree(found, at=entry_id))


@require_http_methods(["GET", "HEAD", "POST"])
def fork_from(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The content of a fork at an entry, and the form that makes it."""
    found, entry_id = known_session(root, path), _entry_id(request)
    if request.method != "POST":
        return _show(request, found, entry_id, FORK, view_fork, None)
    try:
        is_before = view_fork(found, entry_id, timezone.now()).destination.is_before
        made = fork_session(found.real_path(), entry_id, timezone.now())
    except RedlineError as fault:
        return _show(request, found, entry_id, FORK, view_fork, None, fault)
    resume = " ".join(map(shell_quoted, made.agent.client.resume_command(made.path)))
    _say(request, "fork", made=made, resume=resume)
    return redirect(_tree(found, at=entry_id, again=entry_id) if is_before else made)


def _show(
    request: HttpRequest,
    found: Session,
    entry_id: str,
    template: str,
    view_of: Callable[[Session, str, Any], View],
    form: forms.Form | None,
    fault: RedlineError | None = None,
) -> HttpResponse:
    view: View | None = None
    try:
        view = view_of(found, entry_id, timezone.now())
    except RedlineError as unshown:
        if isinstance(unshown, BadInput) and unshown.code == "unknown_entry":
            raise Http404(unshown.message) from unshown
        fault = fault or unshown
    if isinstance(view, LabelView) and form is None:
        form = LabelForm(initial={"label": view.label})
    elif isinstance(view, MoveView) and form is not None and form["plan"].value() != view.digest:
        # Boxes ticked for another plan do not confirm this one.
        form = AppendForm()
    missing = []
    if isinstance(view, MoveView | LabelView) and isinstance(fault, ConfirmationNeeded) and form is not None:
        missing = missing_in(form, view.confirmations)
    context = {
        "session": found,
        "entry_id": entry_id,
        "view": view,
        "form": form,
        "fault": fault,
        "missing": missing,
        "active_nav": "sessions",
        "tree": _tree(found, at=entry_id),
    }
    return render(request, template, context, status=status_of(fault))


def _entry_id(request: HttpRequest) -> str:
    return (request.POST if request.method == "POST" else request.GET).get("entry", "")


def _tree(found: Session, **parameters: str) -> str:
    address = reverse("compaction:tree", args=(found.root_id, found.relative_path))
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{address}?{query}" if query else address


def _say(request: HttpRequest, what: str, **context: Any) -> None:
    words = render_to_string("navigation/done.html", {"what": what, **context})
    messages.success(request, words, extra_tags="done")

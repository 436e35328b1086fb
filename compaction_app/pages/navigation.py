"""The pages of a move, a label and a fork: its effect, how it is undone, and the form that does it."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from compaction_app.changes import entries
from compaction_app.changes.forms import ConfirmationField, ConfirmForm, missing_in
from compaction_app.entries.view import EntryWords
from compaction_app.lookups import known_session
from sessions_app.cli import resume_line
from sessions_app.models import Session
from sessions_app.sessionlog.entries import NO_TEXTS
from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError
from sessions_app.sessionlog.tree import labels
from sessions_app.storage.session_loader import LoadedSession
from sessions_app.web.pages import InlineField, redirect, require_valid, status_of, view_or_fault


def view_move(session: Session, entry_id: str, now: datetime, *, is_leaf: bool = False) -> dict[str, Any]:
    """The effect a move to an entry would have now; `is_leaf` as in `destination_of`.

    `can_summarise`: a summary of the left branch is offered. `skips_summary`: the agent's settings skip that offer.
    Raises the errors of `plan_append` and `move_to`.
    """
    plan = entries.plan_append(session.real_path(), entries.move_to(entry_id, is_leaf=is_leaf), now)
    present, tree = plan.present, plan.present.tree
    destination = entries.destination_of(tree, entry_id, is_leaf=is_leaf)
    branch = tree.branch(destination.leaf_id) if destination.leaf_id is not None else []
    kept = {entry.id for entry in branch}
    left = [entry for entry in tree.branch(present.leaf_id) if entry.id not in kept]
    summaries = present.agent.settings.for_project(present.log.cwd, Path.home()).branch_summary
    skips = summaries is not None and summaries.skips_question
    is_summarised = present.agent.format.summary_format is not None and any(one.is_message for one in left)
    return {
        "chosen": _chosen(present, entry_id),
        "plan": plan,
        "is_leaf": is_leaf,
        "destination": destination,
        "left": len(left),
        "messages": len(present.reading.reader.rebuild(branch).messages),
        "can_summarise": is_summarised and not skips,
        "skips_summary": is_summarised and skips,
    }


def view_label(session: Session, entry_id: str, now: datetime) -> dict[str, Any]:
    """An entry to be labelled, with its present label. Raises the errors of `plan_append` and `any_label`."""
    plan = entries.plan_append(session.real_path(), entries.any_label(entry_id), now)
    label = labels(plan.present.tree).get(entry_id, "")
    return {"chosen": _chosen(plan.present, entry_id), "plan": plan, "label": label}


def view_fork(session: Session, entry_id: str, now: datetime) -> dict[str, Any]:
    """The effect a fork at an entry would have now. Raises the errors of `plan_fork`."""
    plan = entries.plan_fork(session.real_path(), entry_id, now)
    return {"chosen": _chosen(plan.present, entry_id), "plan": plan, "is_copy": plan.is_copy}


def _chosen(present: LoadedSession, entry_id: str) -> EntryWords:
    entry = present.tree.entry(entry_id)
    return EntryWords.of_entry(entry, present.texts([entry]).get(entry_id, NO_TEXTS))


class LabelForm(forms.Form):
    """The label, and the confirmations; an empty label removes that of the entry."""

    bound_field_class = InlineField
    yes = ConfirmationField()
    label = forms.CharField(
        label="Label",
        required=False,
        max_length=entries.LONGEST_LABEL,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


MOVE: Final = "navigation/move.html"
LABEL: Final = "navigation/label.html"
FORK: Final = "navigation/fork.html"


@require_http_methods(["GET", "HEAD", "POST"])
def move(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The entry after which the agent would continue, and the form that moves it there."""
    found, entry_id = known_session(root, path), _entry_id(request)
    is_leaf = "leaf" in (request.POST if request.method == "POST" else request.GET)
    view_of = partial(view_move, is_leaf=is_leaf)
    if request.method != "POST":
        return _show(request, found, entry_id, MOVE, view_of, ConfirmForm())
    form = ConfirmForm(request.POST)
    try:
        require_valid(form)
        data = form.cleaned_data
        done = entries.append_entries(
            found.real_path(),
            entries.move_to(entry_id, is_leaf=is_leaf),
            data["yes"],
            timezone.now(),
            shown=data["plan"],
        )
    except RedlineError as fault:
        return _show(request, found, entry_id, MOVE, view_of, form, fault)
    is_before = entries.destination_of(done.plan.present.tree, entry_id, is_leaf=is_leaf).is_before
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
        entries.append_entries(
            found.real_path(), entries.set_label(entry_id, words), form.cleaned_data["yes"], timezone.now()
        )
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
        is_before = entries.plan_fork(found.real_path(), entry_id, timezone.now()).destination.is_before
        made = entries.fork_session(found.real_path(), entry_id, timezone.now())
    except RedlineError as fault:
        return _show(request, found, entry_id, FORK, view_fork, None, fault)
    resume = resume_line(made.agent, made.path)
    _say(request, "fork", made=made, resume=resume)
    return redirect(_tree(found, at=entry_id, again=entry_id) if is_before else made)


def _show(
    request: HttpRequest,
    found: Session,
    entry_id: str,
    template: str,
    view_of: Callable[[Session, str, datetime], dict[str, Any]],
    form: forms.Form | None,
    fault: RedlineError | None = None,
) -> HttpResponse:
    view, fault = view_or_fault(lambda: view_of(found, entry_id, timezone.now()), fault, not_found="unknown_entry")
    missing = []
    if view is not None:
        if form is None and template == LABEL:
            form = LabelForm(initial={"label": view["label"]})
        elif isinstance(form, ConfirmForm):
            form = form.of_shown(view["plan"])
        if form is not None and isinstance(fault, ConfirmationNeeded):
            missing = missing_in(form, view["plan"].confirmations)
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

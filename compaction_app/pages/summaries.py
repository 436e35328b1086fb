"""The pages of summaries: the request for a draft, the draft itself, and the effect of appending it."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods
from django_htmx.http import HttpResponseClientRefresh

from compaction_app.changes.forms import ConfirmationField, missing_in
from compaction_app.entries.links import lost_address
from compaction_app.lookups import known_draft, known_session
from compaction_app.models import SummaryDraft
from compaction_app.planning.model_registry import ResolvedModel, model_named, model_of_session, models
from compaction_app.planning.plan import MANUAL_PLANNER
from compaction_app.runs.forms import DisclosingForm
from compaction_app.summaries import drafts, presenter
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded, RedlineError
from sessions_app.web import pages

LONGEST_FOCUS = 4_000


def _planner(name: str) -> str:
    return name if name == MANUAL_PLANNER else model_named(name).planner


class SummaryForm(DisclosingForm):
    """The requested summary, its model, and its focus."""

    entry = forms.CharField(required=False, strip=False)
    leaf = forms.BooleanField(required=False)
    planner = pages.CheckedField(_planner, required=False)
    focus = forms.CharField(required=False, max_length=LONGEST_FOCUS)

    def __init__(self, session: Session, data: Mapping[str, Any]) -> None:
        self.session = session
        super().__init__(data)
        self.full_clean()

    @property
    def wanted(self) -> drafts.WantedSummary:
        return drafts.WantedSummary(
            str(self.cleaned_data.get("entry", "")),
            bool(self.cleaned_data.get("leaf")),
            str(self.cleaned_data.get("focus", "")),
        )

    @cached_property
    def model(self) -> ResolvedModel | None:
        """The chosen model, otherwise the session's own; None if the user writes the summary."""
        if self.data.get("planner"):
            name = str(self.cleaned_data.get("planner", MANUAL_PLANNER))
            return None if name == MANUAL_PLANNER else model_named(name)
        return model_of_session(self.session)

    @property
    def planner_name(self) -> str:
        """The name of the chosen model, even if no such model exists."""
        if self.data.get("planner"):
            return str(self.data["planner"])
        return self.model.planner if self.model is not None else MANUAL_PLANNER


class TextForm(forms.Form):
    """The text of a draft, exactly as typed, a name to be inserted at its end, and the digest of the text that the page
    had shown."""

    digest = forms.CharField(required=False)

    text = forms.CharField(required=False, strip=False, max_length=drafts.LONGEST_TEXT)
    insert = forms.CharField(required=False)

    @property
    def edited(self) -> str:
        """The text, with the name at its end."""
        text = str(self.cleaned_data["text"])
        name = str(self.cleaned_data["insert"])
        return f"{text.rstrip()}\n\n{name}\n" if name else text


class AppendDraftForm(forms.Form):
    """The confirmations, and the digest of the plan that the page showed."""

    plan = forms.CharField(required=False)
    yes = ConfirmationField()


START: Final = "summaries/start.html"
DRAFT: Final = "summaries/draft.html"
APPEND: Final = "summaries/append.html"
STATES: Final = SummaryDraft.State


@require_http_methods(["GET", "HEAD", "POST"])
def summarise(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The range that a summary would replace, the data sent for it, and the form that requests a draft."""
    session = known_session(root, path)
    if request.method != "POST":
        return _show_start(request, SummaryForm(session, request.GET))
    form = SummaryForm(session, request.POST)
    if "show" in request.POST:
        return _show_start(request, form)
    try:
        pages.require_valid(form, "Nothing was sent.")
        form.require_usable_model()
        form.require_disclosure()
        planner = form.model.planner if form.model is not None else ""
        draft = drafts.start_draft(session, form.wanted, planner)
    except RedlineError as fault:
        return _show_start(request, form, fault)
    return pages.redirect(draft)


def _show_start(request: HttpRequest, form: SummaryForm, fault: RedlineError | None = None) -> HttpResponse:
    task: presenter.TaskView | None = None
    sent: presenter.SentParts | None = None
    try:
        found = drafts.new_task(form.session, form.wanted, form.model.window if form.model is not None else None)
        task = presenter.view_task(form.session, found)
        sent = presenter.requests_of(found, form.model) if form.model is not None else None
    except RedlineError as unshown:
        if isinstance(unshown, BadInput) and unshown.code == "unknown_entry":
            raise Http404(unshown.message) from unshown
        fault = fault or unshown
    context = {
        "session": form.session,
        "form": form,
        "task": task,
        "sent": sent,
        "models": models(),
        "drafts": form.session.drafts.unfinished().order_by("-pk")[:5],
        "fault": fault,
        "active_nav": "sessions",
    }
    template = f"{START}#sent" if pages.wants_fragment(request) else START
    return render(request, template, context, status=pages.status_of(fault))


@require_http_methods(["GET", "HEAD", "POST"])
def draft(request: HttpRequest, draft: int) -> HttpResponse:
    """A draft: the partial text while it is written, then the text to be read and edited. A POST stores the text."""
    found = known_draft(draft)
    if request.method == "POST":
        return _save(request, found)
    part = request.GET.get("part", "") if pages.wants_fragment(request) else ""
    if part == "coming":
        if not found.is_active:
            return HttpResponseClientRefresh()  # It has ended: the page is another one.
        return render(request, f"{DRAFT}#coming", {"draft": found, "session": found.session})
    return _show_draft(request, found)


def _save(request: HttpRequest, found: SummaryDraft) -> HttpResponse:
    form = TextForm(request.POST)
    try:
        pages.require_valid(form, "The text was not saved.")
        drafts.save_text(found, form.edited, form.cleaned_data["digest"])
    except RedlineError as fault:
        return _show_draft(request, found, fault, typed=str(form["text"].value() or ""))
    if pages.wants_fragment(request):
        return _show_draft(request, found, part="judged")
    return pages.redirect(_AFTER_SAVING.get(request.POST.get("then", ""), SummaryDraft.get_absolute_url)(found))


_AFTER_SAVING: Final[dict[str, Callable[[SummaryDraft], str]]] = {
    "preview": lambda found: f"{found.get_absolute_url()}?show=preview",
    "changes": lambda found: f"{found.get_absolute_url()}?show=changes",
    "replaced": lambda found: reverse("compaction:draft_lost", args=[found.pk]),
    "append": lambda found: reverse("compaction:append_draft", args=[found.pk]),
}


def _show_draft(
    request: HttpRequest,
    found: SummaryDraft,
    fault: RedlineError | None = None,
    part: str = "",
    typed: str | None = None,
) -> HttpResponse:
    """Show a draft; `typed` is a text that was not saved, and is shown instead of the stored one."""
    view: presenter.DraftView | None = None
    context: dict[str, Any] = {"draft": found, "session": found.session, "active_nav": "sessions"}
    if found.state == STATES.READY:
        show = request.GET.get("show", "")
        try:
            view = presenter.view_draft(found)
            if show == "preview":
                context["shown"] = presenter.preview_of(drafts.shown_task_of(found), found.text)
            elif show == "changes":
                context["changes"] = presenter.changes_of_draft(found)
        except RedlineError as unshown:
            fault = fault or unshown
        context["show"] = show
    context |= {"view": view, "fault": fault, "typed": typed}
    return render(request, f"{DRAFT}#{part}" if part else DRAFT, context, status=pages.status_of(fault))


def _page(draft: int) -> str:
    return reverse("compaction:draft", args=[draft])


@pages.acts_on_post(_page)
def stop(request: HttpRequest, draft: int) -> HttpResponse:
    """Stop a draft that is being written; the partial text is kept."""
    return _act(request, draft, drafts.stop_draft)


@pages.acts_on_post(_page)
def use(request: HttpRequest, draft: int) -> HttpResponse:
    """Edit the partial text of a failed draft."""
    return _act(request, draft, drafts.edit_partial_text)


@pages.acts_on_post(_page)
def discard(request: HttpRequest, draft: int) -> HttpResponse:
    """Delete a draft."""
    found = known_draft(draft)
    try:
        drafts.discard_draft(found)
    except RedlineError as fault:
        return _show_draft(request, found, fault)
    messages.success(request, "The draft was deleted. Nothing was written to the session.")
    return pages.redirect(found.session)


def _act(request: HttpRequest, draft: int, act: Callable[[SummaryDraft], None]) -> HttpResponse:
    found = known_draft(draft)
    try:
        act(found)
    except RedlineError as fault:
        return _show_draft(request, found, fault)
    return pages.redirect(found)


@require_http_methods(["GET", "HEAD", "POST"])
def append(request: HttpRequest, draft: int) -> HttpResponse:
    """The effect of appending a draft, and the form that does it."""
    found = known_draft(draft)
    if found.state == STATES.APPENDED:
        return pages.redirect(found)
    if request.method != "POST":
        return _show_append(request, found, AppendDraftForm())
    form = AppendDraftForm(request.POST)
    left = found.leaf_id
    try:
        pages.require_valid(form)
        done = drafts.append_draft(found, form.cleaned_data["yes"], timezone.now(), form.cleaned_data["plan"])
    except RedlineError as fault:
        return _show_append(request, found, form, fault)
    words = render_to_string(
        "summaries/done.html",
        {"session": found.session, "draft": found, "left": left, "backup": done.backup_path.name},
    )
    messages.success(request, words, extra_tags="done")
    return pages.redirect(lost_address(found.session.get_absolute_url(), done.made.first_id))


def _show_append(
    request: HttpRequest, found: SummaryDraft, form: AppendDraftForm, fault: RedlineError | None = None
) -> HttpResponse:
    view, fault = pages.view_or_fault(lambda: presenter.view_append(found, timezone.now()), fault)
    missing = []
    if view is not None and form["plan"].value() != view.digest:
        # Boxes ticked for another plan do not confirm this one.
        form = AppendDraftForm()
    elif view is not None and isinstance(fault, ConfirmationNeeded):
        missing = missing_in(form, view.confirmations)
    context = {
        "draft": found,
        "session": found.session,
        "view": view,
        "form": form,
        "missing": missing,
        "fault": fault,
        "active_nav": "sessions",
    }
    return render(request, APPEND, context, status=pages.status_of(fault))

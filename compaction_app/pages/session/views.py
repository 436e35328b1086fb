"""The pages of one session, and the actions that concern its reading: choosing the agent whose reader is used, and
reindexing.

Each view is a page; htmx gets a part of the page's own template. `whole_text` is one text of a session in full: of an
entry, or of one of its blocks.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from compaction_app.changes.offers import offers_of
from compaction_app.core.states import FINISHED
from compaction_app.entries import view as entry_view
from compaction_app.entries.branch_export import FORMS, BranchExport, export_name
from compaction_app.entries.branches import VIEWS, branch_state, find_leaf
from compaction_app.entries.links import place_address
from compaction_app.lookups import known_session
from compaction_app.models import Run
from compaction_app.rendering.pictures import Picture
from compaction_app.runs.streaming import stream
from sessions_app.agents.registry import reader_named
from sessions_app.disk.files import opened, pread
from sessions_app.document.document import Document, indexed_texts
from sessions_app.index.indexer import index_file, select_reader
from sessions_app.index.session_copies import write_version_3
from sessions_app.models import Session
from sessions_app.search.results import SessionSearch, search_session
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.templatetags.formatting import escape_text
from sessions_app.web import pages

from . import presenter

WHOLE_CHARACTERS: Final = 400_000
"""The maximum number of characters of a text that are shown; the page states how many more it has."""


def whole_text(
    session: Session,
    entry_id: str,
    block: int | None,
    *,
    as_recorded: bool,
    is_beginning: bool,
) -> dict[str, Any]:
    """The text of an entry or a block, up to WHOLE_CHARACTERS, or its beginning as on the page of its session.

    Raises BadInput `unknown_entry` and `unknown_block`.
    """
    state = branch_state(session)
    entry = state.tree.entry(entry_id)
    calls = entry_view.calls_of(state, [entry])
    texts = indexed_texts(session, [entry, *calls])
    own = texts[entry_id]
    if block is not None and block >= len(own.blocks):
        raise BadInput("unknown_block", f"Entry {entry_id} has no block {block}.")
    text = own.block(block) if block is not None else own.joined(entry.blocks)
    found = next((one for one in entry.blocks or () if one.index == block), None)
    kind = entry_view.kind_of(entry, found)
    companion = session.agent.store.companion_of(session.real_path(), text) if kind == "out" else None
    if companion is not None:
        text = _text_of_file(companion)
    source, call = entry_view.source_of_text(
        entry, found, text[:WHOLE_CHARACTERS], session.cwd, entry_view.languages_of(calls, texts)
    )
    show = entry_view.beginning if is_beginning else entry_view.whole
    return {
        "entry_id": entry_id,
        "block": block,
        "kind": kind,
        "shown": show(source, as_recorded=as_recorded),
        "left_out": 0 if is_beginning else max(0, len(text) - WHOLE_CHARACTERS),
        "call": call,
        "pictures": [] if as_recorded else entry_view.shown_pictures(session, entry, found, text),
        # The file in which the agent keeps the whole output, if the text is only its beginning.
        "companion": companion.name if companion is not None else "",
    }


def whole_picture(session: Session, entry_id: str, block: int | None, number: int) -> Picture | None:
    """One picture of an entry or a block; None if there is none. Raises BadInput `unknown_entry`."""
    entry = branch_state(session).tree.entry(entry_id)
    found = next((one for one in entry.blocks or () if one.index == block), None)
    pictures = entry_view.pictures_of(session, entry, found) if (found is None) == (block is None) else []
    return pictures[number] if number < len(pictures) else None


def _text_of_file(path: Path) -> str:
    """The text of a file, of which at most four bytes for each shown character are read."""
    with opened(path, os.O_RDONLY, "It was not read.") as fd:
        return pread(fd, 0, 4 * WHOLE_CHARACTERS).decode("utf-8", "replace")


def export_of(session: Session, leaf_id: str, view: str = "all") -> BranchExport:
    """The export of a view of a branch; an empty `leaf_id` means the session's last entry.

    Raises the errors of `Document.of_index` and `Document.branch`.
    """
    document = Document.of_index(session)
    about = [session.agent_label, session.cwd, session.model]
    return BranchExport.of(document, leaf_id or document.leaf_id, view, session.heading, about)


RENDERED: Final = "rendered"
RECORDED: Final = "recorded"
OTHER: Final = {RENDERED: RECORDED, RECORDED: RENDERED}
COOKIE: Final = "redline_texts"
COOKIE_SECONDS: Final = 365 * 86_400


def form_of(request: HttpRequest, parameter: str) -> str:
    """The form in which texts are shown: from the address with this parameter, or the browser's preference."""
    for form in (request.GET.get(parameter), request.COOKIES.get(COOKIE)):
        if form in OTHER:
            return str(form)
    return RENDERED


class ReaderForm(forms.Form):
    """The name of a reader; an empty one lets Redline choose."""

    reader = pages.CheckedField(lambda name: reader_named(name).name, required=False)


class PlaceForm(forms.Form):
    """A place on the token map: the number of an entry in the context, or a point of the drawing."""

    number = forms.IntegerField(required=False)
    x = forms.IntegerField(required=False)
    y = forms.IntegerField(required=False)

    @property
    def point(self) -> tuple[int, int] | None:
        x, y = self.cleaned_data["x"], self.cleaned_data["y"]
        return (x, y) if x is not None and y is not None else None


TEXTS: Final = "texts"
"""The parameter that sets how the browser shows the texts of all pages."""
PICTURE_HEADERS: Final = {
    "Cache-Control": "private, max-age=86400, immutable",
    "Content-Disposition": "inline",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
UNREADABLE: Final = {
    "no_such_file": "The file is not there any more",
    "not_indexed": "This session was not read yet",
    "session_rewritten": "The file changed while it was read",
    "newer_form": "This session is recorded in a newer form",
}


@require_safe
def session(request: HttpRequest, root: int, path: str, entry: str = "") -> HttpResponse:
    """A branch, one page of entries at a time; with an entry in the address, the page that begins there."""
    found = known_session(root, path)
    entry = entry or request.GET.get("entry", "")
    search = _search(request, found, entry)
    if search is not None and search.entries and not entry:
        return pages.redirect(place_address(found.get_absolute_url(), search.next, search.typed))
    try:
        context = session_context(request, found, entry)
    except BadInput as fault:
        if fault.code == "unknown_entry":
            raise Http404(fault.message) from fault
        return not_readable(request, found, fault)
    except RedlineError as fault:
        return not_readable(request, found, fault)
    part = "session_page/session.html#entries" if pages.wants_fragment(request) else "session_page/session.html"
    response = render(request, part, {**context, "search": search})
    if request.GET.get(TEXTS) in OTHER:
        response.set_cookie(COOKIE, context["form"], max_age=COOKIE_SECONDS, httponly=True, samesite="Strict")
    return response


def session_context(request: HttpRequest, found: Session, entry: str = "") -> dict[str, Any]:
    """The context of `session_page/session.html`: the page of a branch that the parameters of a request name.

    A page that adds `panel`, the name of a template, shows it beside the conversation, in place of the turns and the
    map. Raises BadInput (`unknown_entry` if the session lacks the entry), Conflict and SystemFailure.
    """
    view = request.GET.get("view", "all" if entry else "sees")
    view = view if view in VIEWS else "sees"
    leaf = request.GET.get("leaf", "") or (find_leaf(found, entry) if entry else "")
    form = form_of(request, TEXTS)
    shown = presenter.view_session(
        found,
        leaf_id=leaf,
        view=view,
        start_entry=entry or request.GET.get("at", ""),
        as_recorded=form == RECORDED,
    )
    return {
        "session": found,
        "shown": shown,
        "selected": entry,
        "form": form,
        "other_form": OTHER[form],
        # In a path, this is followed by an entry's id.
        "at": presenter.view_address(found, view, leaf) + "&at=",
        "row_compactions": presenter.row_compactions(found) if view == "removed" else [],
        **({} if pages.wants_fragment(request) else _page_context(found, shown, leaf, form)),
    }


def _page_context(found: Session, shown: dict[str, Any], leaf: str, form: str) -> dict[str, Any]:
    """The parts of a page besides its entries. Raises BadInput and SystemFailure."""
    state, view, start, end = (shown[name] for name in ("state", "view", "start", "end"))
    here = state.listed[view][start].id if start else ""
    activity = presenter.live_signs(found, timezone.now())
    return {
        "sidebar": presenter.surroundings_of(found, state, view, leaf, start, end),
        "leaf": leaf,
        "activity": activity,
        "title": presenter.page_title(found, activity),
        "begin": presenter.view_address(found, view, leaf),
        "other_texts": f"{presenter.view_address(found, view, leaf, here)}&{TEXTS}={OTHER[form]}",
        "started_by": presenter.starting_call(found),
        "offered": offers_of(found, state).offered,
        "planned": _waiting_plan(found),
        "drafts": found.drafts.unfinished().order_by("-pk")[:1],
        "active_nav": "sessions",
    }


def _waiting_plan(session: Session) -> Run | None:
    """The latest run of a session, if its plan waits for a decision; those requested by agents are announced
    elsewhere."""
    latest = session.runs.order_by("-pk").first()
    is_waiting = latest is not None and latest.state in FINISHED and not latest.handshakes.exists()
    return latest if is_waiting else None


@require_safe
def export(request: HttpRequest, root: int, path: str) -> HttpResponseBase:
    """A branch as a file, made while it is sent."""
    found = known_session(root, path)
    form, view = request.GET.get("format", ""), request.GET.get("view", "all")
    if form not in FORMS or view not in VIEWS:
        raise Http404(f"There is no format {form!r} of a view {view!r}.")
    try:
        branch = export_of(found, request.GET.get("leaf", ""), view)
        return stream(branch.pieces(form), export_name(found.path, form, view), FORMS[form].content_type)
    except BadInput as fault:
        raise Http404(fault.message) from fault
    except RedlineError as fault:
        return not_readable(request, found, fault)


@require_safe
def place(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """Go to a place on the token map: an entry by its number in the context, or the one at a point.

    A script gets the place as JSON.
    """
    found = known_session(root, path)
    view = request.GET.get("view", "")
    leaf = request.GET.get("leaf", "")
    form = PlaceForm(request.GET)
    try:
        pages.require_valid(form)
        state = branch_state(found, leaf)
        point, number = form.point, form.cleaned_data["number"]
        named = (
            presenter.place_at_point(found, state, *point) if point else presenter.place_of(found, state, number or 1)
        )
    except BadInput as fault:
        raise Http404(fault.message) from fault
    except RedlineError as fault:
        return not_readable(request, found, fault)
    address = presenter.view_address(found, view if view in VIEWS else "sees", leaf, named["entry_id"] if named else "")
    if request.accepts("text/html") or named is None:
        return pages.redirect(address)
    return JsonResponse({**named, "address": address})


def _search(request: HttpRequest, found: Session, entry: str) -> SessionSearch | None:
    """The search within the session, seen from an entry; None if nothing was typed."""
    typed = request.GET.get("q", "")
    return search_session(found, typed, entry) if typed.strip() and not pages.wants_fragment(request) else None


@require_safe
def text(request: HttpRequest, root: int, path: str, entry: str = "") -> HttpResponse:
    """The whole text of an entry, or of one block of it; for a script as plain text, as the page shows it."""
    found = known_session(root, path)
    entry = entry or request.GET.get("entry", "")
    form = form_of(request, "form")
    is_plain = not request.accepts("text/html")
    try:
        whole = whole_text(
            found,
            entry,
            pages.number_in(request.GET.get("block", "")),
            as_recorded=is_plain or form == RECORDED,
            is_beginning=request.GET.get("part") == "beginning",
        )
    except BadInput as fault:
        raise Http404(fault.message) from fault
    except RedlineError as fault:
        return not_readable(request, found, fault)
    if is_plain:
        return HttpResponse(escape_text(whole["shown"].text), content_type="text/plain; charset=utf-8")
    part = "session_page/text.html#whole" if pages.wants_fragment(request) else "session_page/text.html"
    context = {"session": found, "whole": whole, "form": form, "other_form": OTHER[form], "active_nav": "sessions"}
    return render(request, part, context)


@require_safe
def picture(request: HttpRequest, root: int, path: str, entry: str = "") -> HttpResponse:
    """A picture in an entry, with headers that prevent the browser from treating it as anything else."""
    found = known_session(root, path)
    number = pages.number_in(request.GET.get("number", ""))
    try:
        shown = whole_picture(
            found, entry or request.GET.get("entry", ""), pages.number_in(request.GET.get("block", "")), number or 0
        )
    except RedlineError as fault:
        raise Http404(fault.message) from fault
    if shown is None:
        raise Http404("There is no such picture.")
    return HttpResponse(shown.data, content_type=shown.media_type, headers=PICTURE_HEADERS)


def _page(root: int, path: str) -> str:
    return reverse("compaction:session", args=(root, path))


@pages.acts_on_post(_page)
def reader(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """Choose the agent whose reader is used for the session."""
    return _act(request, root, path, partial(_select_reader, ReaderForm(request.POST)))


def _select_reader(form: ReaderForm, session: Session) -> None:
    pages.require_valid(form)
    select_reader(session, form.cleaned_data["reader"])


@pages.acts_on_post(_page)
def reindex_session(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """Bring the index of this session up to date."""
    return _act(request, root, path, lambda session: index_file(session.real_path()))


@pages.acts_on_post(_page)
def migrate(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """Write a version 3 copy beside an older session, and go there."""
    return _act(request, root, path, lambda found: write_version_3(found.real_path()))


def _act(request: HttpRequest, root: int, path: str, act: Callable[[Session], Session | None]) -> HttpResponse:
    """Perform the action, and redirect to the session that it changed or made."""
    found = known_session(root, path)
    try:
        made = act(found) or found
    except RedlineError as fault:
        return not_readable(request, found, fault)
    return pages.redirect(made)


def not_readable(request: HttpRequest, found: Session, fault: RedlineError) -> HttpResponse:
    """The page in place of a session's that cannot be read."""
    context = {
        "session": found,
        "fault": fault,
        "is_empty": fault.code == "no_entries",
        "title": UNREADABLE.get(fault.code, "This session cannot be shown"),
        "is_missing": fault.code == "no_such_file",
        "can_be_read": fault.code in ("not_indexed", "session_rewritten"),
        "active_nav": "sessions",
    }
    status = 200 if context["is_empty"] else pages.status_of(fault)
    return render(request, "session_page/unreadable.html", context, status=status)

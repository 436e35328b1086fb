"""The pages of one session. One view a page; what htmx asks for is a part of the page's own template."""

from __future__ import annotations

import time

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, RedlineError

from ..services.viewing import VIEWS, is_live, leaf_below, view_session, whole_text


def _session(root: int, path: str) -> Session:
    """The session of an address, in a configured root; nothing else is ever opened."""
    return get_object_or_404(
        Session.objects.select_related("root"), root_id=root, root__configured=True, relative_path=path
    )


@require_safe
def session(request: HttpRequest, root: int, path: str, entry: str = "") -> HttpResponse:
    """A branch, one window of entries at a time; with an entry in the address, the window that begins there."""
    found = _session(root, path)
    view = request.GET.get("view", "sees")
    view = view if view in VIEWS else "sees"
    leaf = request.GET.get("leaf", "")
    try:
        if entry and "view" not in request.GET:
            # A link to an entry works whether or not the model still sees it.
            view = "all"
        if entry and not leaf:
            leaf = leaf_below(found, entry)
        shown = view_session(found, leaf_id=leaf, view=view, at=entry or request.GET.get("at", ""))
    except BadInput as fault:
        if fault.code == "unknown_entry":
            raise Http404(fault.message) from fault
        return _not_readable(request, found, fault)
    except RedlineError as fault:
        return _not_readable(request, found, fault)
    part = "session.html#entries" if request.headers.get("HX-Request") else "session.html"
    live = is_live(found, time.time_ns())
    context = {"session": found, "shown": shown, "leaf": leaf, "live": live, "here": "session"}
    return render(request, part, context)


@require_safe
def text(request: HttpRequest, root: int, path: str, entry: str) -> HttpResponse:
    """The whole text of an entry, or of one block of it."""
    found = _session(root, path)
    block = request.GET.get("block", "")
    try:
        whole = whole_text(found, entry, int(block) if block.isascii() and block.isdigit() else None)
    except BadInput as fault:
        raise Http404(fault.message) from fault
    except RedlineError as fault:
        return _not_readable(request, found, fault)
    part = "text.html#whole" if request.headers.get("HX-Request") else "text.html"
    return render(request, part, {"session": found, "whole": whole, "here": "session"})


def _not_readable(request: HttpRequest, found: Session, fault: RedlineError) -> HttpResponse:
    return render(
        request, "unreadable.html", {"session": found, "fault": fault, "here": "session"}, status=409
    )

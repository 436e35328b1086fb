"""The page of a session's diagnosis. Its form writes the repaired copy."""

from pathlib import Path
from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from compaction_app.lookups import known_session
from sessions_app.index.session_copies import RepairedCopy, lost_path, new_header, repaired_path, write_repaired_copy
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.session import DamageKind
from sessions_app.sessionlog.text import plural
from sessions_app.storage.repair import planned_repair
from sessions_app.storage.session_loader import diagnose
from sessions_app.templatetags.formatting import escape_line
from sessions_app.web.pages import redirect, status_of, view_or_fault

FINDINGS_SHOWN: Final = 200
CHANGES_SHOWN: Final = 200
_UNREAD: Final = frozenset(
    {DamageKind.NOT_JSON, DamageKind.TORN_LINE, DamageKind.NOT_AN_OBJECT, DamageKind.MORE_ON_LINE}
)


def view_diagnosis(session: Session) -> dict[str, Any]:
    """The diagnosis of a session for its page, the account of a repair if one is possible, and the repaired copy if it
    exists already. Raises the errors of `diagnose`."""
    path = session.real_path()
    diagnosis = diagnose(path)
    account = planned_repair(path, new_header(path)) if diagnosis.is_repairable else None
    changes = account.changes if account is not None else ()
    copy = repaired_path(Path(session.relative_path))
    return {
        "diagnosis": diagnosis,
        "findings": diagnosis.findings[:FINDINGS_SHOWN],
        "more_findings": diagnosis.total - len(diagnosis.findings[:FINDINGS_SHOWN]),
        # Not every agent's sessions can be repaired.
        "has_unread_lines": any(finding.kind in _UNREAD for finding in diagnosis.findings),
        "account": account,
        "changes": changes[:CHANGES_SHOWN],
        "more_changes": len(changes[CHANGES_SHOWN:]),
        "copy": Session.objects.shown().filter(root=session.root_id, relative_path=str(copy)).first(),
        "copy_name": copy.name,
        "lost_name": lost_path(path).name,
    }


@require_http_methods(["GET", "HEAD", "POST"])
def doctor(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The problems of a session; with POST, a repaired copy is written beside it."""
    session = known_session(root, path)
    if request.method != "POST":
        return _page(request, session)
    try:
        real = session.real_path()
        repaired = write_repaired_copy(real, diagnose(real))
    except RedlineError as fault:
        return _page(request, session, fault)
    messages.success(request, _written(repaired))
    return redirect("compaction:doctor", root, path)


def _page(request: HttpRequest, session: Session, fault: RedlineError | None = None) -> HttpResponse:
    view, fault = view_or_fault(lambda: view_diagnosis(session), fault)
    context = {"session": session, "view": view, "fault": fault, "active_nav": "sessions"}
    return render(request, "doctor/doctor.html", context, status=status_of(fault))


def _written(repaired: RepairedCopy) -> str:
    account = repaired.account
    copy = f"Wrote {escape_line(repaired.path.name)}, {plural(account.copy_size, 'byte')}"
    if repaired.lost_path is None:
        return f"{copy}. Nothing of the session is lost."
    return f"{copy}, and {escape_line(repaired.lost_path.name)}, {plural(account.lost_size, 'byte')}."

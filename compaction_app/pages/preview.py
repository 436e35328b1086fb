"""The preview of a session beside the list, in a window that is wide enough for both.

It is a part of a page, and marks nothing as opened.
"""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from compaction_app.entries.branches import BranchState, branch_state
from compaction_app.lookups import known_session
from sessions_app.document.document import indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog.text import one_line
from sessions_app.web.pages import view_or_fault, wants_fragment
from sessions_app.web.session_badges import find_badges

MESSAGE_CHARACTERS: Final = 240


@require_safe
def preview(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """What is worth knowing before the session is opened. A browser that asks for it as a page gets the session's."""
    session = known_session(root, path)
    if not wants_fragment(request):
        return redirect(session)
    seen, fault = view_or_fault(lambda: _seen(session))
    badges = find_badges([session.pk]).get(session.pk, [])
    context = {
        "session": session,
        "seen": seen,
        "fault": fault,
        "waiting": [badge for badge in badges if badge.needs_you and badge.address],
    }
    return render(request, "preview/preview.html", context)


def _seen(session: Session) -> dict[str, Any]:
    """Its context and the user's last message. Raises the errors of `branch_state` and of reading."""
    state = branch_state(session)
    return {"size": state.size, "map": state.token_map, "turns": len(state.turns), **_last_message(session, state)}


def _last_message(session: Session, state: BranchState) -> dict[str, Any]:
    if not state.turns:
        return {}
    _, entry = state.turns[-1]
    text = indexed_texts(session, [entry])[entry.id].joined(entry.blocks)
    return {"message": one_line(text, MESSAGE_CHARACTERS), "said_at": entry.moment}

"""The head of a session's pages, as an object that their base template shows."""

from typing import Any

from django import template

from compaction_app.session_head import SessionHead
from sessions_app.models import Session

register = template.Library()


@register.simple_tag(takes_context=True)
def head_of(context: dict[str, Any], session: Session) -> SessionHead:
    """The head of a session, on the page that was requested."""
    match = getattr(context.get("request"), "resolver_match", None)
    return SessionHead.of(session, match.url_name if match is not None else "")

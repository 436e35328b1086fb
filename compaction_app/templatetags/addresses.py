"""Addresses of sessions, entries and their texts, for links on a page."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from compaction_app.display import links
from sessions_app.models import Session
from sessions_app.templatetags.formatting import escape_line

register = template.Library()


@register.simple_tag
def session_link(session: Session) -> SafeString:
    """A link to a session's page, with its title."""
    title = escape_line(session.title or session.relative_path)
    return format_html('<a href="{}">{}</a>', links.session_address(session), Truncator(title).chars(90))


@register.simple_tag
def entry_address(session: Session, entry_id: str) -> str:
    """The address of an entry of a session."""
    return links.entry_address(session.get_absolute_url(), entry_id)


@register.simple_tag
def text_address(session: Session, entry_id: str, block: int | None = None) -> str:
    """The address of the whole text of an entry, or of one block of it."""
    return links.text_address(session.get_absolute_url(), entry_id, block)

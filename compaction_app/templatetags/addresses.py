"""Addresses of entries and of their texts, for links on a page."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse

from compaction_app.entries import links
from sessions_app.models import Session

register = template.Library()


@register.simple_tag
def entry_address(session: Session, entry_id: str) -> str:
    """The address of an entry of a session."""
    return links.entry_address(session.get_absolute_url(), entry_id)


@register.simple_tag
def step_address(step: str, session: Session, entry_id: str) -> str:
    """The page for a step from an entry: `move`, `label` or `fork_from`."""
    page = reverse(f"compaction:{step}", args=(session.root_id, session.relative_path))
    return f"{page}?{urlencode({'entry': entry_id})}"


@register.simple_tag
def lost_address(session: Session, entry_id: str) -> str:
    """The address of the page of a summary's loss."""
    return links.lost_address(session.get_absolute_url(), entry_id)


@register.simple_tag
def place_address(session: Session, entry_id: str, typed: str) -> str:
    """The address of an entry in which a search found something."""
    return links.place_address(session.get_absolute_url(), entry_id, typed)


@register.simple_tag
def text_address(session: Session, entry_id: str, block: int | None = None, **more: str) -> str:
    """The address of the whole text of an entry, or of one block of it."""
    return links.text_address(session.get_absolute_url(), entry_id, block, **more)


@register.simple_tag
def picture_address(session: Session, picture: Mapping[str, Any]) -> str:
    """The address of a picture of an entry."""
    place = (picture[name] for name in ("entry_id", "block", "number", "digest"))
    return links.picture_address(session.get_absolute_url(), *place)

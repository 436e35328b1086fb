"""Addresses of entries. Their ids come from a file: what an address cannot hold goes into its query."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlencode

from django import template
from django.urls import reverse

from sessions_app.models import Session

register = template.Library()

_PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]{1,200}")


@register.simple_tag
def entry_address(session: Session, entry_id: str) -> str:
    """Where an entry is shown."""
    if _PLAIN.fullmatch(entry_id) and entry_id not in (".", ".."):
        return reverse("compaction:entry", args=[session.root_id, session.relative_path, entry_id])
    shown = reverse("compaction:session", args=[session.root_id, session.relative_path])
    return f"{shown}?{urlencode({'view': 'all', 'at': entry_id.encode('utf-8', 'replace')})}"


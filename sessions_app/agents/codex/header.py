"""The header that a line of a rollout records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.session import Header

from .records import item_of

VERSION: Final = 1
"""Codex does not number its format."""


def header_of(data: Mapping[str, Any]) -> Header:
    """The header that a line records. Its parent is the thread that it continues, or that started it, by its id."""
    meta = item_of(data)
    base = meta.get("history_base")
    base_id = _shown(base.get("thread_id")) if isinstance(base, Mapping) else ""
    own_id = _shown(meta.get("id"))
    parent = _shown(meta.get("forked_from_id")) or base_id or _shown(meta.get("parent_thread_id"))
    source = meta.get("source")
    return Header(
        id=own_id,
        version=VERSION,
        cwd=_shown(meta.get("cwd")),
        timestamp=_shown(meta.get("timestamp")),
        parent_session=parent if parent != own_id else "",
        is_subagent=isinstance(source, Mapping) and "subagent" in source,
    )


def _shown(value: object) -> str:
    return well_formed(value) if isinstance(value, str) else ""

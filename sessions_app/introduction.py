"""The introduction on the list of sessions: shown until the first compaction, or until the user hides it."""

from pathlib import Path
from typing import Final, Literal

from django.conf import settings

from sessions_app.database.sqlite import UntilWritten
from sessions_app.disk.files import reported
from sessions_app.models import Session

MARKER: Final = "introduced"
"""A file in the data directory that records that the user hid the introduction."""

_was_compacted: Final = UntilWritten(lambda: Session.objects.filter(compactions__isnull=False).exists())


def shown(sessions: int, own: int) -> Literal["", "strip", "page"]:
    """The form of the introduction for a list of so many sessions; `own` are those that are not the demo."""
    if not sessions:
        return "page"
    if _marker().exists() or _was_compacted():
        return ""
    return "strip" if own else "page"


def hide() -> None:
    """Show the introduction no more beside sessions. Raises SystemFailure."""
    with reported(_marker(), "The introduction is still shown."):
        _marker().touch(mode=0o600)


def _marker() -> Path:
    directory: Path = settings.REDLINE_DATA_DIR
    return directory / MARKER

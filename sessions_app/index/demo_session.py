"""The demo session in the managed root: offered once to a user without sessions, and made again on request."""

import os
import secrets
from pathlib import Path
from typing import Final

from django.conf import settings

from sessions_app.agents.demo import demo_session
from sessions_app.disk.files import reported
from sessions_app.models import Session

from .indexer import index_file
from .roots import configured_roots, managed_root

DEMO_FILE: Final = "demo.jsonl"
DEMO_MARKER: Final = "demo_made"
"""A file in the data directory that records that the demo was created."""


def offer_demo() -> Path | None:
    """Write the demo if nothing was ever indexed and it was never created; otherwise None.

    Raises SystemFailure.
    """
    marker, path = settings.REDLINE_DATA_DIR / DEMO_MARKER, managed_root() / DEMO_FILE
    if marker.exists() or path.exists() or Session.objects.exists():
        return None
    _write(path)
    return path


def make_demo() -> Session:
    """The demo, written and indexed if it is not there. Raises the errors of writing and of indexing."""
    path = managed_root() / DEMO_FILE
    if not path.exists():
        _write(path)
    configured_roots()
    return index_file(path)


def _write(path: Path) -> None:
    draft = path.with_name(f".{DEMO_FILE}.{secrets.token_hex(4)}")
    data, ended = demo_session()
    with reported(path, "The demo session was not made."):
        draft.write_bytes(data)
        draft.chmod(0o600)
        # As old as its last entry, so that it does not count as live.
        os.utime(draft, (ended.timestamp(), ended.timestamp()))
        draft.replace(path)
        (settings.REDLINE_DATA_DIR / DEMO_MARKER).touch()

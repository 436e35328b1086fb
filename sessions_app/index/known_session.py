"""What the index knows of a session file, for commands that need no index: nothing is created and nothing migrated."""

from __future__ import annotations

from pathlib import Path

from django.db import connection

from sessions_app.database import is_current
from sessions_app.models import Session


def known_session(path: Path) -> Session | None:
    """The row of the file at a real path; None if it was not read, or the database is that of another version."""
    if not Path(str(connection.settings_dict["NAME"])).exists() or not is_current():
        return None
    try:
        str(path).encode()
    except UnicodeEncodeError:
        # A file whose name is not UTF-8 cannot be indexed.
        return None
    roots = list(map(str, path.parents))
    names = [str(path.relative_to(root)) for root in roots]
    rows = Session.objects.select_related("root").filter(root__path__in=roots, relative_path__in=names)
    return next((session for session in rows if session.path == path and session.read_as), None)

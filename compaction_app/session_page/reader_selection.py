"""The user's actions on reading a session: choosing the agent whose reader is used, and reindexing."""

from __future__ import annotations

from sessions_app.index.indexer import index_file
from sessions_app.models import Session


def select_reader(session: Session, name: str) -> None:
    """Store the reader chosen for a session, and count its context with it; "" lets Redline choose again.

    Raises the errors of indexing: then the choice is stored, but the count is not.
    """
    Session.objects.filter(pk=session.pk).update(reader=name, read_as="")
    reindex(session)


def reindex(session: Session) -> None:
    """Bring the index of one session up to date. Raises the errors of indexing."""
    index_file(session.real_path())

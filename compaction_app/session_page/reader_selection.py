"""What you can set about reading a session: which agent's reader is used, and when it is read again."""

from __future__ import annotations

from sessions_app.index.indexer import index_file
from sessions_app.models import Session


def select_reader(session: Session, name: str) -> None:
    """Store the reader chosen for a session, and count its context with it; "" leaves the choice to Redline again.

    Raises what indexing raises: the choice is stored then, the count is not.
    """
    Session.objects.filter(pk=session.pk).update(reader=name, read_as="")
    reindex(session)


def reindex(session: Session) -> None:
    """Bring the index of one session up to date. Raises what indexing raises."""
    index_file(session.real_path())

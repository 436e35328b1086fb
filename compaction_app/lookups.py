"""The objects that addresses name. Only objects below a configured root are ever found.

The change of a killed process is recorded before any part of its session is shown.
"""

from django.shortcuts import get_object_or_404

from sessions_app.index.session_locks import is_interrupted, settle_session
from sessions_app.models import Session

from .models import Compaction, Run, SummaryDraft


def known_session(root: int, path: str) -> Session:
    """The session of an address. Raises Http404."""
    found = get_object_or_404(Session.objects.shown().select_related("root"), root_id=root, relative_path=path)
    if is_interrupted(found.path):
        settle_session(found.path)
    return found


def known_run(run: int) -> Run:
    """The run of an address. Raises Http404."""
    found = get_object_or_404(Run.objects.shown().with_session(), pk=run)
    path = found.session.path
    if found.committing_since is not None or is_interrupted(path):
        settle_session(path)
        found.refresh_from_db(fields=["state", "committing_since"])
    return found


def known_draft(draft: int) -> SummaryDraft:
    """The draft of a summary with this address. Raises Http404."""
    found = get_object_or_404(SummaryDraft.objects.shown().with_session(), pk=draft)
    if is_interrupted(found.session.path):
        settle_session(found.session.path)
    return found


def compaction_of(run: Run) -> Compaction:
    """The compaction of a run. Raises Http404 if there is none."""
    return get_object_or_404(Compaction.objects.select_related("backup", "session__root", "run"), run=run)

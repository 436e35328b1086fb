"""The objects that addresses name. Only what belongs to a configured root is ever found."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from sessions_app.models import Session

from ..models import Compaction, Run


def known_session(root: int, path: str) -> Session:
    """The session of an address. Raises Http404."""
    return get_object_or_404(
        Session.objects.select_related("root"), root_id=root, root__configured=True, relative_path=path
    )


def known_run(run: int) -> Run:
    """The run of an address. Raises Http404."""
    runs = Run.objects.select_related("session__root", "replaces")
    return get_object_or_404(runs, pk=run, session__root__configured=True)


def compaction_of(run: Run) -> Compaction:
    """What was written for a run. Raises Http404 where nothing was."""
    return get_object_or_404(Compaction.objects.select_related("backup", "session__root", "run"), run=run)

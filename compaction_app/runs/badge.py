"""What every page says of proposals that Redline planned by itself and that wait to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse

from compaction_app.models import Run
from sessions_app.cli import one_line
from sessions_app.list.session_badges import SessionBadge

from .unseen_proposals import outgrown, unseen_proposals

TITLE_CHARACTERS: Final = 120


def badge(request: HttpRequest) -> dict[str, Callable[[], int]]:
    """How many wait, for the top of every page; counted where a page shows it."""
    del request
    return {"proposals_waiting": lambda: unseen_proposals().count()}


def marks(sessions: Sequence[int]) -> Mapping[int, SessionBadge]:
    """For the list: the sessions of which a proposal waits, each with the way to its review."""
    found = unseen_proposals().filter(session__in=sessions).order_by("pk").annotate(outgrown=outgrown())
    return {
        session: SessionBadge(
            "older proposal waits" if old else "proposal waits", reverse("compaction:review", args=(run,))
        )
        for session, run, old in found.values_list("session_id", "pk", "outgrown")
    }


def new_proposals(known: Collection[int] | None) -> tuple[set[int], list[dict[str, Any]]]:
    """The runs that wait, and for each one not among the known what the pages that are open are told.

    At a first look, without any known, nothing is new.
    """
    found = set(unseen_proposals().values_list("pk", flat=True))
    fresh = found - set(found if known is None else known)
    runs = unseen_proposals().filter(pk__in=fresh).order_by("pk") if fresh else []
    return found, [_fact(run, len(found)) for run in runs]


def _fact(run: Run, count: int) -> dict[str, Any]:
    """A fact for the sockets of the list. Its texts are shown as text, by a browser and by a system."""
    percent = (run.stats or {}).get("percentReduction", 0)
    title = one_line(run.session.title or run.session.relative_path, TITLE_CHARACTERS)
    tell = {
        "tag": f"redline-run-{run.pk}",
        "title": "A proposal waits",
        "words": f"{title}: {percent}% could go. Nothing is written before you have reviewed it.",
        "address": reverse("compaction:review", args=(run.pk,)),
    }
    return {"sessions": [run.session_id], "page": {"waiting": count, "tell": tell}}

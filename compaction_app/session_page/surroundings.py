"""The surroundings of the entries on a session's page: the views, the turns, the token map and its parts.

They change while a session grows, so an open page gets them again with the new entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from compaction_app.core.stats import percent
from compaction_app.core.token_map import Share
from compaction_app.entries.branches import BranchState
from compaction_app.exports.branch_export import LABELS
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Entry

from .map_place import MapPlace, place_of
from .time_lines import TimeSpan, span_of
from .turn_sidebar import TurnSidebar, rail_of


@dataclass(frozen=True, slots=True)
class ViewTab:
    """A link to one view of the branch, with the number of its entries."""

    view: str
    label: str
    count: int
    address: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a page of a view."""

    state: BranchState
    version: str
    """Changes whenever they do."""
    view: str
    leaf: str
    """The leaf of the branch; empty for the one from which the session continues."""
    tabs: list[ViewTab]
    rail: TurnSidebar
    place: MapPlace | None
    """The position of the page's beginning on the token map; None if the context is empty."""
    frame: tuple[int, int] | None
    """Top and height of the page on the token map; None if it does not show the context."""
    shares: list[Share]
    """The parts of the context, in its measure."""
    rest: int
    """The tokens that the provider counts and the session lacks."""
    span: TimeSpan | None
    """The time of the branch; None if its entries record no times."""
    at: str
    """The address of an entry in this view, up to its id."""
    all_at: str
    """The same in the full history."""
    branch: str
    """The address of another branch in this view, up to the id of its leaf."""


def surroundings_of(session: Session, state: BranchState, view: str, leaf: str, start: int, end: int) -> Surroundings:
    """The surroundings of the page with these entries of a view, given as positions in it.

    Raises Conflict if the file was rewritten.
    """
    listed = state.listed[view]
    here = listed[start] if start < end else None
    first = here.id if here is not None and start else ""
    shares, rest = _contents(state)
    return Surroundings(
        state=state,
        version=version_of(session, start, end),
        view=view,
        leaf=leaf,
        tabs=[
            ViewTab(name, label, len(state.listed[name]), view_address(session, name, leaf, first), name == view)
            for name, label in LABELS.items()
        ],
        rail=rail_of(session, state, here),
        place=place_of(session, state, _seen_before(state, listed[start:]) + 1),
        frame=_frame(state, start, end) if view == "sees" and here is not None else None,
        shares=shares,
        rest=rest,
        span=span_of(state.branch),
        # In a path, these are followed by an entry's id.
        at=view_address(session, view, leaf) + "&at=",
        all_at=view_address(session, "all", leaf) + "&at=",
        branch=view_address(session, view) + "&leaf=",
    )


def version_of(session: Session, start: int, end: int) -> str:
    """The version of the surroundings of a page, between these positions of a view."""
    return f"{session.entry_count}.{start}.{end}"


def view_address(session: Session, view: str, leaf: str = "", at: str = "") -> str:
    """The address of a view of a branch, from an entry on."""
    parameters = {"view": view, "leaf": leaf, "at": at}
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{session.get_absolute_url()}?{query}"


def _contents(state: BranchState) -> tuple[list[Share], int]:
    """The kinds of content in the measure of the context, and the rest."""
    size, shares = state.size, state.token_map.shares
    tokens, rest = size.contents([share.tokens for share in shares])
    found = [
        Share(share.kind, share.name, part, percent(part, size.tokens))
        for share, part in zip(shares, tokens, strict=True)
    ]
    return found, rest


def _seen_before(state: BranchState, entries: Sequence[Entry]) -> int:
    """The number of entries of the context before a page that begins with these."""
    return next((state.places[entry.id] for entry in entries if entry.id in state.places), len(state.places))


def _frame(state: BranchState, start: int, end: int) -> tuple[int, int]:
    before = state.tokens_before
    return state.token_map.frame(before[start], before[end] - before[start])

"""The search within one session: how many entries match, and which of them come before and after a given one."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from django.conf import settings

from sessions_app.models import Session
from sessions_app.search.pure.query import SearchQuery

from .filters import SearchFilters
from .matches import Matches, entries_of
from .store import TextStore


@dataclass(frozen=True, slots=True)
class SessionSearch:
    """The matching entries of a session, in the order of the file, relative to one of its entries."""

    typed: str
    query: SearchQuery
    entries: int
    position: int
    """The place of the entry among them, from 1; 0 if it is not one of them."""
    previous: str
    next: str
    """The ids of the entries before and after it; after the last comes the first. Empty if nothing was found."""
    is_searchable: bool

    @property
    def marks(self) -> str:
        """What a script marks on the page, as JSON: the words of each term, and whether it also finds longer words."""
        return json.dumps([term.marks for term in self.query.terms if not term.excluded])


def search_session(session: Session, typed: str, entry_id: str = "") -> SessionSearch:
    """The matches of a typed query, with its filters, relative to an entry or to the beginning.

    Raises SystemFailure `search_failed`.
    """
    filters = SearchFilters.of(typed, session=session.pk)
    keys: list[int] = []
    with TextStore(settings.REDLINE_DATA_DIR) as store:
        is_searchable = session.pk in store.sessions()
        if filters.query.finds:
            matches = Matches(store, filters)
            wanted = [group for group in matches.groups if filters.accepts(group.kind, group.state, group.tool)]
            keys = entries_of(wanted)
    current = session.entries.filter(entry_id=entry_id).values_list("pk", flat=True).first() if entry_id else None
    before = bisect_left(keys, current) if current is not None else 0
    after = bisect_right(keys, current) if current is not None else 0
    ends = [keys[before - 1], keys[after % len(keys)]] if keys else []
    ids = dict(session.entries.filter(pk__in=ends).values_list("pk", "entry_id"))
    previous, following = [ids.get(key, "") for key in ends] or ("", "")
    position = after if after > before else 0
    return SessionSearch(filters.text, filters.query, len(keys), position, previous, following, is_searchable)

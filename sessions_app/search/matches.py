"""The passages that a query finds, counted in groups.

The index knows which words a passage has, but not their order: positions would make it three times as large. So a
query with a phrase, or with a word that the tokenizer divides, is compared with the texts themselves, of up to COMPARED
passages.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

from sessions_app.models import Entry as EntryRow
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError, SystemFailure
from sessions_app.sessionlog.packing import unpack
from sessions_app.storage.files import SessionReader
from sessions_app.storage.session_loader import read_again

from .filters import SearchFilters
from .passages import PassageKind, passages
from .store import KIND_BITS, KIND_MASK, TextStore

COMPARED: Final = 400
"""Passages whose texts are compared with a query: some 40 ms."""


class MatchGroup(NamedTuple):
    """The passages of one session that are alike."""

    key: int
    """The key of what they have in common."""
    session: int
    kind: int
    tool: str
    state: int
    places: int


class MatchPlace(NamedTuple):
    """One passage that was found."""

    passage: int
    tool: str
    state: int

    @property
    def entry(self) -> int:
        return self.passage >> KIND_BITS

    @property
    def kind(self) -> PassageKind:
        return PassageKind(self.passage & KIND_MASK)


class Matches:
    """What a query finds within the filters that the index knows: the period and the session.

    Raises SystemFailure `search_failed`.
    """

    def __init__(self, store: TextStore, filters: SearchFilters) -> None:
        self._query = filters.query.for_index(store.tokens_of)
        self.left_out = 0
        """Passages that have all words and were not compared with the query, because there are too many."""
        self._found = _find(store, self._query.expression, filters)
        """The id of each passage in ascending order, and the key of what it is alike."""
        if self._query.compared or self._query.refused:
            self._compare(store)
        counts = Counter(map(itemgetter(1), self._found))
        self.groups = [MatchGroup(*row, counts[row[0]]) for row in store.alike(counts) if row[0] in counts]

    def places(self, groups: Iterable[MatchGroup], limit: int) -> dict[int, list[MatchPlace]]:
        """The first places of groups by session: kind by kind, in the order of the file."""
        wanted = {group.key: group for group in groups}
        by_kind: dict[int, dict[int, list[MatchPlace]]] = {}
        for number, key in [found for found in self._found if found[1] in wanted]:
            group = wanted[key]
            places = by_kind.setdefault(group.session, {}).setdefault(group.kind, [])
            if len(places) < limit:
                places.append(MatchPlace(number, group.tool, group.state))
        return {
            session: [place for kind in sorted(kinds) for place in kinds[kind]][:limit]
            for session, kinds in by_kind.items()
        }

    def entries(self, groups: Iterable[MatchGroup]) -> list[int]:
        """The keys of the entries of groups, in ascending order."""
        wanted = {group.key for group in groups}
        return sorted({number >> KIND_BITS for number, key in self._found if key in wanted})

    def _compare(self, store: TextStore) -> None:
        """Keep only the passages whose texts have what the query wants; the most telling kinds are compared first."""
        first = sorted(self._found, key=lambda found: (found[0] & KIND_MASK, -found[0]))[:COMPARED]
        self.left_out = len(self._found) - len(first)
        sessions = {key: session for key, session, *_ in store.alike({key for _, key in first})}
        ids: dict[int, list[int]] = {}
        for number, key in first:
            ids.setdefault(sessions[key], []).append(number)
        entries = EntryRow.objects.in_bulk({number >> KIND_BITS for number, _ in first})
        accepted = {
            number
            for key, session in Session.objects.for_display().in_bulk(ids).items()
            for number, text in _texts(session, ids[key], entries)
            if self._accepts(text)
        }
        self._found = sorted(found for found in first if found[0] in accepted)

    def _accepts(self, text: str) -> bool:
        query = self._query
        return all(wanted.search(text) for wanted in query.compared) and not any(
            unwanted.search(text) for unwanted in query.refused
        )


def _find(store: TextStore, expression: str, filters: SearchFilters) -> list[tuple[int, int]]:
    conditions, values = ["words MATCH ?"], [expression, *map(_seconds, filters.period)]
    if filters.since is not None:
        conditions.append("moment >= ?")
    if filters.until is not None:
        conditions.append("moment < ?")
    if filters.session is not None:
        conditions.append("alike IN (SELECT id FROM alike WHERE session = ?)")
        values.append(filters.session)
    try:
        return store.connection.execute(
            "SELECT words.rowid, +alike FROM words CROSS JOIN passage ON passage.id = words.rowid"  # noqa: S608  # constants
            f" WHERE {' AND '.join(conditions)}",
            values,
        ).fetchall()
    except sqlite3.DatabaseError as fault:
        raise SystemFailure(
            "search_failed",
            f"The full-text index {store.path} cannot be read: {fault}. Nothing was found. Delete it: Redline builds a "
            "new one.",
        ) from fault


def _texts(
    session: Session, ids: Iterable[int], entries: Mapping[int, EntryRow]
) -> Iterator[tuple[int, str]]:
    """The texts of passages of a session by id; those that cannot be read are left out."""
    try:
        with session.agent.open(session.real_path()) as reader:
            for number in ids:
                row = entries.get(number >> KIND_BITS)
                if row is not None:
                    yield number, passage_text(session, reader, row, PassageKind(number & KIND_MASK))
    except RedlineError:
        # The file was removed or rewritten: its passages leave the index as soon as it is indexed again.
        return


def passage_text(session: Session, reader: SessionReader, row: EntryRow, kind: PassageKind) -> str:
    """The text of one kind in an entry, read from the file. Raises what `read_again` raises."""
    entry = unpack(row.number, row.offset, row.length, row.entry_id, row.parent_id, row.digest)
    _, texts = read_again(session.agent, reader, entry, session.version)
    return next((found.text for found in passages(entry, texts) if found.kind is kind), "")


def _seconds(moment: Any) -> int:
    return int(moment.timestamp())

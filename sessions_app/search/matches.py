"""The passages that a query finds, counted in groups.

The index knows which words a passage has, but not their order: positions would make it three times as large. So a
query with a phrase, or with a word that the tokenizer divides, is compared with the texts themselves, of up to COMPARED
passages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Any, Final, NamedTuple

import msgspec

from sessions_app.agents.base import Agent
from sessions_app.index.indexed_entries import entries_at
from sessions_app.models import Session
from sessions_app.search.pure.passages import PassageKind, passages
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import RedlineError, SystemFailure
from sessions_app.storage.files import SessionReader
from sessions_app.storage.session_loader import reparse_entry

from .filters import SearchFilters
from .store import KIND_BITS, KIND_MASK, TextStore

COMPARED: Final = 400
"""Passages whose texts are compared with a query: some 40 ms."""


class MatchGroup(msgspec.Struct, frozen=True):
    """The found passages of one session that are alike."""

    session: int
    kind: int
    tool: str
    state: int
    places: int
    ids: str
    """The ids of the passages, separated by commas, in any order: few of them are ever used."""

    @property
    def passages(self) -> list[int]:
        """The ids of the passages."""
        return [int(one) for one in self.ids.split(",")]


class MatchPlace(NamedTuple):
    """One found passage."""

    passage: int
    tool: str
    state: int

    @property
    def entry(self) -> int:
        return self.passage >> KIND_BITS

    @property
    def kind(self) -> PassageKind:
        return PassageKind(self.passage & KIND_MASK)


def first_places(groups: Iterable[MatchGroup], limit: int) -> list[MatchPlace]:
    """The first places of groups of one session: kind by kind, in the order of the file."""
    places = [MatchPlace(number, group.tool, group.state) for group in groups for number in group.passages]
    return nsmallest(limit, places, key=lambda place: (place.passage & KIND_MASK, place.passage))


def entries_of(groups: Iterable[MatchGroup]) -> list[int]:
    """The keys of the entries of groups, in ascending order."""
    return sorted({number >> KIND_BITS for group in groups for number in group.passages})


class Matches:
    """The passages that a query finds, within the filters that the index can apply: the period and the session.

    Raises SystemFailure `search_failed`.
    """

    def __init__(self, store: TextStore, filters: SearchFilters) -> None:
        self.left_out = 0
        """Passages that have all words and were not compared with the query, because there are too many."""
        try:
            self._query = filters.query.for_index(store)
            self.groups = _find(store, self._query.expression, filters)
        except sqlite3.DatabaseError as fault:
            raise SystemFailure(
                "search_failed",
                f"The full-text index {store.path} cannot be read: {fault}. Nothing was found. Delete it: Redline "
                "builds a new one.",
            ) from fault
        if self._query.compared or self._query.refused:
            self._compare()

    def _compare(self) -> None:
        """Keep only the passages whose texts match the query; the most informative kinds are compared first."""
        candidates = [(number, group.session) for group in self.groups for number in group.passages]
        first = nsmallest(COMPARED, candidates, key=lambda found: (found[0] & KIND_MASK, -found[0]))
        self.left_out = len(candidates) - len(first)
        ids: dict[int, list[int]] = {}
        for number, session in first:
            ids.setdefault(session, []).append(number)
        entries = entries_at(number >> KIND_BITS for number, _ in first)
        accepted = {
            number
            for key, session in Session.objects.for_reading().in_bulk(ids).items()
            for number, text in _texts(session, ids[key], entries)
            if self._accepts(text)
        }
        self.groups = [
            msgspec.structs.replace(group, places=len(left), ids=",".join(map(str, left)))
            for group in self.groups
            if (left := accepted.intersection(group.passages))
        ]

    def _accepts(self, text: str) -> bool:
        query = self._query
        return all(wanted.is_in(text) for wanted in query.compared) and not any(
            unwanted.is_in(text) for unwanted in query.refused
        )


def _find(store: TextStore, expression: str, filters: SearchFilters) -> list[MatchGroup]:
    conditions, values = ["words MATCH ?"], [expression, *map(_seconds, filters.period)]
    if filters.since is not None:
        conditions.append("moment >= ?")
    if filters.until is not None:
        conditions.append("moment < ?")
    if filters.session is not None:
        conditions.append("alike IN (SELECT id FROM alike WHERE session = ?)")
        values.append(filters.session)
    found = (
        "SELECT alike AS key, count(*) AS places, group_concat(words.rowid) AS ids"  # noqa: S608  # constants
        " FROM words CROSS JOIN passage ON passage.id = words.rowid"
        f" WHERE {' AND '.join(conditions)} GROUP BY alike"
    )
    columns = "session, kind, tool, state, places, ids"
    rows = store.connection.execute(
        f"SELECT {columns} FROM ({found}) CROSS JOIN alike ON alike.id = key",  # noqa: S608  # constants
        values,
    )
    return [MatchGroup(*row) for row in rows]


def _texts(session: Session, ids: Iterable[int], entries: Mapping[int, Entry]) -> Iterator[tuple[int, str]]:
    """The texts of passages of a session by id; those that cannot be read are left out."""
    agent = session.agent
    try:
        with agent.store.open(session.real_path()) as reader:
            for number in ids:
                entry = entries.get(number >> KIND_BITS)
                if entry is not None:
                    kind = PassageKind(number & KIND_MASK)
                    yield number, passage_text(agent, session.version, reader, entry, kind)
    except RedlineError:
        # The file was removed or rewritten: its passages leave the index as soon as it is indexed again.
        return


def passage_text(agent: Agent, version: int, reader: SessionReader, entry: Entry, kind: PassageKind) -> str:
    """The text of one kind in an entry, read from the file. Raises what `reparse_entry` raises."""
    _, texts = reparse_entry(agent, reader, entry, version)
    return next((found.text for found in passages(entry, texts) if found.kind is kind), "")


def _seconds(moment: Any) -> int:
    return int(moment.timestamp())

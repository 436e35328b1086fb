"""The results of a search: sessions, numbers of places, facets to narrow them, and some snippets.

Within one session: the number of matches, and those before and after an entry.

    words ─match─▶ counts by session, kind, tool, state ─filters─▶ sessions in order ─▶ places ─files─▶ snippets

All counts are exact. Only the texts of the places that are shown are read, from the session files.

The index knows which words a passage has, but not their order: positions would make it three times as large. So a query
with a phrase, or with a word that the tokenizer divides, is compared with the texts themselves, of up to COMPARED
passages.
"""

from __future__ import annotations

import json
import sqlite3
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import nsmallest
from typing import Any, Final, NamedTuple

import msgspec
from django.conf import settings
from django.db.models import Aggregate, Min, TextField
from django.db.models.functions import Coalesce

from sessions_app.agents.base import Agent
from sessions_app.agents.registry import AGENTS, key_of_reader
from sessions_app.database.sqlite import UntilWritten
from sessions_app.database.text_store import KIND_BITS, KIND_MASK, TextStore
from sessions_app.disk.files import SessionReader
from sessions_app.index.index_store import entries_at
from sessions_app.index.progress import TextProgress
from sessions_app.models import Session, SessionQuerySet
from sessions_app.search.pure.query import IndexQuery, SearchQuery, SnippetPart, TermPattern, snippet
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import RedlineError, SystemFailure
from sessions_app.sessionlog.passages import PassageKind, PassageState, passages
from sessions_app.sessionlog.text import printable
from sessions_app.storage.session_loader import reparse_entry

from .filters import KINDS, STATES, SearchFilters
from .text_index import text_progress

SESSIONS_ON_PAGE: Final = 10
PLACES_OF_SESSION: Final = 3
"""The number of places shown of each session."""
FACETS: Final[Mapping[str, tuple[str, Mapping[Any, str] | None]]] = {
    "agent": ("Agent", {key: agent.label for key, agent in AGENTS.items()}),
    "in": ("Where", KINDS),
    "is": ("State", STATES),
    "tool": ("Tool", None),
    "project": ("Project", None),
}
"""The filters by which results can be narrowed, each with its label, and the labels of its values if they are known."""
_Traits = tuple[str, int, int, str, str]
WHO_CHARACTERS: Final = 24
READ_ALL: Final = 20
"""If at least one in this many sessions has places, all rows are read instead of some by their keys."""
CHOICES: Final = 12
"""The maximum number of tools, or projects, offered to narrow a search, those with the most places first."""


@dataclass(frozen=True, slots=True)
class FacetChoice:
    """A value by which a search can be narrowed, with the number of places that it would leave."""

    value: str
    label: str
    places: int
    chosen: bool
    fixed: bool
    """Whether the text of the query sets it, so that it can only be removed there."""


@dataclass(frozen=True, slots=True)
class Facet:
    """A property by which a search can be narrowed. `name` is the name of its filter."""

    name: str
    label: str
    choices: list[FacetChoice]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One place: an entry, and the part of its text around the matches."""

    entry_id: str
    number: int
    kind: PassageKind
    tool: str
    state: PassageState
    recorded_at: datetime | None
    snippet: list[SnippetPart]
    fault: str = ""
    """Why its text could not be read; empty if it could."""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.snippet)

    @property
    def voice(self) -> str:
        """The voice in which pages set it: a person's, the assistant's, its thinking's, or a machine's."""
        return _VOICES.get(self.kind, "assistant")

    @property
    def who(self) -> str:
        """Its author in a word or two, printable."""
        if self.kind is PassageKind.RESULT:
            is_long = len(self.tool) > WHO_CHARACTERS
            return printable(f"{self.tool[: WHO_CHARACTERS - 1]}…" if is_long else self.tool) or "command"
        return _WHO[self.kind]

    @property
    def beyond(self) -> str:
        """Why the model no longer sees it, in a word or two; empty if it does."""
        return _BEYOND.get(self.state, "")


@dataclass(frozen=True, slots=True)
class SessionHits:
    """The places in one session: their number, and the first of them."""

    session: Session
    places: int
    hits: list[SearchHit]

    @property
    def more(self) -> int:
        return self.places - len(self.hits)


@dataclass(frozen=True, slots=True)
class SearchResults:
    """One page of the results."""

    filters: SearchFilters
    progress: TextProgress
    places: int = 0
    sessions: int = 0
    """The number of sessions, and of places, on all pages."""
    found: list[SessionHits] = field(default_factory=list)
    facets: list[Facet] = field(default_factory=list)
    page: int = 1
    pages: int = 1
    passages: int = 0
    milliseconds: int = 0
    left_out: int = 0
    """The number of passages with all the words that were not compared with the query, because there are too many."""

    @property
    def previous(self) -> str:
        return self.filters.address(page=self.page - 1)

    @property
    def next(self) -> str:
        return self.filters.address(page=self.page + 1)

    @property
    def is_incomplete(self) -> bool:
        """Whether some sessions cannot be searched yet."""
        return self.progress.searchable < self.progress.sessions


_VOICES: Final = {
    PassageKind.SAID: "person",
    PassageKind.THINKING: "thinking",
    PassageKind.CALL: "machine",
    PassageKind.RESULT: "machine",
}
_WHO: Final = {
    PassageKind.SAID: "you",
    PassageKind.REPLY: "assistant",
    PassageKind.SUMMARY: "summary",
    PassageKind.THINKING: "thinking",
    PassageKind.CALL: "call",
    PassageKind.ADDED: "context",
}

_BEYOND: Final = {
    PassageState.STRUCK: "deleted",
    PassageState.SUMMARISED: "summarised",
    PassageState.ELSEWHERE: "other branch",
}


def search(
    filters: SearchFilters, *, shown_only: bool = True, places: int = PLACES_OF_SESSION, limit: int = 0
) -> SearchResults:
    """The page of results for a query and filters, with some places of each session.

    `shown_only` leaves out sessions that no page shows. With a `limit`, there is one page with at most this many
    places, session by session. Raises SystemFailure `search_failed`.
    """
    started = time.perf_counter()
    with TextStore(settings.REDLINE_DATA_DIR) as store:
        empty = SearchResults(filters, text_progress(store), passages=store.passages())
        if not filters.query.finds:
            return empty
        groups, left_out = find_matches(store, filters)
        known = _sessions_of(groups, empty.progress.sessions, shown_only=shown_only)
        matching, facets = _narrow(groups, known, filters)
        order = _order(matching, known, filters.sort)
        per_page = limit or SESSIONS_ON_PAGE
        pages = max(1, -(-len(order) // per_page))
        page = min(filters.page, pages)
        keys = order[(page - 1) * per_page : page * per_page]
        found = _session_hits(filters.query.patterns, matching, keys, limit or places, limit)
    return replace(
        empty,
        places=sum(group.places for group in matching),
        sessions=len(order),
        found=found,
        facets=facets,
        page=page,
        pages=pages,
        milliseconds=round(1000 * (time.perf_counter() - started)),
        left_out=left_out,
    )


class _Listed(Aggregate):
    """The values of a group, as one text in JSON."""

    function = "json_group_array"
    output_field = TextField()


class _Sessions:
    """The facts about sessions that filters, facets and order need."""

    def __init__(self, rows: SessionQuerySet) -> None:
        self.owners: dict[int, tuple[str, str]] = {}
        """The agent and the project of each."""
        self.used: dict[int, int] = {}
        """When each was used last, in nanoseconds."""
        # One row for the sessions of a project, in the order of an index: a search may find thousands of them.
        alike = rows.order_by().values_list("root", "read_as", "cwd")
        listed = alike.annotate(Min("root__agent"), numbers=_Listed("pk"), moments=_Listed(Coalesce("mtime_ns", 0)))
        for _, read_as, cwd, agent, in_numbers, moments in listed:
            numbers = msgspec.json.decode(in_numbers, type=list[int])
            self.owners |= dict.fromkeys(numbers, (key_of_reader(read_as) or agent, cwd))
            self.used |= zip(numbers, msgspec.json.decode(moments, type=list[int]), strict=True)


_shown_sessions: Final = UntilWritten(lambda: _Sessions(Session.objects.shown()))


def _sessions_of(groups: Iterable[MatchGroup], known: int, *, shown_only: bool) -> _Sessions:
    """The sessions with places. If they are a large part of the known ones, all are read, and cached for the next
    search."""
    keys = {group.session for group in groups}
    if shown_only and len(keys) * READ_ALL > known:
        return _shown_sessions()
    found = Session.objects.shown() if shown_only else Session.objects.all()
    return _Sessions(found.among(keys))


def _order(groups: Iterable[MatchGroup], known: _Sessions, sort: str) -> list[int]:
    """The keys of the sessions, latest first; with the order `best`, first by their most informative kind."""
    kinds: dict[int, int] = {}
    for group in groups:
        if group.kind < kinds.get(group.session, KIND_MASK + 1):
            kinds[group.session] = group.kind
    latest = sorted(sorted(kinds), key=known.used.__getitem__, reverse=True)
    return sorted(latest, key=kinds.__getitem__) if sort == "best" else latest


def _narrow(
    groups: Iterable[MatchGroup], known: _Sessions, filters: SearchFilters
) -> tuple[list[MatchGroup], list[Facet]]:
    """The groups that pass the filters, and the facets, each with counts under all other filters.

    Thousands of groups share some dozens of traits, which are tested and counted instead.
    """
    alike: dict[_Traits, list[MatchGroup]] = {}
    for group in groups:
        if group.session in known.owners:
            agent, project = known.owners[group.session]
            alike.setdefault((agent, group.kind, group.state, group.tool.lower(), project), []).append(group)
    projects = {project for *_, project in alike if filters.in_project(project)}
    chosen: list[frozenset[Any]] = [filters.agents, filters.kinds, filters.states, filters.tools, frozenset(projects)]
    is_limited = [*map(bool, chosen[:-1]), bool(filters.projects)]
    counts: list[Counter[Any]] = [Counter() for _ in FACETS]
    matching: list[MatchGroup] = []
    for traits, found in alike.items():
        failed = [facet for facet, trait in enumerate(traits) if is_limited[facet] and trait not in chosen[facet]]
        if not failed:
            matching += found
        places = sum(group.places for group in found)
        for facet, trait in enumerate(traits):
            if failed in ([], [facet]):
                counts[facet][trait] += places
    chosen[-1] &= counts[-1].keys()
    facets = [
        _facet(name, label, labels, counted, wanted, filters.given)
        for (name, (label, labels)), counted, wanted in zip(FACETS.items(), counts, chosen, strict=True)
    ]
    return matching, facets


def _facet(
    name: str,
    label: str,
    labels: Mapping[Any, str] | None,
    counted: Counter[Any],
    chosen: frozenset[Any],
    given: Collection[tuple[str, str]],
) -> Facet:
    if labels is None:
        most = [value for value, _ in counted.most_common() if value]
        labels = {value: value for value in [*sorted(chosen), *most][: max(CHOICES, len(chosen))]}
    choices = [
        FacetChoice(
            _value_of(value),
            words,
            counted[value],
            chosen=value in chosen,
            fixed=value in chosen and (name, _value_of(value)) not in given,
        )
        for value, words in labels.items()
        if counted[value] or value in chosen
    ]
    return Facet(name, label, choices)


def _value_of(value: Any) -> str:
    return value.name.lower() if isinstance(value, PassageKind | PassageState) else str(value)


# ---- the places that are shown -----------------------------------------------------------------------------


def _session_hits(
    patterns: Sequence[TermPattern],
    groups: Iterable[MatchGroup],
    keys: Sequence[int],
    places: int,
    limit: int,
) -> list[SessionHits]:
    sessions = Session.objects.for_hits().in_bulk(keys)
    by_session: dict[int, list[MatchGroup]] = {key: [] for key in keys if key in sessions}
    for group in groups:
        if group.session in by_session:
            by_session[group.session].append(group)
    chosen = {key: first_places(found, places) for key, found in by_session.items()}
    if limit:
        chosen = _first(chosen, limit)
    entries = entries_at(place.entry for found in chosen.values() for place in found)
    return [
        SessionHits(
            sessions[key],
            sum(group.places for group in by_session[key]),
            _hits(sessions[key], [place for place in found if place.entry in entries], entries, patterns),
        )
        for key, found in chosen.items()
    ]


def _first(places: Mapping[int, list[MatchPlace]], limit: int) -> dict[int, list[MatchPlace]]:
    """The first places of all sessions together, in the order of the sessions."""
    first: dict[int, list[MatchPlace]] = {}
    for key, found in places.items():
        if limit:
            first[key] = found[:limit]
            limit -= len(first[key])
    return first


def _hits(
    session: Session,
    places: Sequence[MatchPlace],
    entries: Mapping[int, Entry],
    patterns: Sequence[TermPattern],
) -> list[SearchHit]:
    """The places with their snippets, read from the file of the session."""
    agent = session.agent
    hits: list[SearchHit] = []
    try:
        with agent.store.open(session.real_path()) as reader:
            for place in places:
                entry = entries[place.entry]
                text = passage_text(agent, session.version, reader, entry, place.kind)
                hits.append(_hit(place, entry, snippet(text, patterns)))
    except RedlineError as fault:
        hits += [_hit(place, entries[place.entry], [], fault.message) for place in places[len(hits) :]]
    return hits


def _hit(place: MatchPlace, entry: Entry, parts: list[SnippetPart], fault: str = "") -> SearchHit:
    kind, state = place.kind, PassageState(place.state)
    return SearchHit(entry.id, entry.number, kind, place.tool, state, entry.moment, parts, fault)


# ---- within one session ----------------------------------------------------------------------------------


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
        """The marks for a script on the page, as JSON: the words of each term, and whether it also finds longer
        words.
        """
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
            groups, _ = find_matches(store, filters)
            wanted = [group for group in groups if filters.accepts(group.kind, group.state, group.tool)]
            keys = entries_of(wanted)
    current = session.entries.filter(entry_id=entry_id).values_list("pk", flat=True).first() if entry_id else None
    before = bisect_left(keys, current) if current is not None else 0
    after = bisect_right(keys, current) if current is not None else 0
    ends = [keys[before - 1], keys[after % len(keys)]] if keys else []
    ids = dict(session.entries.filter(pk__in=ends).values_list("pk", "entry_id"))
    previous, following = [ids.get(key, "") for key in ends] or ("", "")
    position = after if after > before else 0
    return SessionSearch(filters.text, filters.query, len(keys), position, previous, following, is_searchable)


# ---- matches ---------------------------------------------------------------------------------------------

COMPARED: Final = 400
"""The maximum number of passages whose texts are compared with a query: some 40 ms."""


class MatchGroup(msgspec.Struct, frozen=True):
    """The matching passages of one session with the same properties."""

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


def find_matches(store: TextStore, filters: SearchFilters) -> tuple[list[MatchGroup], int]:
    """The passages that a query finds, within the filters that the index can apply: the period and the session; and how
    many more have all its words, but were not compared with it, because there are too many.

    Raises SystemFailure `search_failed`.
    """
    try:
        query = filters.query.for_index(store)
        groups = _find(store, query.expression, filters)
    except sqlite3.DatabaseError as fault:
        raise SystemFailure(
            "search_failed",
            f"The full-text index {store.path} cannot be read: {fault}. Nothing was found. Delete it: Redline "
            "builds a new one.",
        ) from fault
    return _compared(groups, query) if query.compared or query.refused else (groups, 0)


def _compared(groups: Sequence[MatchGroup], query: IndexQuery) -> tuple[list[MatchGroup], int]:
    """Only the passages whose texts match the query; the most informative kinds are compared first."""
    candidates = [(number, group.session) for group in groups for number in group.passages]
    first = nsmallest(COMPARED, candidates, key=lambda found: (found[0] & KIND_MASK, -found[0]))
    ids: dict[int, list[int]] = {}
    for number, session in first:
        ids.setdefault(session, []).append(number)
    entries = entries_at(number >> KIND_BITS for number, _ in first)
    accepted = {
        number
        for key, session in Session.objects.for_reading().in_bulk(ids).items()
        for number, text in _texts(session, ids[key], entries)
        if all(wanted.is_in(text) for wanted in query.compared)
        and not any(unwanted.is_in(text) for unwanted in query.refused)
    }
    matching = [
        msgspec.structs.replace(group, places=len(left), ids=",".join(map(str, left)))
        for group in groups
        if (left := accepted.intersection(group.passages))
    ]
    return matching, len(candidates) - len(first)


def _find(store: TextStore, expression: str, filters: SearchFilters) -> list[MatchGroup]:
    conditions, values = ["words MATCH ?"], [expression, *(int(moment.timestamp()) for moment in filters.period)]
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
    """The text of one kind in an entry, read from the file. Raises the errors of `reparse_entry`."""
    _, texts = reparse_entry(agent, reader, entry, version)
    return next((found.text for found in passages(entry, texts) if found.kind is kind), "")

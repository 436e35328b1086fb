"""The filters of a search, as in the address of its page, in its query, and on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar
from urllib.parse import urlencode

from sessions_app.agents.registry import AGENTS
from sessions_app.search.pure.query import MAX_LENGTH, SearchQuery, day_of
from sessions_app.sessionlog.passages import PassageKind, PassageState

SORTS: Final[Mapping[str, str]] = {"best": "Best first", "newest": "Newest first"}
KINDS: Final[Mapping[PassageKind, str]] = {
    PassageKind.SAID: "What people said",
    PassageKind.REPLY: "Assistant text",
    PassageKind.SUMMARY: "Summaries",
    PassageKind.THINKING: "Thinking",
    PassageKind.CALL: "Calls",
    PassageKind.RESULT: "Results",
    PassageKind.ADDED: "Added context",
}
STATES: Final[Mapping[PassageState, str]] = {
    PassageState.SEEN: "The model still sees it",
    PassageState.STRUCK: "Deleted",
    PassageState.SUMMARISED: "Before a compaction",
    PassageState.ELSEWHERE: "On another branch",
}
KIND_NAMES: Final[Mapping[str, frozenset[PassageKind]]] = {
    **{kind.name.lower(): frozenset({kind}) for kind in PassageKind},
    "user": frozenset({PassageKind.SAID}),
    "assistant": frozenset({PassageKind.REPLY, PassageKind.THINKING, PassageKind.CALL}),
    "text": frozenset({PassageKind.REPLY}),
    "tool": frozenset({PassageKind.RESULT}),
}
_STATE_NAMES: Final[Mapping[str, frozenset[PassageState]]] = {
    **{state.name.lower(): frozenset({state}) for state in PassageState},
    **dict.fromkeys(("deleted", "removed"), frozenset({PassageState.STRUCK, PassageState.SUMMARISED})),
}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """The query and its filters. The default of every other field means no restriction.

    `text` is the typed query; filters in it are combined with those that are given separately.
    """

    text: str = ""
    query: SearchQuery = field(default_factory=SearchQuery)
    agents: frozenset[str] = frozenset()
    kinds: frozenset[PassageKind] = frozenset()
    states: frozenset[PassageState] = frozenset()
    tools: frozenset[str] = frozenset()
    """Names of tools in lower case: agents differ in that alone."""
    projects: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    session: int | None = None
    sort: str = "best"
    page: int = 1
    given: tuple[tuple[str, str], ...] = ()
    """The filters that were given separately from the query, as names and values."""
    ignored: tuple[str, ...] = ()
    """The filters with an unknown value, such as "is:gone"."""

    @classmethod
    def of(cls, text: str, given: Iterable[tuple[str, str]] = (), **other: object) -> SearchFilters:
        """The filters for a query; those with an unknown value are only listed in `ignored`."""
        # Words have no unprintable characters, and the query is shown.
        text = "".join(one if one.isprintable() else " " for one in text[:MAX_LENGTH]).strip()
        query = SearchQuery.of(text)
        separate = tuple((name, value) for name, value in given if value)
        values: dict[str, list[str]] = {}
        for name, value in (*query.filters, *separate):
            values.setdefault(name, []).append(value)
        return cls(
            text=text,
            query=query,
            agents=frozenset(key for value in values.get("agent", ()) for key in _agents_named(value)),
            kinds=_named(values.get("in", ()), KIND_NAMES),
            states=_named(values.get("is", ()), _STATE_NAMES),
            tools=frozenset(value.lower() for value in values.get("tool", ())),
            projects=frozenset(values.get("project", ())),
            since=max(_days(values, "since", "after"), default=None),
            until=min(_days(values, "before", "until"), default=None),
            given=separate,
            ignored=tuple(f"{name}:{one}" for name in values for one in values[name] if not _is_known(name, one)),
            **other,  # type: ignore[arg-type]  # the fields of this class
        )

    @property
    def period(self) -> list[datetime]:
        """The limits that are set, `since` first."""
        return [moment for moment in (self.since, self.until) if moment is not None]

    def accepts(self, kind: int, state: int, tool: str) -> bool:
        """Whether a passage passes the filters that do not depend on its session."""
        return (
            (not self.kinds or kind in self.kinds)
            and (not self.states or state in self.states)
            and (not self.tools or tool.lower() in self.tools)
        )

    def in_project(self, cwd: str) -> bool:
        """Whether a project was named, by its path or the end of its path."""
        return any(cwd == name or cwd.endswith(f"/{name.strip('/')}") for name in self.projects)

    def address(self, **other: object) -> str:
        """The query of the page's address, with some of its parts changed."""
        parts = {"sort": self.sort, "session": self.session, "page": 1, **other}
        usual = {"sort": "best", "page": 1}
        changed = [(name, str(value)) for name, value in parts.items() if value and value != usual.get(name)]
        return "?" + urlencode([("q", self.text), *self.given, *changed])

    @property
    def everywhere(self) -> str:
        """The address of the search in all sessions."""
        return self.address(session=None)

    @property
    def unfiltered(self) -> str:
        """The address of the search without filters."""
        return "?" + urlencode({"q": self.query.words})

    @property
    def since_day(self) -> str:
        """The day that was given separately from the query, for the form field."""
        return dict(self.given).get("since", "")

    @property
    def until_day(self) -> str:
        return dict(self.given).get("until", "")


def _days(values: Mapping[str, list[str]], at_start: str, at_end: str) -> list[datetime]:
    """The times of two filters: the start of the first's day, month or year, and the end of the second's."""
    starts = [day_of(one) for one in values.get(at_start, ())]
    ends = [day_of(one, end=True) for one in values.get(at_end, ())]
    return [moment for moment in (*starts, *ends) if moment is not None]


def _is_known(name: str, value: str) -> bool:
    if name in ("in", "is"):
        return value.casefold() in (KIND_NAMES if name == "in" else _STATE_NAMES)
    return name not in ("since", "after", "before", "until") or day_of(value) is not None


def _agents_named(name: str) -> list[str]:
    """The keys of agents by their key or the beginning of their name: `claude` is Claude Code."""
    wanted = name.casefold().replace(" ", "-")
    found = [key for key in AGENTS if key == wanted] or [key for key in AGENTS if key.startswith(wanted)]
    return found or [name]


def _named(names: Iterable[str], known: Mapping[str, frozenset[_T]]) -> frozenset[_T]:
    return frozenset(one for name in names for one in known.get(name.casefold(), ()))

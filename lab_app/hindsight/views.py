"""What compactions cost: sums over all sessions by who compacted and by month, one session's compactions, and the part
of other pages for one compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import TruncMonth
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from compaction_app.entries.lost_subjects import below_project
from compaction_app.lookups import known_session
from compaction_app.models import written_by_redline
from compaction_app.planning.model_registry import prices_of_session
from compaction_app.providers.types import dollars
from lab_app.models import CompactionCost
from lab_app.pure.cost_chart import CostChart, MonthSums, cost_chart, short_tokens
from lab_app.pure.hindsight import Fetched, Hindsight, Returned, Way
from sessions_app.agents.registry import AGENTS
from sessions_app.models import Session
from sessions_app.sessionlog.context import significant
from sessions_app.sessionlog.entries import EntryKind
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.text import plural
from sessions_app.web.pages import status_of, wants_fragment

from .service import STORED, Figures, due_sessions, figures_of, look_back

MOST: Final = 25
"""The number of the most expensive compactions in the list."""
FETCHED_SHOWN: Final = 200
RETURNED_SHOWN: Final = 120
"""The maximum number of references that are shown for each way in which they came back."""
_NO_MONTH: Final = "none"
"""The month, in addresses, of compactions that record no time."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums over a group of compactions."""

    compactions: int = 0
    requests: int = 0
    saved: int = 0
    again: int = 0
    sent: int = 0
    files: int = 0
    memory: int = 0
    dollars_saved: float = 0.0
    dollars_cost: float = 0.0
    priced: int = 0
    """The number of compactions that have a price."""

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    @property
    def percent(self) -> float | None:
        """The tokens sent again, in percent of those not sent; None if nothing was saved."""
        return 100 * self.sent / self.saved if self.saved else None

    @property
    def saved_words(self) -> str:
        return short_tokens(self.saved)

    @property
    def sent_words(self) -> str:
        return short_tokens(self.sent)

    @property
    def cost(self) -> str:
        """The cost in US dollars; empty if no price is known."""
        return dollars(self.dollars_cost) if self.priced else ""

    @property
    def worth(self) -> str:
        """The saving in US dollars, which can be negative; empty if no price is known."""
        return signed_dollars(self.dollars_saved) if self.priced else ""


@dataclass(frozen=True, slots=True)
class SumRow:
    """The sums of one agent, one month, or an agent in a month."""

    label: str
    agent: str
    month: str
    """The month, such as `2026-11`; empty for all."""
    sums: Sums
    when: datetime | None = None
    """The first day of the month."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The page of all sessions. Sums of agents and of months are of all compactions that match the filter."""

    agents: Sequence[SumRow]
    makers: Sequence[SumRow]
    """By who compacted: Redline, for each agent, before the agents themselves."""
    months: Sequence[SumRow]
    chart: CostChart | None
    """None without a compaction that records its time."""
    total: Sums
    sessions: int
    costs: Sequence[CompactionCost]
    """The compactions after which something was sent again, the most expensive first; at most MOST."""
    more_costs: int
    """The number of further such compactions."""
    waiting: int
    """The number of sessions still to be evaluated."""
    agent: str
    agent_label: str
    month: str
    when: datetime | None
    """The month that is shown; None for all."""

    @property
    def answer(self) -> str:
        """What compactions saved and what came back, in two sentences; empty if there are no compactions."""
        if not self.total.compactions:
            return ""
        dated = [row.when for row in self.months if row.when is not None]
        since = f"Since {min(dated):%B %Y}, " if dated and not self.month else ""
        since = f"In {self.when:%B %Y}, " if self.when is not None else since
        who = f" of {self.agent_label}" if self.agent else ""
        saved, sent = _in_words(self.total.saved), _in_words(self.total.sent)
        kept = f"{since}{plural(self.total.compactions, 'compaction')}{who} kept {saved} tokens from being sent again."
        back = f"{sent} of them came back" if self.total.sent else "None of them came back"
        return f"{kept} {back}{': files and commands were read again.' if self.total.sent else '.'}"


def view_overview(now: datetime, agent: str = "", month: str = "") -> Overview:
    """The sums of an agent and a month (`2026-11`), or of all. Raises BadInput `bad_filter`."""
    first = _first_of(month)
    if agent and agent not in AGENTS:
        raise BadInput("bad_filter", "No agent has this key. Nothing was counted.")
    rows = CompactionCost.objects.shown()
    chosen = _in_month(rows.filter(agent=agent) if agent else rows, month, first)
    sums_of = {
        "compactions": Count("pk"),
        "priced": Count("dollars_cost"),
        **{f"sum_{name}": Sum(name) for name in STORED},
    }
    found = chosen.annotate(month=TruncMonth("at")).values("agent", "by_redline", "month").annotate(**sums_of)
    groups = [(one["agent"], one["by_redline"], one["month"], _sums(one)) for one in found]
    by_agent: dict[str, Sums] = {}
    by_maker: dict[tuple[bool, str], Sums] = {}
    by_month: dict[datetime | None, Sums] = {}
    for key, by_redline, when, sums in groups:
        by_agent[key] = by_agent.get(key, Sums()) + sums
        by_maker[by_redline, key] = by_maker.get((by_redline, key), Sums()) + sums
        by_month[when] = by_month.get(when, Sums()) + sums
    most = chosen.filter(sent__gt=0).select_related("session__root").order_by("-sent", "-at", "pk")
    return Overview(
        agents=[
            SumRow(_label(key), key, month, sums)
            for key, sums in sorted(by_agent.items(), key=lambda one: (-one[1].sent, one[0]))
        ],
        makers=[
            SumRow(_maker(key, by_redline=by_redline), key, month, sums)
            for (by_redline, key), sums in sorted(by_maker.items(), key=lambda one: (not one[0][0], -one[1].saved))
        ],
        chart=cost_chart(
            {
                when.date(): MonthSums(sums.compactions, sums.saved, sums.sent)
                for when, sums in by_month.items()
                if when is not None
            }
        ),
        months=[
            SumRow("", agent, f"{when:%Y-%m}" if when is not None else _NO_MONTH, sums, when)
            for when, sums in sorted(by_month.items(), key=lambda one: _later_first(one[0]))
        ],
        total=sum((sums for *_, sums in groups), Sums()),
        sessions=chosen.values("session").distinct().count(),
        costs=list(most[:MOST]),
        more_costs=max(0, most.count() - MOST),
        waiting=due_sessions(now).filter(root__configured=True).count(),
        agent=agent,
        agent_label=_label(agent) if agent else "",
        month=month,
        when=first,
    )


def signed_dollars(amount: float) -> str:
    """An amount in US dollars, which can be negative, as text."""
    return dollars(amount) if amount >= 0 else f"−{dollars(-amount)}"


def _first_of(month: str) -> datetime | None:
    if month in ("", _NO_MONTH):
        return None
    try:
        return datetime.strptime(month, "%Y-%m").astimezone()
    except (ValueError, OverflowError, OSError) as fault:
        raise BadInput("bad_filter", "A month is written like 2026-11. Nothing was counted.") from fault


def _in_month(rows: QuerySet[CompactionCost], month: str, first: datetime | None) -> QuerySet[CompactionCost]:
    if month == _NO_MONTH:
        return rows.filter(at__isnull=True)
    if first is None:
        return rows
    return rows.filter(Q(at__year=first.year) & Q(at__month=first.month))


def _sums(found: Mapping[str, Any]) -> Sums:
    return Sums(
        compactions=found["compactions"],
        priced=found["priced"],
        **{name: found[f"sum_{name}"] or 0 for name in STORED},
    )


def _in_words(tokens: int) -> str:
    """A number of tokens in a sentence: 76.5 million, 812,000."""
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:,.1f} million"
    return f"{significant(tokens):,}"


def _maker(agent: str, *, by_redline: bool) -> str:
    return f"Redline, {_label(agent)}" if by_redline else f"{_label(agent)} itself"


def _label(agent: str) -> str:
    return AGENTS[agent].label if agent in AGENTS else "unknown agent"


def _later_first(when: datetime | None) -> float:
    return -when.timestamp() if when is not None else float("inf")


# ---- one session -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookRow:
    """One compaction of a session, judged by the requests that followed it."""

    entry_id: str
    name: str
    when: datetime | None
    figures: Figures
    until_id: str
    by_redline: bool
    is_encrypted: bool
    is_selected: bool
    leaf: str
    """The leaf in the address; empty for the branch from which the agent continues."""

    @property
    def query(self) -> str:
        """The query of its address."""
        named = {"entry": self.entry_id, "leaf": self.leaf}
        return urlencode({name: value for name, value in named.items() if value}, quote_via=quote, safe="")

    @property
    def cost(self) -> str:
        cost = self.figures.dollars_cost
        return "" if cost is None else dollars(cost)

    @property
    def worth(self) -> str:
        saved = self.figures.dollars_saved
        return "" if saved is None else signed_dollars(saved)


@dataclass(frozen=True, slots=True)
class FetchedRow:
    """A call that brought back deleted content, with sizes in the session's measure."""

    call: Fetched
    name: str
    tokens: int
    again: int


@dataclass(frozen=True, slots=True)
class ReturnedList:
    """The references that came back in the same way."""

    words: str
    shown: Sequence[Returned]
    total: int


_WAYS: Final = {
    Way.MEMORY: "Recalled, or guessed",
    Way.FETCHED: "After a tool had shown them again",
    Way.SHOWN: "After you or the agent had shown them again",
}


def view_session(session: Session, entry_id: str = "", leaf_id: str = "") -> dict[str, Any]:
    """The compactions of a branch, with one selected; without an id, the most expensive one. For its page.

    `selected` is None if no request has followed the named compaction, or any compaction; `is_of_branch` is whether the
    named one is on the branch. Raises the errors of `look_back`.
    """
    found = look_back(session, leaf_id)
    known = prices_of_session(session, Path.home()) if found.hindsights else None
    prices = known.value if known is not None else None
    figures = [figures_of(one, found.size, prices) for one in found.hindsights]
    place = _selected(found.hindsights, figures, entry_id)
    own = written_by_redline(session)
    rows = [
        _look_row(one, sums, leaf_id, by_redline=one.entry_id in own, is_selected=number == place)
        for number, (one, sums) in enumerate(zip(found.hindsights, figures, strict=True))
    ]
    chosen = found.hindsights[place] if place is not None else None
    fetched = chosen.fetched if chosen is not None else ()
    return {
        "leaf": leaf_id,
        "rows": rows,
        "selected": rows[place] if place is not None else None,
        "is_named": bool(entry_id),
        "is_of_branch": entry_id in found.changes or place is not None,
        "fetched": [
            FetchedRow(
                one,
                below_project(one.name, session.cwd) if one.kind == "file" else one.name,
                found.size.of(one.tokens),
                found.size.of(one.again),
            )
            for one in sorted(fetched, key=lambda one: -one.sent)[:FETCHED_SHOWN]
        ],
        "more_fetched": max(0, len(fetched) - FETCHED_SHOWN),
        "returned": _returned(chosen.returned if chosen is not None else ()),
        "known": known,
    }


def _selected(found: Sequence[Hindsight], figures: Sequence[Figures], entry_id: str) -> int | None:
    """The position of the compaction that contains an entry, or of the most expensive one."""
    if entry_id:
        return next(
            (
                place
                for place, one in enumerate(found)
                if entry_id in (one.entry_id, one.point.first.id, *(said.entry.id for said in one.point.added))
            ),
            None,
        )
    return max(range(len(found)), key=lambda place: (figures[place].sent, place), default=None)


def _look_row(one: Hindsight, figures: Figures, leaf: str, *, by_redline: bool, is_selected: bool) -> LookRow:
    name = "edits" if one.point.kind is EntryKind.EDIT else "compaction"
    return LookRow(
        entry_id=one.entry_id,
        name="summary" if one.is_summary else name,
        when=one.point.last.moment,
        figures=figures,
        until_id=one.until_id,
        by_redline=by_redline,
        is_encrypted=one.is_encrypted,
        is_selected=is_selected,
        leaf=leaf,
    )


def _returned(found: Iterable[Returned]) -> list[ReturnedList]:
    by_way: dict[Way, list[Returned]] = {way: [] for way in _WAYS}
    for one in found:
        by_way[one.way].append(one)
    return [ReturnedList(_WAYS[way], names[:RETURNED_SHOWN], len(names)) for way, names in by_way.items() if names]


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """What compactions cost, by who compacted and by month."""
    view, fault = None, None
    try:
        view = view_overview(timezone.now(), request.GET.get("agent", ""), request.GET.get("month", ""))
    except RedlineError as failure:
        fault = failure
    context = {"view": view, "fault": fault, "active_nav": "insights"}
    return render(request, "hindsight/overview.html", context, status=status_of(fault))


@require_safe
def session(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The costs of the compactions of one branch, judged by the messages that followed; only the figures of one
    compaction if another page requests that fragment.
    """
    found = known_session(root, path)
    view, fault = None, None
    try:
        view = view_session(found, request.GET.get("entry", ""), request.GET.get("leaf", ""))
    except RedlineError as failure:
        fault = failure
    context = {"session": found, "view": view, "fault": fault, "active_nav": "sessions"}
    template = "hindsight/session.html"
    if wants_fragment(request):
        return render(request, f"{template}#since", context)
    return render(request, template, context, status=status_of(fault))

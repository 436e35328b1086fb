"""The saving of a compaction with each request and its single cost, with a drawing of when it pays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compaction_app.core.cost import InputCost, input_cost
from compaction_app.planning.model_prices import prices_of_session
from compaction_app.planning.usage import dollars
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.model_prices import InputPrices
from sessions_app.sessionlog.sourced_value import SourcedValue

from .units import ReviewAccount

LEFT, RIGHT, BOTTOM, HEIGHT = 8, 288, 128, 108
"""The start, the end, the baseline and the height of the drawing, in its units."""
LABEL: Final = 76
"""Width of the words below the end of a rising line."""
BEYOND: Final = 1.6
"""How far it extends past the crossing of both lines."""
FEWEST: Final = 8
"""The minimum number of requests that it shows."""


@dataclass(frozen=True, slots=True)
class CostPlot:
    """The cost of input by the number of requests, as two lines that cross."""

    requests: int
    as_is: str
    struck: str
    cross_x: float
    cross_y: float
    as_is_total: str
    struck_total: str
    as_is_y: float
    struck_y: float


@dataclass(frozen=True, slots=True)
class CostView:
    """The cost side of a plan. Tokens are in the measure of the context; money as text, empty without a price."""

    model: str
    saved_tokens: int
    rewritten: int
    """Tokens that the first request writes to the prompt cache again: the kept ones after the first deletion."""
    turn: int
    """The turn of the first deletion."""
    known: SourcedValue[InputPrices] | None
    cost: InputCost | None
    plot: CostPlot | None

    @property
    def pays_after(self) -> int | None:
        return self.cost.pays_after if self.cost is not None else None

    @property
    def before(self) -> str:
        return dollars(self.cost.before) if self.cost is not None else ""

    @property
    def after(self) -> str:
        return dollars(self.cost.after) if self.cost is not None else ""

    @property
    def saved(self) -> str:
        return dollars(self.cost.saved) if self.cost is not None else ""

    @property
    def once(self) -> str:
        return dollars(self.cost.once) if self.cost is not None else ""

    @property
    def assumptions(self) -> list[str]:
        """The kinds of tokens that were counted as others because their price is unknown."""
        prices = self.known.value if self.known is not None else None
        if prices is None:
            return []
        unknown = []
        if prices.cache_read is None:
            unknown.append("Cached input is counted as input, because its price is not known.")
        if prices.cache_write is None:
            unknown.append("Writing to the cache is counted as input, because its price is not known.")
        return unknown


def view_cost(account: ReviewAccount, home: Path | None = None) -> CostView:
    """The saving and the cost of the approved plan."""
    entries, session = account.transcript.entries, account.run.session
    first = min(
        (entry.position for target in account.review.goes if (entry := account.transcript.entry(target.entry_id))),
        default=len(entries),
    )
    stats = account.review.approved_stats
    following = sum(entry.tokens for entry in entries[first:]) - (stats.tokens_before - stats.tokens_after)
    rewritten = account.before.of(max(0, following))
    known = prices_of_session(session, home or Path.home())
    before, after = account.before.tokens, account.after.tokens
    cost = input_cost(before, after, rewritten, known.value.read, known.value.write) if known is not None else None
    return CostView(
        model=session.model,
        saved_tokens=before - after,
        rewritten=rewritten,
        turn=sum(entry.role == Role.USER for entry in entries[: first + 1]),
        known=known,
        cost=cost,
        plot=_plot(cost) if cost is not None else None,
    )


def _plot(cost: InputCost) -> CostPlot | None:
    """The drawing; None if the compaction never pays, as with a price of 0."""
    pays = cost.pays_after
    if pays is None:
        return None
    requests = max(FEWEST, math.ceil(BEYOND * pays))
    most = max(cost.as_is(requests), cost.struck(requests))

    def place(count: float, spent: float) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * count / requests
        return round(x, 1), round(BOTTOM - HEIGHT * spent / most, 1)

    start, as_is, struck = (
        place(0, 0),
        place(requests, cost.as_is(requests)),
        place(requests, cost.struck(requests)),
    )
    begun = place(0, cost.once)
    cross = place(cost.once / cost.saved, cost.struck(cost.once / cost.saved))
    return CostPlot(
        requests=requests,
        as_is=_line(start, as_is),
        struck=_line(begun, struck),
        cross_x=cross[0],
        cross_y=cross[1],
        as_is_total=dollars(cost.as_is(requests)),
        struck_total=dollars(cost.struck(requests)),
        as_is_y=max(10.0, as_is[1] - 6),
        struck_y=min(BOTTOM - 6.0, place(0, cost.struck(requests * (1 - LABEL / (RIGHT - LEFT))))[1] + 14),
    )


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    return f"M{start[0]} {start[1]}L{end[0]} {end[1]}"

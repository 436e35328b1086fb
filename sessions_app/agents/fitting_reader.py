"""Another reader for a branch, if what the provider reported is far too little for what the present one reads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sessions_app.sessionlog.context import last_report
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.measure import Measure, Measured

from .base import Agent
from .pure.contexts import Reader
from .registry import READERS, readers_of


def fitting_reader(agent: Agent, branch: Sequence[Entry], reader: Reader) -> str:
    """The name of the reader whose context the last report fits best; empty if it can be of the present one's.

    A report may be much larger than what a reader finds, because instructions and tools are not in the session.
    """
    place = last_report(branch)
    if place is None:
        return ""

    def measure(other: Reader) -> Measure:
        estimate = other.rebuild(branch[: place + 1]).estimate
        return Measure(Measured(branch[place].usage or 0, estimate))

    if not measure(reader).is_of_another_context:
        return ""
    others = {name: measure(READERS[name]) for name in readers_of(agent) if name != reader.name}
    ratios = {
        name: found.report.ratio
        for name, found in others.items()
        if found.report is not None and found.report.estimate and not found.is_of_another_context
    }
    return min(ratios, key=lambda name: abs(math.log(ratios[name])), default="")

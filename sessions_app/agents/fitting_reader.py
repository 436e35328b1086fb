"""Another reader for a branch, if what the provider reported is far too little for what the present one reads."""

from __future__ import annotations

from collections.abc import Sequence

from sessions_app.sessionlog.context import last_report
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.measure import Measure, Measured

from .base import Agent
from .contexts import Reader
from .registry import READERS, readers_of


def fitting_reader(agent: Agent, branch: Sequence[Entry], reader: Reader) -> str:
    """The name of a reader whose context the last report can be of; empty if the present one's can, or if none can."""
    place = last_report(branch)
    if place is None:
        return ""

    def measure(other: Reader) -> Measure:
        estimate = other.rebuild(branch[: place + 1]).estimate
        return Measure(Measured(branch[place].usage or 0, estimate))

    if not measure(reader).is_of_another_context:
        return ""
    others = (name for name in readers_of(agent) if name != reader.name)
    return next((name for name in others if not measure(READERS[name]).needs_sample), "")

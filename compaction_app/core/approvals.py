"""PURE: when each object of a review was approved, and with how many others at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from sessions_app.sessionlog.targets import Target

from .decisions import Kind, Step

_APPROVING: Final = frozenset({Kind.APPROVE, Kind.ADD, Kind.NARROW})


class Approval(NamedTuple):
    """The decision by which an object was approved."""

    at: datetime
    together: int
    """How many objects it approved: more than one is a decision in bulk."""

    @property
    def is_bulk(self) -> bool:
        return self.together > 1


def approvals(steps: Iterable[tuple[Step, datetime]]) -> dict[Target, Approval]:
    """The last approval of each object that no later step takes back. Narrowing approves the entry."""
    found: dict[Target, Approval] = {}
    for step, at in steps:
        targets = step.targets
        if step.kind is Kind.NARROW:
            targets = tuple(dict.fromkeys(Target(target.entry_id) for target in targets))
        for target in targets:
            if step.kind in _APPROVING:
                found[target] = Approval(at, len(targets))
            else:
                found.pop(target, None)
    return found

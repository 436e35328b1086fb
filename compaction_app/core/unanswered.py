"""PURE: tool calls that an accepted plan leaves without an answer.

In a damaged session several blocks carry the same call id. The agent deletes one of them with the results, and sends
the others without an answer; so the airlock also accepts that, and you are warned.
"""

from __future__ import annotations

from collections.abc import Iterable

from sessions_app.sessionlog.targets import Target

from .transcript import Transcript
from .transcript_entries import WHOLE, Object


def unanswered(transcript: Transcript, plan: Iterable[Target]) -> dict[Target, tuple[Target, ...]]:
    """For each target of a plan that removes the answer of a call: the remaining blocks with the call's id."""
    gone = set(plan)
    left: dict[Target, tuple[Target, ...]] = {}
    for call in transcript.pairs.shared:
        taken_by = {found: _taken_by(transcript, found, gone) for found in call.objects}
        staying = tuple(_target(transcript, found) for found, taker in taken_by.items() if taker is None)
        if not staying or any(taken_by[result] is None for result in call.results):
            continue
        for taker in filter(None, dict.fromkeys(taken_by.values())):
            left[taker] = (*left.get(taker, ()), *staying)
    return left


def _taken_by(transcript: Transcript, found: Object, gone: set[Target]) -> Target | None:
    """The target that deletes an object: its own, or its entry's; None if it is kept."""
    target = _target(transcript, found)
    return next((one for one in (target, Target(target.entry_id)) if one in gone), None)


def _target(transcript: Transcript, found: Object) -> Target:
    entry = transcript.entries[found.position]
    return Target(entry.entry_id, None if found.slot == WHOLE else entry.blocks[found.slot].index)

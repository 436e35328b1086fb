"""PURE: what became of entries on the branch that the agent continues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.tree import SessionTree


class PassageState(IntEnum):
    """Whether the model still sees an entry. The index stores the numbers."""

    SEEN = 1
    STRUCK = 2
    """A deletion or an edit removed it."""
    SUMMARISED = 3
    """It lies before a compaction that did not keep it."""
    ELSEWHERE = 4
    """It is on another branch."""


def states_of(tree: SessionTree, branch: Iterable[Entry], context: ActiveContext) -> Mapping[str, PassageState]:
    """The state of each entry of a session by id, given the branch of its leaf and the context rebuilt from it."""
    states = dict.fromkeys((entry.id for entry in tree.entries), PassageState.ELSEWHERE)
    for entry in branch:
        states[entry.id] = PassageState.STRUCK if entry.id in context.removed else PassageState.SUMMARISED
    for message in context.messages:
        for seen in (message.entry, message.edit):
            if seen is not None:
                states[seen.id] = PassageState.SEEN
    return states

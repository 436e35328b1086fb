"""The entries of a thread, with the tokens that a line of their own reports on the answer that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.tree import SessionTree


def thread_tree(entries: Sequence[Entry]) -> SessionTree:
    """The tree of a thread. Each report of tokens follows what the model has answered."""
    reported = list(entries)
    answer = None
    for place, entry in enumerate(entries):
        if entry.is_off_branch:
            if entry.usage and answer is not None:
                reported[answer] = msgspec.structs.replace(reported[answer], usage=entry.usage)
                answer = None
        elif entry.is_message and entry.role == Role.ASSISTANT:
            answer = place
    return SessionTree(reported)

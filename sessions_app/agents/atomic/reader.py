"""What Atomic's model sees: the branch without what its `context_compaction` entries hide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessions_app.sessionlog.context import ActiveContext, keep, newest_of
from sessions_app.sessionlog.entries import Entry, EntryKind

from .filters import effective_filters
from .sending import SENDING_0_8


class AtomicReader:
    """Atomic 0.8.26 to 0.9.8. Later versions ignore `context_compaction`."""

    name: Final = "atomic-0.8"
    honours: Final = frozenset({EntryKind.DELETION})

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        filters = effective_filters(branch)
        messages = []
        for entry in branch:
            if not entry.is_message or entry.empty or entry.id in filters.entries:
                continue
            message = keep(entry, filters.blocks.get(entry.id))
            if message is not None:
                messages.append(message)
        newest = newest_of(branch, self.honours)
        # A later assistant message can restore deleted results: see `filters`.
        return ActiveContext(self.name, tuple(messages), newest, newest is not None, SENDING_0_8)

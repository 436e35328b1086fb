"""The parts of a branch that Atomic 0.8 lets a plan delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sessions_app.agents.pi.pure.rules import protection_of
from sessions_app.sessionlog.context import ActiveContext, Message, keep
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.protection import Protection

from .filters import effective_filters


class AtomicRules:
    """Entries that can be in the context, without what earlier compactions have hidden, what is not sent anyway, and
    system messages, which pi would declare again."""

    def compactable(self, branch: Sequence[Entry], context: ActiveContext | None = None) -> list[Message]:
        del context
        filters = effective_filters(branch)
        messages = []
        for entry in branch:
            if not entry.is_message or entry.excluded or entry.id in filters.entries or entry.role == Role.SYSTEM:
                continue
            message = keep(entry, filters.blocks.get(entry.id))
            if message is not None:
                messages.append(message)
        return messages

    def protection(self, entry: Entry) -> Protection | None:
        return protection_of(entry)

    def replays(self, entry: Entry) -> bool:
        """None: what would change the latest thinking is not applied by the agent itself. See `filters`."""
        del entry
        return False

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        """Nothing but calls and results belongs together."""
        del messages
        return {}

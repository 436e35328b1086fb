"""The parts of a branch that Atomic 0.8 lets a plan delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessions_app.sessionlog.context import Message, keep
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.protection import Protection

from .filters import effective_filters

_BY_ROLE: Final = {
    Role.USER: Protection.USER,
    Role.CUSTOM: Protection.CUSTOM,
    Role.BRANCH_SUMMARY: Protection.BRANCH_SUMMARY,
}
_BY_FAILURE: Final = {
    Role.ASSISTANT: Protection.ASSISTANT_ERROR,
    Role.TOOL_RESULT: Protection.TOOL_ERROR,
    Role.COMMAND: Protection.FAILED_COMMAND,
}


class AtomicRules:
    """Entries that can be in the context, without what earlier compactions have hidden, what is not sent anyway, and
    system messages, which pi would declare again."""

    def compactable(self, branch: Sequence[Entry]) -> list[Message]:
        filters = effective_filters(branch)
        messages = []
        for entry in branch:
            if (
                not entry.is_message
                or entry.excluded
                or entry.id in filters.entries
                or entry.role == Role.SYSTEM
            ):
                continue
            message = keep(entry, filters.blocks.get(entry.id))
            if message is not None:
                messages.append(message)
        return messages

    def protection(self, entry: Entry) -> Protection | None:
        reason = _BY_ROLE.get(entry.role)
        return _BY_FAILURE.get(entry.role) if reason is None and entry.failed else reason

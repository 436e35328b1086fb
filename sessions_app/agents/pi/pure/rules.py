"""What a plan may delete of the context that a reader rebuilds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sessions_app.agents.pure.contexts import Reader
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.protection import Protection

_BY_ROLE: Final = {
    Role.USER: Protection.USER,
    Role.CUSTOM: Protection.CUSTOM,
    Role.BRANCH_SUMMARY: Protection.BRANCH_SUMMARY,
    Role.COMPACTION_SUMMARY: Protection.SUMMARY,
}
_BY_FAILURE: Final = {
    Role.ASSISTANT: Protection.ASSISTANT_ERROR,
    Role.TOOL_RESULT: Protection.TOOL_ERROR,
    Role.COMMAND: Protection.FAILED_COMMAND,
}


def protection_of(entry: Entry) -> Protection | None:
    """Why an entry must not be deleted, by its role or its failure."""
    reason = _BY_ROLE.get(entry.role)
    return _BY_FAILURE.get(entry.role) if reason is None and entry.failed else reason


class ContextRules:
    """Only what the model sees can be deleted, except system messages: the agent would declare them again."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sending = reader.rebuild([]).sending

    def compactable(self, branch: Sequence[Entry], context: ActiveContext | None = None) -> list[Message]:
        return [
            message
            for message in (context or self._reader.rebuild(branch)).messages
            if message.sent and message.role != Role.SYSTEM
        ]

    def protection(self, entry: Entry) -> Protection | None:
        return protection_of(entry)

    def replays(self, entry: Entry) -> bool:
        """Only messages that are sent: providers compare the latest one that they see."""
        return entry.role == Role.ASSISTANT and entry.stop_reason not in self._sending.unsent_stop_reasons

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        """Nothing but calls and results belongs together."""
        del messages
        return {}

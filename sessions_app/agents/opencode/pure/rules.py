"""What a plan may delete of a session of OpenCode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.protection import Protection

from .reader import OpenCodeReader

_BY_ROLE: Final = {
    Role.USER: Protection.USER,
    Role.CUSTOM: Protection.CUSTOM,
    Role.COMPACTION_SUMMARY: Protection.SUMMARY,
}
_BY_FAILURE: Final = {Role.ASSISTANT: Protection.ASSISTANT_ERROR, Role.TOOL_RESULT: Protection.TOOL_ERROR}


class OpenCodeRules:
    """Only what the model sees can be deleted. Users, summaries, what the client adds, and errors stay."""

    def __init__(self, reader: OpenCodeReader) -> None:
        self._reader = reader

    def compactable(self, branch: Sequence[Entry], context: ActiveContext | None = None) -> list[Message]:
        return [message for message in (context or self._reader.rebuild(branch)).messages if message.sent]

    def protection(self, entry: Entry) -> Protection | None:
        return _BY_ROLE.get(entry.role) or (_BY_FAILURE.get(entry.role) if entry.failed else None)

    def replays(self, entry: Entry) -> bool:
        """Every reply: its reasoning may bear a signature of the provider."""
        return entry.role == Role.ASSISTANT

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        """Every part is a row of its own; a call and its result are one."""
        del messages
        return {}

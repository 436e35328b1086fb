"""What a plan may delete of a Claude Code session, as far as it depends on the entry alone.

The client leaves out a reply of which only thinking is left. So thinking goes with the last other line of its reply,
even if an earlier one stays: what belongs together does not depend on what else a plan deletes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sessions_app.agents.pure.contexts import Reader
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import THINKING_TYPES, Entry, Role
from sessions_app.sessionlog.protection import Protection

_BY_ROLE: Final = {
    Role.USER: Protection.USER,
    Role.CUSTOM: Protection.CUSTOM,
    Role.COMPACTION_SUMMARY: Protection.SUMMARY,
}
_BY_FAILURE: Final = {
    Role.ASSISTANT: Protection.ASSISTANT_ERROR,
    Role.TOOL_RESULT: Protection.TOOL_ERROR,
}


class ClaudeCodeRules:
    """Only what the model sees can be deleted; the client adds attachments afresh that it does not find."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def compactable(self, branch: Sequence[Entry], context: ActiveContext | None = None) -> list[Message]:
        return [message for message in (context or self._reader.rebuild(branch)).messages if message.sent]

    def protection(self, entry: Entry) -> Protection | None:
        return _BY_ROLE.get(entry.role) or (_BY_FAILURE.get(entry.role) if entry.failed else None)

    def replays(self, entry: Entry) -> bool:
        """Only messages that are sent: providers compare the latest one that they see."""
        return entry.role == Role.ASSISTANT and not entry.excluded

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        """For the last line of a reply that is not just thinking: the lines that are."""
        thoughts: dict[str, list[str]] = {}
        others: dict[str, str] = {}
        for message in messages:
            entry = message.entry
            if entry.reply and _only_thinks(entry):
                thoughts.setdefault(entry.reply, []).append(entry.id)
            elif entry.reply:
                others[entry.reply] = entry.id
        return {others[reply]: tuple(found) for reply, found in thoughts.items() if reply in others}


def _only_thinks(entry: Entry) -> bool:
    return bool(entry.blocks) and THINKING_TYPES.issuperset([block.type for block in entry.blocks or ()])

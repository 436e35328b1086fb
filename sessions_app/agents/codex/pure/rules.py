"""What a plan may delete of a Codex thread.

Providers may refuse a conversation in which reasoning has lost the item that follows it, or that item its reasoning. So

    reasoning             goes only with everything up to the next message of the user
    what follows it       goes only with the reasoning

Example: user, reasoning 1, message, call, output, reasoning 2, answer. The call and its output may go. The answer takes
reasoning 2 with it; the message takes reasoning 1, and so everything after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sessions_app.agents.pure.contexts import Reader
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.protection import Protection

from .records import REASONING

_BY_ROLE: Final = {
    Role.USER: Protection.USER,
    Role.CUSTOM: Protection.CUSTOM,
    Role.INJECTED: Protection.INJECTED,
    Role.COMPACTION_SUMMARY: Protection.SUMMARY,
}


class CodexRules:
    """Only what the model sees can be deleted; see above for reasoning."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def compactable(self, branch: Sequence[Entry], context: ActiveContext | None = None) -> Sequence[Message]:
        return (context or self._reader.rebuild(branch)).messages

    def protection(self, entry: Entry) -> Protection | None:
        return _BY_ROLE.get(entry.role)

    def replays(self, entry: Entry) -> bool:
        """A provider compares no thinking: reasoning is encrypted as a whole."""
        del entry
        return False

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        """For each reasoning what comes before the next one, and that one; for what follows reasoning the reasoning."""
        found: dict[str, tuple[str, ...]] = {}
        stretch: list[str] = []
        for message in messages:
            entry = message.entry
            if entry.role == Role.USER:
                _join(found, stretch)
                stretch = []
                continue
            if entry.type == REASONING:
                _join(found, [*stretch, entry.id])
                stretch = [entry.id]
            elif stretch and entry.role != Role.INJECTED:
                stretch.append(entry.id)
        _join(found, stretch)
        return found


def _join(found: dict[str, tuple[str, ...]], stretch: Sequence[str]) -> None:
    """Join the reasoning at the start of a stretch with all of it, and the item after it with the reasoning."""
    if len(stretch) < 2:
        return
    reasoning, follower, *_ = stretch
    found[reasoning] = (*stretch[1:], *found.get(reasoning, ()))
    found[follower] = (*found.get(follower, ()), reasoning)

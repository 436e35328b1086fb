"""Whether an agent has applied the plan that was handed to it: the session itself shows it.

The messages that the agent rebuilds from the session then begin with those of the approved context, one by one. Later
messages follow them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from compaction_app.changes.proof import Rebuilt
from sessions_app.agents.base import Agent
from sessions_app.agents.programs import RebuiltMessage
from sessions_app.sessionlog.context import Message


class ContextDigest(msgspec.Struct, frozen=True):
    """A context to be recognised: the number of its messages, and a hash of everything that the model receives."""

    messages: int
    sha256: str
    lines: int = 0
    """The number of lines that the agent appends for it; 0 if it changes rows."""


def context_digest(agent: Agent, rebuilt: Rebuilt, messages: int | None = None, lines: int = 0) -> ContextDigest:
    """The digest of a context, or of its first messages; `lines` is the number of lines that the agent appends for
    it."""
    found = rebuilt.context.messages
    count = len(found) if messages is None else messages
    together = hashlib.sha256()
    for one in _digests(agent, rebuilt, found[:count]):
        together.update(one.encode())
    return ContextDigest(min(count, len(found)), together.hexdigest(), lines)


def _digests(agent: Agent, rebuilt: Rebuilt, messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        edit = rebuilt.line(message.edit) if message.edit is not None else None
        yield RebuiltMessage.of(agent.format.message_json(message, rebuilt.line(message.entry), edit)).digest


def is_same_context(agent: Agent, rebuilt: Rebuilt, approved: ContextDigest) -> bool:
    """Whether a context begins with the approved one."""
    found = context_digest(agent, rebuilt, approved.messages)
    return (found.messages, found.sha256) == (approved.messages, approved.sha256)

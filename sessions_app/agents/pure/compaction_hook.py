"""PURE: the hook command that an agent calls before it compacts: what the agent sends, and what it understands.

Each agent with such a hook has a `CompactionHook`; only this knows the names of its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from sessions_app.sessionlog.jsjson import parse, well_formed

MANUAL: Final = "manual"
THRESHOLD: Final = "threshold"
BRIDGE: Final = 1
"""The version of the hook command, as a connection has it."""
PREPARATION_CHARACTERS: Final = 300
"""Characters of a text in a preparation: one may take twelve in JSON, and the whole may have 4,000."""


class HookStep(StrEnum):
    """What the agent does after the hook."""

    COMPACT = "compact"
    CONTINUE = "continue"
    STOP = "stop"


class HookRequest(NamedTuple):
    """What the agent says about the compaction that it is about to make."""

    session: str
    """The absolute path of the session, or its id."""
    reason: str
    """`manual` or `threshold`."""
    preparation: Mapping[str, str]
    """What else it says, for people."""


class HookReply(NamedTuple):
    """What the command prints, and its exit code."""

    code: int = 0
    output: str = ""
    errors: str = ""


class CompactionHook(Protocol):
    """The hook of one agent."""

    def review_request(self, sent: bytes) -> HookRequest:
        """The request that the agent sent on standard input. Raises ValueError if it sent anything else."""
        ...

    def reply(self, step: HookStep, message: str) -> HookReply:
        """How the agent is made to do a step; `message` is one line for the person at the agent."""
        ...


def hook_fields(sent: bytes) -> Mapping[str, Any]:
    """The object that an agent sent. Raises ValueError."""
    found = parse(sent)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def hook_request(session: object, trigger: object, preparation: Mapping[str, object]) -> HookRequest:
    """A review request from values of any shape; texts of the preparation are shortened, and other values left out.

    Raises ValueError if no session is named.
    """
    if not isinstance(session, str) or not session or well_formed(session) != session or "\0" in session:
        raise ValueError("it does not name a session")
    shown = {
        name: well_formed(text[:PREPARATION_CHARACTERS]).replace("\0", "")
        for name, text in preparation.items()
        if isinstance(text, str) and text
    }
    return HookRequest(session, MANUAL if trigger == MANUAL else THRESHOLD, shown)

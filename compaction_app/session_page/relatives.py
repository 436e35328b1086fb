"""The sessions related to a session: its parent, its forks, and the subagents that it started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compaction_app.entries.branches import BranchState
from sessions_app.index.index_store import entries_naming
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Entry

RELATIVES_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Relatives:
    """The indexed sessions that are related to one."""

    parent: Session | None
    """The session from which it was forked, or that started it."""
    subagents: list[Session]
    """The first RELATIVES_SHOWN sessions that it started, and its forks."""
    forks: list[Session]
    start: StartingCall | None
    """The call that started it."""


@dataclass(frozen=True, slots=True)
class StartingCall:
    """The call that started a subagent, in the session of this call."""

    session: Session
    entry_id: str
    tool: str


def relatives_of(session: Session) -> Relatives:
    """The shown sessions that are related to this one."""
    shown = Session.objects.shown().for_display()
    children = shown.children_of(session).order_by("mtime_ns", "pk")
    parent = shown.parent_of(session)
    siblings = shown.children_of(parent).filter(is_subagent=True) if parent is not None else ()
    return Relatives(
        parent,
        list(children.filter(is_subagent=True)[:RELATIVES_SHOWN]),
        list(children.filter(is_subagent=False)[:RELATIVES_SHOWN]),
        _starting_call(session, [parent, *siblings]) if parent is not None and session.is_subagent else None,
    )


def _starting_call(subagent: Session, sessions: Sequence[Session]) -> StartingCall | None:
    """The call in these sessions that started a subagent; None if none of them has one."""
    if not subagent.header_id:
        return None
    for session, result in entries_naming(sessions, subagent.header_id):
        if result.subagent == subagent.header_id and result.result_for is not None:
            naming = (entry for _, entry in entries_naming([session], result.result_for))
            call = next((entry for entry in naming if result.result_for in entry.call_ids()), result)
            return StartingCall(session, call.id, result.tool_name)
    return None


def subagents_of(session: Session, state: BranchState, shown: Sequence[Entry]) -> dict[str, Session]:
    """The sessions that calls of these entries started, by `Entry.subagent`."""
    results = (result for entry in shown for call_id in entry.call_ids() for result in state.answers.get(call_id, ()))
    ids = {result.subagent for result in results if result.subagent}
    return Session.objects.shown().for_display().started_by(session, ids) if ids else {}

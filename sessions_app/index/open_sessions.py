"""EDGE: the listed sessions that agents have open now, according to the agents' locks and registers.

Each root is examined once, which reads a small file for each running client, however many sessions there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path

from django.db.models import Q

from sessions_app.agents.registry import AGENTS
from sessions_app.models import Session


@dataclass(frozen=True, slots=True)
class OpenSessions:
    """The sessions that agents certainly have open."""

    agents: Mapping[tuple[str, str], str]
    """The name of the agent, by the path of the root and the header id of the session."""

    @property
    def query(self) -> Q:
        places = (Q(root__path=path, header_id=session_id) for path, session_id in self.agents)
        return reduce(or_, places, Q(pk__in=()))

    def agent_of(self, session: Session) -> str:
        """The name of the agent that has a session open; empty if none is known to."""
        return self.agents.get((session.root.path, session.header_id), "")


def open_sessions(roots: Iterable[tuple[str, str]]) -> OpenSessions:
    """The sessions that are open now in these roots, each given as its path and the key of its agent, if it has one."""
    return OpenSessions(
        {
            (path, session_id): agent.label
            for path, key in roots
            for agent in ([AGENTS[key]] if key in AGENTS else AGENTS.values())
            for session_id in agent.store.open_sessions(Path(path))
        }
    )

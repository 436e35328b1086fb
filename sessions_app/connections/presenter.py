"""What the pages about connected agents show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sessions_app.agents.base import Agent
from sessions_app.agents.installed_version import program_on_path
from sessions_app.agents.registry import version_installed

from .connection_files import ConnectedAgent
from .service import AGENTS_WITH_BRIDGES, all_connections
from .states import ConnectionState, ConnectionStatus, status_of_connection


class ShownConnection(NamedTuple):
    """A connection with its state."""

    one: ConnectedAgent
    status: ConnectionStatus

    @property
    def is_current(self) -> bool:
        return self.status.state is ConnectionState.CURRENT


@dataclass(frozen=True, slots=True)
class ShownAgent:
    """An agent that can ask, its installed program, and its connections: for all projects, or for single ones."""

    agent: Agent
    program: str
    """The path of its program; empty if it was not found."""
    version: str
    connections: list[ShownConnection]
    file: str
    """Where the bridge for all projects would be."""

    @property
    def is_everywhere(self) -> bool:
        return any(not shown.one.project for shown in self.connections)


def shown_agents() -> list[ShownAgent]:
    """The agents that can ask, those that are installed first. Raises SystemFailure."""
    connected = all_connections()
    found = [_shown(agent, connected) for agent in AGENTS_WITH_BRIDGES.values()]
    return sorted(found, key=lambda shown: (not shown.connections, not shown.program))


def _shown(agent: Agent, connected: list[ConnectedAgent]) -> ShownAgent:
    version = version_installed(agent.key)
    assert agent.bridge is not None  # noqa: S101  # as all AGENTS_WITH_BRIDGES
    return ShownAgent(
        agent,
        program_on_path(agent.program) or "",
        ".".join(map(str, version)) if version is not None else "",
        [ShownConnection(one, status_of_connection(one)) for one in connected if one.agent == agent.key],
        str(agent.bridge.path(Path.home(), None)),
    )

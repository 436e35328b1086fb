"""The content of the pages about connected agents."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sessions_app.agents.base import Agent
from sessions_app.agents.edge.installed_version import program_on_path
from sessions_app.agents.registry import version_installed
from sessions_app.sessionlog.errors import RedlineError

from .configuration_file import read_configuration_file
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
    """An agent that can request reviews, its installed program, and its connections: for all projects, or for single
    ones."""

    agent: Agent
    program: str
    """The path of its program; empty if it was not found."""
    version: str
    connections: list[ShownConnection]
    unconnected_bridge: str
    """The file for all projects, if it has a bridge without a connection; otherwise empty."""

    @property
    def is_everywhere(self) -> bool:
        return any(not shown.one.project for shown in self.connections)


def shown_agents() -> list[ShownAgent]:
    """The agents that can request reviews, installed ones first. Raises SystemFailure."""
    connected = all_connections()
    found = [_shown(agent, connected) for agent in AGENTS_WITH_BRIDGES.values()]
    return sorted(found, key=lambda shown: (not shown.connections, not shown.program))


def _shown(agent: Agent, connected: list[ConnectedAgent]) -> ShownAgent:
    version = version_installed(agent.key)
    own = [one for one in connected if one.agent == agent.key]
    return ShownAgent(
        agent,
        program_on_path(agent.client.program) or "",
        ".".join(map(str, version)) if version is not None else "",
        [ShownConnection(one, status_of_connection(one)) for one in own],
        _unconnected_bridge(agent) if all(one.project for one in own) else "",
    )


def _unconnected_bridge(agent: Agent) -> str:
    assert agent.bridge is not None  # noqa: S101  # as all AGENTS_WITH_BRIDGES
    path = agent.bridge.path(Path.home(), None)
    with suppress(RedlineError):  # what cannot be read is reported when the agent is connected
        content = read_configuration_file(path).content
        if content is not None and agent.bridge.installed_version(content, path) is not None:
            return str(path)
    return ""

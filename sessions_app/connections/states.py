"""The state of a connection: whether the agent's file still has the bridge, in the version of this Redline."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from sessions_app.agents.registry import AGENTS
from sessions_app.sessionlog.errors import RedlineError

from .configuration_file import read_configuration_file
from .connection_files import ConnectedAgent, connection_path
from .service import redline_command


class ConnectionState(StrEnum):
    """Whether a bridge is in force."""

    CURRENT = "current"
    OUTDATED = "outdated"
    CHANGED = "changed"
    MISSING = "missing"
    UNREADABLE = "unreadable"


class ConnectionStatus(NamedTuple):
    """The state of a connection, and a sentence about it; empty if all is well."""

    state: ConnectionState
    sentence: str = ""


def status_of_connection(one: ConnectedAgent) -> ConnectionStatus:
    """The state of a connection, by the agent's file."""
    agent = AGENTS.get(one.agent)
    bridge = agent.bridge if agent is not None else None
    if agent is None or bridge is None:
        return ConnectionStatus(ConnectionState.UNREADABLE, f"There is no agent {one.agent}.")
    path = Path(one.changed)
    try:
        content = read_configuration_file(path).content
        version = bridge.installed_version(content, path) if content is not None else None
        if content is None or version is None:
            return ConnectionStatus(
                ConnectionState.MISSING,
                f"{path} does not have the bridge any more. Connect again, or remove it.",
            )
        if version < bridge.version:
            return ConnectionStatus(
                ConnectionState.OUTDATED,
                f"The bridge has version {version}; {bridge.version} is current. Connect again to update it.",
            )
        own = connection_path(settings.REDLINE_DATA_DIR, one.name)
        if bridge.content(content, path, own, redline_command()) != content:
            return ConnectionStatus(
                ConnectionState.CHANGED,
                f"The bridge in {path} is not as Redline writes it. Connect again to update it.",
            )
        remarks = bridge.remarks(content, path)
    except RedlineError as fault:
        return ConnectionStatus(ConnectionState.UNREADABLE, fault.message)
    return ConnectionStatus(ConnectionState.CURRENT, " ".join(remarks))

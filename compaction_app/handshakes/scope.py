"""What a connection may ask about: sessions of its agent, in its project, and in a directory that Redline lists."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sessions_app.agents.base import Agent
from sessions_app.agents.changes import HandedWriter
from sessions_app.agents.registry import AGENTS
from sessions_app.connections.connection_files import ConnectedAgent
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.storage.files import real_path

NOTHING: Final = "nothing"
COMPACTS: Final = "The agent compacts as usual."


def require_in_scope(session: Session, connection: ConnectedAgent, named: str = "") -> None:
    """Raise BadInput `unlisted_session`, `other_agent` or `other_project` if a session is not the connection's.

    `named` is how the agent named the session: the message says no more about one of another agent or project.
    """
    shown = named or str(session.path)
    label = AGENTS[connection.agent].label
    if not session.root.configured:
        raise unlisted(shown)
    if session.agent_key != connection.agent:
        raise BadInput(
            "other_agent",
            f"{shown} is a session of {session.agent_label or 'an unknown agent'}, and the connection "
            f"{connection.name} is of {label}. {COMPACTS} If it is one of {label}, choose how it is read on its page.",
        )
    if not is_in_project(session, connection):
        raise BadInput(
            "other_project",
            f"{shown} was not started in {connection.project}, and the connection {connection.name} counts there only. "
            f"{COMPACTS} `redline connect {connection.agent} --project DIR` connects another project.",
        )


def is_in_project(session: Session, connection: ConnectedAgent) -> bool:
    """Whether a session was started below the directory of a connection, however its path is written."""
    if not connection.project:
        return True
    directory = Path(session.cwd)
    if not directory.is_absolute() or "\0" in session.cwd:
        return False
    return real_path(directory).is_relative_to(connection.project)


def unlisted(named: str) -> BadInput:
    return BadInput(
        "unlisted_session",
        f"{named} is below none of the directories that Redline lists. {COMPACTS} The Settings page adds one.",
    )


def require_honoured(honours: str, connection: ConnectedAgent) -> None:
    """Raise BadInput `other_honours` if no version of an agent makes such a change itself."""
    agent = AGENTS[connection.agent]
    known = honoured_by(agent)
    if honours not in known:
        raise BadInput(
            "other_honours",
            f"{agent.label} does not apply {honours} itself, although the question says so: it honours "
            f"{' or '.join(sorted(known))}. {COMPACTS} `redline connect {agent.key}` installs the bridge again.",
        )


def honoured_by(agent: Agent) -> frozenset[str]:
    """What the versions of an agent can do with an approved plan, as in docs/handshake.md."""
    writers = (writer for generation in agent.generations for writer in generation.writers)
    return frozenset({NOTHING, *(one.honours for one in writers if isinstance(one, HandedWriter))})

"""What an agent consists of. `registry` lists the agents.

Code outside `agents` never uses a field name of an agent's files; it uses the agent's `Agent` object.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .agent_settings import Settings
from .bridges import Bridge
from .format import Format
from .programs import Client
from .store import Store


@dataclass(frozen=True, slots=True, eq=False)
class Agent:
    """Everything that Redline needs to know about an agent. To read its sessions takes a store and a format."""

    key: str
    """Its name in the configuration and the database."""
    label: str
    """Its name for people."""
    store: Store
    format: Format
    client: Client = field(default_factory=Client)
    bridge: Bridge | None = None
    """How it is made to ask Redline before it compacts; None if it cannot ask."""
    settings: Settings = field(default_factory=Settings)

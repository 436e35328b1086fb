"""The agent Atomic. It reads pi's settings after its own; pi does not read Atomic's."""

from typing import Final

from sessions_app.agents.base import Agent
from sessions_app.agents.pi.edge.client import ExtensionBridge, SharedClient
from sessions_app.agents.pi.edge.settings import SharedSettings
from sessions_app.agents.pi.edge.store import SharedStore

from .pure.format import AtomicFormat

_KEY: Final = "atomic"
_DIRECTORY: Final = ".atomic"

ATOMIC: Final = Agent(
    _KEY,
    SharedStore(_DIRECTORY),
    AtomicFormat(),
    SharedClient("atomic"),
    ExtensionBridge(_KEY, AtomicFormat.label, _DIRECTORY),
    SharedSettings(_DIRECTORY, ".pi"),
)

"""The agent pi."""

from typing import Final

from sessions_app.agents.base import Agent
from sessions_app.agents.pi.edge.client import ExtensionBridge, PiClient
from sessions_app.agents.pi.pure.parser import KEY

from .edge.settings import PiSettings
from .edge.store import SharedStore
from .pure.format import PiFormat

_DIRECTORY: Final = ".pi"

PI: Final = Agent(
    KEY,
    SharedStore(_DIRECTORY),
    PiFormat(),
    PiClient("pi"),
    ExtensionBridge(KEY, PiFormat.label, _DIRECTORY),
    PiSettings(_DIRECTORY),
)

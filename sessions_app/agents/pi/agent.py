"""The agent pi."""

from __future__ import annotations

from typing import Final

from sessions_app.agents.base import Agent

from .edge.bridge import ExtensionBridge
from .edge.package import PiClient
from .edge.settings import PiSettings
from .edge.store import SharedStore
from .pure.format import PiFormat
from .pure.records import KEY

_DIRECTORY: Final = ".pi"

PI: Final = Agent(
    KEY,
    PiFormat.label,
    SharedStore(_DIRECTORY),
    PiFormat(),
    PiClient("pi"),
    ExtensionBridge(KEY, PiFormat.label, _DIRECTORY),
    PiSettings(_DIRECTORY),
)

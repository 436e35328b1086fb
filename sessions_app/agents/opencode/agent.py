"""The agent OpenCode."""

from typing import Final

from sessions_app.agents.base import Agent
from sessions_app.agents.opencode.edge.client import PluginBridge

from .edge.client import OpenCodeClient
from .edge.settings import OpenCodeSettings
from .edge.store import OpenCodeStore
from .pure.format import OpenCodeFormat

OPENCODE: Final = Agent(
    "opencode", OpenCodeStore(), OpenCodeFormat(), OpenCodeClient(), PluginBridge(), OpenCodeSettings()
)

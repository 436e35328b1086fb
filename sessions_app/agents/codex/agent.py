"""The agent Codex."""

from typing import Final

from sessions_app.agents.base import Agent
from sessions_app.agents.codex.edge.client import HooksBridge
from sessions_app.agents.codex.pure.parser import KEY

from .edge.client import CodexClient
from .edge.settings import CodexSettings
from .edge.store import CodexStore
from .pure.format import CodexFormat

CODEX: Final = Agent(KEY, CodexStore(), CodexFormat(), CodexClient(), HooksBridge(), CodexSettings())

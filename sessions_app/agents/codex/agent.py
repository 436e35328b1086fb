"""The agent Codex."""

from __future__ import annotations

from typing import Final

from sessions_app.agents.base import Agent

from .edge.bridge import HooksBridge
from .edge.client import CodexClient
from .edge.settings import CodexSettings
from .edge.store import CodexStore
from .pure.format import CodexFormat
from .pure.records import KEY

CODEX: Final = Agent(KEY, CodexFormat.label, CodexStore(), CodexFormat(), CodexClient(), HooksBridge(), CodexSettings())

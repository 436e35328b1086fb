"""The agent Claude Code."""

from typing import Final

from sessions_app.agents.base import Agent
from sessions_app.agents.claude_code.edge.client import SettingsBridge
from sessions_app.agents.claude_code.pure.parser import KEY

from .edge.client import ClaudeCodeClient
from .edge.settings import ClaudeCodeSettings
from .edge.store import ClaudeCodeStore
from .pure.format import ClaudeCodeFormat

CLAUDE_CODE: Final = Agent(
    KEY, ClaudeCodeStore(), ClaudeCodeFormat(), ClaudeCodeClient(), SettingsBridge(), ClaudeCodeSettings()
)

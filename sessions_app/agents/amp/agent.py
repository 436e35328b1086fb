"""The agent Amp: its old local threads, `T-….json`, and exports of threads. It is only read."""

from pathlib import Path
from typing import Final

from sessions_app.agents.base import Agent, Settings, SettingsFile

from .edge.store import AmpStore
from .pure.format import AmpFormat


class AmpSettings(Settings):
    """Amp does not compact."""

    def user_file(self, home: Path) -> SettingsFile:
        return SettingsFile(home / ".config" / "amp" / "settings.json", False, {})


AMP: Final = Agent("amp", AmpStore(), AmpFormat(), settings=AmpSettings())

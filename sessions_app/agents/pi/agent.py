"""The agent pi."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from sessions_app.agents.base import AgentSettings, PlanRules, Reader, SessionWriter, SettingsFile
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.session import Damage, Header, ParserState

from .migration import migrate
from .parser import CURRENT_VERSION, SessionParser, read_again
from .reader import OlderPiReader, PiReader
from .records import KEY
from .settings import model_windows, read_settings, user_settings


class PiAgent:
    """pi, and everything that Atomic shares with it."""

    key: str = KEY
    label: str = "pi"
    directory: str = ".pi"
    sessions: str = "~/.pi/agent/sessions"
    current_version: int = CURRENT_VERSION
    readers: Sequence[Reader] = (PiReader(), OlderPiReader())
    writers: Sequence[SessionWriter] = ()
    rules: PlanRules | None = None

    def parser(self, state: ParserState, damage: list[Damage]) -> SessionParser:
        return SessionParser(state, damage)

    def read_again(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        return read_again(raw, place, version)

    def migrate(self, lines: Iterable[Line], name: str, header: Header) -> Iterator[bytes]:
        return migrate(lines, name, header)

    def settings(self, cwd: str, home: Path) -> AgentSettings:
        return read_settings(cwd, home)

    def user_settings(self, home: Path) -> SettingsFile:
        return user_settings(self.directory, home)

    def model_windows(self, home: Path) -> Mapping[str, int]:
        return model_windows(self.directory, home)


PI: Final = PiAgent()

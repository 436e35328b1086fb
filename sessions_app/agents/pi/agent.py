"""The agent pi."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sessions_app.agents.base import Reader
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.session import Damage, Header, ParserState

from .migration import migrate
from .parser import CURRENT_VERSION, SessionParser, read_again
from .reader import PiReader
from .records import KEY


class PiAgent:
    """pi, and what Atomic shares with it."""

    key: str = KEY
    label: str = "pi"
    directory: str = ".pi"
    current_version: int = CURRENT_VERSION
    readers: Sequence[Reader] = (PiReader(),)

    def parser(self, state: ParserState, damage: list[Damage]) -> SessionParser:
        return SessionParser(state, damage)

    def read_again(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        return read_again(raw, place, version)

    def migrate(self, lines: Iterable[Line], name: str, header: Header) -> Iterator[bytes]:
        return migrate(lines, name, header)


PI: Final = PiAgent()

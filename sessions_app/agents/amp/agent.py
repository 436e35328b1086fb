"""The agent Amp: its old local threads, `T-….json`, and exports of threads. Nothing is written to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.agent_settings import Settings, SettingsFile
from sessions_app.agents.base import Generation
from sessions_app.agents.pi.pure.rules import ContextRules
from sessions_app.agents.session_file import SessionFileAgent
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry, Role, Texts
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.session import Damage, ParserState
from sessions_app.storage.discovery import Discovery
from sessions_app.storage.documents import opened_document
from sessions_app.storage.files import FileState, SessionReader
from sessions_app.storage.rendered import RenderedReader

from .edge.listing import discover
from .pure.parser import CURRENT_VERSION, AmpParser, reparse_entry, without_results
from .pure.reader import AmpReader, HandoffWriter
from .pure.thread import lines_of_thread

DIRECTORY: Final = ("amp", "threads")
_HEAD: Final = re.compile(rb'\s*\{[^{}\[\]]{0,1000}"id"\s*:\s*"T-')
"""An object with the id of a thread among its first fields."""
_READER: Final = AmpReader()


class AmpSettings(Settings):
    """Amp does not compact."""

    def user_file(self, home: Path) -> SettingsFile:
        return SettingsFile(home / ".config" / "amp" / "settings.json", False, {})


class AmpAgent(SessionFileAgent):
    """Amp until its threads moved to its servers."""

    key: str = "amp"
    label: str = "Amp"
    format: str = "amp"
    current_version: int = CURRENT_VERSION
    settings: Settings = AmpSettings()
    generations: Sequence[Generation] = (
        Generation("Amp", _READER, ContextRules(_READER), (HandoffWriter(),), can_move_leaf=False),
    )

    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        configured = environment.get("XDG_DATA_HOME", "")
        base = configured if Path(configured).is_absolute() else "~/.local/share"
        return ("/".join((base, *DIRECTORY)),)

    def owns(self, path: Path) -> bool:
        return path.parts[-2:] == DIRECTORY or path.parts[-3:-1] == DIRECTORY

    def recognises(self, head: bytes) -> bool:
        return _HEAD.match(head) is not None

    def discover(self, root: Path) -> Discovery:
        return discover(root)

    def open(self, path: Path) -> SessionReader:
        return RenderedReader(path, partial(opened_document, path, lines_of_thread, "a thread of Amp"))

    def read_only(self, path: Path) -> str:
        del path
        return (
            "Amp keeps its threads on its servers and imports none, so nothing can be written for this one. What you "
            "keep can be pasted into a new thread."
        )

    def state(self, path: Path) -> FileState | None:
        found = super().state(path)
        if found is None:
            return None
        with self.open(path) as reader:
            return reader.state()

    def parser(self, state: ParserState, damage: list[Damage]) -> AmpParser:
        return AmpParser(state, damage)

    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterator[Mapping[str, Any]]:
        """What was recorded: what a thread sends is not known."""
        for message in context.messages:
            yield self.message_json(message, line(message.entry), None)

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        del edit_line
        found = parse(line)
        if message.role == Role.TOOL_RESULT:
            return {"role": "user", "content": [found]}
        content = found["data"].get("content")
        return {
            "role": message.role,
            "content": without_results(content) if isinstance(content, list) else content,
        }

    def reparse_entry(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        del version
        return reparse_entry(raw, place)


AMP: Final = AmpAgent()

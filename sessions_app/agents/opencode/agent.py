"""The agent OpenCode."""

from __future__ import annotations

import secrets
import sqlite3
import string
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.agent_settings import Settings
from sessions_app.agents.base import Generation, OpenElsewhere
from sessions_app.agents.bridges import Bridge
from sessions_app.agents.programs import Client
from sessions_app.agents.session_file import SessionFileAgent
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.session import Damage, ParserState
from sessions_app.storage.discovery import Discovery
from sessions_app.storage.documents import opened_document
from sessions_app.storage.files import FileState, SessionReader, file_state
from sessions_app.storage.loopback import loopback_address
from sessions_app.storage.open_files import describe, writers_of
from sessions_app.storage.rendered import RenderedReader

from .edge.bridge import PluginBridge
from .edge.client import OpenCodeClient
from .edge.documents import opened_documents, storage_of
from .edge.listing import discover
from .edge.server import OpenCodeServer, is_same_row
from .edge.settings import OpenCodeSettings
from .edge.store import SESSION_TABLES, database_of, opened_session, session_owner, session_state, session_within
from .edge.takeover import MARKS, SENTENCES
from .pure.export import HEAD, INFO, export_of, export_rows, info_of, lines_of_export
from .pure.fork import RowForkWriter
from .pure.parser import CURRENT_VERSION, OpenCodeParser, reparse_entry
from .pure.reader import OpenCodeReader
from .pure.rules import OpenCodeRules
from .pure.sent import message_json, sent_messages
from .pure.writers import DeleteWriter, PruneWriter

DATA_VARIABLE: Final = "XDG_DATA_HOME"
DIRECTORY: Final = "opencode"
_READER: Final = OpenCodeReader()
_NO_DOCUMENTS: Final = (
    "OpenCode keeps sessions in a database since 1.2, and newer versions do not read the documents of older ones, so "
    "nothing is written to them. Download the session: OpenCode 1 imports that file, and the copy can be compacted."
)
_NO_ROWS: Final = (
    "This is an export, not a session in OpenCode's database: nothing can be deleted in it. The writer fork makes a "
    "new export without what is deleted."
)
_ID_CHARACTERS: Final = string.digits + string.ascii_letters
_ID_TIME: Final = 1 << 48
_IDS_IN_A_MILLISECOND: Final = 1 << 12


class OpenCodeAgent(SessionFileAgent):
    """OpenCode 1 since 1.1. Its sessions are rows or documents, read as lines; any other file is an export."""

    key: str = "opencode"
    label: str = "OpenCode"
    format: str = "opencode"
    bridge: Bridge = PluginBridge()
    client: Client = OpenCodeClient()
    settings: Settings = OpenCodeSettings()
    current_version: int = CURRENT_VERSION
    keeps_database: bool = True
    has_server: bool = True
    session_tables: Mapping[str, str] = SESSION_TABLES
    generations: Sequence[Generation] = (
        Generation(
            "OpenCode 1.1 and newer, before 2",
            _READER,
            OpenCodeRules(_READER),
            (DeleteWriter(), PruneWriter(), RowForkWriter()),
            can_move_leaf=False,
        ),
    )

    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        configured = environment.get(DATA_VARIABLE, "")
        base = configured if Path(configured).is_absolute() else "~/.local/share"
        return (f"{base}/{DIRECTORY}",)

    def owns(self, path: Path) -> bool:
        is_session = database_of(path) is not None or storage_of(path) is not None
        return is_session or path.parts[-2:] == ("share", DIRECTORY)

    def recognises(self, head: bytes) -> bool:
        return HEAD.match(head) is not None

    def discover(self, root: Path) -> Discovery:
        return discover(root)

    def open(self, path: Path) -> SessionReader:
        storage = storage_of(path)
        if database_of(path) is not None:
            return RenderedReader(path, partial(opened_session, path))
        if storage is not None:
            return RenderedReader(path, partial(opened_documents, path, storage))
        return RenderedReader(path, partial(opened_document, path, lines_of_export, "an export of OpenCode 1"))

    def state(self, path: Path) -> FileState | None:
        if database_of(path) is not None:
            return session_state(path)
        if file_state(path) is None:
            return None
        with self.open(path) as reader:
            return reader.state()

    def read_only(self, path: Path) -> str:
        if database_of(path) is not None:
            return SENTENCES[session_owner(path)]
        return _NO_DOCUMENTS if storage_of(path) is not None else ""

    def taken_over(self, path: Path) -> str:
        return MARKS[session_owner(path)] if database_of(path) is not None else ""

    def export(self, path: Path) -> Iterator[bytes] | None:
        """The client's own form, unless the session's file has it already."""
        if database_of(path) is None and storage_of(path) is None:
            return None
        return self._export(path)

    def _export(self, path: Path) -> Iterator[bytes]:
        with self.open(path) as reader:
            updated = reader.state().mtime_ns // 1_000_000
            info = info_of((line.raw for line in split_lines(reader.chunks(0))), updated)
            yield from export_of(info, export_rows(line.raw for line in split_lines(reader.chunks(0))))

    def database(self, path: Path) -> Path | None:
        return database_of(path)

    def open_within(self, path: Path, connection: sqlite3.Connection) -> SessionReader:
        return RenderedReader(path, partial(session_within, path, connection))

    def open_elsewhere(self, path: Path) -> OpenElsewhere | None:
        """The client takes no lock: whoever has the database open may write to every session in it."""
        database = database_of(path)
        found = file_state(database) if database is not None else None
        writers = writers_of(found) if found is not None else ()
        return OpenElsewhere(f"is in a database that is open in {describe(writers)}") if writers else None

    def server(self, path: Path, address: str) -> OpenCodeServer | None:
        if database_of(path) is None or not address:
            return None
        server = OpenCodeServer(loopback_address(address), path)
        return server if server.is_alone() else None

    def is_same_row(self, one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
        return is_same_row(one, other)

    def new_entry_id(self) -> str:
        """The part of an id after its kind: what is made later is greater."""
        moment = (time.time_ns() * _IDS_IN_A_MILLISECOND // 1_000_000) % _ID_TIME
        rest = "".join(secrets.choice(_ID_CHARACTERS) for _ in range(14))
        return f"{moment:012x}{rest}"

    def parser(self, state: ParserState, damage: list[Damage]) -> OpenCodeParser:
        return OpenCodeParser(state, damage)

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        del edit_line
        return message_json(message, line)

    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterator[Mapping[str, Any]]:
        return sent_messages(context, line)

    def reparse_entry(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        del version
        return reparse_entry(raw, place)

    def refused_writers(self, state: ParserState) -> Mapping[str, str]:
        """An export has no rows."""
        writers = self.generations[0].writers
        return {writer.name: _NO_ROWS for writer in writers if writer.appends and INFO in state.extra}


OPENCODE: Final = OpenCodeAgent()

"""The agent Codex."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.agent_settings import Settings
from sessions_app.agents.base import Generation, OpenElsewhere
from sessions_app.agents.bridges import Bridge
from sessions_app.agents.programs import Client
from sessions_app.agents.session_file import SessionFileAgent
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.diagnosis import Severity
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.session import Damage, DamageKind, ParserState
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.sessionlog.versions import RecordedVersion
from sessions_app.storage.discovery import Discovery, discover
from sessions_app.storage.files import SESSION_SUFFIX, SessionReader
from sessions_app.storage.held_locks import is_locked

from .edge.bridge import HooksBridge
from .edge.chained_file import RolloutReader, threads_based_on
from .edge.client import CodexClient
from .edge.directories import ARCHIVED, COMPRESSED_SUFFIX, SESSIONS
from .edge.settings import DIRECTORY, CodexSettings, home_directory
from .edge.writer_lock import lock_of, open_threads, writer_lock
from .pure.compacted import CompactedWriter, FullerList
from .pure.fork import ThreadForkWriter
from .pure.parser import CLIENT, IS_NUMBERED, IS_PAGINATED, RolloutParser, reparse_entry
from .pure.reader import CodexReader
from .pure.records import KEY
from .pure.rules import CodexRules
from .pure.sent import item_json, sent_items
from .pure.tree import thread_tree

READER: Final = CodexReader("codex", is_older=False)
OLDER_READER: Final = CodexReader("codex-0.104", is_older=True)
_FIRST_LINE: Final = re.compile(rb'"type"\s*:\s*"session_meta"')
_BEFORE_TYPE: Final = 200
"""No more bytes come before the type of the first line."""


class CodexAgent(SessionFileAgent):
    """Codex CLI."""

    key: str = KEY
    label: str = "Codex"
    format: str = KEY
    bridge: Bridge = HooksBridge()
    client: Client = CodexClient()
    settings: Settings = CodexSettings()
    generations: Sequence[Generation] = (
        Generation(
            "Codex 0.169 and newer",
            READER,
            CodexRules(READER),
            (CompactedWriter(READER), ThreadForkWriter(READER)),
            restore_lines=FullerList(READER),
            can_move_leaf=False,
            since=(0, 169),
        ),
        Generation(
            "Codex before 0.169",
            OLDER_READER,
            CodexRules(OLDER_READER),
            (CompactedWriter(OLDER_READER), ThreadForkWriter(OLDER_READER, knows_bases=False)),
            restore_lines=FullerList(OLDER_READER),
            can_move_leaf=False,
        ),
    )

    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        directory = home_directory(Path("~"), environment)
        return str(directory / SESSIONS), str(directory / ARCHIVED)

    def owns(self, path: Path) -> bool:
        return DIRECTORY in path.parts

    def recognises(self, head: bytes) -> bool:
        return _FIRST_LINE.search(head, 0, _BEFORE_TYPE) is not None

    def discover(self, root: Path) -> Discovery:
        """Compressed sessions, too, which say how they are opened."""
        return discover(root, (SESSION_SUFFIX, COMPRESSED_SUFFIX))

    def open(self, path: Path) -> SessionReader:
        return RolloutReader(path)

    def open_elsewhere(self, path: Path) -> OpenElsewhere | None:
        lock = lock_of(path)
        held = lock is not None and is_locked(lock)
        if held is None:
            return OpenElsewhere("may be open in Codex: nothing shows whether its lock is held", is_certain=False)
        return OpenElsewhere("is open in Codex") if held else None

    def open_sessions(self, root: Path) -> set[str]:
        return set(open_threads(root))

    def write_lock(self, path: Path) -> AbstractContextManager[object]:
        return writer_lock(path)

    @property
    def is_append_only(self) -> bool:
        """Codex's own history, and threads that are based on one, name positions in its file."""
        return True

    def sessions_based_on(self, path: Path) -> Sequence[Path]:
        return threads_based_on(path)

    def tree(self, entries: Sequence[Entry]) -> SessionTree:
        return thread_tree(entries)

    def parser(self, state: ParserState, damage: list[Damage]) -> RolloutParser:
        return RolloutParser(state, damage)

    def reparse_entry(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        del version
        return reparse_entry(raw, place)

    def obstacles(self, state: ParserState) -> Iterator[Damage]:
        yield from super().obstacles(state)
        if state.extra.get(IS_PAGINATED) and not state.extra.get(IS_NUMBERED, True):
            number, offset = state.next_number - 1, state.next_offset
            yield Damage(DamageKind.NO_ORDINAL, number, offset, 0, "the last line has no ordinal, as this thread needs")

    def consequence(self, kind: DamageKind, generation: Generation) -> tuple[Severity, str]:
        if kind is DamageKind.NO_ORDINAL and not generation.since:
            return Severity.NONE, "needs no ordinals"
        if kind in (DamageKind.NO_ORDINAL, DamageKind.NO_HEADER):
            return Severity.FATAL, "refuses to resume the thread"
        return super().consequence(kind, generation)

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        del edit_line
        return item_json(message, line)

    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterable[Mapping[str, Any]]:
        return sent_items(context, line, with_ids=context.reader == READER.name)

    def recorded_version(self, state: ParserState) -> RecordedVersion | None:
        """That of the client that began the file: later lines record none."""
        numbers = tuple(state.extra.get(CLIENT, ()))
        if not any(numbers):  # a client that was built from source calls itself 0.0.0
            return None
        return RecordedVersion(numbers, f"{self.label} {'.'.join(map(str, numbers))} began it")


CODEX: Final = CodexAgent()

"""EDGE: loading a whole session file without the index, for commands that take a path."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sessions_app.agents.base import Agent
from sessions_app.agents.registry import agent_at
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.errors import Conflict
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.printable import plural
from sessions_app.sessionlog.session import ParserState, SessionLog, is_complete_line, log_of, read_session
from sessions_app.sessionlog.tree import SessionTree

from .files import FileState, Fingerprint, GrowthKind, SessionReader, last_line_start, real_path

Progress = Callable[[int], object]
"""Called with the number of bytes read so far."""


@dataclass(frozen=True, slots=True)
class LoadedSession:
    """The digests of a file's entries, its tree, and its fingerprint."""

    path: Path
    log: SessionLog
    tree: SessionTree
    fingerprint: Fingerprint
    """Covers the complete lines."""
    state: FileState

    @property
    def leaf_id(self) -> str:
        """The id of the last entry, from which the agent continues. Raises BadInput `no_entries`."""
        return self.tree.leaf.id

    def texts(self, branch: Iterable[Entry]) -> dict[str, Texts]:
        """The texts of a branch's messages, read from the file by offset.

        Raises Conflict `session_rewritten` if the file is no longer the one that was loaded.
        """
        return read_texts(self.path, self.fingerprint, branch)


def load_session(path: Path, progress: Progress | None = None) -> LoadedSession:
    """Read a whole session; links in `path` are resolved once.

    Raises BadInput `not_a_session`, `no_such_file`, `not_a_file`, and SystemFailure.
    """
    path = real_path(path)
    agent = agent_at(path)
    with agent.store.open(path) as reader:
        return load_opened(agent, reader, progress)


def load_opened(agent: Agent, reader: SessionReader, progress: Progress | None = None) -> LoadedSession:
    """The whole session that a reader has opened."""
    chunks = chunks_with_progress(reader, progress)
    lines = split_lines(chunks)
    log = read_session(agent.format.parser(ParserState(), []), lines, str(reader.path), reader.head)
    fingerprint = reader.fingerprint(log.state.next_offset, None)
    return LoadedSession(reader.path, log, agent.format.tree(log.entries), fingerprint, reader.state())


def continue_loading(loaded: LoadedSession) -> LoadedSession:
    """The session as it is now; only the added part is read.

    Raises Conflict `session_rewritten` if the loaded part has changed.
    """
    log = loaded.log
    start = log.state.next_offset
    whole = [fault for fault in log.damage if fault.offset < start]
    agent = agent_at(loaded.path)
    parser = agent.format.parser(copy.deepcopy(log.state), whole)
    entries = [entry for entry in log.entries if entry.offset < start]
    with agent.store.open(loaded.path) as reader:
        growth = reader.growth(loaded.fingerprint)
        if growth.kind is GrowthKind.REWRITTEN:
            raise _changed(loaded.path, growth.reason)
        lines = split_lines(reader.chunks(start), offset=start, number=log.state.next_number)
        entries += [recorded.entry for line in lines for recorded in parser.read(line)]
        fingerprint = reader.fingerprint(parser.state.next_offset, loaded.fingerprint)
        state = reader.state()
    return LoadedSession(loaded.path, log_of(parser, entries), agent.format.tree(entries), fingerprint, state)


class TornLine(NamedTuple):
    """A last line whose writer was interrupted, or is still writing. In bytes."""

    offset: int
    length: int

    def __str__(self) -> str:
        return f"a torn line of {plural(self.length, 'byte')}, from byte {self.offset:,} on"


def find_torn_line(path: Path) -> TornLine | None:
    """The last line of a session, if it has no newline and is not a complete object. Reads the end of the file only."""
    with agent_at(path).store.open(path) as reader:
        size, first = reader.state().size, reader.own_offset

        def read(offset: int, length: int) -> bytes:
            return reader.read_at(first + offset, length)

        start = last_line_start(read, size)
        if start == size or is_complete_line(read(start, size - start)):
            return None
        return TornLine(start, size - start)


def read_texts(path: Path, fingerprint: Fingerprint, entries: Iterable[Entry]) -> dict[str, Texts]:
    """The texts of entries by id, read from the file by offset."""
    agent = agent_at(path)
    texts: dict[str, Texts] = {}
    with agent.store.open(path) as reader:
        growth = reader.growth(fingerprint)
        if growth.kind is GrowthKind.REWRITTEN:
            raise _changed(path, growth.reason)
        for entry in entries:
            if entry.has_text:
                texts[entry.id] = reparse_entry(agent, reader, entry)[1]
    return texts


def reparse_entry(agent: Agent, reader: SessionReader, entry: Entry, version: int = 0) -> tuple[Entry, Texts]:
    """An entry of a file of this version and its texts, read again from its position in the file.

    Raises Conflict `session_rewritten` if that entry is no longer there.
    """
    again, texts = read_place(agent, reader, entry, version)
    if again.blocks != entry.blocks or again.tokens != entry.tokens or again.role != entry.role:
        raise _changed(reader.path, f"line {entry.number} has changed")
    return again, texts


def read_place(agent: Agent, reader: SessionReader, place: Entry, version: int = 0) -> tuple[Entry, Texts]:
    """The entry now at the position of another. Raises Conflict `session_rewritten` if there is none."""
    found = agent.format.reparse_entry(reader.read_at(place.offset, place.length), place, version)
    if found is None:
        raise _changed(reader.path, f"line {place.number} has changed")
    return found


def chunks_with_progress(reader: SessionReader, progress: Progress | None) -> Iterable[bytes]:
    """The bytes of a session, with a call of `progress` for each chunk."""
    for chunk in reader.chunks(0):
        if progress is not None:
            progress(reader.bytes_read)
        yield chunk


def _changed(path: Path, reason: str) -> Conflict:
    return Conflict("session_rewritten", f"{path}: {reason}. The data read so far is invalid. Read it again.")

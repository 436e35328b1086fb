"""An opened session: what its file holds, how its agent reads that, and what the model sees of each branch.

    Document.of_file(path)       the whole file, for a command that only reads; the index is not touched
    Document.of_session(row)     the whole file of an indexed session, for what changes it
    Document.of_index(row)       the entries of the index, for pages

Callers ask it for branches, contexts and texts, and never how the session was read. `now` is the file as it continued.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import msgspec

from sessions_app.agents.base import Agent
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import NOTHING_APPENDED, agent_at, require_reader_of
from sessions_app.index.index_store import session_row
from sessions_app.index.indexed_entries import indexed_tree
from sessions_app.index.known_session import known_session
from sessions_app.index.session_reading import reading_of
from sessions_app.models import Session
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.session import Damage, SessionLog
from sessions_app.storage.files import FileState, Fingerprint
from sessions_app.storage.session_loader import LoadedSession, Progress, continue_loading, load_session


@dataclass(frozen=True)
class Document(LoadedSession):
    """One state of a session."""

    session: Session | None = None
    """Its row; None if the file is not in the index."""
    chosen_reader: str = ""
    """The reader that the caller chose; empty: the one with which the pages read it."""

    @classmethod
    def of_file(cls, path: Path, chosen_reader: str = "", progress: Progress | None = None) -> Self:
        """The session at a path, read whole.

        Raises what `load_session` raises, and BadInput `unknown_reader`.
        """
        loaded = load_session(path, progress)
        if chosen_reader:
            require_reader_of(agent_at(loaded.path), chosen_reader)
        return cls._of(loaded, known_session(loaded.path), chosen_reader)

    @classmethod
    def of_session(cls, session: Session, progress: Progress | None = None) -> Self:
        """The file of an indexed session, read whole. Raises what `load_session` raises."""
        return cls._of(load_session(session.real_path(), progress), session)

    @classmethod
    def to_change(cls, path: Path) -> Self:
        """The session at a path, read whole, with a row: one is created if there is none."""
        loaded = load_session(path)
        return cls._of(loaded, session_row(loaded.path))

    @classmethod
    def of_index(cls, session: Session, state: FileState) -> Self:
        """An indexed session, whose file has this state, without reading what is in the index.

        Raises BadInput `not_indexed`, and what reading the file raises.
        """
        path = session.real_path()
        if session.fingerprint is None or session.state is None:
            raise BadInput("not_indexed", f"{path} is not in the index. {session.fault}".strip())
        with session.agent.open(path) as reader:
            tree = indexed_tree(session, reader)
        parser = session.parser_state
        damage = msgspec.convert(session.damage, list[Damage])
        log = SessionLog(parser.header, session.version, list(tree.entries), damage, session.damage_count, parser)
        return cls(path, log, tree, msgspec.convert(session.fingerprint, Fingerprint), state, session)

    @classmethod
    def _of(cls, loaded: LoadedSession, session: Session | None, chosen_reader: str = "") -> Self:
        opened = loaded.path, loaded.log, loaded.tree, loaded.fingerprint, loaded.state
        return cls(*opened, session, chosen_reader)

    def now(self) -> Self:
        """The session as it is now; only the added part is read.

        Raises Conflict `session_rewritten` if what was read has changed.
        """
        continued = continue_loading(self)
        return replace(
            self,
            log=continued.log,
            tree=continued.tree,
            fingerprint=continued.fingerprint,
            state=continued.state,
            # Its reader may have been chosen meanwhile.
            session=session_row(self.path) if self.session is not None else None,
        )

    @property
    def row(self) -> Session:
        """Its row, if there has to be one."""
        if self.session is None:
            raise RuntimeError(f"{self.path} has no row in the index")
        return self.session

    @property
    def agent(self) -> Agent:
        """The agent that continues it."""
        return self.reading.agent

    @cached_property
    def reading(self) -> Reading:
        """How it is read, and why: as its pages read it, or by the chosen reader."""
        chosen, own = self.chosen_reader, NOTHING_APPENDED
        if self.session is not None:
            chosen, own = chosen or self.session.reader_choice, self.session.own_entries
        return reading_of(self.path, self.tree.entries, self.log.state, chosen, own)

    def branch(self, leaf_id: str = "") -> list[Entry]:
        """The entries from the beginning to a leaf, by default the file's last entry.

        Raises BadInput `unknown_entry` and `no_entries`.
        """
        return self.tree.branch(leaf_id or self.leaf_id)

    @cached_property
    def _contexts(self) -> dict[str, ActiveContext]:
        return {}

    def context(self, leaf_id: str = "") -> ActiveContext:
        """What the model sees of a branch. Raises what `branch` raises."""
        leaf_id = leaf_id or self.leaf_id
        if leaf_id not in self._contexts:
            self._contexts[leaf_id] = self.reading.reader.rebuild(self.branch(leaf_id))
        return self._contexts[leaf_id]

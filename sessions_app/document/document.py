"""An opened session: the content of its file, how its agent reads it, and what the model sees of each branch.

    Document.of_file(path)       the whole file, for a command that only reads; the index is not touched
    Document.of_session(row)     the whole file of an indexed session, for what changes it
    Document.of_index(row)       the entries of the index, for pages, which share it until the file changes
    indexed_texts(row, entries)  some texts only

Callers ask it for branches, contexts and texts, and never how the session was read. `now` also has what was added to
the file since.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeVar, cast

import msgspec

from sessions_app.agents.base import Agent
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import NOTHING_APPENDED, agent_at, require_reader_of
from sessions_app.disk.files import FileState, Fingerprint
from sessions_app.index.index_store import indexed_tree, session_row
from sessions_app.index.named_session import known_session
from sessions_app.index.session_reading import reading_of
from sessions_app.models import Session
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import NO_TEXTS, Entry, Texts
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.session import Damage, SessionLog
from sessions_app.storage.session_loader import LoadedSession, Progress, continue_loading, load_session, read_texts

MOST_ENTRIES: Final = 120_000
"""The maximum number of entries of all cached documents together, including those of branches derived from them."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Document(LoadedSession):
    """One state of a session."""

    session: Session | None = None
    """Its row; None if the file is not in the index."""
    chosen_reader: str = ""
    """The reader that the caller chose; if empty, that of the pages is used."""

    @classmethod
    def of_file(cls, path: Path, chosen_reader: str = "", progress: Progress | None = None) -> Self:
        """The session at a path, read whole.

        Raises the errors of `load_session`, and BadInput `unknown_reader`.
        """
        loaded = load_session(path, progress)
        if chosen_reader:
            require_reader_of(agent_at(loaded.path), chosen_reader)
        return cls._of(loaded, known_session(loaded.path), chosen_reader)

    @classmethod
    def of_session(cls, session: Session, progress: Progress | None = None) -> Self:
        """The file of an indexed session, read whole. Raises the errors of `load_session`."""
        return cls._of(load_session(session.real_path(), progress), session)

    @classmethod
    def to_change(cls, path: Path) -> Self:
        """The session at a path, read whole, with its row, which is created if missing."""
        loaded = load_session(path)
        return cls._of(loaded, session_row(loaded.path))

    @classmethod
    def of_index(cls, session: Session) -> Document:
        """An indexed session in the current state of its file. The most recently used ones are cached.

        Raises BadInput `not_indexed` and `no_such_file`, and the errors of reading the file.
        """
        path = session.real_path()
        state = session.agent.store.state(path)
        if state is None:
            raise BadInput("no_such_file", f"{path} does not exist. Nothing was read.")
        if session.fingerprint is None or session.state is None:
            raise BadInput("not_indexed", f"{path} is not in the index. {session.fault}".strip())
        key = _Key(session.pk, state, session.reader_choice, session.indexed_at)
        return _kept.get(key, lambda: cls._read_from_index(session, path, state))

    @classmethod
    def _read_from_index(cls, session: Session, path: Path, state: FileState) -> Document:
        with session.agent.store.open(path) as reader:
            tree = indexed_tree(session, reader)
        parser = session.parser_state
        damage = msgspec.convert(session.damage, list[Damage])
        log = SessionLog(parser.header, session.version, list(tree.entries), damage, session.damage_count, parser)
        return Document(path, log, tree, msgspec.convert(session.fingerprint, Fingerprint), state, session)

    @classmethod
    def _of(cls, loaded: LoadedSession, session: Session | None, chosen_reader: str = "") -> Self:
        opened = loaded.path, loaded.log, loaded.tree, loaded.fingerprint, loaded.state
        return cls(*opened, session, chosen_reader)

    def now(self) -> Self:
        """The session as it is now; only the added part is read.

        Raises Conflict `session_rewritten` if what was read has changed.
        """
        continued = continue_loading(self)
        # Its reader may have been chosen meanwhile.
        session = None if self.session is None else self.session.as_stored()
        return self._of(continued, session, self.chosen_reader)

    @property
    def row(self) -> Session:
        """The session's row. Raises RuntimeError if it has none."""
        if self.session is None:
            raise RuntimeError(f"{self.path} has no row in the index")
        return self.session

    @property
    def agent(self) -> Agent:
        """The agent that continues it."""
        return self.reading.agent

    @cached_property
    def reading(self) -> Reading:
        """How the session is read, and why: by the chosen reader, or as its pages read it."""
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

    @cached_property
    def _derived(self) -> dict[Hashable, _Derived]:
        """In order of use, the last used last."""
        return {}

    def context(self, leaf_id: str = "") -> ActiveContext:
        """The active context of a branch. Raises the errors of `branch`."""
        leaf_id = leaf_id or self.leaf_id
        if leaf_id not in self._contexts:
            self._contexts[leaf_id] = self.reading.reader.rebuild(self.branch(leaf_id))
        return self._contexts[leaf_id]

    def derived(
        self, key: Hashable, compute: Callable[[], Result], entries_of: Callable[[Result], int] = lambda _: 1
    ) -> Result:
        """A result computed from this state of the session, cached with the document.

        `entries_of` gives its weight in entries: see MOST_ENTRIES.
        """
        found = _kept.derived(self, key)
        if found is None:
            with _kept.computing:
                found = _kept.derived(self, key)
                if found is None:
                    value = compute()
                    found = _Derived(value, entries_of(value))
                    _kept.keep_derived(self, key, found)
        return cast("Result", found.value)

    @property
    def weight(self) -> int:
        """The number of its entries, and of those derived from it."""
        return len(self.tree.entries) + sum(one.entries for one in self._derived.values())


# ---- the cache -------------------------------------------------------------------------------------------


def indexed_texts(session: Session, entries: Iterable[Entry]) -> dict[str, Texts]:
    """The texts of some entries of an indexed session, by id. Nothing else of it is read.

    Raises Conflict `session_rewritten` if the file is no longer the one that is in the index.
    """
    wanted = list(entries)
    found = read_texts(session.real_path(), msgspec.convert(session.fingerprint, Fingerprint), wanted)
    return {entry.id: found.get(entry.id, NO_TEXTS) for entry in wanted}


class _Key(NamedTuple):
    """What must be unchanged for a kept document to be valid."""

    session: int
    file: FileState
    reader: str
    indexed_at: datetime | None


class _Derived(NamedTuple):
    value: object
    entries: int


class _KeptDocuments:
    """The most recently used documents of the index, with the results derived from them.

    They have at most MOST_ENTRIES together, except that the last one is always kept.
    """

    def __init__(self) -> None:
        self._documents: dict[_Key, Document] = {}
        """In order of use, the last used last."""
        self._lock = threading.Lock()
        self._computing = threading.RLock()

    @property
    @contextmanager
    def computing(self) -> Iterator[None]:
        """Allow one computation at a time: two would take twice the memory, and be no faster."""
        with self._computing, _collection_paused():
            yield

    def get(self, key: _Key, read: Callable[[], Document]) -> Document:
        """The document with a key. Earlier states of its session are dropped."""
        found = self._look_up(key)
        if found is None:
            with self.computing:
                found = self._look_up(key)
                if found is None:
                    found = read()
                    with self._lock:
                        others = {old: one for old, one in self._documents.items() if old.session != key.session}
                        self._documents = {**others, key: found}
                        self._shrink()
        return found

    def derived(self, document: Document, key: Hashable) -> _Derived | None:
        with self._lock:
            found = document._derived.pop(key, None)
            if found is not None:
                document._derived[key] = found
            return found

    def keep_derived(self, document: Document, key: Hashable, value: _Derived) -> None:
        with self._lock:
            document._derived[key] = value
            while len(document._derived) > 1 and document.weight > MOST_ENTRIES:
                del document._derived[next(iter(document._derived))]
            self._shrink()

    def clear(self) -> None:
        with self._lock:
            self._documents = {}

    def _look_up(self, key: _Key) -> Document | None:
        with self._lock:
            found = self._documents.pop(key, None)
            if found is not None:
                self._documents[key] = found
            return found

    def _shrink(self) -> None:
        while len(self._documents) > 1 and sum(one.weight for one in self._documents.values()) > MOST_ENTRIES:
            del self._documents[next(iter(self._documents))]


_kept: Final = _KeptDocuments()
forget_documents: Final = _kept.clear


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Pause the garbage collector: opening a session makes many lasting objects and no garbage to search for."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

"""EDGE: the full-text index, a separate SQLite file beside Redline's database.

It can be deleted at any time and is built again. Being a separate file, its writers never make pages wait, and copies
of the database before migrations do not contain it.

    session   which sessions are searchable, and up to which entry
    alike     what passages have in common that are counted together: session, kind, tool and state
    passage   what it is alike, and its time; its id has the key of its entry and its kind
    words     FTS5 without content or positions: which passages have a word; the texts are only in the session files
    gone      passages that were removed, whose words are still in `words`

FTS5 needs the old text to remove a row without content, and the old text may be gone with its file. Removal therefore
has two steps. The row of the passage is removed immediately, so that nothing finds it. Its words are removed later, for
many passages together: `fts5vocab` reads them from the index itself (`purge`).
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Self

from sessions_app.disk.files import FileIdentity, file_identity
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.sessionlog.passages import PassageKind

FILE: Final = "search.sqlite3"
SCHEMA: Final = 1
"""Increased whenever the tables or the words of passages change: another index is built again."""
KIND_BITS: Final = 3
KIND_MASK: Final = (1 << KIND_BITS) - 1
BUSY_SECONDS: Final = 10
WORDS_NAMED: Final = 16
"""The maximum number of words with the same beginning that a query lists individually."""
PURGED_AT_ONCE: Final = 20_000
"""The number of passages whose words are removed in one pass over the index."""
DELETED_AT_ONCE: Final = 100
IDLE_CONNECTIONS: Final = 2
CACHE_KILOBYTES: Final = 8_000
"""The page cache of each connection: the pages that a search in 60,000 entries reads fit, and serve the next search."""
PAGES_AT_ONCE: Final = 200
"""The number of pages of the file that are merged, or freed, in one step."""
_TABLES: Final = """
CREATE TABLE session (
  id INTEGER PRIMARY KEY, indexed_at TEXT NOT NULL, last_entry INTEGER NOT NULL, entries INTEGER NOT NULL,
  reader TEXT NOT NULL, leaf TEXT, open_ended INTEGER NOT NULL
);
CREATE TABLE alike (
  id INTEGER PRIMARY KEY, session INTEGER NOT NULL, kind INTEGER NOT NULL, tool TEXT NOT NULL, state INTEGER NOT NULL,
  UNIQUE (session, kind, tool, state)
);
CREATE TABLE passage (id INTEGER PRIMARY KEY, alike INTEGER NOT NULL, moment INTEGER);
CREATE INDEX passage_alike ON passage (alike);
CREATE TABLE gone (id INTEGER PRIMARY KEY);
CREATE VIRTUAL TABLE words USING fts5 (
  text, content='', columnsize=0, detail=none, tokenize="unicode61 remove_diacritics 0"
);
"""
_TOKENS: Final = """
CREATE VIRTUAL TABLE IF NOT EXISTS temp.typed USING fts5 (text, tokenize="unicode61 remove_diacritics 0");
CREATE VIRTUAL TABLE IF NOT EXISTS temp.token USING fts5vocab (temp, typed, instance);
"""
_SLICES: Final = ("", *"0123456789abcdefghijklmnopqrstuvwxyz", "\u0080", "\U0010ffff")
"""The bounds of the slices in which words are read, so that other work can be done in between."""


class SearchableSession(NamedTuple):
    """How much of a session is in the index."""

    id: int
    indexed_at: str = ""
    """The value of the session's row when all of it was added; empty until then."""
    last_entry: int = 0
    """The key of the last entry that was added; later entries have larger keys."""
    entries: int = 0
    """How many entries were added, with or without text."""
    reader: str = ""
    """The reader by which the states were determined; empty if they have to be determined again."""
    leaf: str | None = None
    """The leaf of the branch to which the states refer."""
    open_ended: int = False
    """Whether an entry that only continues this branch may change them."""


class Alike(NamedTuple):
    """The common properties of passages that are counted together. `state` is a `passages.PassageState`."""

    session: int
    kind: int
    tool: str
    state: int


class IndexedPassage(NamedTuple):
    """A passage as it is stored. `moment` is in seconds since 1970."""

    id: int
    alike: Alike
    moment: int | None
    words: str


# ---- connections -------------------------------------------------------------------------------------------

_idle: Final[list[tuple[FileIdentity, sqlite3.Connection]]] = []
"""Unused open connections with their files: a new connection would have to read the same pages again."""
_lock: Final = threading.Lock()


def _idle_connection(path: Path) -> sqlite3.Connection | None:
    """An open connection to the file that is at a path now: the file may have been deleted and recreated."""
    file = file_identity(path)
    with _lock:
        found = next((number for number, (opened, _) in enumerate(_idle) if opened == file), None)
        return _idle.pop(found)[1] if found is not None else None


def _keep_idle(file: FileIdentity | None, connection: sqlite3.Connection) -> None:
    with _lock:
        if file is not None:
            _idle.append((file, connection))
        left = [connection] if file is None else [one for _, one in _idle[:-IDLE_CONNECTIONS]]
        del _idle[:-IDLE_CONNECTIONS]
    for one in left:
        one.close()


def forget_texts(directory: Path) -> None:
    """Delete the index in a data directory, if there is one. Raises OSError."""
    for suffix in ("", "-wal", "-shm"):
        (directory / f"{FILE}{suffix}").unlink(missing_ok=True)


def close_idle() -> None:
    """Close all unused open connections, for example before a fork: SQLite's must not be used after one."""
    with _lock:
        left = [connection for _, connection in _idle]
        _idle.clear()
    for one in left:
        one.close()


def passage_id(entry: int, kind: PassageKind) -> int:
    return entry << KIND_BITS | kind


class TextStore:
    """The index in a data directory, opened as a context manager. Raises SystemFailure `search_failed`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE

    def __enter__(self) -> Self:
        self.connection = _idle_connection(self.path) or sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare()
        except sqlite3.DatabaseError as fault:
            self.connection.close()
            raise SystemFailure(
                "search_failed",
                f"The full-text index {self.path} cannot be used: {fault}. Nothing was searched. Delete it: Redline "
                "builds a new one.",
            ) from fault
        self._file = file_identity(self.path)
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed:
            self.connection.close()
        else:
            _keep_idle(self._file, self.connection)

    def _prepare(self) -> None:
        run = self.connection.execute
        run("PRAGMA synchronous = NORMAL")
        run(f"PRAGMA cache_size = -{CACHE_KILOBYTES}")
        if self._version() == SCHEMA:
            return
        run("PRAGMA auto_vacuum = INCREMENTAL")
        run("PRAGMA journal_mode = WAL")
        with self._transaction():
            if self._version() != SCHEMA:
                for name in ("words", "session", "alike", "passage", "gone"):
                    run(f"DROP TABLE IF EXISTS {name}")
                for statement in filter(str.strip, _TABLES.split(";")):
                    run(statement)
                run(f"PRAGMA user_version = {SCHEMA}")

    def _version(self) -> int:
        return int(self.connection.execute("PRAGMA user_version").fetchone()[0])

    # ---- what is searchable --------------------------------------------------------------------------------

    def sessions(self) -> dict[int, SearchableSession]:
        """All sessions of which something was added, by key."""
        rows = self.connection.execute("SELECT * FROM session")
        return {row[0]: SearchableSession(*row) for row in rows}

    def searchable(self) -> int:
        """The number of sessions that were added completely."""
        return int(self.connection.execute("SELECT count(*) FROM session WHERE indexed_at <> ''").fetchone()[0])

    def passages(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM passage").fetchone()[0])

    def passages_of(self, session: int) -> dict[int, Alike]:
        """The passages of a session by id."""
        rows = self.connection.execute(
            "SELECT passage.id, session, kind, tool, state FROM alike JOIN passage ON alike = alike.id"
            " WHERE session = ?",
            (session,),
        )
        return {number: Alike(*shared) for number, *shared in rows}

    def tokens_of(self, text: str) -> list[str]:
        """The tokens of a text in order, as the index has them."""
        if text.isascii() and text.isalnum():
            return [text.lower()]
        run = self.connection.execute
        for statement in filter(str.strip, _TOKENS.split(";")):
            run(statement)
        run("DELETE FROM temp.typed")
        run("INSERT INTO temp.typed (text) VALUES (?)", (text,))
        return [term for (term,) in run('SELECT term FROM temp.token ORDER BY "offset"')]

    def words_from(self, token: str) -> list[str]:
        """The words that begin with a token; none of them if they are more than WORDS_NAMED."""
        run = self.connection.execute
        run("CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab (main, words, instance)")
        words: list[str] = []
        start, end = token, f"{token}\U0010ffff"
        # One at a time: each is found immediately, whereas for a list FTS5 would read all their passages.
        statement = "SELECT term FROM temp.vocabulary WHERE term >= ? AND term < ? LIMIT 1"
        while found := run(statement, (start, end)).fetchone():
            words.append(found[0])
            if len(words) > WORDS_NAMED:
                return []
            start = f"{found[0]}\0"
        return words

    # ---- writing -------------------------------------------------------------------------------------------

    def add(self, session: SearchableSession, found: Sequence[IndexedPassage]) -> None:
        """Add passages, and remember how far the session was read, in one transaction."""
        with self._transaction():
            keys = self._keys(one.alike for one in found)
            rows = [(one.id, keys[one.alike], one.moment) for one in found]
            self.connection.executemany("INSERT INTO passage VALUES (?, ?, ?)", rows)
            words = [(one.id, one.words) for one in found]
            self.connection.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", words)
            self._remember(session)

    def update(self, session: SearchableSession, changed: Mapping[int, Alike]) -> None:
        """Change the common properties of passages, by id, and the session's state, in one transaction."""
        with self._transaction():
            keys = self._keys(changed.values())
            rows = [(keys[alike], number) for number, alike in changed.items()]
            self.connection.executemany("UPDATE passage SET alike = ? WHERE id = ?", rows)
            self._remember(session)

    def remove(self, ids: Iterable[int], session: SearchableSession) -> None:
        """Remove passages of a session; no search finds them afterwards."""
        with self._transaction():
            self._remove(ids)
            self._remember(session)

    def remove_session(self, session: int) -> None:
        """Remove a session with all its passages."""
        with self._transaction():
            self._remove(self.passages_of(session))
            self.connection.execute("DELETE FROM alike WHERE session = ?", (session,))
            self.connection.execute("DELETE FROM session WHERE id = ?", (session,))

    def _remove(self, ids: Iterable[int]) -> None:
        rows = [(one,) for one in ids]
        self.connection.executemany("INSERT INTO gone (id) VALUES (?)", rows)
        self.connection.executemany("DELETE FROM passage WHERE id = ?", rows)

    def _remember(self, session: SearchableSession) -> None:
        self.connection.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, ?)", session)

    def _keys(self, needed: Iterable[Alike]) -> dict[Alike, int]:
        """The keys of common properties, which are added if they are new."""
        keys = {}
        for alike in set(needed):
            self.connection.execute(
                "INSERT OR IGNORE INTO alike (session, kind, tool, state) VALUES (?, ?, ?, ?)", alike
            )
            found = self.connection.execute(
                "SELECT id FROM alike WHERE (session, kind, tool, state) = (?, ?, ?, ?)", alike
            )
            keys[alike] = int(found.fetchone()[0])
        return keys

    # ---- the words of removed passages ---------------------------------------------------------------------

    def gone(self) -> int:
        """The number of removed passages whose words are still in the index."""
        return int(self.connection.execute("SELECT count(*) FROM gone").fetchone()[0])

    def purge(self) -> Iterator[None]:
        """Remove the words of all removed passages from the index and from its file, in steps of some 50 ms."""
        if not self.gone():
            return
        self.connection.execute("CREATE VIRTUAL TABLE temp.instance USING fts5vocab (main, words, instance)")
        while self.gone():
            yield from self._purge_some()
        self.connection.execute("DROP TABLE temp.instance")
        yield from self.merge()

    def merge(self) -> Iterator[None]:
        """Make the index compact, in steps; removed words are then in no part of its file."""
        pages = -PAGES_AT_ONCE
        while True:
            before = self.connection.total_changes
            with self._transaction():
                self.connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
            if self.connection.total_changes - before < 2:
                break
            pages = PAGES_AT_ONCE
            yield
        while self.connection.execute("PRAGMA freelist_count").fetchone()[0]:
            self.connection.execute(f"PRAGMA incremental_vacuum ({PAGES_AT_ONCE})").fetchall()
            yield

    def _purge_some(self) -> Iterator[None]:
        found: dict[int, set[str]] = {}
        first = self.connection.execute("SELECT id FROM gone ORDER BY id LIMIT ?", (PURGED_AT_ONCE,)).fetchall()
        for (number,) in first:
            found[number] = set()
        for begin, end in pairwise(_SLICES):
            rows = self.connection.execute(
                "SELECT doc, term FROM temp.instance"
                " WHERE term >= ? AND term < ? AND +doc IN (SELECT id FROM gone WHERE id <= ?)",
                (begin, end, first[-1][0]),
            )
            for number, term in rows:
                found[number].add(term)
            yield
        pending = list(found.items())
        for start in range(0, len(pending), DELETED_AT_ONCE):
            part = pending[start : start + DELETED_AT_ONCE]
            with self._transaction():
                self.connection.executemany(
                    "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)",
                    [(number, " ".join(terms)) for number, terms in part],
                )
                self.connection.executemany("DELETE FROM gone WHERE id = ?", [(number,) for number, _ in part])
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction that takes the lock for writing at its start; an error rolls it back."""
        with self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            yield

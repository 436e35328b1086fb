"""Adds the texts of indexed sessions to the full-text index, after the list is complete, and in small steps.

A session that has grown costs only its new entries: keys of entries are never reused, so an entry with a larger key
than the last one is new, and a passage whose entry no longer has a row is removed. Every step leaves the index usable,
and the next process continues where a killed one ended.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Final

from django.conf import settings

from sessions_app.agents.registry import READERS
from sessions_app.database import text_store
from sessions_app.database.sqlite import UntilWritten
from sessions_app.disk.files import SessionReader
from sessions_app.index.index_store import index_lock, indexed_tree
from sessions_app.index.indexer import IndexTotals, OpenTexts, RebuiltSession, TextSink
from sessions_app.index.progress import TextProgress
from sessions_app.models import HAS_ENTRIES, Entry as EntryRow, Session, SessionQuerySet
from sessions_app.server.broadcast import SESSIONS, publish
from sessions_app.sessionlog.context import Tally
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.errors import Conflict, RedlineError, SystemFailure
from sessions_app.sessionlog.passages import PassageState, index_text, passages, states_of
from sessions_app.sessionlog.session import SCHEMA, unpack
from sessions_app.storage.session_loader import reparse_entry

CHARACTERS_AT_ONCE: Final = 300_000
"""The number of characters written in one transaction: some 30 ms."""
ROWS_AT_ONCE: Final = 500
MERGED_GROWTH: Final = 1.2
"""The growth factor of the index in one pass from which it is made compact at the end."""
PAUSE_SECONDS: Final = 5
"""Seconds between two passes of the server; longer if a pass itself takes long."""
PURGE_SECONDS: Final = 60
"""Seconds between two removals of words; longer if one itself takes long."""
WAIT_SECONDS: Final = 10
"""How long a command waits for a pass of another process, in seconds."""
ANNOUNCED_SECONDS: Final = 1
"""Seconds between two announcements of the progress. A pass that ends before the first is not announced."""

_log = logging.getLogger("redline")


def text_progress(store: text_store.TextStore) -> TextProgress:
    """The progress so far. A session that cannot be read is not counted."""
    return TextProgress(store.searchable(), _readable_count())


def _readable() -> SessionQuerySet:
    """The sessions whose entries are in the index."""
    return Session.objects.filter(HAS_ENTRIES, schema=SCHEMA).latest_first()


_readable_count: Final = UntilWritten(lambda: _readable().count())


@contextmanager
def only_text_indexer(seconds: float) -> Iterator[text_store.TextStore]:
    """The index, opened for writing by one process at a time.

    Raises Conflict `being_indexed` if another one takes longer, and SystemFailure.
    """
    with _text_lock(seconds), _opened_store() as store:
        yield store


def _text_lock(seconds: float) -> AbstractContextManager[None]:
    busy = "Another Redline process is indexing texts. Nothing was done. Try again soon."
    return index_lock("search", seconds, busy, "No texts were indexed.")


@contextmanager
def _opened_store() -> Iterator[text_store.TextStore]:
    try:
        with text_store.TextStore(settings.REDLINE_DATA_DIR) as store:
            yield store
    except sqlite3.DatabaseError as fault:
        raise SystemFailure(
            "search_failed",
            f"The full-text index in {settings.REDLINE_DATA_DIR} cannot be written: {fault}. Not all texts were "
            "indexed. Free some space if the disk is full, then try again.",
        ) from fault


def index_with_texts(
    index: Callable[[OpenTexts], IndexTotals], report: Callable[[TextProgress], object]
) -> IndexTotals:
    """Index sessions with their texts: `index` reads a session once for both; the texts of sessions that it did not
    read are added afterwards.

    Raises the errors of `only_text_indexer`, and those of `index`.
    """
    with _text_lock(WAIT_SECONDS):
        with _opened_store() as store:
            before = store.passages()
        text_store.close_idle()
        total = index(_opened_texts)
        with _opened_store() as store:
            for progress in index_texts(store, before):
                report(progress)
    return total


@contextmanager
def _opened_texts() -> Iterator[TextSink]:
    """Adds the texts of sessions that are being indexed: their lines are not read again."""
    with _opened_store() as store:
        known = store.sessions().keys()

        def begin(session: Session) -> _TextsRead:
            if session.pk in known:
                # The entries of its earlier passages no longer have rows.
                store.remove_session(session.pk)
            return _TextsRead(store, session)

        yield begin


def index_texts(store: text_store.TextStore, before: int | None = None) -> Iterator[TextProgress]:
    """Bring the index up to date with the rows of sessions and entries, in steps of some 50 ms.

    `before` is the number of passages before those that were added just now, if some were.
    """
    present = Session.objects.present()
    known = store.sessions()
    for key in known.keys() - set(present.values_list("pk", flat=True)):
        store.remove_session(key)
        yield text_progress(store)
    stale = [
        session.pk
        for session in _readable().only("indexed_at")
        if session.pk not in known or known[session.pk].indexed_at != _text_of(session.indexed_at)
    ]
    total = _readable().count()
    done = total - len(stale)
    before = store.passages() if before is None else before
    for key in stale:
        session = present.select_related("root").filter(pk=key).first()
        if session is not None:
            for _ in _SessionTexts(store, session, known.get(key)).add():
                yield TextProgress(done, total)
        done += 1
        yield TextProgress(done, total)
    if store.passages() > MERGED_GROWTH * before:
        for _ in store.merge():
            yield TextProgress(done, total)


class _Passages:
    """The passages of one session, which are added to the index."""

    def __init__(
        self, store: text_store.TextStore, session: Session, known: text_store.SearchableSession | None = None
    ) -> None:
        self._store = store
        self._session = session
        self._row = (known or text_store.SearchableSession(session.pk))._replace(indexed_at="")
        self._pending: list[text_store.IndexedPassage] = []
        self._characters = 0
        """The number of characters in the pending passages."""

    def _add_passages(self, key: int, entry: Entry, texts: Texts, moment: datetime | None) -> None:
        """Add the passages of an entry with this key to the pending ones."""
        seconds = int(moment.timestamp()) if moment is not None else None
        for kind, text in passages(entry, texts):
            alike = text_store.Alike(self._session.pk, kind, entry.tool_name, PassageState.SEEN)
            self._pending.append(
                text_store.IndexedPassage(text_store.passage_id(key, kind), alike, seconds, index_text(text))
            )
            self._characters += len(text)

    def _write_to(self, last_entry: int, entries: int) -> None:
        """Write the pending passages; `entries` entries, the last with the key `last_entry`, were added since the last
        time."""
        self._row = self._row._replace(last_entry=last_entry, entries=self._row.entries + entries)
        self._store.add(self._row, self._pending)
        self._pending.clear()
        self._characters = 0

    def _complete(self, leaf: str | None, rebuilt: RebuiltSession | None) -> None:
        """Record that all entries were added, and the states of the passages if the context was rebuilt from a
        branch."""
        session, changed = self._session, {}
        if rebuilt is not None:
            states = states_of(*rebuilt)
            ids = dict(session.entries.values_list("pk", "entry_id"))
            for number, alike in self._store.passages_of(session.pk).items():
                state = states.get(ids.get(number >> text_store.KIND_BITS, ""), PassageState.ELSEWHERE)
                if state != alike.state:
                    changed[number] = alike._replace(state=state)
        self._row = self._row._replace(
            indexed_at=_text_of(session.indexed_at),
            reader=session.read_as,
            leaf=leaf,
            open_ended=rebuilt.context.open_ended if rebuilt is not None else self._row.open_ended,
        )
        self._store.update(self._row, changed)


class _TextsRead(_Passages):
    """The texts of one session that is read from its start: see `index.indexer.ReadTexts`."""

    def __init__(self, store: text_store.TextStore, session: Session) -> None:
        super().__init__(store, session)
        self._taken: list[tuple[Entry, Texts]] = []

    def take(self, entry: Entry, texts: Texts) -> None:
        self._taken.append((entry, texts))

    def stored(self, first_key: int, entries: int) -> None:
        noted = first_key
        for key, (entry, texts) in enumerate(self._taken, first_key):
            if entry.has_text:
                self._add_passages(key, entry, texts, entry.moment)
            if self._characters >= CHARACTERS_AT_ONCE:
                self._write_to(key, key + 1 - noted)
                noted = key + 1
        self._taken.clear()
        if first_key + entries > noted:
            self._write_to(first_key + entries - 1, first_key + entries - noted)

    def complete(self, rebuilt: RebuiltSession | None) -> None:
        self._complete(self._session.leaf_id or None, rebuilt)


class _SessionTexts(_Passages):
    """The texts of one session that was indexed before: what is new is read again."""

    def add(self) -> Iterator[None]:
        """Remove what is no longer in the session, and add what is new."""
        session, rebuilt = self._session, None
        self._remove_lost()
        is_same = self._row.reader == session.read_as
        tally = Tally(leaf_id=self._row.leaf, open_ended=bool(self._row.open_ended))
        try:
            with session.agent.store.open(session.real_path()) as reader:
                # No query stays open while other work is done: it would keep an old state of the database.
                entries = session.entries.order_by("pk")
                while rows := list(entries.filter(pk__gt=self._row.last_entry)[:ROWS_AT_ONCE]):
                    for row in rows:
                        entry = unpack(row.number, row.offset, row.length, row.entry_id, row.parent_id, row.digest)
                        is_same = is_same and tally.carries(entry)
                        if is_same:
                            tally.add(entry)
                        if self._collect(row, entry, reader):
                            self._write(row.pk)
                            yield
                    self._write(rows[-1].pk)
                    yield
                if self._row.entries and not is_same:
                    rebuilt = _rebuilt(session, reader)
        except RedlineError as fault:
            # The follower or the next indexing reports the file; it is read again when its row has changed.
            _log.info("The texts of a session were not indexed: %s", fault.code)
            self._store.update(self._row._replace(indexed_at=_text_of(session.indexed_at), reader=""), {})
            return
        self._complete(rebuilt.tree.leaf.id if rebuilt is not None else tally.leaf_id, rebuilt)

    def _remove_lost(self) -> None:
        """Remove the passages whose entries were removed from the session, or replaced."""
        entries = self._session.entries
        left = entries.filter(pk__lte=self._row.last_entry).count()
        if left == self._row.entries:
            if not left:
                self._row = self._row._replace(reader=self._session.read_as)
            return
        keys = set(entries.values_list("pk", flat=True))
        passages_now = self._store.passages_of(self._session.pk)
        lost = [one for one in passages_now if one >> text_store.KIND_BITS not in keys]
        self._row = text_store.SearchableSession(
            self._session.pk,
            last_entry=self._row.last_entry,
            entries=left,
            reader="" if left else self._session.read_as,
        )
        self._store.remove(lost, self._row)

    def _collect(self, row: EntryRow, entry: Entry, reader: SessionReader) -> bool:
        """Read the passages of an entry; returns whether they are enough for a transaction."""
        if not entry.has_text:
            return False
        _, texts = reparse_entry(self._session.agent, reader, entry, self._session.version)
        self._add_passages(row.pk, entry, texts, row.recorded_at)
        return self._characters >= CHARACTERS_AT_ONCE

    def _write(self, last_entry: int) -> None:
        """Write the passages that were collected from the entries up to this one."""
        added = self._session.entries.filter(pk__gt=self._row.last_entry, pk__lte=last_entry).count()
        self._write_to(last_entry, added)


def _rebuilt(session: Session, reader: SessionReader) -> RebuiltSession:
    tree = indexed_tree(session, reader)
    branch = tree.branch(tree.leaf.id)
    return RebuiltSession(tree, branch, READERS[session.read_as].rebuild(branch))


def _text_of(moment: datetime | None) -> str:
    return moment.isoformat() if moment is not None else ""


def update_texts() -> Iterator[TextProgress]:
    """A whole pass, for a command. Raises the errors of `only_text_indexer`."""
    with only_text_indexer(0) as store:
        yield from index_texts(store)
        for _ in store.purge():
            yield text_progress(store)


class TextIndexer:
    """Keeps the full-text index up to date while the server runs, whenever there is nothing else to do."""

    def __init__(self) -> None:
        self._pass: Iterator[None] | None = None
        self._next_pass = self._next_purge = 0.0

    def step(self) -> bool:
        """Do the next step of a pass; returns whether the next one is ready."""
        if self._pass is None:
            if time.monotonic() < self._next_pass:
                return False
            self._pass = self._run()
        try:
            next(self._pass)
        except StopIteration:
            self._pass = None
            return False
        return True

    def _run(self) -> Iterator[None]:
        started = time.monotonic()
        try:
            with only_text_indexer(0) as store:
                yield from self._announced(index_texts(store))
                if time.monotonic() >= self._next_purge:
                    began = time.monotonic()
                    yield from store.purge()
                    took = time.monotonic() - began
                    self._next_purge = time.monotonic() + max(PURGE_SECONDS, 20 * took)
        except Conflict:
            pass  # a command is doing it
        except SystemFailure as fault:
            _log.error("Texts could not be indexed: %s", fault)
        took = time.monotonic() - started
        self._next_pass = time.monotonic() + max(PAUSE_SECONDS, took)

    def _announced(self, steps: Iterator[TextProgress]) -> Iterator[None]:
        """The steps of a pass; its progress is sent to open pages."""
        last, was_announced = time.monotonic(), False
        for progress in steps:
            if time.monotonic() - last >= ANNOUNCED_SECONDS:
                publish(SESSIONS, texts=progress._asdict())
                last, was_announced = time.monotonic(), True
            yield
        if was_announced:
            publish(SESSIONS, texts=None)

"""The rows of the index: sessions found by path, their entries, and the state of their files when they were indexed.

Each session is written by one indexing process at a time. No content of a session is read here, except the control
entries of `read_entries`.
"""

import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import BooleanField, DateTimeField, ExpressionWrapper, F, Func, IntegerField, JSONField, Q, Value

from sessions_app.disk.files import SessionReader, acquired_lock, file_state, reported, stat_file
from sessions_app.disk.rendered import DOCUMENT_SUFFIX
from sessions_app.models import INDEXED_FIELDS, Entry as EntryRow, Root, Session, insert_statement
from sessions_app.sessionlog.context import InheritedMeasure, Measure
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.session import SCHEMA, pack, unpack
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.session_loader import reparse_entry

from .roots import known_roots, root_for

BATCH: Final = 1_000
"""Rows written in one transaction."""
INDEX_LOCKS: Final = 256
"""The number of lock files, which sessions share."""
LOCK_SECONDS: Final = 600
"""How long indexing waits for another process indexing the same session, which may have gigabytes to read."""
_LAST_KEY: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'sessions_app_entry'"
"""The largest key that an entry ever had: SQLite never reuses one."""
_COLUMNS: Final = ("number", "offset", "length", "entry_id", "parent_id", "digest")
"""The columns from which `unpack` makes an entry."""
_INSERT: Final = insert_statement(EntryRow)
_FIELDS: Final = [field for field in Session._meta.concrete_fields if field.name in INDEXED_FIELDS]
_CONVERTED: Final = [place for place, field in enumerate(_FIELDS) if isinstance(field, DateTimeField | JSONField)]
"""The positions of the fields whose values must be converted for SQLite."""
_UPDATE: Final = (
    f"UPDATE sessions_app_session SET {', '.join(f'{field.column} = %s' for field in _FIELDS)} WHERE id = %s"  # noqa: S608
)


def require_name(path: Path) -> None:
    """Raise BadInput `unusable_name` if a path cannot be stored in the database."""
    if not str(path).isascii() and well_formed(str(path)) != str(path):
        raise BadInput(
            "unusable_name",
            f"The name of {path} is not UTF-8. It was not indexed. Rename it.",
        )


def session_row(path: Path) -> Session:
    """The row of the file at a real path, created if there is none; the file is not read.

    Raises BadInput `unusable_name`.
    """
    require_name(path)
    rows, _ = find_rows([path])
    return rows[path]


def find_rows(paths: Iterable[Path]) -> tuple[dict[Path, Session], set[Path]]:
    """The rows of files in the innermost root that contains each, and the paths of those that were missing and are
    created now.

    A row that a file had in an outer root moves to the inner one, with everything that refers to it.
    """
    known = known_roots()
    places = {}
    for path in paths:
        root, below = root_for(path.parent, known)
        places[path] = (root, str(below / path.name))
    rows = _rows_at(places)
    missing = {path: place for path, place in places.items() if path not in rows}
    if not missing:
        return rows, set()
    with transaction.atomic():
        # Other processes cannot write now, so no row is created twice.
        for path, place in missing.items():
            _move(path, place, known.values())
        rows |= _rows_at(missing)
        new = {
            path: Session(root=root, relative_path=relative)
            for path, (root, relative) in missing.items()
            if path not in rows
        }
        Session.objects.bulk_create(new.values())
    found = rows | new
    return {path: found[path] for path in places}, set(new)


def _rows_at(places: Mapping[Path, tuple[Root, str]]) -> dict[Path, Session]:
    """The existing rows, by path, with one query per root."""
    by_root: dict[Root, dict[str, Path]] = {}
    for path, (root, relative) in places.items():
        by_root.setdefault(root, {})[relative] = path
    rows = {}
    for root, names in by_root.items():
        for session in Session.objects.filter(root=root, relative_path__in=names):
            session.root = root
            rows[names[session.relative_path]] = session
    return rows


def _move(path: Path, place: tuple[Root, str], roots: Iterable[Root]) -> None:
    """Move the row that a file has in an outer root, if it has one."""
    root, relative = place
    for outer in roots:
        if outer.pk == root.pk or not path.is_relative_to(outer.path):
            continue
        rows = Session.objects.filter(root=outer, relative_path=str(path.relative_to(outer.path)))
        if rows.update(root=root, relative_path=relative):
            return


def remember_own_write(path: Path, size: int, measure: Measure | None = None, made_from: Path | None = None) -> None:
    """Record that the last write to a session was Redline's, so that it does not count as live.

    `measure` is the measure of the context before the deletion; `made_from` is the session from which the write made
    this one.

    `size` is the size of the session's file, or of the session in a database, after that write; if it differs now,
    others have written to it since.
    """
    session = session_row(path)
    state = session.agent.store.state(path) if session.agent.store.database(path) is not None else file_state(path)
    own = state.mtime_ns if state is not None and state.size == size else None
    own_write: dict[str, Any] = {"own_write_ns": own}
    if measure is not None:
        own_write["inherited"] = msgspec.to_builtins(InheritedMeasure(size, measure))
    if made_from is not None:
        own_write["made_from"] = str(made_from)
    Session.objects.filter(pk=session.pk).update(**own_write)


def record_fault(session: Session, fault: RedlineError) -> None:
    """Record why a session could not be read."""
    Session.objects.filter(pk=session.pk).update(fault=fault.message, missing=fault.code == "no_such_file")


def mark_missing_below(
    directory: Path, known: Iterable[tuple[int, Path]], seen: set[int], unlisted: Iterable[Path] = ()
) -> list[int]:
    """Mark the sessions below a directory that were not seen there as missing, unless their directory could not be
    listed; returns their keys.

    All paths are real. `known` was read before the scan, so that new sessions do not count as lost.
    """
    below = str(directory / "_")[:-1]
    hidden = tuple(str(path / "_")[:-1] for path in unlisted)
    lost = [
        key
        for key, path in known
        if key not in seen and (place := str(path)).startswith(below) and not place.startswith(hidden)
    ]
    mark_missing(lost)
    return lost


def known_paths() -> list[tuple[int, Path]]:
    """Keys and real paths of all sessions that are not marked as missing."""
    known = Session.objects.present().values_list("pk", "root__path", "relative_path")
    return [(key, Path(root, relative)) for key, root, relative in known.iterator()]


def mark_missing(keys: Sequence[int]) -> None:
    """Mark the files of these sessions as missing."""
    for start in range(0, len(keys), BATCH):
        Session.objects.filter(pk__in=keys[start : start + BATCH]).update(missing=True)


def lock_place(path: Path) -> int:
    """The number of the lock under which the session at a path is indexed; others may share it."""
    return zlib.crc32(os.fsencode(path)) % INDEX_LOCKS


@contextmanager
def only_indexer(*paths: Path) -> Iterator[None]:
    """Prevent other processes and threads from indexing the sessions at these paths; reading is not affected.

    This does not lock the sessions themselves; if both locks are needed, that lock comes first. Raises Conflict
    `being_indexed` if another process takes longer than LOCK_SECONDS, and SystemFailure.
    """
    places = {lock_place(path): path for path in paths}
    with ExitStack() as held:
        # Always in the same order: two processes that need the same locks never wait for each other.
        for place, path in sorted(places.items()):
            busy = f"{path} is being indexed by another Redline process. It was not read. Try again soon."
            held.enter_context(index_lock(f"index-{place}", LOCK_SECONDS, busy, f"{path} was not indexed."))
        yield


@contextmanager
def index_lock(name: str, seconds: float, busy: str, not_done: str) -> Iterator[None]:
    """Hold a lock of the index. Raises Conflict `being_indexed` with the sentences in `busy`, and SystemFailure."""
    locks = settings.REDLINE_DATA_DIR / "locks"
    with reported(locks, not_done):
        lock = acquired_lock(locks / f"{name}.lock", seconds, Conflict("being_indexed", busy))
    with lock:
        yield


# ---- writing -----------------------------------------------------------------------------------------------


def write_read(read: Sequence[tuple[Session, Sequence[Entry]]]) -> list[int]:
    """Write the results of reading files: each row and its new entries, in one transaction.

    Returns the key of the first of these entries for each session; those of the others follow it without gaps.
    """
    entries = [row for session, found in read for row in _rows_of(session, found)]
    sessions = [_indexed_values(session) for session, _ in read]
    with transaction.atomic(), connection.cursor() as cursor:
        first = _insert(cursor, entries)
        cursor.executemany(_UPDATE, sessions)
    return list(accumulate((len(found) for _, found in read[:-1]), initial=first))


def insert_entries(session: Session, entries: Iterable[Entry]) -> int:
    """Write entries of a session whose row is updated later, at most BATCH; returns the key of the first of them."""
    rows = _rows_of(session, entries)
    with transaction.atomic(), connection.cursor() as cursor:
        return _insert(cursor, rows)


def _insert(cursor: CursorWrapper, rows: Sequence[tuple[Any, ...]]) -> int:
    found = cursor.execute(_LAST_KEY).fetchone()
    first = found[0] + 1 if found is not None else 1
    cursor.executemany(_INSERT, [(key, *row) for key, row in enumerate(rows, first)])
    return int(first)


def _rows_of(session: Session, entries: Iterable[Entry]) -> list[tuple[Any, ...]]:
    return [
        (
            *(session.pk, entry.number, entry.offset, entry.length, entry.id, entry.parent_id, pack(entry)),
            *(int(entry.kind), entry.role, entry.tool_name, entry.tokens, _recorded_at(entry)),
        )
        for entry in entries
    ]


def _recorded_at(entry: Entry) -> str | None:
    """The time of an entry in the form in which Django stores it in SQLite; Django's own conversion takes ten times as
    long."""
    moment = entry.moment
    return moment.isoformat(" ").removesuffix("+00:00") if moment is not None else None


def _indexed_values(session: Session) -> list[Any]:
    """The values for `_UPDATE`: what reading determined, and nothing else of the row."""
    values = [getattr(session, field.attname) for field in _FIELDS]
    for place in _CONVERTED:
        values[place] = _FIELDS[place].get_db_prep_save(values[place], connection)
    return [*values, session.pk]


def remove_entries(session: Session, offset: int) -> None:
    """Remove a session's entries from an offset on, the last ones first, so that a kill leaves no gap."""
    rows = session.entries.filter(offset__gte=offset)
    while offsets := list(rows.order_by("-offset").values_list("offset", flat=True)[: 10 * BATCH]):
        rows.filter(offset__gte=offsets[-1]).delete()


def entries_naming(sessions: Iterable[Session], name: str) -> Iterator[tuple[Session, Entry]]:
    """The indexed entries of sessions whose digests contain a text, such as the id of a call; controls are left out."""
    by_key = {session.pk: session for session in sessions}
    place = Func(F("digest"), Value(name.encode()), function="INSTR", output_field=IntegerField())
    found = EntryRow.objects.filter(session__in=by_key).annotate(place=place).filter(place__gt=0)
    for key, *columns in found.order_by("session", "offset").values_list("session", *_COLUMNS).iterator():
        yield by_key[key], unpack(*columns)


def entries_at(keys: Iterable[int]) -> dict[int, Entry]:
    """The entries with these keys of their rows, without controls; those without a row are left out."""
    rows = EntryRow.objects.filter(pk__in=set(keys)).values_list("pk", *_COLUMNS)
    return {key: unpack(*columns) for key, *columns in rows}


def read_entries(session: Session, reader: SessionReader, version: int) -> Iterator[Entry]:
    """The indexed entries of a session in file order; control entries are read from the file again."""
    agent = session.agent
    rows = session.entries.order_by("offset").values_list(*_COLUMNS)
    for columns in rows.iterator(chunk_size=5_000):
        entry = unpack(*columns)
        if entry.has_control:
            again, _ = reparse_entry(agent, reader, entry, version)
            entry = msgspec.structs.replace(entry, control=again.control)
        yield entry


def indexed_tree(session: Session, reader: SessionReader) -> SessionTree:
    """The tree of a session's indexed entries."""
    return session.agent.format.tree(list(read_entries(session, reader, session.version)))


class SeenFile(NamedTuple):
    """The state of a file, without opening it."""

    size: int
    mtime_ns: int
    ctime_ns: int


class IndexedFile(NamedTuple):
    """The state of a file in the index. If it is not settled, it is indexed again, whatever its size and time."""

    key: int
    size: int
    mtime_ns: int | None
    missing: bool
    settled: bool
    entries: int
    damaged: int

    def is_still(self, seen: SeenFile) -> bool:
        """Whether the file, as seen, is the one that was indexed."""
        return self.settled and (self.size, self.mtime_ns) == (seen.size, seen.mtime_ns)


def known_files() -> dict[Path, IndexedFile]:
    """The state of every session in the index, by real path."""
    valid = Q(state__isnull=False, schema=SCHEMA, fault="", missing=False)
    rows = Session.objects.annotate(valid=ExpressionWrapper(valid, BooleanField())).values_list(
        *("root__path", "relative_path", "pk", "size", "mtime_ns", "missing", "entry_count", "damage_count"),
        *("valid", "read_as", "reader", "root__chosen_reader", "root__reader"),
    )
    known = {}
    for root, relative, key, size, mtime_ns, missing, entries, damaged, *rest in rows.iterator():
        is_valid, read_as, *readers = rest
        chosen = next(filter(None, readers), read_as)
        settled = is_valid and read_as != "" and chosen == read_as
        known[Path(root, relative)] = IndexedFile(key, size, mtime_ns, missing, settled, entries, damaged)
    return known


def present_files(known: Mapping[Path, IndexedFile]) -> list[tuple[int, Path]]:
    """Keys and paths of the sessions that are not marked as missing."""
    return [(row.key, path) for path, row in known.items() if not row.missing]


def seen_file(path: Path) -> SeenFile | None:
    """The state of a file; None if there is no regular file at this real path."""
    try:
        found = stat_file(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return SeenFile(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def seen_session(path: Path, row: IndexedFile | None, changed_ns: int | None) -> SeenFile | None:
    """The state of a session, to compare with the index. For rendered lines the index has their own size, so only the
    time is compared. `changed_ns` is the time that a database or a document records for it."""
    size = row.size if row is not None else 0
    if changed_ns is not None:
        return SeenFile(size, changed_ns, 0)
    seen = seen_file(path)
    return seen._replace(size=size) if seen is not None and path.suffix == DOCUMENT_SUFFIX else seen

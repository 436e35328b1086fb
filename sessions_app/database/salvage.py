"""Salvage of a damaged database: everything but the index is copied into a new one, and the damaged file is kept.

    redline.sqlite3 ══ redline.sqlite3.<time>.damaged       two names of one file, which is only read
           ╎ every table but the entries, row by row; pages that cannot be read are passed over
           ▼
    redline.sqlite3.draft ──▶ redline.sqlite3               in one step, when it is complete

After a kill, the next salvage begins again with the same kept file. The index is then read from the sessions again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connection, models, transaction
from django.db.backends.utils import CursorWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import StateApps

from sessions_app.disk.files import file_state, reported
from sessions_app.disk.open_files import describe, writers_of
from sessions_app.models import INDEXED_FIELDS, Session
from sessions_app.server.running_server import only_server
from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure

from .migrated import newer_database, only_migration
from .sqlite import NOT_THE_INDEX, database_path
from .text_store import forget_texts

NOTHING: Final = "Nothing was salvaged."
INDEX: Final = frozenset({"sessions_app.entry"})
"""The tables that only repeat the content of session files."""
REBUILT: Final[Mapping[str, frozenset[str]]] = {"sessions_app.session": frozenset(INDEXED_FIELDS)}
"""The fields of other tables that also repeat session files: the next indexing fills those that cannot be read."""
NAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "sessions_app.root": ("path",),
    "sessions_app.session": ("root_id", "relative_path"),
}
"""The tables on which all others depend, with the indexed columns that identify a row: an unreadable row is rebuilt
from these columns alone."""
WAL: Final = "-wal"
FILES: Final = ("", WAL, "-shm")
"""The suffixes of a database file and of SQLite's files beside it."""
TRIED: Final = 20_000
"""How many row numbers after an unreadable row are tried one by one; then the steps grow."""

Row = tuple[Any, ...]


@dataclass(slots=True)
class SalvagedTable:
    """The counts of copied and lost rows of one table."""

    name: str
    """The name of its rows for people, such as "audit entry"."""
    rows: int = 0
    by_name: int = 0
    """How many of these rows were rebuilt from their index: the user's choices in them are lost."""
    unusable: int = 0
    """Rows that were read, but contradict their table, or refer to a row that is lost."""
    has_gaps: bool = False
    """Whether some part could not be read, so that the number of lost rows is unknown."""

    @property
    def is_whole(self) -> bool:
        return not (self.by_name or self.unusable or self.has_gaps)


@dataclass(frozen=True, slots=True)
class Salvage:
    """The result of a salvage."""

    kept: Path
    """The damaged database under its new name."""
    tables: tuple[SalvagedTable, ...]
    """The tables that had rows, or may have had some."""


def salvage_database() -> Salvage:
    """Replace the damaged database. No other process may use it meanwhile.

    Raises Conflict `already_served` and `database_in_use`, BadInput `app_left_out`, `no_database`, `not_damaged` and
    `newer_database`, and SystemFailure; then the database is unchanged.
    """
    if left_out := settings.REDLINE_APPS_LEFT_OUT:
        raise BadInput(
            "app_left_out",
            f"The configuration leaves {', '.join(left_out)} out, so what was recorded there would be lost. {NOTHING} "
            f"Set {', '.join(left_out.values())} first.",
        )
    directory: Path = settings.REDLINE_DATA_DIR
    path = database_path()
    draft = path.with_name(f"{path.name}.draft")
    connection.close()
    with (
        reported(path, NOTHING),
        only_server(directory, f"{NOTHING} Stop it first."),
        only_migration(),
        ExitStack() as undo,
    ):
        _require_unused(path)
        kept = _keep(path, undo)
        with _only_read(kept) as source, _used_instead(draft):
            _require_damaged(source, path)
            tables = _copy_tables(source, path)
            call_command("migrate", interactive=False, verbosity=0)
            # The index may be out of date: all sessions are read again.
            Session.objects.update(schema=0)
        undo.pop_all()
        forget_texts(directory)
        for suffix in FILES[1:]:
            _beside(path, suffix).unlink(missing_ok=True)
        draft.replace(path)
    return Salvage(kept, tuple(one for one in tables if one.rows or not one.is_whole))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


# Files ------------------------------------------------------------------------------------------------------


def _require_unused(path: Path) -> None:
    state = file_state(path)
    if state is None:
        raise BadInput("no_database", f"There is no database {path}. {NOTHING} `redline index` makes a new index.")
    writers = writers_of(state)
    if writers:
        raise Conflict(
            "database_in_use", f"The database {path} is open in {describe(writers)}. {NOTHING} End that first."
        )


def _keep(path: Path, undo: ExitStack) -> Path:
    """Hard-link the database, and its write-ahead log, under a second name."""
    same = next((one for one in path.parent.glob(f"{path.name}.*.damaged") if one.samefile(path)), None)
    if same is not None:
        return same  # from a salvage that was killed
    # To the microsecond: another salvage may follow within a second.
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-%fZ")
    kept = path.with_name(f"{path.name}.{now}.damaged")
    for suffix in (WAL, ""):
        with suppress(FileNotFoundError):
            _beside(kept, suffix).hardlink_to(_beside(path, suffix))
            undo.callback(_beside(kept, suffix).unlink, missing_ok=True)
    return kept


@contextmanager
def _only_read(kept: Path) -> Iterator[sqlite3.Connection]:
    """A connection that does not change the file, not even by writing pending changes into it."""
    with closing(sqlite3.connect(f"{kept.absolute().as_uri()}?mode=ro", uri=True)) as database:
        # A damaged description of one table does not hide the others.
        database.execute("PRAGMA writable_schema = ON")
        try:
            yield database
        finally:
            database.close()
            # A read-only connection leaves its auxiliary files behind.
            for suffix in FILES[1:]:
                made = _beside(kept, suffix)
                if suffix != WAL or (made.exists() and not made.stat().st_size):
                    made.unlink(missing_ok=True)


def _require_damaged(source: sqlite3.Connection, path: Path) -> None:
    """Raise BadInput `not_damaged` if SQLite finds no fault, SystemFailure `nothing_readable` if it finds no table."""
    try:
        why = "" if source.execute("SELECT name FROM sqlite_master").fetchall() else "it has no tables"
    except sqlite3.DatabaseError as fault:
        why = str(fault)
    if why:
        raise SystemFailure(
            "nothing_readable",
            f"Nothing in {path} can be read: {why}. {NOTHING} Bring the file back from a backup of this computer, or "
            f"move it away: then `redline index` makes a new index, and {NOT_THE_INDEX} are lost.",
        )
    with suppress(sqlite3.DatabaseError):
        if source.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",):
            raise BadInput(
                "not_damaged",
                f"The database {path} is not damaged. {NOTHING} `redline index --rebuild` reads every session again.",
            )


@contextmanager
def _used_instead(draft: Path) -> Iterator[None]:
    """Make Django use a new database at this path, which is deleted after an error."""
    usual = connection.settings_dict["NAME"]
    for suffix in FILES:
        _beside(draft, suffix).unlink(missing_ok=True)
    connection.settings_dict["NAME"] = draft
    with ExitStack() as undo:
        undo.callback(draft.unlink, missing_ok=True)
        try:
            yield
            undo.pop_all()
        finally:
            connection.close()  # the last one: SQLite writes all changes into the file
            connection.settings_dict["NAME"] = usual


# Tables -----------------------------------------------------------------------------------------------------


def _copy_tables(source: sqlite3.Connection, path: Path) -> list[SalvagedTable]:
    """Create the tables of the version that wrote the database, and fill them. Raises BadInput `newer_database`."""
    executor = MigrationExecutor(connection)
    targets = _last_migrations(source, executor, path)
    found = _make_tables(executor, targets)
    tables: dict[str, SalvagedTable] = {}
    with transaction.atomic():
        for model in found.get_models(include_auto_created=True):
            if model._meta.label_lower not in INDEX:
                tables[model._meta.db_table] = _copy_table(source, model)
        _drop_orphans(tables)
        _continue_numbers(source)
    return list(tables.values())


def _make_tables(executor: MigrationExecutor, targets: list[tuple[str, str]]) -> StateApps:
    """Create the tables as these migrations leave them, and return their models."""
    executor.migrate(targets)
    return executor.loader.project_state(targets).apps


def _last_migrations(source: sqlite3.Connection, executor: MigrationExecutor, path: Path) -> list[tuple[str, str]]:
    """The last migrations that were applied to the database: those that no other one of them follows. If they cannot be
    read, the database counts as current."""
    loader = executor.loader
    rows = list(readable_rows(source, "django_migrations", ("app", "name")))
    applied = {row for row in rows if row is not None}
    if None in rows or not applied:
        return list(loader.graph.leaf_nodes())
    unknown = applied - loader.disk_migrations.keys()
    if unknown:
        raise newer_database(path, unknown)
    # Migrations that another one replaces are in the graph only if the database has some of them; the draft has none.
    executor.loader = loader = MigrationLoader(connection, replace_migrations=False)
    graph = loader.graph
    for one, migration in loader.replacements.items():
        if applied.issuperset(migration.replaces):
            graph.remove_replaced_nodes(one, migration.replaces)
            applied = applied.difference(migration.replaces) | {one}
        else:
            graph.remove_replacement_node(one, migration.replaces)
            applied.discard(one)
    return [key for key in applied if applied.isdisjoint(child.key for child in graph.node_map[key].children)]


def _copy_table(source: sqlite3.Connection, model: type[models.Model]) -> SalvagedTable:
    table = SalvagedTable(str(model._meta.verbose_name))
    name, columns = model._meta.db_table, [_Column(model, field) for field in model._meta.concrete_fields]
    quoted = ", ".join(connection.ops.quote_name(column.name) for column in columns)
    insert = (
        f"INSERT OR IGNORE INTO {connection.ops.quote_name(name)} ({quoted}) "  # noqa: S608
        f"VALUES ({', '.join(['%s'] * len(columns))})"
    )
    with connection.cursor() as cursor:
        for row in readable_rows(source, name, [column.name for column in columns]):
            if row is None:
                table.has_gaps = True
                continue
            is_usable = all(column.takes(value) for column, value in zip(columns, row, strict=True))
            if is_usable:
                cursor.execute(insert, [column.kept(value) for column, value in zip(columns, row, strict=True)])
            is_in = is_usable and cursor.rowcount == 1
            table.rows += is_in
            table.unusable += not is_in
        if not table.is_whole and model._meta.label_lower in NAMED:
            for values in _indexed_rows(source, name, NAMED[model._meta.label_lower]):
                # A row that exists already is skipped.
                cursor.execute(insert, [values.get(column.name, column.default) for column in columns])
                table.by_name += cursor.rowcount
            table.rows += table.by_name
    return table


def _indexed_rows(source: sqlite3.Connection, table: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The ids and these columns of a table's rows, from an index, which is read from both ends."""
    names = ", ".join(f'"{column}"' for column in ("id", *columns))
    for direction in ("ASC", "DESC"):
        order = ", ".join(f'"{column}" {direction}' for column in columns)
        with suppress(sqlite3.DatabaseError):
            for row in source.execute(f'SELECT {names} FROM "{table}" ORDER BY {order}'):  # noqa: S608
                yield dict(zip(("id", *columns), row, strict=True))


class _Column:
    """A column of a table, and which values Django can read from it."""

    def __init__(self, model: type[models.Model], field: models.Field[Any, Any]) -> None:
        self.name = str(field.column)
        self._field = field
        self._expression = field.get_col(model._meta.db_table)
        self._converters = [
            *connection.ops.get_db_converters(self._expression),
            *field.get_db_converters(connection),
        ]
        self._is_rebuilt = field.name in REBUILT.get(model._meta.label_lower, ())

    def takes(self, value: object) -> bool:
        """Whether a row with this value is usable."""
        return self._is_rebuilt or self._can_read(value)

    def kept(self, value: Any) -> Any:
        """The value, or the default if it cannot be read."""
        return value if self._can_read(value) else self.default

    @property
    def default(self) -> Any:
        return self._field.get_db_prep_save(self._field.get_default(), connection)

    def _can_read(self, value: object) -> bool:
        try:
            if isinstance(self._field, models.JSONField) and isinstance(value, str):
                json.loads(value)  # Django takes what is not JSON for a text
            for convert in self._converters:
                value = convert(value, self._expression, connection)
            self._field.to_python(value)
        except (ValueError, TypeError, AttributeError, RecursionError, ValidationError):
            return False  # Django's converters do not expect anything that Django has not written
        if value is None:
            return self._field.null
        return isinstance(value, bytes) == isinstance(self._field, models.BinaryField)


def readable_rows(source: sqlite3.Connection, table: str, columns: Sequence[str]) -> Iterator[Row | None]:
    """The rows of a table in the order of their numbers, each with the values of these columns; None for rows that
    cannot be read, whether it is one or the whole table."""
    names = ", ".join(f'"{column}"' for column in columns)
    statement = f'SELECT rowid, {names} FROM "{table}" NOT INDEXED WHERE rowid >= ? ORDER BY rowid'  # noqa: S608
    start: int | None = 0
    while start is not None:
        try:
            for number, *values in source.execute(statement, (start,)):
                yield tuple(values)
                start = number + 1
        except sqlite3.DatabaseError:
            yield None
            start = _next_readable(source, f"{statement} LIMIT 1", start, _last_number(source, table, start))
        else:
            return


def _next_readable(source: sqlite3.Connection, statement: str, start: int, last: int) -> int | None:
    """The number of the next readable row; None if there is none."""
    for number in _numbers_after(start, last):
        with suppress(sqlite3.DatabaseError):
            source.execute(statement, (number,)).fetchone()
            return number
    return None


def _numbers_after(start: int, last: int) -> Iterator[int]:
    yield from range(start + 1, min(start + TRIED, last) + 1)
    step = TRIED
    while start + step < last:
        step = min(2 * step, last - start)
        yield start + step


def _last_number(source: sqlite3.Connection, table: str, start: int) -> int:
    """The largest number of a row to try; less than `start` if the table cannot be used."""
    try:
        source.execute(f'SELECT 1 FROM "{table}" LIMIT 0')  # noqa: S608
    except sqlite3.DatabaseError:
        return -1
    found = []
    for statement, values in (
        ("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)),
        (f'SELECT max(rowid) FROM "{table}" NOT INDEXED', ()),  # noqa: S608
    ):
        with suppress(sqlite3.DatabaseError):
            row = source.execute(statement, values).fetchone()
            found += [one for one in row or () if isinstance(one, int)]
    return max(found) if found else start + TRIED


def _drop_orphans(tables: Mapping[str, SalvagedTable]) -> None:
    """Remove rows that refer to lost rows, or only the reference if it may be empty."""
    with connection.cursor() as cursor:
        while found := _listed(cursor, "PRAGMA foreign_key_check"):
            for table, number, _, key in found:
                quoted = connection.ops.quote_name(table)
                keys = {row[0]: row[3] for row in _listed(cursor, f"PRAGMA foreign_key_list({quoted})")}
                required = {row[1] for row in _listed(cursor, f"PRAGMA table_info({quoted})") if row[3]}
                if keys[key] not in required:
                    column = connection.ops.quote_name(keys[key])
                    cursor.execute(f"UPDATE {quoted} SET {column} = NULL WHERE rowid = %s", [number])  # noqa: S608
                    continue
                cursor.execute(f"DELETE FROM {quoted} WHERE rowid = %s", [number])  # noqa: S608
                tables[table].rows -= cursor.rowcount
                tables[table].unusable += cursor.rowcount


def _listed(cursor: CursorWrapper, pragma: str) -> list[Row]:
    cursor.execute(pragma)
    return list(cursor.fetchall())


def _continue_numbers(source: sqlite3.Connection) -> None:
    """Keep the numbers of lost rows from being reused: the audit log and backups may name them."""
    with connection.cursor() as cursor:
        for row in readable_rows(source, "sqlite_sequence", ("seq", "name")):
            if row is not None and isinstance(row[0], int):
                cursor.execute("UPDATE sqlite_sequence SET seq = max(seq, %s) WHERE name = %s", row)

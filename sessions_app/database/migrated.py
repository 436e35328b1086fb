"""Redline's own database: migrated on opening, after a copy; a newer one is refused."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from sessions_app.disk.files import acquired_lock, reported
from sessions_app.sessionlog.errors import BadInput, SystemFailure

from .sqlite import database_path, require_present
from .text_store import forget_texts

LOCK_SECONDS: Final = 60


def open_database() -> None:
    """Make the database ready: create it, or migrate it after copying it.

    One process at a time: several may start at the first use, and SQLite does not wait in every case.
    Raises BadInput `newer_database` if a newer Redline has written it, SystemFailure `gone` if a server runs without
    it, `database_busy` and `database_failed`, and django.db.DatabaseError.
    """
    require_present()  # a new one would look like one without any records
    with only_migration():
        _migrate()


@contextmanager
def only_migration() -> Iterator[None]:
    """Prevent other processes from creating, migrating or salvaging the database. Raises SystemFailure `database_busy`
    and `database_failed`."""
    busy = SystemFailure(
        "database_busy",
        f"Another Redline process is migrating the database in {settings.REDLINE_DATA_DIR}. "
        "Nothing was done. Try again soon.",
    )
    try:
        lock = acquired_lock(settings.REDLINE_DATA_DIR / "database.lock", LOCK_SECONDS, busy)
    except OSError as fault:
        raise SystemFailure(
            "database_failed",
            f"The database in {settings.REDLINE_DATA_DIR} cannot be locked: {fault.strerror}. Nothing was done. "
            "Make the directory writable for you.",
        ) from fault
    with lock:
        yield


def is_current() -> bool:
    """Whether the database is exactly of this version; it is not changed. Raises django.db.DatabaseError."""
    executor = MigrationExecutor(connection)
    return not unknown_migrations(executor.loader) and not executor.migration_plan(executor.loader.graph.leaf_nodes())


def unknown_migrations(loader: MigrationLoader) -> set[tuple[str, str]]:
    """The migrations of the database, each with its app, that this version does not have. An app that the settings
    leave out has migrations that are not loaded."""
    unknown = set(loader.applied_migrations) - set(loader.disk_migrations)
    return {(app, name) for app, name in unknown if app not in settings.REDLINE_APPS_LEFT_OUT}


def newer_database(path: Path, unknown: Iterable[tuple[str, str]]) -> BadInput:
    """The error for a database with these migrations, each with its app."""
    named = ", ".join(sorted(f"{app}.{name}" for app, name in unknown))
    return BadInput(
        "newer_database",
        f"The database {path} was written by a newer Redline ({named}). Nothing was done. Use the newer Redline, or "
        "another REDLINE_DATA_DIR.",
    )


def _migrate() -> None:
    executor = MigrationExecutor(connection)
    if unknown := unknown_migrations(executor.loader):
        raise newer_database(database_path(), unknown)
    latest = executor.loader.graph.leaf_nodes()
    if not executor.migration_plan(latest):
        return
    if connection.introspection.table_names():
        copy_database()
    else:
        # The texts belong to rows of an earlier database, whose numbers will be used again.
        with reported(settings.REDLINE_DATA_DIR, "The database was not made."):
            forget_texts(settings.REDLINE_DATA_DIR)
    executor.migrate(latest)


def copy_database() -> Path:
    """Make a consistent copy of the SQLite database beside it, named after the time. Raises DatabaseError."""
    source = database_path()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    copy = source.with_name(f"{source.name}.{now}.bak")
    with (
        connection.wrap_database_errors,
        closing(sqlite3.connect(source)) as database,
        closing(sqlite3.connect(copy)) as target,
    ):
        database.backup(target)
    return copy

"""Redline's own database: brought up to date when it is opened, copied before, refused where it is newer."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from .sessionlog.errors import BadInput


def open_database() -> None:
    """Make the database ready: create it, or migrate it after copying it.

    Raises BadInput `newer_database` where a newer Redline has written it, and django.db.DatabaseError.
    """
    executor = MigrationExecutor(connection)
    applied = set(executor.loader.applied_migrations)
    unknown = sorted(f"{app}.{name}" for app, name in applied - set(executor.loader.disk_migrations))
    if unknown:
        raise BadInput(
            "newer_database",
            f"The database {connection.settings_dict['NAME']} was written by a newer Redline "
            f"({', '.join(unknown)}). Nothing was done with it. Use the newer Redline, or another REDLINE_DATA_DIR.",
        )
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return
    if applied:
        copy_database()
    call_command("migrate", interactive=False, verbosity=0)


def copy_database() -> Path:
    """A consistent copy of the SQLite database beside it, named after the time."""
    source = Path(str(connection.settings_dict["NAME"]))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    copy = source.with_name(f"{source.name}.{now}.bak")
    with closing(sqlite3.connect(source)) as database, closing(sqlite3.connect(copy)) as target:
        database.backup(target)
    return copy

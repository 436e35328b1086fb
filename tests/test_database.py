"""The database is created at the first use, copied before a migration, and left alone if it is newer."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import BinaryField, BooleanField, DateTimeField, FloatField, IntegerField, JSONField, Model
from django.utils import timezone

from sessions_app.database import migrated
from sessions_app.database.migrated import open_database
from sessions_app.index.indexer import index_file
from sessions_app.models import Root, Session
from tests.factories import chain, session_bytes, user
from tests.files import place, snapshot
from tests.installation import Installation, Result, migrate_to, use_database
from tests.processes import start_child


@pytest.fixture
def path(redline):
    return place(redline.home / "s.jsonl", session_bytes(chain(user("One"))))


def copies(redline: Installation) -> list[Path]:
    return sorted(redline.data.glob("redline.sqlite3.*.bak"))


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as opened:
        return {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_a_new_database_takes_one_step_for_what_the_first_of_an_app_replaces(fresh):
    with use_database(fresh.home / "new.sqlite3"):
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    assert [f"{step.app_label}.{step.name}" for step, _ in plan] == [
        *("sessions_app.0001_to_0019", "compaction_app.0001_to_0028"),
        *("compaction_app.0029_lab_app", "lab_app.0001_initial", "sessions_app.0020_chosen_settings"),
    ]


def test_the_first_use_creates_the_database_once_also_if_two_are_first(fresh):
    waits = [start_child(lambda: repr(fresh.call("sessions", "--json"))) for _ in range(2)]
    assert [wait() for wait in waits] == [repr(Result(0, "[]\n", ""))] * 2
    needed = {"sessions_app_session", "sessions_app_entry", "compaction_app_backup"}
    assert needed <= tables(fresh.data / "redline.sqlite3")
    assert copies(fresh) == []


def test_an_older_database_is_copied_before_it_is_migrated_or_else_not_migrated(redline, path):
    """One app is not migrated yet, and the other one has a row. A current database is not copied."""
    open_database()
    assert copies(redline) == []
    call_command("migrate", "compaction_app", "zero", verbosity=0)
    index_file(path)
    with patch.object(migrated.sqlite3, "connect", side_effect=sqlite3.OperationalError("disk is full")):
        ended = redline.call("sessions", "--json")
    assert (ended.code, ended.error) == (6, "database_failed")
    assert "compaction_app_backup" not in tables(redline.data / "redline.sqlite3")

    assert redline.call("sessions", "--json").code == 0
    (copy,) = copies(redline)
    assert "compaction_app_backup" not in tables(copy)
    with closing(sqlite3.connect(copy)) as opened:
        assert opened.execute("SELECT count(*) FROM sessions_app_session").fetchone() == (1,)
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert "compaction_app_backup" in tables(redline.data / "redline.sqlite3")
    assert Session.objects.count() == 1
    executor = MigrationExecutor(connection)
    assert not executor.migration_plan(executor.loader.graph.leaf_nodes())


# ---- earlier versions ----------------------------------------------------------------------------------------


EARLIER: Final = (
    pytest.param(("0001_initial", "0001_initial"), marks=pytest.mark.long),
    pytest.param(("0006_keep_recent_tokens", "0011_audit_log"), marks=pytest.mark.long),
    ("0013_context_sizes", "0018_context_sizes"),
    ("0018_made_from", "0027_origins_of_forks"),
    ("0019_taken_over_sessions", "0028_plans_seen"),
)
"""Migrations of both apps at which a database of an earlier version may be."""
INDEX: Final = {"sessions_app_entry", "sessions_app_session"}
"""The tables that a migration may empty, or mark as to be read again."""
OF_LAB: Final = {
    f"compaction_app_{name}" for name in "experiment measuredsession compactioncost hindsightcheck".split()
}
"""The tables that became those of another app."""


def schema() -> dict[str, Any]:
    """The columns and references of each table, in no order, and the words that made each index and trigger."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        made = {name: (kind, sql) for kind, name, sql in cursor.fetchall()}
        for name, (kind, _) in made.items():
            if kind == "table":
                cursor.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(%s)', [name])
                columns = sorted(cursor.fetchall())
                cursor.execute('SELECT "from", "table", "to", on_delete FROM pragma_foreign_key_list(%s)', [name])
                made[name] = ("table", columns, sorted(cursor.fetchall()))
    return made


def rows_of(tables: Iterable[str]) -> dict[str, list[Any]]:
    with connection.cursor() as cursor:
        return {table: cursor.execute(f"SELECT * FROM {table}").fetchall() for table in tables}  # noqa: S608


def fill(models: Iterable[type[Model]]) -> dict[str, int]:
    """Put a row into each table, with a value of its own in each column; returns the rows of each."""
    rows: dict[str, Model] = {}
    waiting = list(models)
    for model in waiting:
        values: dict[str, Any] = {}
        for field in model._meta.concrete_fields:
            if field.is_relation:
                values[field.name] = rows.get(field.related_model._meta.db_table)
            elif isinstance(field, DateTimeField):
                values[field.name] = timezone.now()
            elif isinstance(field, BooleanField):
                values[field.name] = True
            elif isinstance(field, JSONField):
                values[field.name] = []
            elif isinstance(field, (IntegerField, FloatField)):
                values[field.name] = 7
            elif isinstance(field, BinaryField):
                values[field.name] = b"seven"
            else:
                values[field.name] = field.choices[0][0] if field.choices else "seven"
        if any(values[field.name] is None and not field.null for field in model._meta.concrete_fields):
            waiting.append(model)  # what it refers to comes later
        else:
            rows[model._meta.db_table] = model.objects.create(**values)
    return dict.fromkeys(rows, 1)


@pytest.mark.parametrize("earlier", EARLIER, ids="-".join)
def test_a_database_of_an_earlier_version_becomes_what_a_new_one_is(redline, earlier):
    """No row of what a user did is lost."""
    new = schema()
    before = fill(migrate_to(*zip(("sessions_app", "compaction_app"), earlier, strict=True)).get_models())
    of_lab = rows_of(OF_LAB & before.keys())
    open_database()
    assert schema() == new
    assert rows_of(of_lab) == of_lab
    after = {model._meta.db_table: model.objects.count() for model in apps.get_models()}
    kept = before.keys() - INDEX
    assert {table: after.get(table) for table in kept} == {table: before[table] for table in kept}


def test_a_deleted_session_has_no_rows_of_the_lab_whether_its_app_is_there_or_not(redline):
    fill([Root, Session, *apps.get_app_config("lab_app").get_models()])
    assert {table for table, rows in rows_of(OF_LAB).items() if rows} == OF_LAB
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sessions_app_session")
    assert {table for table, rows in rows_of(OF_LAB).items() if rows} == {"compaction_app_experiment"}


def test_a_newer_database_is_refused_and_untouched_but_does_not_stop_who_reads_the_session(redline, path):
    index_file(path)
    MigrationRecorder(connection).record_applied("sessions_app", "0099_later")
    connection.close()
    before = snapshot(redline.data)
    for command in (["sessions"], ["index"], ["backups", path], ["migrate-session", path]):
        assert redline.call(*command, "--json").refused("sessions_app.0099_later") == "2 newer_database"
    connection.close()
    assert {name: content for name, content in snapshot(redline.data).items() if name in before} == before
    assert redline.call("tree", path, "--json").code == 0
    assert redline.call("context", path, "--json").code == 0


def test_a_file_that_is_not_a_database_is_a_system_failure(fresh):
    fresh.data.mkdir(mode=0o700)
    for content in (b"this is no database\n" * 100, b"SQLite format 3\0" + b"\xff" * 5_000):
        (fresh.data / "redline.sqlite3").write_bytes(content)
        ended = fresh.call("sessions", "--json")
        assert (ended.code, ended.error, ended.err) == (6, "damaged", "")
        assert (fresh.data / "redline.sqlite3").read_bytes() == content


def test_an_index_of_another_schema_is_rebuilt(redline, path):
    session = index_file(path)
    Session.objects.filter(pk=session.pk).update(schema=0, entry_count=99, state={"of": "another time"})
    assert index_file(path).entry_count == 1


def test_the_order_of_the_list_does_not_depend_on_the_database(redline, path):
    for number in range(3):
        place(path.with_name(f"{number}.jsonl"), session_bytes(chain(user("One"))))
    redline.call("index", redline.home)
    first: Any = redline.call("sessions", "--json").json
    redline.call("index", redline.home, "--rebuild")
    assert redline.call("sessions", "--json").json == first

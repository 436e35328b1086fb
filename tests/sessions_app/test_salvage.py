"""A damaged database: what no session file has is brought over into a new one, and the damaged file is kept."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from compaction_app.changes.audit import verify
from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import commit
from compaction_app.changes.undo import UndoRequest, planned, undo
from compaction_app.models import AuditEntry, Backup, Compaction, Run, RunEvent, WaitRule
from lab_app.models import Experiment, MeasuredSession
from sessions_app.database import salvage
from sessions_app.database.salvage import readable_rows
from sessions_app.disk.open_files import Writer
from sessions_app.document.document import Document
from sessions_app.index.indexer import index_file
from sessions_app.models import Entry, Session
from sessions_app.server.running_server import only_server
from tests.factories import session_bytes, working_session
from tests.files import backdate, place, snapshot
from tests.installation import Installation, migrate_to
from tests.plans import approved_plan

PAGE = 4_096


def page_of(content: bytes, text: str) -> int:
    """The number of the first page that has a text, from 0."""
    return content.index(text.encode()) // PAGE


def damage(path: Path, *pages: int, by: bytes = b"\xff" * PAGE) -> bytes:
    """Overwrite pages of a database that nobody has open; returns its content."""
    content = bytearray(path.read_bytes())
    for page in pages:
        content[page * PAGE : (page + 1) * PAGE] = by
    path.write_bytes(content)
    return bytes(content)


# ---- rows ---------------------------------------------------------------------------------------------------


@pytest.fixture
def numbered(tmp_path):
    """A database with a table of 1,000 rows on many pages, and the contents of its pages."""
    path = tmp_path / "numbered.sqlite3"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE row (id INTEGER PRIMARY KEY AUTOINCREMENT, words TEXT)")
        made.executemany("INSERT INTO row (words) VALUES (?)", [(f"row {n} {'x' * 80}.",) for n in range(1, 1_001)])
    return path


def numbers(path: Path) -> list[int | None]:
    """The numbers of the readable rows, with None for each part that cannot be read."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as source:
        return [None if row is None else row[0] for row in readable_rows(source, "row", ("id", "words"))]


def test_rows_around_pages_that_cannot_be_read_are_read(numbered):
    content = numbered.read_bytes()
    assert numbers(numbered) == list(range(1, 1_001))
    first, later, last = (page_of(content, text) for text in ("row 300 ", "row 500 ", "row 1000 "))
    damage(numbered, first, later, later + 1, last)
    found = numbers(numbered)
    parts = [list(part) for is_gap, part in groupby(found, lambda one: one is None) if not is_gap]
    assert (found[0], found[-1], len(parts), found.count(None)) == (1, None, 3, 3)
    read = {number for part in parts for number in part}
    assert {300, 500, 1_000}.isdisjoint(read)
    assert len(read) > 800
    assert all(part == list(range(part[0], part[-1] + 1)) for part in parts)


@pytest.mark.parametrize(
    ("text", "by"),
    [("row 500 x", "row 500 \\xff"), ("CREATE TABLE row", "CREATE TABLE rox")],
    ids=["a text that is not UTF-8", "a table that has another name"],
)
def test_what_else_cannot_be_read_is_a_gap(numbered, text, by):
    numbered.write_bytes(numbered.read_bytes().replace(text.encode(), by.encode().replace(b"\\xff", b"\xff")))
    whole = [None if number == 500 else number for number in range(1, 1_001)]
    assert numbers(numbered) in (whole, [None])


# ---- the whole database --------------------------------------------------------------------------------------


@pytest.fixture
def path(known_root):
    """A session that Redline has compacted, in a database that has a decision, a run and an experiment as well."""
    path = place(known_root / "work.jsonl", session_bytes(working_session()))
    session = index_file(path)
    Session.objects.filter(pk=session.pk).update(reader="atomic-0.8")
    commit(approved_plan(path), Confirmations(live=True, below_target=True), timezone.now())
    WaitRule.objects.create(agent="pi", reason="manual", seconds=61, then="stop")
    run = Run.objects.create(session=session, planner="embedded", created_at=timezone.now())
    words = [{"words": f"event {seq}. " * 9} for seq in range(200)]
    events = [RunEvent(run=run, seq=seq, kind="asked", at=timezone.now(), data=one) for seq, one in enumerate(words)]
    RunEvent.objects.bulk_create(events)
    experiment = Experiment.objects.create(version="1", created_at=timezone.now())
    MeasuredSession.objects.create(experiment=experiment, session=session, trials=["a trial"])
    return path


@pytest.fixture
def quick(empty_database, monkeypatch):
    """Tables need not be made by migrations, which takes a second."""

    def copy_empty(executor: MigrationExecutor, targets: list[tuple[str, str]]) -> Any:
        connection.close()
        shutil.copyfile(empty_database, connection.settings_dict["NAME"])
        return executor.loader.project_state(targets).apps

    monkeypatch.setattr(salvage, "_make_tables", copy_empty)


@pytest.fixture
def database(redline, path, quick):
    """The file of this database, complete, and opened by nobody."""
    return closed(redline)


def closed(redline: Installation) -> Path:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return redline.data / "redline.sqlite3"


def rows() -> dict[str, list[Any]]:
    """Everything that is to be kept."""
    models = (AuditEntry, Backup, Compaction, Experiment, MeasuredSession, Run, RunEvent, WaitRule)
    kept = {model.__name__: list(model.objects.order_by("pk").values()) for model in models}
    return {**kept, "Session": list(Session.objects.values("pk", "root", "relative_path", "reader", "own_write_ns"))}


def pages_of_entries(database: Path) -> Iterator[int]:
    """The pages of the table of entries: its root, and those below it that the first page of a b-tree tells apart."""
    with closing(sqlite3.connect(database)) as opened:
        query = "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'sessions_app_entry'"
        yield from (number - 1 for (number,) in opened.execute(query))


def test_what_is_not_the_index_survives_and_the_index_is_made_again(redline, database, path):
    before, audit, entries = rows(), verify(), Entry.objects.count()
    connection.close()
    place(redline.data / "search.sqlite3", b"of other rows")
    damaged = damage(database, *pages_of_entries(database))
    assert redline.call("sessions", "--json").code == 0, "not every command meets the damage"
    assert (ended := redline.call("index", "--salvage", "--json")).code == 0, ended
    (kept,) = redline.data.glob("*.damaged")
    assert (kept.read_bytes(), str(kept)) == (damaged, ended.json["salvaged"]["kept"])
    assert ended.json["salvaged"]["tables"]["audit entry"] == {"rows": 1, "byName": 0, "unusable": 0, "gaps": False}
    assert (rows(), verify(), Entry.objects.count()) == (before, audit, entries)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA integrity_check")
        assert cursor.fetchall() == [("ok",)]
    assert not (redline.data / "search.sqlite3").exists()
    backdate(path)
    request, now = UndoRequest(Document.to_change(path)), timezone.now()
    undo(request, Confirmations(live=True), now, shown=planned(request, now).digest())
    assert redline.call("index", "--salvage", "--json").refusal == "2 not_damaged"


def test_rows_that_are_lost_are_named_with_what_belongs_to_them(redline, database):
    content = database.read_bytes()
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("PRAGMA ignore_check_constraints = ON")
        opened.execute("UPDATE sessions_app_session SET damage = '{', title = x'ff' WHERE relative_path = 'work.jsonl'")
        opened.execute("UPDATE compaction_app_waitrule SET seconds = 'long'")
        opened.execute("UPDATE compaction_app_runevent SET at = 'then' WHERE seq = 0")
        opened.execute("DELETE FROM compaction_app_backup")
    damage(database, page_of(content, "event 100."))
    ended = redline.call("index", "--salvage")
    assert "compaction: 0 rows; 1 more cannot be used" in ended.out
    assert "wait rule: 0 rows; 1 more cannot be used" in ended.out
    assert "audit entry: 1 row\n" in ended.out
    assert "; 1 more cannot be used; others cannot be read" in ended.out
    assert 100 < RunEvent.objects.count() < 200
    assert (Session.objects.get().title != b"\xff", Session.objects.get().damage) == (True, [])


def test_nothing_is_lost_with_the_rows_of_roots_and_sessions_that_have_an_index(redline, database, path):
    before = rows()
    connection.close()
    with closing(sqlite3.connect(database)) as opened:
        query = "SELECT rootpage FROM sqlite_master WHERE name IN ('sessions_app_root', 'sessions_app_session')"
        tables = [number - 1 for (number,) in opened.execute(query)]
    damage(database, *tables)
    ended = redline.call("index", "--salvage")
    assert "session: 1 row; 1 of them by their names alone: what you chose for them is lost" in ended.out
    after = rows()
    assert [one["reader"] for one in after.pop("Session")] == [""]
    assert after == {name: one for name, one in before.items() if name != "Session"}
    assert Session.objects.get().path == path


def test_changes_that_are_not_in_the_file_yet_survive_also_a_kill_at_the_end(redline, database, monkeypatch):
    before = rows()
    connection.close()
    damage(database, *pages_of_entries(database))
    with closing(sqlite3.connect(database)) as holding:
        holding.execute("SELECT 1 FROM sqlite_master")  # its changes stay in a file beside it
        WaitRule.objects.create(agent="pi", reason="overflow", seconds=62, then="stop")
        before["WaitRule"] = list(WaitRule.objects.order_by("pk").values())
        connection.close()
        with patch.object(salvage, "forget_texts", interrupt_late(database)), pytest.raises(KeyboardInterrupt):
            salvage.salvage_database()
        assert not Path(f"{database}-wal").exists()
        assert redline.call("index", "--salvage", "--json").code == 0
    assert rows() == before
    assert len(list(redline.data.glob("*.damaged"))) == 1
    assert not list(redline.data.glob("*.draft*"))


def interrupt_late(database: Path) -> Any:
    def kill(directory: Path) -> None:
        Path(f"{database}-wal").unlink()
        raise KeyboardInterrupt

    return kill


@pytest.mark.long
def test_an_older_database_is_brought_over_as_it_was_and_migrated_then(redline, path):
    migrate_to(("compaction_app", "0018_context_sizes"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT number, sha256 FROM compaction_app_auditentry")
        entries = cursor.fetchall()
    database = closed(redline)
    damage(database, *pages_of_entries(database))
    assert redline.call("index", "--salvage", "--json").code == 0
    assert list(AuditEntry.objects.values_list("number", "sha256")) == entries
    assert (Compaction.objects.count(), Run.objects.get(planner="embedded", notes={}).events.count()) == (1, 200)


# ---- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        ("2 no_database", "missing"),
        ("2 not_damaged", "whole"),
        ("6 nothing_readable", "garbage"),
        ("2 newer_database", "newer"),
        ("4 already_served", "served"),
        ("4 database_in_use", "open elsewhere"),
        ("2 bad_arguments", "arguments"),
        ("2 app_left_out", "without an app"),
    ],
)
def test_without_a_salvage_everything_stays_as_it_was(redline, refusal, why, monkeypatch):
    database = closed(redline)
    if why == "open elsewhere":
        monkeypatch.setattr(salvage, "writers_of", lambda _: (Writer(4_711, "redline"),))
    if why == "newer":
        MigrationRecorder(connection).record_applied("sessions_app", "0099_later")
        connection.close()
    if why == "without an app":
        monkeypatch.setattr(django_settings, "REDLINE_APPS_LEFT_OUT", {"lab_app": "lab = true"})
    if why not in ("whole", "missing"):
        damage(database, *pages_of_entries(database))
    if why == "garbage":
        damage(database, 0)
    if why == "missing":
        database.unlink()
    before = snapshot(redline.data)
    arguments = ["--rebuild"] if why == "arguments" else []
    with only_server(django_settings.REDLINE_DATA_DIR) if why == "served" else closing(connection):
        ended = redline.call("index", "--salvage", *arguments, "--json")
    assert ended.refusal == refusal
    assert {name: one for name, one in snapshot(redline.data).items() if "lock" not in name} == {
        name: one for name, one in before.items() if "lock" not in name
    }

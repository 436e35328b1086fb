"""The audit log: every change of a session has one entry, and no entry can be changed or lost unnoticed."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest
from django.db import DatabaseError, connection, transaction

from compaction_app.changes import audit as audit
from compaction_app.changes.audit import HEAD_FILE, AuditState, FileContent, append, verify
from compaction_app.changes.backups import restore
from compaction_app.changes.change import Applied, Confirmations
from compaction_app.changes.compaction import commit
from compaction_app.core.audit_chain import NO_ENTRY, BreakKind, ChainBreak
from compaction_app.models import AuditEntry
from sessions_app.disk.files import sha256_of
from sessions_app.index.session_locks import settle_session
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.storage.backups import digest_up_to
from tests.plans import approved_plan

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def now() -> datetime:
    return datetime.now(UTC)


def compacted(path: Path) -> Applied:
    return commit(approved_plan(path), Confirmations(live=True), now())


def entry(change: str) -> AuditEntry:
    return AuditEntry(change=change, at=NOW, session="/s.jsonl", action=AuditEntry.Action.COMMIT)


def fill(count: int) -> None:
    for number in range(1, count + 1):
        append(entry(f"change {number}"))


def whole(count: int) -> bool:
    """Whether the log has this number of entries and is not broken."""
    found = verify()
    last = AuditEntry.objects.order_by("-number").first()
    return found == AuditState(count, last.sha256 if last is not None else NO_ENTRY, None)


def content(data: bytes) -> tuple[int, str]:
    return len(data), sha256_of(data)


def before_of(entry: AuditEntry) -> tuple[int | None, str]:
    return entry.bytes_before, entry.sha256_before


def after_of(entry: AuditEntry) -> tuple[int | None, str]:
    return entry.bytes_after, entry.sha256_after


def change_rows(statement: str) -> None:
    """Change the log as someone who opens the database with another program."""
    with connection.cursor() as cursor:
        for event in ("update", "delete"):
            cursor.execute(f"DROP TRIGGER IF EXISTS audit_entry_no_{event}")
        cursor.execute(statement)


def test_a_commit_and_its_restore_are_recorded_with_the_content_before_and_after(path):
    original = path.read_bytes()
    written = compacted(path)
    compact = path.read_bytes()
    restore(written.backup.path, Confirmations(), now())

    first, second = AuditEntry.objects.order_by("number")
    assert (first.number, first.action, first.writer) == (1, "commit", "context-compaction")
    assert first.session == second.session == str(path)
    assert first.targets == [target.to_json() for target in written.plan.validated.targets]
    assert (before_of(first), after_of(first)) == (content(original), content(compact))
    assert (first.backup, first.previous) == (str(written.backup.path), NO_ENTRY)

    assert (second.number, second.action, second.targets) == (2, "restore", [])
    assert (before_of(second), after_of(second)) == (content(compact), content(original))
    assert second.restored_from == str(written.backup.path)
    assert (Path(second.backup).read_bytes(), second.previous) == (compact, first.sha256)
    assert whole(2)


def test_a_fork_is_recorded_with_the_content_of_the_new_file(path):
    original = path.read_bytes()
    written = commit(approved_plan(path, writer="fork"), Confirmations(live=True), now())
    assert written.made.created is not None
    entry = AuditEntry.objects.get()
    assert (entry.action_name, entry.writer, entry.new_file) == ("fork", "fork", str(written.made.created))
    assert before_of(entry) == content(original) == content(path.read_bytes())
    assert (after_of(entry), entry.certificate["difference"]) == (content(written.made.created.read_bytes()), "")


def test_a_session_that_is_restored_from_nothing_has_no_content_before(path):
    backup = compacted(path).backup
    path.unlink()
    restore(backup.path, Confirmations(), now())
    entry = AuditEntry.objects.get(number=2)
    assert before_of(entry) == (None, "")
    assert after_of(entry) == content(path.read_bytes())


def test_a_torn_line_is_part_of_the_content_before_and_after(path):
    with path.open("ab") as file:
        file.write(b'{"type":"message","id":"torn"')
    before = path.read_bytes()
    commit(approved_plan(path), Confirmations(live=True, after_torn_line=True), now())
    entry = AuditEntry.objects.get()
    assert (before_of(entry), after_of(entry)) == (content(before), content(path.read_bytes()))


@pytest.mark.parametrize("what", ["commit", "restore"])
def test_a_change_that_was_not_recorded_is_recorded_once_by_the_next_lock(path, what):
    backup = compacted(path).backup.path if what == "restore" else None
    before = path.read_bytes()
    failing = patch.object(audit, "append", side_effect=DatabaseError("the disk is full"))
    with failing, pytest.raises(SystemFailure, match="own database failed"):
        compacted(path) if backup is None else restore(backup, Confirmations(), now())
    settle_session(path)
    settle_session(path)
    assert [entry.action for entry in AuditEntry.objects.order_by("number")][-1] == what
    entry = AuditEntry.objects.order_by("-number")[0]
    assert (before_of(entry), after_of(entry)) == (content(before), content(path.read_bytes()))
    assert whole(1 if backup is None else 2)


def test_the_hash_of_an_entry_is_that_of_what_is_stored(redline):
    append(
        AuditEntry(
            change="a change",
            at=datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
            session="/päth/s.jsonl",
            action=AuditEntry.Action.COMMIT,
            targets=[{"kind": "entry", "entryId": "\udce4 😀"}],
            certificate={"percent": 12.5, "none": None, "large": 10**20},
        ),
        before=FileContent(10**12, "0" * 64),
    )
    stored = AuditEntry.objects.get()
    assert stored.hash() == stored.sha256
    assert whole(1)


@pytest.mark.parametrize("statement", ["UPDATE {} SET session = 'x'", "DELETE FROM {}"])
def test_the_database_refuses_to_change_or_remove_entries(redline, statement):
    fill(1)
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="only appended to"):
        cursor.execute(statement.format(AuditEntry._meta.db_table))
    with pytest.raises(DatabaseError, match="only appended to"):
        AuditEntry.objects.all().delete()
    entry = AuditEntry.objects.get()
    with pytest.raises(DatabaseError):
        entry.save()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE {} SET session = '/other' WHERE number = 2", ChainBreak(2, BreakKind.CHANGED)),
        ("UPDATE {} SET number = 9 WHERE number = 2", ChainBreak(2, BreakKind.DETACHED)),
        ("DELETE FROM {} WHERE number = 1", ChainBreak(1, BreakKind.DETACHED)),
        ("DELETE FROM {}", ChainBreak(1, BreakKind.MISSING)),
    ],
)
def test_a_changed_log_is_found_and_stays_broken(redline, statement, found):
    fill(3)
    change_rows(statement.format(AuditEntry._meta.db_table))
    assert verify().broken == found
    append(entry("another"))
    assert verify().broken is not None


def test_each_column_is_covered_by_the_hash(redline):
    fill(1)
    entry = AuditEntry.objects.get()
    for field in AuditEntry._meta.concrete_fields:
        if field.name in ("sha256", "previous"):
            continue
        other = AuditEntry.objects.get()
        value = getattr(entry, field.name)
        changed: dict[type, object] = {int: 7, str: "x", datetime: now(), list: [1], type(None): 7}
        setattr(other, field.name, changed[type(value)])
        assert other.hash() != entry.sha256, field.name


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b'{"count":"x"}'])
def test_a_lost_head_is_found_and_not_made_again(redline, content):
    fill(2)
    head = redline.data / HEAD_FILE
    if content is None:
        head.unlink()
    else:
        head.write_bytes(content)
    assert verify().broken == ChainBreak(2, BreakKind.NO_HEAD)
    fill(3)
    assert verify().broken == ChainBreak(3, BreakKind.NO_HEAD)


def test_a_head_that_could_not_be_written_is_behind_and_moved_by_the_next_entry(redline):
    fill(1)
    with patch.object(audit, "write_all", side_effect=OSError(28, "No space left on device")):
        fill(2)
    assert whole(2)
    assert b'"count":1' in (redline.data / HEAD_FILE).read_bytes()
    fill(3)
    assert whole(3)
    assert b'"count":3' in (redline.data / HEAD_FILE).read_bytes()


def test_an_empty_log_is_whole_and_a_change_is_recorded_once_and_with_its_transaction_only(redline):
    assert whole(0)
    assert not (redline.data / HEAD_FILE).exists()
    fill(1)
    with transaction.atomic():
        append(entry("other"))
        transaction.set_rollback(True)
    assert whole(1)
    assert b'"count":1' in (redline.data / HEAD_FILE).read_bytes()
    fill(2)
    fill(2)
    assert whole(2)


def test_the_digest_of_a_session_is_continued_from_its_backup(path):
    data = path.read_bytes()
    half = hashlib.sha256(data[:100])
    assert digest_up_to(path, len(data)) == sha256_of(data)
    assert digest_up_to(path, len(data), 100, half) == sha256_of(data)
    assert half.hexdigest() == sha256_of(data[:100])

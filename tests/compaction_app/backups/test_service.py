"""Promises of a restore, and of the commands `restore` and `backups`: the old bytes come back, the current ones are
kept, and nothing is removed unconfirmed."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from django.db import DatabaseError
from hypothesis import given, strategies as st

from compaction_app.changes import backups as restores
from compaction_app.changes.backups import (
    NewerEntry,
    RestoreDifference,
    delete,
    difference,
    list_backups,
    plan_restore,
    restore,
)
from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import commit
from compaction_app.models import Backup, Compaction
from sessions_app.disk.files import CHUNK
from sessions_app.index.session_locks import settle_session
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage import backups as files
from sessions_app.storage.backups import Restored
from tests.factories import message, session_bytes, user, working_session
from tests.files import backdate, place, snapshot, unchanged
from tests.html import missing
from tests.installation import refusal
from tests.plans import approved_plan
from tests.processes import become_nobody, give_to_nobody, in_child


def now() -> datetime:
    return datetime.now(UTC)


def compacted(path: Path, **own: object) -> Path:
    """The backup of a compaction that was just written."""
    return commit(approved_plan(path, **own), Confirmations(live=True), now()).backup.path


def grown(path: Path, *lines: bytes) -> bytes:
    """The bytes of the session after its agent added a message and these lines an hour ago."""
    place(path, path.read_bytes() + session_bytes([message("n1", "e27", user("New work.")), *lines]))
    return path.read_bytes()


def foreign(path: Path, content: bytes) -> Path:
    """A backup that Redline did not make."""
    return place(path.with_name(f"{path.name}.2025-01-01T00-00-00-000Z.compact.bak"), content)


def back(backup: Path, **confirmations: bool) -> Restored:
    return restore(backup, Confirmations(**confirmations), now())


def refused(path: Path, act: Callable[[], object]) -> str:
    before, rows = snapshot(path.parent), Backup.objects.count()
    answer = refusal(act)
    assert snapshot(path.parent) == before
    assert Backup.objects.count() == rows
    return answer


def test_a_compaction_is_undone_and_the_undoing_is_undone(path):
    before, backup = path.read_bytes(), compacted(path)
    after, undone = path.read_bytes(), back(backup)
    assert path.read_bytes() == before
    assert (undone.path, undone.sha256) == (path, hashlib.sha256(before).hexdigest())
    assert undone.previous_backup.path.read_bytes() == after
    again = back(undone.previous_backup.path)
    assert path.read_bytes() == after
    assert again.previous_backup.path.read_bytes() == before
    session = Session.objects.get()
    assert (session.leaf_id, session.size) == (Compaction.objects.get().entry_id, path.stat().st_size)
    back(backup)
    commit(approved_plan(path), Confirmations(), now())  # the last write was ours, so no --live


def test_backups_are_listed_with_why_they_were_made(path):
    back(compacted(path))
    foreign(path, b"the agent's own")
    found = [(one.reason, one.recorded is not None) for one in list_backups(path)]
    assert found == [("restore", True), ("compact", True), ("", False)]


def test_lines_that_came_after_the_backup_need_a_confirmation(path):
    before, backup = path.read_bytes(), compacted(path)
    assert difference(path, backup).newer == []
    after = grown(path, b"{torn")
    newer = difference(path, backup).newer
    assert [(line.entry_id, line.kind) for line in newer] == [("n1", "user"), ("", "damaged line")]
    with pytest.raises(RedlineError, match="--drop-newer"):
        back(backup)
    assert refused(path, lambda: back(backup)) == "5 newer_entries"
    restored = back(backup, drop_newer=True)
    assert path.read_bytes() == before
    assert restored.previous_backup.path.read_bytes() == after


def test_a_later_compaction_is_newer_too(path):
    first = compacted(path, compression_ratio=0.8)
    compacted(path, compression_ratio=0.5)
    assert [line.kind for line in difference(path, first).newer] == ["context_compaction"]
    assert refused(path, lambda: back(first)) == "5 newer_entries"


def test_a_line_that_was_torn_at_the_backup_and_is_whole_now_is_newer(path):
    line = session_bytes([message("n1", "e27", user("Whole."))])
    place(path, path.read_bytes() + line[:-1])
    assert difference(path, compacted(path)).newer == []  # only its newline was added since
    assert len(difference(path, foreign(path, path.read_bytes()[:-40])).newer) == 1


SOME_LINES = st.lists(st.sampled_from([b"a", b"bb", b"", b'{"id":"x1","type":"label"}', b"c" * 9000, b"{to"]))


@given(common=SOME_LINES, ours=SOME_LINES, theirs=SOME_LINES, whole=st.tuples(st.booleans(), st.booleans()))
def test_no_line_that_a_restore_would_lose_goes_unsaid(common, ours, theirs, whole):
    with tempfile.TemporaryDirectory() as directory:
        session = Path(directory) / "s.jsonl"
        backup = session.with_name(files.backup_name(session, datetime(2025, 1, 1, tzinfo=UTC)))
        for path, own, complete in ((session, ours, whole[0]), (backup, theirs, whole[1])):
            path.write_bytes(b"\n".join([*common, *own]) + (b"\n" if complete else b""))
        change = difference(session, backup)
        lines, kept = (path.read_bytes().split(b"\n") for path in (session, backup))
    said = {line.number for line in change.newer}
    for number, line in enumerate(lines, 1):
        if line.strip() and line not in kept:
            assert number in said
    # The lines listed as removed are in the session, after the common beginning.
    first = next((n for n, pair in enumerate(zip(lines, kept, strict=False)) if pair[0] != pair[1]), None)
    first = min(len(lines), len(kept)) if first is None else first
    assert all(lines[number - 1].strip() and number > first - 1 for number in said)
    assert change.brought_back >= len({line for line in kept if line.strip()} - set(lines))
    if lines == kept:
        assert change == RestoreDifference([], "", 0)


def test_a_difference_far_into_a_large_file_is_found(path):
    body = path.read_bytes() + b"".join(
        session_bytes([message(f"x{number}", "e27", user("word " * 9000))]) for number in range(60)
    )
    place(path, body)  # more than one chunk is the same
    assert len(body) > 2 * CHUNK
    backup = foreign(path, body)
    place(path, body[:-20_000] + b"#" + body[-19_999:] + session_bytes([message("y", "x59", user("New."))]))
    change = difference(path, backup)
    assert [(line.number, line.entry_id) for line in change.newer] == [(88, "x59"), (89, "y")]
    assert change.brought_back == 1


def test_a_difference_names_the_entries_of_a_version_1_session(path):
    old = [{"type": "session", "id": "s", "cwd": "/w"}, {"type": "message", "message": user("one")}]
    backup = foreign(path, session_bytes(old))
    place(path, session_bytes([*old, {"type": "message", "message": user("two")}]))
    assert difference(path, backup) == RestoreDifference([NewerEntry(3, "00000002", "user")], "", 0)


def test_a_difference_names_what_comes_back_and_the_removed_compaction(path):
    backup, entry_id = compacted(path), Compaction.objects.get().entry_id
    assert difference(path, backup) == RestoreDifference([], entry_id, 0)
    assert difference(path, back(backup).previous_backup.path) == RestoreDifference([], "", 1)


def test_a_confirmation_for_another_state_does_not_count(path):
    backup = compacted(path)
    seen = plan_restore(backup, now()).digest()
    grown(path)
    confirmations = Confirmations(drop_newer=True)
    assert refused(path, lambda: restore(backup, confirmations, now(), shown=seen)) == "4 session_changed"
    restore(backup, confirmations, now(), shown=plan_restore(backup, now()).digest())


def test_a_deleted_backup_keeps_its_record(path):
    backup, session = compacted(path), path.read_bytes()
    assert refused(path, lambda: delete(path, backup, is_only_backup=False)) == "4 only_backup"
    delete(path, backup, is_only_backup=True)
    assert snapshot(path.parent) == {path.name: session}
    assert Compaction.objects.get().backup.path == str(backup)
    assert list_backups(path) == []
    assert refused(path, lambda: delete(path, backup, is_only_backup=True)) == "2 no_such_file"


def test_a_backup_that_redline_did_not_make_needs_a_confirmation(path):
    old = path.read_bytes()
    backup = foreign(path, old)
    with pytest.raises(RedlineError, match="--unverified"):
        back(backup)
    assert refused(path, lambda: back(backup, drop_newer=True)) == "5 unverified_backup"
    assert back(backup, unverified=True).sha256 == hashlib.sha256(old).hexdigest()
    assert path.read_bytes() == old
    backup.write_bytes(b"no session\n")
    back(backup, unverified=True, drop_newer=True)
    assert path.read_bytes() == b"no session\n"


@pytest.mark.parametrize("hash_is_in", ["database", "file", "database, and the file is damaged as well"])
def test_a_backup_that_is_damaged_is_not_restored(path, hash_is_in):
    backup = compacted(path)
    content = backup.read_bytes()[:-9] + b"#"
    backup.write_bytes(content)
    if hash_is_in == "file":
        Backup.objects.all().update(path="/elsewhere")
    elif hash_is_in != "database":
        backup.with_name(f"{backup.name}.sha256").write_text(f"{hashlib.sha256(content).hexdigest()}  {backup.name}\n")
    assert refused(path, lambda: back(backup, drop_newer=True, unverified=True)) == "4 backup_damaged"


def test_a_lost_database_loses_no_backup(path):
    before, backup = path.read_bytes(), compacted(path)
    Compaction.objects.all().delete()
    Session.objects.all().delete()
    assert [(one.file.path, one.recorded is not None) for one in list_backups(path)] == [(backup, True)]
    back(backup, live=True)  # that the last write was Redline's own is lost with it
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("s.jsonl", "2 not_a_backup"),
        ("s.jsonl.2025-01-01T00-00-00-000Z.bak", "2 not_a_backup"),
        ("s.jsonl.2025-13-01T00-00-00-000Z.compact.bak", "2 not_a_backup"),
        ("..2025-01-01T00-00-00-000Z.compact.bak", "2 not_a_backup"),
        ("...2025-01-01T00-00-00-000Z.compact.bak", "2 not_a_backup"),
        ("s.jsonl.2025-01-01T00-00-00-000Z.compact.bak", "2 no_such_file"),
        (os.fsdecode(b"\xff.jsonl.2025-01-01T00-00-00-000Z.compact.bak"), "2 unusable_name"),
    ],
)
def test_other_files_are_refused_as_backups(path, name, answer):
    assert refused(path, lambda: back(path.with_name(name), unverified=True, drop_newer=True)) == answer


def test_an_entry_cannot_lead_a_restore_elsewhere(path, tmp_path):
    # `backupPath` is text: only a file beside the session that is named like its backup is one.
    elsewhere = place(tmp_path / f"{path.name}.2025-01-01T00-00-00-000Z.compact.bak", b"not ours\n")
    entry = {"type": "context_compaction", "id": "n1", "parentId": "e27", "backupPath": str(elsewhere)}
    place(path, path.read_bytes() + session_bytes([entry]))
    assert list_backups(path) == []
    link = path.with_name(elsewhere.name)
    link.symlink_to(elsewhere)
    assert list_backups(path) == []
    assert refused(path, lambda: back(link, unverified=True, drop_newer=True)) != "done"


def test_lines_that_come_at_the_moment_of_the_restore_are_in_the_backup(path, monkeypatch):
    before, backup = path.read_bytes(), compacted(path)
    late = session_bytes([message("n1", "e27", user("At that very moment."))])

    def overtaken(ready: Path, session: Path) -> None:
        with session.open("ab") as file:
            file.write(late)
        ready.replace(session)

    monkeypatch.setattr(restores, "restore_session", partial(restores.restore_session, replace=overtaken))
    restored = back(backup)
    assert path.read_bytes() == before
    assert restored.overtaken
    assert restored.previous_backup.path.read_bytes().endswith(late)
    recorded = Backup.objects.filter(reason=Backup.Reason.RESTORE).order_by("taken_at")
    assert [row.path for row in recorded] == [str(backup.path) for backup in restored.previous]


def test_a_restore_that_a_failing_database_did_not_record_is_recorded_with_the_next_lock(path):
    before, backup = path.read_bytes(), compacted(path)
    failing = patch.object(Backup.objects, "get_or_create", side_effect=DatabaseError("database is locked"))
    with failing, pytest.raises(RedlineError, match="was restored") as caught:
        back(backup)
    assert (caught.value.exit_code, caught.value.code) == (6, "not_recorded")
    assert path.read_bytes() == before
    previous = next(one for one in list_backups(path) if one.file.path != backup)
    assert str(previous.file.path) in caught.value.message
    assert previous.recorded is not None
    assert previous.reason == ""
    settle_session(path)
    assert next(one for one in list_backups(path) if one.file.path != backup).reason == "restore"


def test_an_index_that_cannot_be_brought_up_to_date_does_not_undo_a_restore(path, monkeypatch):
    before, backup = path.read_bytes(), compacted(path)

    monkeypatch.setattr(restores, "index_file", Mock(side_effect=DatabaseError("database is locked")))
    back(backup)
    assert path.read_bytes() == before


def test_without_the_permission_nothing_is_restored(public):
    path = place(public.sessions / "s.jsonl", session_bytes(working_session()))
    backup = compacted(path)
    backdate(path)
    give_to_nobody(path.parent, *path.parent.iterdir())
    give_to_nobody(*public.data.rglob("*"))
    with unchanged(path.parent):
        path.parent.chmod(0o500)
        assert in_child(lambda: refusal(lambda: back(backup)), become_nobody) == "6 permission_denied"
        path.parent.chmod(0o700)
        backup.chmod(0)
        assert in_child(lambda: refusal(lambda: back(backup)), become_nobody) == "6 permission_denied"
        backup.chmod(0o600)
    assert in_child(lambda: refusal(lambda: back(backup)), become_nobody) == "done"


@pytest.fixture
def backup(redline, path):
    return Path(redline.call("compact", path, "--yes", "--json").json["backupPath"])


def test_without_a_confirmation_nothing_is_restored(redline, path, backup):
    with unchanged(path.parent):
        assert redline.call("restore", backup, "--json").refused("--yes") == "5 not_confirmed"


def test_newer_lines_are_listed_and_need_their_own_confirmation(redline, path, backup):
    with path.open("ab") as file:
        file.write(session_bytes([message("n1", "e27", user("New work."))]))
    backdate(path)
    path.with_suffix(".link").hardlink_to(path)
    before, at_once = snapshot(path.parent), redline.call("restore", backup)
    assert "another name (a hard link)" in at_once.out
    assert (at_once.code, "--yes --drop-newer`" in at_once.err) == (5, True)
    refused = redline.call("restore", backup, "--yes")
    assert refused.code == 5
    assert "Would be deleted: line 30 n1 user" in refused.out
    assert "--drop-newer" in refused.err
    assert redline.call("restore", backup, "--yes", "--unverified", "--json").error == "newer_entries"
    assert snapshot(path.parent) == before
    done = redline.call("restore", backup, "--yes", "--drop-newer", "--json").ok()
    assert path.read_bytes() == backup.read_bytes()
    assert Path(done.json["previousBackup"]).read_bytes() == before["s.jsonl"]
    path.write_bytes(before["s.jsonl"])
    shown = redline.call("restore", backup, "--yes", "--drop-newer", "--live").out
    assert "Deleted: line 30 n1 user" in shown
    assert "Would be" not in shown


def test_an_unverified_backup_needs_its_own_confirmation(redline, path):
    content = path.read_bytes()
    agents = place(path.with_name(f"{path.name}.2025-01-01T00-00-00-000Z.compact.bak"), content[:-1])
    (listed,) = redline.call("backups", path, "--json").json
    assert (listed["path"], listed["label"], listed["holds"], listed["reason"]) == (str(agents), "compact", None, None)
    assert not missing(redline.call("backups", path).out, "unverified", " ? compact ")
    with unchanged(path.parent):
        ended = redline.call("restore", agents, "--yes", "--drop-newer", "--json")
        assert ended.refused("--unverified") == "5 unverified_backup"
    done = redline.call("restore", agents, "--yes", "--unverified", "--json")
    assert done.json["restored"] == str(path)
    assert done.json["sha256"] == hashlib.sha256(content[:-1]).hexdigest()
    assert path.read_bytes() == content[:-1]


def test_a_damaged_backup_is_marked_and_not_restored(redline, path, backup):
    backup.write_bytes(backup.read_bytes()[:-2])
    assert [one["holds"] for one in redline.call("backups", path, "--json").json] == [False]
    assert "DAMAGED" in redline.call("backups", path).out
    with unchanged(path.parent):
        refused = redline.call("restore", backup, "--yes", "--drop-newer", "--unverified", "--json")
        assert (refused.code, refused.error) == (4, "backup_damaged")


def test_a_missing_session_is_restored_from_its_backup(redline, path, backup):
    content = backup.read_bytes()
    path.unlink()
    assert [one["path"] for one in redline.call("backups", path, "--json").json] == [str(backup)]
    done = redline.call("restore", backup, "--yes", "--json")
    assert (done.code, done.json["previousBackup"]) == (0, None)
    assert path.read_bytes() == content


def test_a_file_that_is_not_a_backup_is_bad_input_and_a_session_without_backups_says_so(redline, path):
    with unchanged(path.parent):
        gone = path.with_name("s.jsonl.2025-01-01T00-00-00-000Z.compact.bak")
        for file, code in ((path, "not_a_backup"), (gone, "no_such_file")):
            ended = redline.call("restore", file, "--yes", "--json")
            assert (ended.code, ended.error) == (2, code)
    assert redline.call("backups", path, "--json").json == []
    assert "has no backups" in redline.call("backups", path).out

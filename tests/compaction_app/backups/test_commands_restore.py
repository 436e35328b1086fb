"""`restore` and `backups` show first what would be removed, and each danger needs its own confirmation."""

import hashlib
from pathlib import Path

import pytest

from tests.factories import message, session_bytes, user, working_session
from tests.files import backdate, place, snapshot


@pytest.fixture
def path(redline):
    return place(redline.sessions / "s.jsonl", session_bytes(working_session()))


@pytest.fixture
def backup(redline, path):
    return Path(redline.call("compact", path, "--yes", "--json").json["backupPath"])


def test_without_a_confirmation_nothing_is_restored(redline, path, backup):
    before = snapshot(path.parent)
    refused = redline.call("restore", backup, "--json")
    assert (refused.code, refused.error) == (5, "not_confirmed")
    assert "--yes" in refused.json["error"]["message"]
    assert snapshot(path.parent) == before


def test_newer_lines_are_listed_and_need_their_own_confirmation(redline, path, backup):
    with path.open("ab") as file:
        file.write(session_bytes([message("n1", "e27", user("New work."))]))
    backdate(path)
    before = snapshot(path.parent)
    at_once = redline.call("restore", backup)
    assert (at_once.code, "--yes --drop-newer`" in at_once.err) == (5, True)
    refused = redline.call("restore", backup, "--yes")
    assert refused.code == 5
    assert "Would be removed: line 30 n1 user" in refused.out
    assert "--drop-newer" in refused.err
    assert redline.call("restore", backup, "--yes", "--unverified", "--json").error == "newer_entries"
    assert snapshot(path.parent) == before
    done = redline.call("restore", backup, "--yes", "--drop-newer", "--json")
    assert done.code == 0
    assert path.read_bytes() == backup.read_bytes()
    assert Path(done.json["previousBackup"]).read_bytes() == before["s.jsonl"]
    path.write_bytes(before["s.jsonl"])  # type: ignore[arg-type]
    shown = redline.call("restore", backup, "--yes", "--drop-newer", "--live").out
    assert "Removed: line 30 n1 user" in shown
    assert "Would be" not in shown


def test_an_unverified_backup_needs_its_own_confirmation(redline, path):
    content = path.read_bytes()
    agents = place(path.with_name(f"{path.name}.2025-01-01T00-00-00-000Z.compact.bak"), content[:-1])
    (listed,) = redline.call("backups", path, "--json").json
    assert (listed["holds"], listed["reason"]) == (None, None)
    assert "unverified" in redline.call("backups", path).out
    before = snapshot(path.parent)
    refused = redline.call("restore", agents, "--yes", "--drop-newer", "--json")
    assert (refused.code, refused.error) == (5, "unverified_backup")
    assert "--unverified" in refused.json["error"]["message"]
    assert snapshot(path.parent) == before
    done = redline.call("restore", agents, "--yes", "--unverified", "--json")
    assert done.json["restored"] == str(path)
    assert done.json["sha256"] == hashlib.sha256(content[:-1]).hexdigest()
    assert path.read_bytes() == content[:-1]


def test_the_agents_own_backups_are_listed_by_label_and_restored_as_unverified(redline, path):
    content = path.read_bytes()
    for label in ("compact", "auto-compact", "overflow-auto-compact", "context-compact"):
        agents = place(path.with_name(f"{path.name}.2025-01-01T00-00-00-000Z.{label}.bak"), content[:-1])
        (listed,) = redline.call("backups", path, "--json").json
        assert (listed["path"], listed["label"], listed["holds"]) == (str(agents), label, None)
        assert f" ? {label} " in redline.call("backups", path).out
        assert redline.call("restore", agents, "--yes", "--drop-newer", "--json").error == "unverified_backup"
        done = redline.call("restore", agents, "--yes", "--drop-newer", "--unverified", "--json")
        assert done.code == 0, done
        assert path.read_bytes() == content[:-1]
        for backup in path.parent.glob("*.bak*"):
            backup.unlink()
        place(path, content)


def test_a_damaged_backup_is_marked_and_not_restored(redline, path, backup):
    backup.write_bytes(backup.read_bytes()[:-2])
    assert [one["holds"] for one in redline.call("backups", path, "--json").json] == [False]
    assert "DAMAGED" in redline.call("backups", path).out
    before = snapshot(path.parent)
    refused = redline.call("restore", backup, "--yes", "--drop-newer", "--unverified", "--json")
    assert (refused.code, refused.error) == (4, "backup_damaged")
    assert snapshot(path.parent) == before


def test_a_missing_session_is_restored_from_its_backup(redline, path, backup):
    content = backup.read_bytes()
    path.unlink()
    assert [one["path"] for one in redline.call("backups", path, "--json").json] == [str(backup)]
    done = redline.call("restore", backup, "--yes", "--json")
    assert (done.code, done.json["previousBackup"]) == (0, None)
    assert path.read_bytes() == content


def test_a_file_that_is_not_a_backup_is_bad_input_and_a_session_without_backups_says_so(redline, path):
    before = snapshot(path.parent)
    gone = path.with_name("s.jsonl.2025-01-01T00-00-00-000Z.compact.bak")
    for file, code in ((path, "not_a_backup"), (gone, "no_such_file")):
        ended = redline.call("restore", file, "--yes", "--json")
        assert (ended.code, ended.error) == (2, code)
    assert snapshot(path.parent) == before
    assert redline.call("backups", path, "--json").json == []
    assert "has no backups" in redline.call("backups", path).out

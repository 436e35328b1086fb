"""A killed commit or restore leaves the session as before or as after, and everything usable.

The files, the database, the lock and the next command take part.
"""

import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from django.db import connection

from compaction_app.changes import change as changes
from compaction_app.changes.backups import restore
from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import Approved, commit
from compaction_app.models import Backup, Compaction
from sessions_app.disk.files import BACKUP_SUFFIX
from sessions_app.index.indexer import index_file, select_reader
from sessions_app.index.session_locks import settle_interrupted
from sessions_app.storage import backups
from sessions_app.storage.append import append_lines
from tests.factories import session_bytes, working_session
from tests.files import place, snapshot
from tests.installation import Installation, refusal
from tests.kill_steps import IS_SOAK, World, assert_any_kill_leaves_one_of_two_states, die, killed
from tests.plans import approved_plan, context_ids, context_without

from .test_kill_steps import Kills


@pytest.fixture
def path(redline):
    return place(redline.sessions / "s.jsonl", session_bytes(working_session(steps=10)))


def commit_now(approved: Approved) -> Path:
    """Commit; returns the backup."""
    return commit(approved, Confirmations(live=True), datetime.now(UTC)).backup.path


def commit_and_die(approved: Approved, write: Callable[[int, bytes], int]) -> None:
    """Commit in a process that is killed by its write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "append_lines", partial(append_lines, write=write))
        killed(partial(commit_now, approved))


def line_after(path: Path, before: bytes) -> bytes:
    """What follows `before` in the session; fails if anything of `before` has changed."""
    content = path.read_bytes()
    assert content.startswith(before)
    return content[len(before) :]


def assert_backups_are_whole(path: Path, before: bytes) -> None:
    for name, content in snapshot(path.parent).items():
        if name.endswith(BACKUP_SUFFIX):
            assert isinstance(content, bytes)
            assert content.startswith(before)
            assert content[len(before) :].count(b"\n") == (len(content) > len(before))
            assert backups.recorded_sha256(path.with_name(name)) == hashlib.sha256(content).hexdigest(), name


def assert_the_rows_tell_what_is_in_the_file(path: Path, before: bytes) -> None:
    """After the next start a written line has its rows, and no row refers to a file that does not exist."""
    written = line_after(path, before)
    recorded = {(one.entry_id, one.backup.path) for one in Compaction.objects.select_related("backup")}
    if written:
        line = json.loads(written)
        assert (line["id"], line["backupPath"]) in recorded
    assert all(Path(backup).is_file() for _, backup in recorded)
    assert all(Path(row.path).is_file() for row in Backup.objects.all())


def assert_usable(redline: Installation, path: Path, before: bytes) -> None:
    """The next commands work (restore, compact, restore), after which the session is as before."""
    settle_interrupted()
    assert_the_rows_tell_what_is_in_the_file(path, before)
    if line_after(path, before).endswith(b"\n"):
        redline.call("restore", json.loads(line_after(path, before))["backupPath"], "--yes", "--json").ok()
        assert path.read_bytes() == before
    context = context_ids(path)
    written = redline.call("compact", path, "--yes", "--live", "--json").ok()
    assert context_ids(path) == context_without(context, written.json["deletedTargets"])
    assert Compaction.objects.filter(entry_id=written.json["entryId"]).count() == 1
    assert redline.call("restore", written.json["backupPath"], "--yes", "--json").code == 0
    assert path.read_bytes() == before
    assert all(one["holds"] for one in redline.call("backups", path, "--json").json)
    assert not [name for name in snapshot(path.parent) if name.startswith(".")]
    assert {one.suffix for one in (redline.data / "locks").iterdir()} <= {".lock"}


def test_a_kill_at_any_moment_leaves_the_session_as_before_or_as_after(redline, path):
    before, world = path.read_bytes(), World(redline.data, path.parent)

    def put_back() -> None:
        """A restore replaces the session, so each round has a plan of its own."""
        nonlocal approved
        world.put_back()
        approved = approved_plan(path)

    def act() -> None:
        restore(commit_now(approved), Confirmations(), datetime.now(UTC))

    def outcome() -> str:
        after = line_after(path, before)
        if after.endswith(b"\n"):
            assert json.loads(after)["type"] == "context_compaction"
        assert_backups_are_whole(path, before)
        assert_usable(redline, path, before)
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA integrity_check")
            assert cursor.fetchone() == ("ok",)
        return "before" if not after else "after" if after.endswith(b"\n") else "torn, and mended"

    approved = approved_plan(path)
    assert_any_kill_leaves_one_of_two_states(put_back, act, outcome)


WRITERS = [
    ("pi", "fork"),
    ("pi", "context-edit"),
    ("codex", "compacted"),
    ("codex", "fork"),
    ("codex, legacy", "compacted"),
    ("codex, legacy", "fork"),
    ("claude-code", "boundary"),
]


@pytest.mark.parametrize(("reader", "writer"), WRITERS if IS_SOAK else WRITERS[:1])
def test_a_kill_at_any_moment_leaves_a_change_of_any_writer_whole_or_not_made(redline, reader, writer):
    kills = Kills(redline, reader, writer)
    assert_any_kill_leaves_one_of_two_states(kills.world.put_back, kills.act, kills.outcome)


def write_first_line(fd: int, payload: bytes) -> int:
    return os.write(fd, payload[: payload.index(b"\n") + 1])


def and_die(write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    def write_and_die(fd: int, payload: bytes) -> int:
        write(fd, payload)
        return die()

    return write_and_die


@pytest.mark.parametrize("is_killed", [True, False], ids=["kill", "full disk"])
def test_some_of_several_lines_are_cut_off(path, monkeypatch, is_killed):
    before = snapshot(path.parent)
    select_reader(index_file(path), "pi")
    approved = approved_plan(path, reader="pi", writer="context-edit")
    if is_killed:
        commit_and_die(approved, and_die(write_first_line))
        assert path.read_bytes().count(b"\n") == before[path.name].count(b"\n") + 1
        settle_interrupted()
    else:
        monkeypatch.setattr(changes, "append_lines", partial(append_lines, write=write_first_line))
        assert refusal(lambda: commit_now(approved)) == "6 disk_full"
    assert snapshot(path.parent) == before
    assert (Compaction.objects.count(), Backup.objects.count()) == (0, 0)


def write_half(fd: int, payload: bytes) -> int:
    return os.write(fd, payload[: len(payload) // 2])


@pytest.mark.parametrize(("write", "end"), [(write_half, False), (os.write, True)], ids=["a half", "the line"])
def test_a_commit_killed_at_its_write_is_settled_by_the_next_command(redline, path, write, end):
    before = path.read_bytes()
    commit_and_die(approved_plan(path), and_die(write))
    assert line_after(path, before).endswith(b"\n") is end
    assert_backups_are_whole(path, before)
    assert_usable(redline, path, before)


@pytest.mark.parametrize("command", ["sessions", "backups"])
def test_the_next_command_records_a_commit_whose_process_was_killed(redline, path, command):
    before = path.read_bytes()
    commit_and_die(approved_plan(path), and_die(os.write))
    assert not Compaction.objects.exists()
    redline.call(command, *([path] if command == "backups" else []), "--json").ok()
    line = json.loads(line_after(path, before))
    recorded = Compaction.objects.get()
    assert (recorded.entry_id, recorded.backup.path) == (line["id"], line["backupPath"])
    assert (recorded.leaf_id, len(recorded.origins)) == (line["parentId"], len(line["deletedTargets"]))

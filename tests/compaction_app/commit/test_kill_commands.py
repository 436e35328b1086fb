"""A killed commit or restore leaves the session as before or as after, and everything usable.

The victim is a fork of this process, so that a round costs milliseconds. `test_kill` is about the file edge
alone; here the database, the lock and the next command take part.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from compaction_app.backups import service as backups_service
from compaction_app.backups.service import RestoreConfirmations, restore
from compaction_app.commit import change as commit_change
from compaction_app.commit.service import Approved, Confirmations, commit
from compaction_app.models import Backup, Compaction
from compaction_app.session_page.reader_selection import select_reader
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session, settle_interrupted
from sessions_app.storage import backups
from sessions_app.storage import restore as storage_restore
from sessions_app.storage.append import append_lines
from sessions_app.storage.files import BACKUP_SUFFIX
from tests.factories import session_bytes, working_session
from tests.files import place, snapshot
from tests.installation import Installation, refusal
from tests.plans import approved_plan, context_ids, context_without
from tests.wait import WAIT_SECONDS

ROUNDS = int(os.environ.get("REDLINE_KILL_ROUNDS", "20"))
SEED = int(os.environ.get("REDLINE_KILL_SEED", "20260105"))
YES = Confirmations(live=True)


@pytest.fixture
def path(redline: Installation) -> Path:
    return place(redline.sessions / "s.jsonl", session_bytes(working_session(steps=40)))


def commit_and_restore(approved: Approved, begin: Callable[[str], object]) -> None:
    """Cleans up nothing: the next process has to deal with what a kill leaves."""
    begin("commit")
    committed = commit(approved, YES, datetime.now(UTC))
    begin("restore")
    restore(committed.backup.path, RestoreConfirmations(), datetime.now(UTC))
    begin("done")
    time.sleep(60)


def killed(act: Callable[[Callable[[str], object]], object], delay_us: int | None = None) -> str:
    """The phase in which a fork that runs `act` was killed, after `delay_us` or by its own signal."""
    connection.close()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(WAIT_SECONDS)
            act(lambda phase: os.write(writing, phase.encode() + b"\n"))
        except BaseException as error:  # noqa: BLE001  the parent shows it
            os.write(writing, repr(error).encode() + b"\n")
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        first = pipe.readline()
        if delay_us is not None:
            time.sleep(delay_us / 1e6)
            os.kill(pid, signal.SIGKILL)
        phases = (first + pipe.read()).decode().split("\n")
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, phases
    return phases[-2] if len(phases) > 1 else ""


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
            digest = backups.recorded_sha256(path.with_name(name))
            assert digest == hashlib.sha256(content).hexdigest(), name


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
        undone = redline.call(
            "restore", json.loads(line_after(path, before))["backupPath"], "--yes", "--json"
        )
        assert undone.code == 0, undone
        assert path.read_bytes() == before
    context = context_ids(path)
    written = redline.call("compact", path, "--yes", "--live", "--json")
    assert written.code == 0, written
    assert context_ids(path) == context_without(context, written.json["deletedTargets"])
    assert Compaction.objects.filter(entry_id=written.json["entryId"]).count() == 1
    assert redline.call("restore", written.json["backupPath"], "--yes", "--json").code == 0
    assert path.read_bytes() == before
    listed = redline.call("backups", path, "--json").json
    assert all(one["holds"] for one in listed)
    assert not [name for name in snapshot(path.parent) if name.startswith(".")]
    assert not list((redline.data / "locks").glob("*.intent"))
    assert not list((redline.data / "locks").glob("*.unresolved"))


def clean(path: Path) -> None:
    Compaction.objects.all().delete()
    Backup.objects.all().delete()
    for beside in path.parent.iterdir():
        if beside != path:
            beside.unlink()


def test_a_kill_at_any_moment_leaves_the_session_as_before_or_as_after(
    redline: Installation, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(SEED)
    before = path.read_bytes()
    phases: Counter[str] = Counter()
    found: Counter[str] = Counter()
    approved = approved_plan(path)
    began = time.perf_counter()
    restore(commit(approved, YES, datetime.now(UTC)).backup.path, RestoreConfirmations(), datetime.now(UTC))
    longest_us = int(1.3e6 * (time.perf_counter() - began))
    clean(path)
    for _ in range(ROUNDS):
        phases[killed(partial(commit_and_restore, approved_plan(path)), dice.randrange(longest_us))] += 1
        after = line_after(path, before)
        if after.endswith(b"\n"):
            assert json.loads(after)["type"] == "context_compaction"
        found["before" if not after else "after" if after.endswith(b"\n") else "torn, and mended"] += 1
        assert_backups_are_whole(path, before)
        assert_usable(redline, path, before)
        clean(path)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA integrity_check")
        assert cursor.fetchone() == ("ok",)
    with capsys.disabled():
        print(f"\n{ROUNDS} kills, seed {SEED}: in {dict(phases)}; the session was {dict(found)}")
    assert len(phases) > 1, "every kill hit the same phase: the delays are wrong"


def state_after_settling(path: Path, before: bytes) -> str:
    """Whether a change is there, whole and with its row, or not at all, once the next process has started."""
    settle_interrupted()
    with lock_session(path):
        pass
    assert not [name for name in snapshot(path.parent) if name.startswith(".")]
    made = [one for one in path.parent.glob("*.jsonl") if one != path]
    added = line_after(path, before)
    assert not (added and made)
    if not added and not made:
        assert (Compaction.objects.count(), Backup.objects.count()) == (0, 0)
        return "before"
    compaction = Compaction.objects.get()
    lines = (made[0].read_bytes() if made else added).splitlines(keepends=True)
    assert all(line.endswith(b"\n") for line in lines)
    ids = [json.loads(line)["id"] for line in lines]
    assert (compaction.entry_id, compaction.created) == ((ids[0], str(made[0])) if made else (ids[-1], ""))
    assert Path(compaction.backup.path).read_bytes() == before
    return "after"


@pytest.mark.parametrize("writer", ["context-edit", "fork"])
def test_a_kill_at_any_moment_leaves_a_change_of_any_writer_whole_or_not_made(
    path: Path, capsys: pytest.CaptureFixture[str], writer: str
) -> None:
    dice = random.Random(SEED)
    before = path.read_bytes()
    phases: Counter[str] = Counter()
    found: Counter[str] = Counter()
    select_reader(index_file(path), "pi")
    approved = approved_plan(path, reader="pi", writer=writer)

    def commit_and_wait(begin: Callable[[str], object]) -> None:
        begin("commit")
        commit(approved, YES, datetime.now(UTC))
        begin("done")
        time.sleep(60)

    def put_back() -> None:
        clean(path)
        place(path, before)

    began = time.perf_counter()
    commit(approved, YES, datetime.now(UTC))
    longest_us = int(2e6 * (time.perf_counter() - began))
    for _ in range(ROUNDS):
        put_back()
        approved = approved_plan(path, reader="pi", writer=writer)
        phases[killed(commit_and_wait, dice.randrange(longest_us))] += 1
        found[state_after_settling(path, before)] += 1
    with capsys.disabled():
        print(f"\n{ROUNDS} kills of {writer}, seed {SEED}: in {dict(phases)}; the change was {dict(found)}")


def write_first_line(fd: int, payload: bytes) -> int:
    return os.write(fd, payload[: payload.index(b"\n") + 1])


def write_first_line_and_die(fd: int, payload: bytes) -> int:
    write_first_line(fd, payload)
    return die()


def test_some_of_several_lines_are_cut_off_after_a_kill(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    select_reader(index_file(path), "pi")
    approved = approved_plan(path, reader="pi", writer="context-edit")
    with monkeypatch.context() as patch:
        patch.setattr(commit_change, "append_lines", partial(append_lines, write=write_first_line_and_die))
        killed(lambda _: commit(approved, YES, datetime.now(UTC)))
    assert line_after(path, before).count(b"\n") == 1
    assert state_after_settling(path, before) == "before"
    assert path.read_bytes() == before


def test_some_of_several_lines_are_cut_off_if_the_disk_is_full(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(path.parent)
    select_reader(index_file(path), "pi")
    approved = approved_plan(path, reader="pi", writer="context-edit")
    with monkeypatch.context() as patch:
        patch.setattr(commit_change, "append_lines", partial(append_lines, write=write_first_line))
        assert refusal(lambda: commit(approved, YES, datetime.now(UTC))) == "6 disk_full"
    assert snapshot(path.parent) == before
    assert (Compaction.objects.count(), Backup.objects.count()) == (0, 0)


def die(*_: object) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it lives on")


def write_half(fd: int, payload: bytes) -> int:
    os.write(fd, payload[: len(payload) // 2])
    return die()


def write_and_die(fd: int, payload: bytes) -> int:
    os.write(fd, payload)
    return die()


@pytest.mark.parametrize(
    ("write", "left"), [(die, "nothing"), (write_half, "a half"), (write_and_die, "the line")]
)
def test_a_commit_killed_at_its_write_is_settled_by_the_next_command(
    redline: Installation, path: Path, monkeypatch: pytest.MonkeyPatch, write: Any, left: str
) -> None:
    before = path.read_bytes()
    approved = approved_plan(path)
    with monkeypatch.context() as patch:
        patch.setattr(commit_change, "append_lines", partial(append_lines, write=write))
        killed(lambda _: commit(approved, YES, datetime.now(UTC)))
    after = line_after(path, before)
    assert {b"": "nothing", b"\n": "the line"}.get(after[-1:], "a half") == left
    assert_backups_are_whole(path, before)
    assert_usable(redline, path, before)


def replace_and_die(ready: Path, session: Path) -> None:
    ready.replace(session)
    die()


@pytest.mark.parametrize(("replace", "restored"), [(die, False), (replace_and_die, True)])
def test_a_restore_killed_at_its_replacement_is_whole(
    redline: Installation, path: Path, monkeypatch: pytest.MonkeyPatch, replace: Any, restored: bool
) -> None:
    before = path.read_bytes()
    backup = commit(approved_plan(path), YES, datetime.now(UTC)).backup.path
    with monkeypatch.context() as patch:
        patch.setattr(backups_service, "restore_session", partial(storage_restore.restore, replace=replace))
        killed(lambda _: restore(backup, RestoreConfirmations(), datetime.now(UTC)))
    assert (line_after(path, before) == b"") == restored
    assert_backups_are_whole(path, before)
    assert_usable(redline, path, before)


@pytest.mark.parametrize("command", ["sessions", "backups"])
def test_the_next_start_records_a_commit_whose_process_was_killed(
    redline: Installation, path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    before = path.read_bytes()
    approved = approved_plan(path)
    with monkeypatch.context() as patch:
        patch.setattr(commit_change, "append_lines", partial(append_lines, write=write_and_die))
        killed(lambda _: commit(approved, YES, datetime.now(UTC)))
    assert not Compaction.objects.exists()
    connection.close()
    started = redline.run(command, *([path] if command == "backups" else []), "--json")
    assert started.code == 0, started
    line = json.loads(line_after(path, before))
    recorded = Compaction.objects.get()
    assert (recorded.entry_id, recorded.backup.path) == (line["id"], line["backupPath"])
    assert (recorded.leaf_id, len(recorded.origins)) == (line["parentId"], len(line["deletedTargets"]))

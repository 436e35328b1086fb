"""A commit appends exactly what was approved to the session as it is now, or nothing at all."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from errno import EIO
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from django.db import DatabaseError

from compaction_app.changes import change as changes
from compaction_app.changes.change import Applied, Confirmations
from compaction_app.changes.compaction import Approved, commit
from compaction_app.models import Backup, Compaction
from sessions_app.agents.pi.pure.format import PiFormat
from sessions_app.document.document import Document
from sessions_app.index.indexer import index_file, select_reader
from sessions_app.index.session_locks import is_interrupted, settle_session
from sessions_app.index.session_reading import reading_of
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.append import append_lines
from sessions_app.storage.locks import LockedSession
from sessions_app.storage.session_loader import load_session
from tests.factories import assistant, chain, message, result, session_bytes, text, user, working_session
from tests.files import backdate, last_line, place, snapshot, unchanged
from tests.installation import refusal
from tests.plans import approved_plan, context_ids, context_without
from tests.processes import become_nobody, give_to_nobody, limit_file_size, refusal_in_child, start_child

LAST = "e27"
"""The leaf of `working_session()`."""


@pytest.fixture
def elsewhere(redline):
    """A session whose agent is not known."""
    return place(redline.home / "elsewhere" / "s.jsonl", session_bytes(working_session()))


def done(approved: Approved, **confirmations: bool) -> Applied:
    return commit(approved, Confirmations(**confirmations), datetime.now(UTC))


def foreign(path: Path, *lines: dict[str, Any] | bytes) -> bytes:
    """An agent opens, appends and closes, without a lock; some time ago, so that the session is not live."""
    added = session_bytes(lines)
    with path.open("ab") as file:
        file.write(added)
    backdate(path, hours=0.5)
    return added


def refused(path: Path, act: Callable[[], object]) -> str:
    """The refusal of `act`, which changed no byte in the directory of the session."""
    with unchanged(path.parent):
        compactions, backups = Compaction.objects.count(), Backup.objects.count()
        answer = refusal(act)
    assert (Compaction.objects.count(), Backup.objects.count()) == (compactions, backups)
    return answer


def test_a_commit_appends_one_line_with_what_was_approved_and_keeps_the_rest_in_the_database(path):
    before, context = path.read_bytes(), context_ids(path)
    approved = approved_plan(path, compression_ratio=0.4, query="the parser")
    committed = done(approved)

    written = path.read_bytes()
    assert written.startswith(before)
    assert written.count(b"\n") == before.count(b"\n") + 1
    entry = last_line(path)
    names = "type id parentId timestamp promptVersion deletedTargets protectedEntryIds stats backupPath"
    assert list(entry) == names.split()
    assert (entry["type"], entry["promptVersion"], entry["parentId"]) == ("context_compaction", 1, LAST)
    assert entry["id"] == committed.made.entry_id
    assert len(bytes.fromhex(entry["id"])) == 4
    assert datetime.fromisoformat(entry["timestamp"]).tzinfo is UTC
    assert entry["timestamp"].endswith("Z")
    assert entry["deletedTargets"] == [target.to_json() for target in approved.targets] != []
    assert entry["protectedEntryIds"] == ["e1", "e26", "e27"]
    names = "objectsBefore objectsAfter objectsDeleted tokensBefore tokensAfter percentReduction"
    assert list(entry["stats"]) == names.split()
    assert entry["stats"]["percentReduction"] >= 60
    assert context_ids(path) == context_without(context, entry["deletedTargets"])

    backup = Path(entry["backupPath"])
    assert backup == committed.backup.path
    assert backup.parent == path.parent
    assert backup.read_bytes() == before
    digest = hashlib.sha256(before).hexdigest()
    assert backup.with_name(f"{backup.name}.sha256").read_text() == f"{digest}  {backup.name}\n"
    assert sorted(snapshot(path.parent)) == sorted([path.name, backup.name, f"{backup.name}.sha256"])

    row = Compaction.objects.get()
    assert (row.entry_id, row.leaf_id, row.planner, row.reason) == (committed.made.entry_id, LAST, "embedded", "manual")
    assert row.parameters == {"compression_ratio": 0.4, "preserve_recent": 2, "query": "the parser"}
    assert row.stats == entry["stats"]
    facts_of = ("call", "tool", "reason")
    origins = [{name: one[name] for name in one if name not in facts_of} for one in row.origins]
    assert origins == entry["deletedTargets"]
    assert row.backup.sha256 == digest
    session = Session.objects.get()
    assert (session.leaf_id, session.size) == (committed.made.entry_id, path.stat().st_size)


def test_the_id_of_the_new_entry_is_unique_in_the_session(path, monkeypatch):
    foreign(path, message("0badcafe", LAST, user("Its id is taken.")))
    ids = iter(["0badcafe", "0badcafe", "00000001"])
    monkeypatch.setattr(PiFormat, "new_entry_id", lambda _: next(ids))
    assert done(approved_plan(path)).made.entry_id == "00000001"


def test_a_linked_session_is_written_at_its_real_path(path, tmp_path):
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    committed = done(approved_plan(link))
    assert link.is_symlink()
    assert committed.backup.path.parent == path.parent
    assert last_line(path)["id"] == committed.made.entry_id


def test_a_session_can_be_compacted_again_on_top_of_a_compaction(path):
    context, first = context_ids(path), done(approved_plan(path, compression_ratio=0.7))
    once, second = context_ids(path), done(approved_plan(path, compression_ratio=0.5))
    deleted = [target.to_json() for target in first.plan.validated.targets]
    again = [target.to_json() for target in second.plan.validated.targets]
    assert once == context_without(context, deleted)
    assert context_ids(path) == context_without(once, again)
    gone = {target["entryId"] for target in deleted if target["kind"] == "entry"}
    assert not gone & {target["entryId"] for target in again}
    assert second.plan.parent_id == first.made.entry_id


def shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)
    backdate(path)


def replace_by_another(path: Path) -> None:
    place(path.with_name("other"), path.read_bytes().replace(b"line_6_7 ", b"LINE_6_7 ")).replace(path)


def replace_by_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def change_the_middle(path: Path) -> None:
    found = path.stat()
    path.write_bytes(path.read_bytes().replace(b"line_6_7 ", b"LINE_6_7 "))
    assert path.stat().st_size == found.st_size
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def change_a_text_and_grow(path: Path) -> None:
    change_the_middle(path)
    foreign(path, message("n1", LAST, user("More.")))


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (Path.unlink, "2 no_such_file"),
        (shrink, "4 session_rewritten"),
        (replace_by_another, "4 session_rewritten"),
        (replace_by_a_directory, "2 not_a_file"),
        (change_the_middle, "4 session_rewritten"),
        (change_a_text_and_grow, "4 session_rewritten"),
    ],
)
def test_a_replaced_session_is_not_written_to(path, change, answer):
    approved = approved_plan(path)
    change(path)
    assert refused(path, lambda: done(approved)) == answer


def test_text_added_since_the_plan_is_kept_and_the_compaction_follows_it(path):
    approved, before = approved_plan(path), path.read_bytes()
    added = foreign(path, message("n1", LAST, assistant(text("One more."))), message("n2", "n1", user("Thank you.")))
    context, committed = context_ids(path), done(approved)
    assert path.read_bytes().startswith(before + added)
    assert committed.plan.parent_id == last_line(path)["parentId"] == "n2"
    assert last_line(path)["protectedEntryIds"] == ["e1", "e27", "n1", "n2"]
    assert committed.backup.path.read_bytes() == before + added
    assert context_ids(path) == context_without(context, [target.to_json() for target in approved.targets])


def test_new_text_that_makes_the_target_be_missed_does_not_undo_the_approval(path):
    approved = approved_plan(path)
    foreign(path, message("n1", LAST, user("More. " * 10_000)))
    assert done(approved).plan.validated.stats.percent_reduction < 50


@pytest.mark.parametrize("is_error", [False, True], ids=["result", "error"])
def test_a_new_result_of_a_deleted_call_is_a_conflict(path, is_error):
    approved = approved_plan(path, compression_ratio=0.05)
    assert "e3" in {target.entry_id for target in approved.targets}
    foreign(path, message("n1", LAST, result("c1", "Late.", error=is_error)))
    assert refused(path, lambda: done(approved)) == "4 plan_refused"
    foreign(path, message("n2", "n1", user("More.")), message("n3", "n2", user("And more.")))
    if is_error:  # which is never deleted
        assert refused(path, lambda: done(approved)) == "4 plan_refused"
        return
    assert refused(path, lambda: done(approved)) == "4 plan_changed"
    with pytest.raises(RedlineError, match="have to delete entry n1 as well"):
        done(approved)


def test_a_switch_to_another_branch_is_a_conflict(path):
    approved = approved_plan(path)
    foreign(path, message("n1", "e5", user("Try it otherwise.")))
    assert refused(path, lambda: done(approved, switch_branch=True)) == "4 other_branch"


def test_a_plan_is_written_once(path):
    approved = approved_plan(path)
    done(approved)
    assert refused(path, lambda: done(approved)) == "4 plan_refused"


def test_a_complete_last_line_gets_its_newline_first(path):
    before = path.read_bytes()[:-1]
    place(path, before)
    context, committed = context_ids(path), done(approved_plan(path))
    assert path.read_bytes().startswith(before + b'\n{"type":"context_compaction"')
    assert committed.plan.parent_id == LAST
    assert context_ids(path) == context_without(context, last_line(path)["deletedTargets"])
    assert committed.backup.path.read_bytes() == before


@pytest.mark.parametrize("torn", [b'{"type":"message","id":"n1"', b"[1]"])
def test_nothing_is_appended_to_a_torn_last_line(path, torn):
    approved = approved_plan(path)
    with path.open("ab") as file:
        file.write(torn)
    backdate(path)
    assert refused(path, lambda: done(approved)) == "5 torn_last_line"
    assert refused(path, lambda: done(approved_plan(path))) == "5 torn_last_line"


@pytest.mark.parametrize("torn", [b'{"type":"message","id":"n1"', b"[1]"])
def test_a_confirmed_torn_line_stays_and_the_compaction_gets_its_own_line(path, torn):
    before = path.read_bytes() + torn
    place(path, before)
    committed = done(approved_plan(path), after_torn_line=True)
    assert path.read_bytes() == before + b"\n" + committed.made.lines[0] + b"\n"
    assert load_session(path).leaf_id == committed.made.entry_id
    # Once is enough: the session ends in a complete line now.
    done(approved_plan(path, compression_ratio=0.9))


def test_a_line_torn_at_review_and_complete_at_commit_is_followed(path):
    line = session_bytes([message("n1", LAST, user("Now whole."))])
    with path.open("ab") as file:
        file.write(line[:30])
    approved = approved_plan(path)
    with path.open("ab") as file:
        file.write(line[30:])
    backdate(path)
    assert done(approved).plan.parent_id == "n1"


def overtaken(path: Path, line: bytes) -> Callable[[int, bytes], int]:
    """A write that an agent's own write precedes."""

    def write(fd: int, payload: bytes) -> int:
        with path.open("ab") as file:
            file.write(line)
        return os.write(fd, payload)

    return write


def test_a_line_written_between_check_and_append_stays_and_ours_is_removed(path):
    before = path.read_bytes()
    line = session_bytes([message("n1", LAST, user("At the very same moment."))])
    approved = approved_plan(path)
    with patch.object(changes, "append_lines", partial(append_lines, write=overtaken(path, line))):
        assert refusal(lambda: done(approved)) == "4 foreign_append"
    assert snapshot(path.parent) == {path.name: before + line}
    assert not Backup.objects.exists()
    assert not Compaction.objects.exists()
    backdate(path)
    assert done(approved).plan.parent_id == "n1"


def test_a_line_written_during_the_backup_is_a_conflict(path, monkeypatch):
    before = path.read_bytes()
    line = session_bytes([message("n1", LAST, user("During the backup."))])
    back_up = changes.back_up

    def slow(*arguments: Any) -> Any:
        made = back_up(*arguments)
        foreign(path, line[:-1])
        return made

    monkeypatch.setattr(changes, "back_up", slow)
    assert refusal(lambda: done(approved_plan(path))) == "4 session_changed"
    assert snapshot(path.parent) == {path.name: before + line}


def test_bytes_that_could_not_be_removed_keep_their_backup(path, monkeypatch):
    before = path.read_bytes()

    def short(fd: int, payload: bytes) -> int:
        written = os.write(fd, payload[:20])
        foreign(path, message("n1", LAST, user("After half of ours.")))
        return written

    monkeypatch.setattr(changes, "append_lines", partial(append_lines, write=short))
    assert refusal(lambda: done(approved_plan(path))) == "6 append_left"
    assert path.read_bytes().startswith(before)
    assert Path(Backup.objects.get().path).read_bytes() == before
    assert not Compaction.objects.exists()


def test_an_agent_writing_right_after_the_commit_makes_the_session_live(path):
    def followed(*arguments: Any, **more: Any) -> Any:
        appended = append_lines(*arguments, **more)
        with path.open("ab") as file:
            file.write(session_bytes([message("n1", LAST, user("Past the compaction."))]))
        return appended

    with patch.object(changes, "append_lines", followed):
        done(approved_plan(path))
    assert refused(path, lambda: done(approved_plan(path))) == "5 session_live"


@pytest.mark.parametrize("model", [Compaction, Backup])
def test_a_commit_the_database_failed_to_record_is_recorded_with_the_next_lock(path, model):
    before = path.read_bytes()
    failing = patch.object(model.objects, "get_or_create", side_effect=DatabaseError("database is locked"))
    with failing, pytest.raises(RedlineError, match="was written") as caught:
        done(approved_plan(path))
    assert (caught.value.exit_code, caught.value.code) == (6, "not_recorded")
    assert path.read_bytes().startswith(before)
    assert last_line(path)["id"] in caught.value.message
    assert last_line(path)["backupPath"] in caught.value.message
    assert not Backup.objects.exists()
    settle_session(path)
    recorded = Compaction.objects.get()
    assert (recorded.entry_id, recorded.backup.path) == (last_line(path)["id"], last_line(path)["backupPath"])


def test_a_fork_that_was_shortened_before_it_was_recorded_does_not_block_its_original(path):
    failing = patch.object(Compaction.objects, "get_or_create", side_effect=DatabaseError("database is locked"))
    with failing, pytest.raises(RedlineError, match="was written"):
        done(approved_plan(path, writer="fork"))
    (created,) = set(path.parent.glob("*.jsonl")) - {path}
    with created.open("rb+") as file:
        file.truncate(100)
    settle_session(path)
    assert not Compaction.objects.exists()
    assert not is_interrupted(path)


def test_the_backup_of_a_recorded_fork_stays_if_the_fork_is_gone_before_the_next_lock(path):
    failing = patch.object(LockedSession, "withdraw", side_effect=OSError(EIO, "Input/output error"))
    with failing, pytest.raises(RedlineError, match="could not be deleted"):
        done(approved_plan(path, writer="fork"))
    (created,) = set(path.parent.glob("*.jsonl")) - {path}
    created.unlink()
    settle_session(path)
    assert Path(Compaction.objects.get().backup.path).exists()


def test_a_failing_index_update_does_not_undo_a_commit(path, monkeypatch):
    monkeypatch.setattr(changes, "index_file", Mock(side_effect=DatabaseError("database is locked")))
    assert last_line(path)["id"] != done(approved_plan(path)).made.entry_id == last_line(path)["id"]


def test_a_session_written_to_recently_needs_a_confirmation(path):
    approved = approved_plan(path)
    foreign(path, message("n1", LAST, user("Still here.")))
    os.utime(path)
    for plan in (approved, approved_plan(path)):
        assert refused(path, partial(done, plan)) == "5 session_live"
    backdate(path, hours=-1)  # a time in the future
    assert refused(path, lambda: done(approved)) == "5 session_live"
    assert done(approved, live=True).plan.parent_id == "n1"


def test_a_write_of_redlines_own_does_not_make_a_session_live(path):
    first = done(approved_plan(path, compression_ratio=0.7))
    assert done(approved_plan(path)).plan.parent_id == first.made.entry_id


def test_another_branch_needs_a_confirmation_and_becomes_the_active_one(path):
    foreign(path, message("n1", "e3", user("Try it otherwise.")))
    approved = approved_plan(path, leaf_id=LAST)
    assert refused(path, lambda: done(approved)) == "5 switches_branch"
    context = context_ids(path, LAST)
    assert done(approved, switch_branch=True).plan.parent_id == LAST
    assert context_ids(path) == context_without(context, [target.to_json() for target in approved.targets])


def test_a_writer_that_the_agent_would_ignore_is_refused(elsewhere):
    foreign(elsewhere, {"type": "context_edit", "id": "n1", "parentId": LAST, "targetId": "e3", "replacement": None})
    approved = approved_plan(elsewhere)
    assert refused(elsewhere, lambda: done(approved, not_honoured=True)) == "2 unknown_writer"
    assert done(approved_plan(elsewhere, reader="pi", writer="context-edit")).plan.parent_id == "n1"


def guessed_plan(path: Path, **own: object) -> Approved:
    """An approved plan by the writer that appends to a session whose agent is a guess."""
    reading = Document.to_change(path).reading
    assert reading.is_guess
    writer = next(writer for writer in reading.writers if writer.appends)
    return approved_plan(path, reader=reading.reader.name, writer=writer.name, **own)


def test_appending_to_a_session_of_an_unknown_agent_needs_a_confirmation(elsewhere):
    approved = guessed_plan(elsewhere)
    assert refusal(lambda: done(approved), "a guess") == "5 not_honoured"
    assert done(approved, not_honoured=True).plan.parent_id == LAST


def test_a_compaction_written_on_a_guess_does_not_make_the_agent_known(elsewhere):
    approved = guessed_plan(elsewhere)
    done(approved, not_honoured=True)
    again = replace(guessed_plan(elsewhere, compression_ratio=0.3), writer=approved.writer)
    assert refused(elsewhere, lambda: done(again, below_target=True)) == "5 not_honoured"
    foreign(elsewhere, {"type": "usage", "id": "n1", "parentId": last_line(elsewhere)["id"], "kind": "summary"})
    index_file(elsewhere)
    reading = Document.to_change(elsewhere).reading
    assert (reading.reader.name, reading.is_guess) == ("pi", False)


def test_a_fork_of_a_session_of_an_unknown_agent_needs_no_confirmation(elsewhere):
    before, log = elsewhere.read_bytes(), load_session(elsewhere).log
    reading = reading_of(elsewhere, log.entries, log.state)
    assert reading.writer().name == "fork"
    assert (
        done(approved_plan(elsewhere, reader=reading.reader.name, writer="fork")).made.created.parent
        == elsewhere.parent
    )
    assert elsewhere.read_bytes() == before


def test_a_reader_chosen_by_the_user_is_not_a_guess(elsewhere):
    approved = approved_plan(elsewhere)
    select_reader(index_file(elsewhere), "atomic-0.8")
    assert done(approved).plan.parent_id == LAST


def test_a_session_in_a_pi_directory_is_written_by_the_writer_of_pi(redline):
    path = place(redline.home / ".pi" / "agent" / "sessions" / "--x--" / "s.jsonl", session_bytes(working_session()))
    assert refused(path, lambda: done(approved_plan(path))) == "2 unknown_writer"
    approved = approved_plan(path, reader="pi", writer="")
    lines = [json.loads(line) for line in done(approved).made.lines]
    assert {line["type"] for line in lines} == {"context_edit"}
    assert {line["targetId"] for line in lines} == {target.entry_id for target in approved.targets}


def test_a_plan_below_its_target_needs_a_confirmation(path):
    approved = approved_plan(path, compression_ratio=0.1, preserve_recent=20)
    assert refused(path, lambda: done(approved)) == "3 target_not_met"
    assert not done(approved, below_target=True).plan.validated.target_met


def test_one_confirmation_does_not_cover_another_case(path):
    foreign(path, message("n1", "e3", user("Try it otherwise.")))
    os.utime(path)
    approved = approved_plan(path, leaf_id=LAST)
    assert refused(path, lambda: done(approved, switch_branch=True, below_target=True)) == "5 session_live"
    assert refused(path, lambda: done(approved, live=True, not_honoured=True)) == "5 switches_branch"


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_session_is_not_written_to(path, version):
    header, *entries = working_session()
    for entry in entries:
        if version == 1:
            del entry["id"], entry["parentId"]
    old = {name: value for name, value in header.items() if name != "version"}
    place(path, session_bytes([old if version == 1 else {**header, "version": 2}, *entries]))
    approved = approved_plan(path)
    with pytest.raises(RedlineError, match="migrate-session"):
        done(approved)
    assert refused(path, lambda: done(approved)) == "2 needs_migration"


def at_once(act: Callable[[], object]) -> list[str]:
    """How `act` ended in each of two processes that started it at the same moment."""
    ready, go = os.pipe()

    def act_once_both_wait() -> str:
        os.read(ready, 1)
        return refusal(act)

    children = [start_child(act_once_both_wait) for _ in range(2)]
    os.write(go, b"..")
    answers = sorted(wait() for wait in children)
    os.close(ready)
    os.close(go)
    return answers


def test_two_concurrent_commits_give_one_entry_and_one_conflict(path):
    for ratio in (0.9, 0.5):
        before = path.read_bytes()
        assert at_once(partial(done, approved_plan(path, compression_ratio=ratio))) == ["4 plan_refused", "done"]
        assert path.read_bytes().startswith(before)
        assert path.read_bytes().count(b"\n") == before.count(b"\n") + 1
    assert len(snapshot(path.parent)) == 1 + 2 * 2


@pytest.mark.parametrize(
    ("file_mode", "directory_mode", "answer"),
    [
        (0o400, 0o700, "6 permission_denied"),
        (0o600, 0o500, "6 permission_denied"),
        (0o200, 0o700, "6 permission_denied"),
        (0o600, 0o700, "done"),
    ],
)
def test_without_write_permission_nothing_is_left_behind(public, file_mode, directory_mode, answer):
    path = place(public.sessions / "s.jsonl", session_bytes(working_session()))
    approved = approved_plan(path)
    give_to_nobody(path.parent, path)
    before = snapshot(path.parent)
    path.chmod(file_mode)
    path.parent.chmod(directory_mode)
    assert refusal_in_child(lambda: done(approved), become_nobody) == answer
    path.parent.chmod(0o700)
    path.chmod(0o600)
    assert (snapshot(path.parent) == before) == (answer != "done")


@pytest.mark.parametrize("room", [-1, 100])
def test_a_full_disk_leaves_the_session_and_no_partial_backup(path, room):
    # Larger than the database, so that the limit meets the session: first its backup, then the append.
    place(path, session_bytes(working_session(steps=40, words=2_000)))
    before = path.read_bytes()
    assert len(before) > 800_000
    approved = approved_plan(path)
    assert refusal_in_child(lambda: done(approved), limit_file_size(len(before) + room)) == "6 disk_full"
    assert snapshot(path.parent) == {path.name: before}
    assert not Backup.objects.exists()
    backdate(path)
    assert done(approved).plan.parent_id == "e83"


def test_a_write_of_redlines_own_does_not_change_how_a_session_is_read(redline, tmp_path):
    summary = {"type": "compaction", "summary": "s", "firstKeptEntryId": "e1"}
    turns = [one for n in range(8) for one in (user(f"ask {n}"), assistant(text(f"answer {n} " * 40)))]
    path = place(tmp_path / "s.jsonl", session_bytes(chain(*turns, summary, user("on"), assistant(text("x")))))
    for ratio in ("0.5", "0.3"):
        call = ("compact", path, "--yes", "--ratio", ratio, "--allow-below-target", "--json")
        assert redline.call(*call).json["writer"] == "context-edit"
        assert redline.call("context", path, "--json").json["reader"] == "pi"

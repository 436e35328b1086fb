"""Sessions of Claude Code are compacted by either writer, and undone; a kill leaves them as before or as after."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from compaction_app.backups.service import RestoreConfirmations, restore
from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import Approved, Committed, commit
from compaction_app.models import Backup, Compaction
from compaction_app.runs.automatic import left_because
from compaction_app.runs.commands import start_run
from compaction_app.runs.forms import CompactForm
from compaction_app.session_page.reader_selection import select_reader
from compaction_app.undo.plan import UndoConfirmations
from compaction_app.undo.service import UndoRequest, planned, undo
from sessions_app.agents.registry import READERS
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session, settle_interrupted
from sessions_app.sessionlog.errors import BadInput
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import SESSION_ID, VERSION, ClaudeSession, call, text
from tests.files import backdate, place, snapshot
from tests.installation import Installation, refusal
from tests.kill_steps import killed_before
from tests.plans import approved_plan

READER: Final = "claude-code"
YES: Final = Confirmations(live=True, below_target=True)
MOST: Final = 2_000
both_writers = pytest.mark.parametrize("writer", ["boundary", "fork"])


@pytest.fixture
def path(redline: Installation) -> Path:
    session = ClaudeSession()
    session.user("Look at everything.")
    for step in range(12):
        session.reply(f"m{step}", text(f"step {step}"), call(f"c{step}"))
        session.result(f"c{step}", f"result {step} " * 400)
    session.reply("m", text("Done."))
    directory = redline.home / ".claude" / "projects" / "-home-dev-project"
    directory.mkdir(parents=True)
    path = place(directory / f"{SESSION_ID}.jsonl", session.content)
    select_reader(index_file(path), READER)
    return path


def approve(path: Path, writer: str) -> Approved:
    return approved_plan(path, reader=READER, writer=writer)


def context_ids(path: Path) -> list[str]:
    loaded = load_session(path)
    branch = loaded.tree.branch(loaded.leaf_id)
    return [message.entry.id for message in READERS[READER].rebuild(branch).messages]


def compacted(path: Path, writer: str) -> Committed:
    made = commit(approve(path, writer), YES, datetime.now(UTC))
    backdate(path)
    return made


def taken_back(path: Path, *entry_ids: str) -> str:
    """Undo the compaction, or bring back some entries; returns the way."""
    request = UndoRequest(load_session(path), entry_ids=entry_ids)
    plan = planned(request, datetime.now(UTC))
    undo(request, UndoConfirmations(live=True), datetime.now(UTC), shown=plan.digest())
    return str(plan.way)


def continued(path: Path) -> list[str]:
    session = ClaudeSession()
    session.lines, session.last = path.read_bytes().splitlines(), context_ids(path)[-1]
    added = [session.user("And now?"), *session.reply("later", text("Later."))]
    path.write_bytes(session.content)
    backdate(path)
    return added


@both_writers
def test_a_plan_is_written_and_proven(redline: Installation, path: Path, writer: str) -> None:
    before, content = context_ids(path), path.read_bytes()
    made = compacted(path, writer)
    gone = {origin["entryId"] for origin in Compaction.objects.get().origins}
    changed = made.created or path
    assert gone
    assert context_ids(changed) == [entry_id for entry_id in before if entry_id not in gone]
    assert (path.read_bytes() == content) is (writer == "fork")
    assert made.backup.path.read_bytes() == content


@both_writers
def test_an_undo_brings_the_whole_context_back(redline: Installation, path: Path, writer: str) -> None:
    before = context_ids(path)
    made = compacted(path, writer)
    assert taken_back(path) == ("edits" if writer == "boundary" else "removal")
    assert context_ids(path) == before
    assert made.created is None or not made.created.exists()


def test_single_entries_come_back_after_more_was_said(redline: Installation, path: Path) -> None:
    before = context_ids(path)
    compacted(path, "boundary")
    kept = context_ids(path)
    later = continued(path)
    assert context_ids(path) == [*kept, *later]
    back = next(entry_id for entry_id in before if entry_id not in kept)
    taken_back(path, back)
    now = context_ids(path)
    assert back in now
    assert now == [entry_id for entry_id in before if entry_id in now] + later
    assert len(now) < len(before) + len(later)


@both_writers
def test_a_commit_killed_before_any_step_is_completed_or_leaves_nothing(
    redline: Installation, path: Path, writer: str
) -> None:
    content, before, approved = path.read_bytes(), context_ids(path), approve(path, writer)
    gone = {target.entry_id for target in approved.targets}
    found = set()
    for step in range(1, MOST):
        was_killed = killed_before(step, partial(commit, approved, YES, datetime.now(UTC)))
        settle_interrupted()
        with lock_session(path):
            pass
        made = [one for one in path.parent.glob("*.jsonl") if one != path]
        assert path.read_bytes().startswith(content)
        assert not [name for name in snapshot(path.parent) if name.startswith(".")]
        is_made = bool(made) or path.read_bytes() != content
        found.add(is_made)
        if is_made:
            row = Compaction.objects.get()
            assert (row.writer, row.created) == (writer, str(made[0]) if made else "")
            left = [entry_id for entry_id in before if entry_id not in gone]
            assert context_ids(made[0] if made else path) == left
        else:
            assert (Compaction.objects.count(), Backup.objects.count()) == (0, 0)
        if not was_killed:
            break
        put_back(path, content)
        approved = approve(path, writer)
    assert found == {False, True}


def put_back(path: Path, content: bytes) -> None:
    Compaction.objects.all().delete()
    Backup.objects.all().delete()
    for beside in path.parent.iterdir():
        if beside != path:
            beside.unlink()
    place(path, content)
    index_file(path)


def continued_by_an_old_client(path: Path) -> None:
    continued(path)
    *lines, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines) + last.replace(VERSION.encode(), b"2.1.112"))
    backdate(path)


def test_a_session_of_an_old_client_is_forked_and_gets_no_boundary(redline: Installation, path: Path) -> None:
    continued_by_an_old_client(path)
    row, content = index_file(path), path.read_bytes()
    assert [writer.name for writer in CompactForm(row, {}).writers] == ["fork"]
    with pytest.raises(BadInput, match=r"version 2\.1\.112 .* Continue the session once"):
        start_run(row, planner="embedded", requested_parameters={}, writer="boundary")
    ended = redline.call("compact", path, "--yes", "--writer", "boundary", "--json")
    assert (ended.code, ended.error) == (2, "refused_writer")
    assert path.read_bytes() == content
    made = commit(approve(path, ""), YES, datetime.now(UTC))
    assert (made.created is not None, path.read_bytes()) == (True, content)


def test_a_plan_for_a_boundary_is_refused_after_an_old_client_continued(
    redline: Installation, path: Path
) -> None:
    approved = approve(path, "boundary")
    continued_by_an_old_client(path)
    content = path.read_bytes()
    assert refusal(lambda: commit(approved, YES, datetime.now(UTC))) == "2 refused_writer"
    assert path.read_bytes() == content


def test_a_boundary_is_undone_after_an_old_client_continued(redline: Installation, path: Path) -> None:
    before = context_ids(path)
    compacted(path, "boundary")
    continued_by_an_old_client(path)
    taken_back(path)
    assert set(before) <= set(context_ids(path))


def test_a_session_that_a_client_has_open_is_not_restored(redline: Installation, path: Path) -> None:
    backup = compacted(path, "boundary").backup.path
    content = path.read_bytes()
    register = path.parents[2] / "sessions" / f"{os.getpid()}.json"
    register.parent.mkdir()
    register.write_text(json.dumps({"sessionId": SESSION_ID}))
    yes = RestoreConfirmations(live=True, drop_newer=True, unverified=True)
    assert refusal(lambda: restore(backup, yes, datetime.now(UTC))) == "4 open_in_agent"
    assert path.read_bytes() == content
    register.unlink()
    restore(backup, yes, datetime.now(UTC))
    assert path.read_bytes() == backup.read_bytes()


def test_the_line_of_a_boundary_names_its_backup(redline: Installation, path: Path) -> None:
    made = compacted(path, "boundary")
    line = json.loads(path.read_bytes().splitlines()[-1])
    assert line["compactMetadata"]["redline"] == {"backup": str(made.backup.path)}


def test_the_session_of_a_subagent_is_not_planned(redline: Installation, path: Path) -> None:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    content = "".join(json.dumps({**line, "isSidechain": True, "agentId": "a1"}) + "\n" for line in lines)
    directory = path.with_suffix("") / "subagents"
    directory.mkdir(parents=True)
    subagent = place(directory / "agent-a1.jsonl", content.encode())
    row = index_file(subagent)
    assert row.is_subagent
    before = subagent.read_bytes()
    assert redline.call("compact", subagent, "--yes", "--json").error == "subagent"
    assert refusal(lambda: start_run(row, planner="embedded", requested_parameters={})) == "2 subagent"
    assert "subagent" in left_because(row, datetime.now(UTC), redline.home)
    assert subagent.read_bytes() == before

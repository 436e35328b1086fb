"""Sessions of Claude Code are compacted by either writer, and undone, but not where a client would be harmed."""

import json
import os
from datetime import UTC, datetime

import pytest

from compaction_app.backups.service import RestoreConfirmations, restore
from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import Approved, commit
from compaction_app.models import Compaction
from compaction_app.runs.automatic import left_because
from compaction_app.runs.commands import start_run
from compaction_app.runs.forms import CompactForm
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.errors import BadInput
from tests.claude_sessions import SESSION_ID, VERSION
from tests.compaction_app.undo.scenes import Scene, claude_continues, claude_scene, claude_work
from tests.files import place
from tests.installation import refusal
from tests.plans import approved_plan

YES = Confirmations(live=True, below_target=True)


@pytest.fixture
def scene(redline):
    return claude_scene(redline, claude_work())


@pytest.fixture(params=["boundary", "fork"])
def each(scene, request):
    return Scene(scene.path, scene.reader, request.param)


def approve(scene: Scene, writer: str) -> Approved:
    return approved_plan(scene.path, reader=scene.reader, writer=writer)


def test_a_plan_is_written_and_proven_and_an_undo_brings_all_of_it_back(each):
    before, content = each.ids(), each.path.read_bytes()
    made = each.compact()
    gone = {origin["entryId"] for origin in Compaction.objects.get().origins}
    assert gone
    assert each.ids(made.created) == [entry_id for entry_id in before if entry_id not in gone]
    assert (each.path.read_bytes() == content) is (each.writer == "fork")
    assert made.backup.path.read_bytes() == content
    assert each.undo(live=True).plan.way == ("edits" if each.writer == "boundary" else "removal")
    assert each.ids() == before
    assert made.created is None or not made.created.exists()


def test_single_entries_come_back_after_more_was_said(scene):
    before = scene.ids()
    made = scene.compact()
    line = json.loads(scene.path.read_bytes().splitlines()[-1])
    assert line["compactMetadata"]["redline"] == {"backup": str(made.backup.path)}
    kept = scene.ids()
    later = claude_continues(scene, "later")
    assert scene.ids() == [*kept, *later]
    back = next(entry_id for entry_id in before if entry_id not in kept)
    scene.undo(back, live=True)
    now = scene.ids()
    assert back in now
    assert now == [entry_id for entry_id in before if entry_id in now] + later
    assert len(now) < len(before) + len(later)


def continued_by_an_old_client(scene: Scene) -> bytes:
    claude_continues(scene, "later")
    *lines, last = scene.path.read_bytes().splitlines(keepends=True)
    place(scene.path, b"".join(lines) + last.replace(VERSION.encode(), b"2.1.112"))
    return scene.path.read_bytes()


def test_a_session_of_an_old_client_is_forked_and_gets_no_boundary(redline, scene):
    approved_before = approve(scene, "boundary")
    content = continued_by_an_old_client(scene)
    row = index_file(scene.path)
    assert [writer.name for writer in CompactForm(row, {}).writers] == ["fork"]
    with pytest.raises(BadInput, match=r"version 2\.1\.112 .* Continue the session once"):
        start_run(row, planner="embedded", requested_parameters={}, writer="boundary")
    ended = redline.call("compact", scene.path, "--yes", "--writer", "boundary", "--json")
    assert (ended.code, ended.error) == (2, "refused_writer")
    assert refusal(lambda: commit(approved_before, YES, datetime.now(UTC))) == "2 refused_writer"
    assert scene.path.read_bytes() == content
    made = commit(approve(scene, ""), YES, datetime.now(UTC))
    assert (made.created is not None, scene.path.read_bytes()) == (True, content)


def test_a_boundary_is_undone_after_an_old_client_continued(scene):
    before = scene.ids()
    scene.compact()
    continued_by_an_old_client(scene)
    scene.undo(live=True)
    assert set(before) <= set(scene.ids())


def test_a_session_that_a_client_has_open_is_not_restored(scene):
    backup = scene.compact().backup.path
    content = scene.path.read_bytes()
    register = place(
        scene.path.parents[2] / "sessions" / f"{os.getpid()}.json", json.dumps({"sessionId": SESSION_ID}).encode()
    )
    yes = RestoreConfirmations(live=True, drop_newer=True, unverified=True)
    assert refusal(lambda: restore(backup, yes, datetime.now(UTC))) == "4 open_in_agent"
    assert scene.path.read_bytes() == content
    register.unlink()
    restore(backup, yes, datetime.now(UTC))
    assert scene.path.read_bytes() == backup.read_bytes()


def test_the_session_of_a_subagent_is_not_planned(redline, scene):
    lines = [json.loads(line) for line in scene.path.read_bytes().splitlines()]
    content = "".join(json.dumps({**line, "isSidechain": True, "agentId": "a1"}) + "\n" for line in lines)
    subagent = place(scene.path.with_suffix("") / "subagents" / "agent-a1.jsonl", content.encode())
    row = index_file(subagent)
    assert row.is_subagent
    assert redline.call("compact", subagent, "--yes", "--json").error == "subagent"
    assert refusal(lambda: start_run(row, planner="embedded", requested_parameters={})) == "2 subagent"
    assert "subagent" in left_because(row, datetime.now(UTC), redline.home)
    assert subagent.read_bytes() == content.encode()

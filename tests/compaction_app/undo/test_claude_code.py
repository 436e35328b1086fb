"""Sessions of Claude Code are compacted by either writer, continued by the client, and undone, parallel calls as well,
but not where a client would be harmed."""

import json
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from compaction_app.changes.backups import restore
from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import Approved, commit
from compaction_app.models import Compaction
from compaction_app.runs.automatic import skipped_because
from compaction_app.runs.commands import start_run
from compaction_app.runs.forms import CompactForm
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import BadInput
from tests.claude_sessions import SESSION_ID, VERSION, ClaudeSession, call, text
from tests.files import backdate, place
from tests.installation import refusal
from tests.plans import approved_plan

from .scenes import Scene, claude_continues, claude_scene, claude_work


@dataclass
class Work:
    """A session whose first reply calls two tools at once; the result of the second call comes first."""

    scene: Scene
    lines: dict[str, str]
    """The ids of the lines of that reply and its results."""

    def pairs(self, *calls: str) -> list[str]:
        return [self.lines[name] for one in calls for name in (one, f"result {one}")]

    def delete(self, *calls: str) -> None:
        approved = approved_plan(self.scene.path, reader=self.scene.reader, writer=self.scene.writer)
        targets = tuple(map(Target, self.pairs(*calls)))
        origin = next(iter(approved.origins.values()))
        chosen = replace(approved, targets=targets, origins=dict.fromkeys(targets, origin))
        commit(chosen, Confirmations(live=True, below_target=True), datetime.now(UTC))
        backdate(self.scene.path)

    def undo(self, *entry_ids: str) -> None:
        """Undo the latest compaction; all of it has to be within reach."""
        assert self.scene.undo(*entry_ids, live=True).plan.out_of_reach == ()


@pytest.fixture
def work(redline):
    session = ClaudeSession("Read both.")
    _, first, second = session.reply("first", text("Reading."), call("a"), call("b"))
    later = session.result("b", "of b " * 400, parent=second)
    earlier = session.result("a", "of a " * 400, parent=first)
    for step in range(8):
        session.reply(f"m{step}", text(f"step {step}"), call(f"c{step}"))
        session.result(f"c{step}", f"result {step} " * 400)
    session.reply("m", text("Done."))
    for turn in range(3):
        session.user(f"turn {turn}")
        session.reply(f"t{turn}", text(f"answer {turn}"))
    lines = {"a": first, "b": second, "result b": later, "result a": earlier}
    return Work(claude_scene(redline, session), lines)


reply_ids = pytest.mark.parametrize("reply_id", ["later", "first"], ids=["another reply", "a reply with the same id"])
deletions = pytest.mark.parametrize("calls", ["ab", "a", "b"])


@reply_ids
@deletions
def test_parallel_calls_come_back_after_another_turn(work, calls, reply_id):
    before = work.scene.ids()
    work.delete(*calls)
    later = claude_continues(work.scene, reply_id)
    work.undo()
    assert work.scene.ids() == [*before, *later]


@reply_ids
@deletions
def test_one_of_several_entries_comes_back_with_its_pair(work, calls, reply_id):
    before, gone = work.scene.ids(), work.pairs(*calls)
    work.delete(*calls)
    later = claude_continues(work.scene, reply_id)
    work.scene.undo(gone[0], live=True)
    assert work.scene.ids() == [one for one in [*before, *later] if one not in gone[2:]]


@pytest.mark.parametrize(
    "reply_ids", [("later", "later again"), ("first", "first again"), ("first", "first")], ids=" and ".join
)
def test_of_two_compactions_the_later_one_is_undone_alone_and_then_the_other(work, reply_ids):
    before = work.scene.ids()
    work.delete("a")
    first = claude_continues(work.scene, reply_ids[0])
    work.delete("b")
    second = claude_continues(work.scene, reply_ids[1])
    work.undo()
    whole, gone = [*before, *first, *second], work.pairs("a")
    assert work.scene.ids() == [one for one in whole if one not in gone]
    work.undo()
    assert work.scene.ids() == whole


@reply_ids
def test_a_compaction_after_an_undone_one_is_undone(work, reply_id):
    before = work.scene.ids()
    work.delete("a", "b")
    work.undo()
    first = claude_continues(work.scene, reply_id)
    work.delete("b")
    second = claude_continues(work.scene, reply_id)
    work.undo()
    assert work.scene.ids() == [*before, *first, *second]


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
    assert each.ids(made.made.created) == [entry_id for entry_id in before if entry_id not in gone]
    assert (each.path.read_bytes() == content) is (each.writer == "fork")
    assert made.backup.path.read_bytes() == content
    assert each.undo(live=True).plan.way == ("edits" if each.writer == "boundary" else "removal")
    assert each.ids() == before
    assert made.made.created is None or not made.made.created.exists()


def test_single_entries_come_back_after_more_was_said(scene):
    before, made = scene.ids(), scene.compact()
    line = json.loads(scene.path.read_bytes().splitlines()[-1])
    assert line["compactMetadata"]["redline"] == {"backup": str(made.backup.path)}
    kept, later = scene.ids(), claude_continues(scene, "later")
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
    approved_before, content = approve(scene, "boundary"), continued_by_an_old_client(scene)
    row = index_file(scene.path)
    assert [writer.name for writer in CompactForm(row, {}).writers] == ["fork"]
    with pytest.raises(BadInput, match=r"version 2\.1\.112 .* Continue the session once"):
        start_run(row, planner="embedded", requested_parameters={}, writer="boundary")
    assert redline.call("compact", scene.path, "--yes", "--save-as", "boundary", "--json").refusal == "2 refused_writer"
    assert refusal(lambda: commit(approved_before, YES, datetime.now(UTC))) == "2 refused_writer"
    assert scene.path.read_bytes() == content
    made = commit(approve(scene, ""), YES, datetime.now(UTC))
    assert (made.made.created is not None, scene.path.read_bytes()) == (True, content)


def test_a_boundary_is_undone_after_an_old_client_continued(scene):
    before = scene.ids()
    scene.compact()
    continued_by_an_old_client(scene)
    scene.undo(live=True)
    assert set(before) <= set(scene.ids())


def test_a_session_that_a_client_has_open_is_not_restored(scene):
    backup, content = scene.compact().backup.path, scene.path.read_bytes()
    register = place(
        scene.path.parents[2] / "sessions" / f"{os.getpid()}.json", json.dumps({"sessionId": SESSION_ID}).encode()
    )
    yes = Confirmations(live=True, drop_newer=True, unverified=True)
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
    assert "subagent" in skipped_because(row, datetime.now(UTC), redline.home)
    assert subagent.read_bytes() == content.encode()

"""A session of Claude Code with parallel calls is compacted, continued by the client, and undone."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import commit
from sessions_app.sessionlog.targets import Target
from tests.claude_sessions import ClaudeSession, call, text
from tests.files import backdate
from tests.plans import approved_plan

from .scenes import Scene, claude_continues, claude_scene


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
    session = ClaudeSession()
    session.user("Read both.")
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

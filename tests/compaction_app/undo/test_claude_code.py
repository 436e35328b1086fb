"""A session of Claude Code with parallel calls is compacted, continued by the client, and undone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import commit
from compaction_app.session_page.reader_selection import select_reader
from compaction_app.undo.plan import UndoConfirmations
from compaction_app.undo.service import UndoRequest, planned, undo
from sessions_app.agents.registry import READERS
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import SESSION_ID, ClaudeSession, call, text
from tests.files import backdate, place
from tests.installation import Installation
from tests.plans import approved_plan

READER: Final = "claude-code"
YES: Final = Confirmations(live=True, below_target=True)


@dataclass
class Work:
    """A session whose first reply calls two tools at once; the result of the second call comes first."""

    path: Path
    lines: dict[str, str]
    """The ids of the lines of that reply and its results."""

    def ids(self) -> list[str]:
        loaded = load_session(self.path)
        branch = loaded.tree.branch(loaded.leaf_id)
        return [message.entry.id for message in READERS[READER].rebuild(branch).messages]

    def delete(self, *entry_ids: str) -> None:
        approved = approved_plan(self.path, reader=READER, writer="boundary")
        targets = tuple(Target(entry_id) for entry_id in entry_ids)
        origin = next(iter(approved.origins.values()))
        commit(
            replace(approved, targets=targets, origins=dict.fromkeys(targets, origin)), YES, datetime.now(UTC)
        )
        backdate(self.path)

    def resume(self, reply_id: str) -> list[str]:
        """One more turn, which the client hangs on the last line that it was shown."""
        session = ClaudeSession()
        session.lines, session.last = self.path.read_bytes().splitlines(), self.ids()[-1]
        added = [session.user("And now?"), *session.reply(reply_id, text("Later."))]
        self.path.write_bytes(session.content)
        backdate(self.path)
        return added

    def undo(self, *entry_ids: str) -> tuple[Target, ...]:
        """Undo the latest compaction; returns what was out of reach."""
        request = UndoRequest(load_session(self.path), entry_ids=entry_ids)
        plan = planned(request, datetime.now(UTC))
        undo(request, UndoConfirmations(live=True), datetime.now(UTC), shown=plan.digest())
        backdate(self.path)
        return plan.out_of_reach


@pytest.fixture
def work(redline: Installation) -> Work:
    session = ClaudeSession()
    session.user("Read both.")
    said, first, second = session.reply("first", text("Reading."), call("a"), call("b"))
    later = session.result("b", "of b " * 400, parent=second)
    earlier = session.result("a", "of a " * 400, parent=first)
    for step in range(8):
        session.reply(f"m{step}", text(f"step {step}"), call(f"c{step}"))
        session.result(f"c{step}", f"result {step} " * 400)
    session.reply("m", text("Done."))
    for turn in range(3):
        session.user(f"turn {turn}")
        session.reply(f"t{turn}", text(f"answer {turn}"))
    directory = redline.home / ".claude" / "projects" / "-home-dev-project"
    directory.mkdir(parents=True)
    path = place(directory / f"{SESSION_ID}.jsonl", session.content)
    select_reader(index_file(path), READER)
    lines = {"said": said, "a": first, "b": second, "result b": later, "result a": earlier}
    return Work(path, lines)


reply_ids = pytest.mark.parametrize(
    "reply_id", ["later", "first"], ids=["another reply", "a reply with the same id"]
)
deletions = pytest.mark.parametrize(
    "calls", [("a", "b"), ("a",), ("b",)], ids=["both", "the first", "the second"]
)


def pairs(work: Work, calls: tuple[str, ...]) -> list[str]:
    return [work.lines[name] for one in calls for name in (one, f"result {one}")]


@reply_ids
@deletions
def test_parallel_calls_come_back_after_another_turn(
    work: Work, calls: tuple[str, ...], reply_id: str
) -> None:
    before = work.ids()
    work.delete(*pairs(work, calls))
    later = work.resume(reply_id)
    assert work.undo() == ()
    assert work.ids() == [*before, *later]


@reply_ids
@deletions
def test_one_of_several_entries_comes_back_with_its_pair(
    work: Work, calls: tuple[str, ...], reply_id: str
) -> None:
    before, gone = work.ids(), pairs(work, (*calls,))
    work.delete(*gone)
    later = work.resume(reply_id)
    work.undo(gone[0])
    assert work.ids() == [one for one in [*before, *later] if one not in gone[2:]]


@reply_ids
def test_the_latest_of_two_compactions_is_undone_alone(work: Work, reply_id: str) -> None:
    before = work.ids()
    work.delete(*pairs(work, ("a",)))
    first = work.resume(reply_id)
    work.delete(*pairs(work, ("b",)))
    second = work.resume(f"{reply_id} again")
    assert work.undo() == ()
    gone = pairs(work, ("a",))
    assert work.ids() == [one for one in [*before, *first, *second] if one not in gone]


@reply_ids
def test_a_compaction_after_an_undone_one_is_undone(work: Work, reply_id: str) -> None:
    before = work.ids()
    work.delete(*pairs(work, ("a", "b")))
    assert work.undo() == ()
    first = work.resume(reply_id)
    work.delete(*pairs(work, ("b",)))
    second = work.resume(reply_id)
    assert work.undo() == ()
    assert work.ids() == [*before, *first, *second]


def test_two_compactions_with_a_turn_between_them_are_undone_one_by_one(work: Work) -> None:
    before = work.ids()
    work.delete(*pairs(work, ("a",)))
    first = work.resume("first")
    work.delete(*pairs(work, ("b",)))
    second = work.resume("first")
    assert (work.undo(), work.undo()) == ((), ())
    assert work.ids() == [*before, *first, *second]

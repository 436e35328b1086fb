"""Promises of summaries: what a model is shown, what stays, what is appended, and that the agent rebuilds that."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compaction_app.changes.change import Applied, Confirmations
from compaction_app.changes.entries import append_entries, move_to
from compaction_app.core.summary_prompt import SummaryKind
from compaction_app.models import AuditEntry, Backup
from compaction_app.summaries.summary_task import SummaryTask, branch_task, compaction_task
from sessions_app.document.document import Document
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.errors import BadInput
from tests.factories import assistant, call, chain, result, session_bytes, turns_of_work, user
from tests.files import backdate, place
from tests.installation import Installation, refusal
from tests.paths import sessions_to_try

CONFIRMED = Confirmations(live=True)
LONG = "word " * 4_000
"""About 5,000 tokens."""


def placed(redline: Installation, recorded: list[dict[str, Any]]) -> Path:
    return place(redline.home / ".pi" / "agent" / "sessions" / "s.jsonl", session_bytes(recorded))


def append(task: SummaryTask, words: str) -> Applied:
    path = task.present.path
    appended = append_entries(path, task.change(words), CONFIRMED, datetime.now(UTC))
    backdate(path)
    return appended


def context_of(path: Path) -> ActiveContext:
    return Document.to_change(path).context()


def last_line(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes().splitlines()[-1])


def test_a_compaction_replaces_what_precedes_the_recent_tokens(redline):
    path = placed(redline, turns_of_work(turns=8))
    task = compaction_task(path)
    assert task.parts[0].kind is SummaryKind.HISTORY
    before = context_of(path)
    append(task, "## Goal\nThe cache.")
    after = context_of(path)
    assert after.messages[0].role == Role.COMPACTION_SUMMARY
    kept = [message.entry.id for message in before.messages if message.entry.id in (task.kept_ids or ())]
    assert [message.entry.id for message in after.messages[1:]] == kept
    recorded = last_line(path)
    assert recorded["firstKeptEntryId"] == task.first_kept_id
    assert recorded["tokensBefore"] == task.tokens_before
    assert recorded["details"]["readFiles"] == list(task.files.read)
    assert recorded["summary"].startswith("## Goal\nThe cache.\n\n<read-files>\nsrc/cache_0.py\n")


def test_the_summary_before_is_updated_and_its_files_are_kept(redline):
    path = placed(redline, turns_of_work(turns=8))
    append(compaction_task(path), "First notes.")
    longer = path.read_bytes()
    more = [
        {**one, "id": f"more{number}", "parentId": f"more{number - 1}"}
        for number, one in enumerate(turns_of_work(turns=8)[1:])
    ]
    more[0]["parentId"] = last_line(path)["id"]
    path.write_bytes(longer + b"".join(json.dumps(one).encode() + b"\n" for one in more))
    backdate(path)
    task = compaction_task(path)
    assert task.parts[0].previous.startswith("First notes.")
    assert "src/cache_0.py" in task.files.read


def test_a_turn_that_is_divided_has_a_part_of_its_own(redline):
    messages = [user("One long question.")]
    for number in range(8):
        name = f"c{number}"
        messages += [assistant(call(name, path=f"{number}.py")), result(name, LONG)]
    task = compaction_task(placed(redline, chain(*messages)))
    assert [part.kind for part in task.parts] == [SummaryKind.TURN]
    joined = task.text_of({SummaryKind.HISTORY: "before", SummaryKind.TURN: "within"})
    assert joined.startswith("before")
    assert joined.endswith("within")
    updated = replace(task, previous="First notes.").text_of({SummaryKind.TURN: "within"})
    assert updated.startswith("First notes."), "the summary before is not lost with a turn alone"


def test_a_summary_on_the_branch_that_is_left_is_part_of_it(redline):
    path = placed(redline, turns_of_work(turns=8))
    append(compaction_task(path), "Notes on the cache.")
    assert "Notes on the cache." in branch_task(path, "e4").parts[0].conversation


def test_the_words_of_the_user_are_the_focus_and_the_check_counts_what_a_draft_mentions(redline):
    task = compaction_task(placed(redline, turns_of_work(turns=8)), "the import paths")
    assert {part.focus for part in task.parts} == {"the import paths"}
    silent, telling = task.judge("Nothing."), task.judge("Question 0: look at the cache.")
    assert len(telling.still.messages) == len(silent.still.messages) + 1
    assert len(silent.still.paths) == len(silent.subjects.paths), "the lists of files name them"


def test_a_short_session_has_nothing_to_summarise_and_an_empty_summary_is_refused(redline):
    assert refusal(lambda: compaction_task(placed(redline, turns_of_work(turns=1)))) == "2 nothing_to_summarise"
    assert refusal(lambda: compaction_task(placed(redline, turns_of_work(turns=8))).change(" \n")) == "2 empty_summary"


def test_a_summary_of_the_branch_that_a_move_leaves_and_to_which_one_can_return(redline):
    path = placed(redline, turns_of_work(turns=3))
    task = branch_task(path, "e4")
    assert [entry.id for entry in task.replaced] == [f"e{number}" for number in range(5, 13)]
    assert task.parts[0].conversation.startswith("[User]: Question 1")
    assert "[Tool result]" not in task.parts[0].conversation
    appended = append(task, "We tried the other way.")
    recorded = last_line(path)
    assert (recorded["parentId"], recorded["fromId"]) == ("e4", "e12")
    after = context_of(path)
    assert [message.entry.id for message in after.messages] == ["e1", "e2", "e3", "e4", appended.made.entry_id]
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.writer) == (AuditEntry.Action.SUMMARY, "of 8 entries that were left")
    assert Backup.objects.get().reason == Backup.Reason.ENTRIES
    append_entries(path, move_to("e12"), CONFIRMED, datetime.now(UTC))
    assert [message.entry.id for message in context_of(path).messages][-1] == "e12"


def test_a_move_forward_leaves_nothing_and_one_to_the_first_question_everything(redline):
    path = placed(redline, turns_of_work(turns=2))
    assert refusal(lambda: branch_task(path, "e8")) == "2 nothing_left"
    append(branch_task(path, "e1"), "All of it.")
    assert last_line(path)["parentId"] is None
    assert [message.role for message in context_of(path).messages] == [Role.BRANCH_SUMMARY]


def test_a_draft_is_not_appended_to_a_session_that_continued(redline):
    path = placed(redline, turns_of_work(turns=8))
    task = compaction_task(path)
    more = {**user("More."), "id": "more", "parentId": task.present.leaf_id}
    path.write_bytes(path.read_bytes() + json.dumps(more).encode() + b"\n")
    backdate(path)
    before = path.read_bytes()
    assert (refusal(lambda: append(task, "Notes.")), path.read_bytes()) == ("4 session_moved", before)


def task_if_any(path: Path) -> SummaryTask | None:
    """The compaction of a real session, unless it is too short or cannot be written to."""
    try:
        return compaction_task(path)
    except BadInput as refused:
        if refused.code in ("nothing_to_summarise", "no_header", "needs_migration"):
            return None
        raise


def test_what_a_compaction_of_each_real_session_leaves_is_proven(redline, tmp_path):
    compacted = 0
    for source in sessions_to_try(tmp_path):
        path = redline.home / ".pi" / "agent" / "sessions" / source.name
        task = task_if_any(place(path, source.read_bytes()))
        if task is None:
            continue
        append(task, "Notes.")
        compacted += 1
        first, *kept = context_of(path).messages
        assert first.role == Role.COMPACTION_SUMMARY
        assert {message.entry.id for message in kept} <= (task.kept_ids or frozenset())
    assert compacted

"""A compaction is undone, as a whole or by entry, so that the agent's context has exactly what it had before; that of a
real session, too, if there is one."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compaction_app.changes.backups import restore
from compaction_app.changes.change import Applied, Confirmations
from compaction_app.changes.undo import planned, undo
from compaction_app.core.undo_ways import UndoWay
from compaction_app.models import AuditEntry, Backup, Compaction, Undo
from sessions_app.agents.pi.pure.format import PiFormat
from sessions_app.document.document import Document
from sessions_app.index.index_store import session_row
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.session_loader import load_session
from tests.budget import long_except, some
from tests.factories import assistant, call, compaction, message, result, whole as target
from tests.files import backdate, place, snapshot, unchanged
from tests.installation import Installation
from tests.paths import sessions_to_try
from tests.processes import holding

from .scenes import Scene, deleted_by, only_compaction, refused, scene

IN_PLACE = [("atomic-0.8", "context-compaction"), ("pi", "context-edit")]


@pytest.fixture(params=IN_PLACE, ids=lambda pair: pair[1])
def in_place(redline, request):
    return scene(redline, *request.param)


@pytest.fixture
def atomic(redline):
    return scene(redline, "atomic-0.8", "context-compaction")


@pytest.fixture
def pi(redline):
    return scene(redline, "pi", "context-edit")


@pytest.fixture(params=long_except(["atomic-0.8"], ["atomic-0.8", "pi"]))
def fork(redline, request):
    return scene(redline, request.param, "fork")


def since(parent: str, kind: str, **fields: object) -> dict[str, Any]:
    """An entry of the agent's, after `parent`."""
    return {"type": kind, "id": f"the {kind}", "parentId": parent, "timestamp": "t", **fields}


def test_if_nothing_was_said_since_one_recorded_line_takes_the_whole_compaction_back(in_place):
    before, leaf_id = in_place.context(), load_session(in_place.path).leaf_id
    committed, compacted = in_place.compact(), in_place.path.read_bytes()
    assert in_place.context() != before

    undone = in_place.undo()
    assert undone.plan.way is UndoWay.LEAF
    assert in_place.context() == before
    written = in_place.path.read_bytes()
    assert written.startswith(compacted)
    line = json.loads(written[len(compacted) :])
    assert list(line) == ["type", "id", "parentId", "timestamp", "customType"]
    assert (line["type"], line["parentId"], line["customType"]) == ("custom", leaf_id, "redline.undo")
    assert undone.backup.path.read_bytes() == compacted

    row = Undo.objects.get()
    assert (row.compaction, row.undone, row.way, row.is_whole) == (
        only_compaction(),
        committed.made.entry_id,
        "leaf",
        True,
    )
    assert (row.entry_id, row.leaf_id) == (undone.made.entry_id, only_compaction().leaf_id)
    assert (row.backup.path, row.backup.reason) == (str(undone.backup.path), Backup.Reason.UNDO)
    entry = AuditEntry.objects.get(action=AuditEntry.Action.UNDO)
    assert (entry.bytes_before, entry.bytes_after) == (len(compacted), in_place.path.stat().st_size)
    assert entry.targets == [target.to_json() for target in deleted_by(committed)]
    assert entry.backup == str(undone.backup.path)


def test_a_name_or_a_label_given_since_does_not_count_as_said(in_place):
    before = in_place.context()
    named = since(in_place.compact().made.entry_id, "session_info", name="x")
    in_place.append(named, since(named["id"], "label", targetId="e1", label="y"))
    assert in_place.undo().plan.way is UndoWay.LEAF
    assert in_place.context() == before


def test_a_model_chosen_since_is_not_undone_with_the_compaction(in_place):
    in_place.append(since(in_place.compact().made.entry_id, "model_change", provider="acme", modelId="m"))
    undone = in_place.undo()
    assert undone.plan.way is (UndoWay.EDITS if in_place.writer == "context-edit" else UndoWay.FORK)
    assert b'"model_change"' in (undone.made.created or in_place.path).read_bytes()


def test_after_later_conversation_pi_gets_every_entry_back_in_place(pi):
    before, committed = pi.context(), pi.compact()
    pi.continue_with("Go on.", "Done.")
    continued, later = pi.path.read_bytes(), pi.context()[-2:]

    undone = pi.undo()
    assert undone.plan.way is UndoWay.EDITS
    assert pi.context() == [*before, *later]
    assert pi.path.read_bytes().startswith(continued)
    edits = pi.last_lines(len(undone.made.lines))
    assert {edit["type"] for edit in edits} == {"context_edit"}
    assert {edit["targetId"] for edit in edits} == {target.entry_id for target in deleted_by(committed)}
    assert [edit["parentId"] for edit in edits[1:]] == [edit["id"] for edit in edits[:-1]]
    # A call comes back before its result.
    targets = [edit["targetId"] for edit in edits]
    assert targets == sorted(targets, key=lambda entry_id: int(entry_id[1:]))


def test_after_later_conversation_atomic_gets_a_new_session_with_everything(atomic):
    before = atomic.context()
    atomic.compact()
    atomic.continue_with("Go on.", "Done.")
    continued, later = atomic.path.read_bytes(), atomic.context()[-2:]

    undone = atomic.undo()
    assert undone.plan.way is UndoWay.FORK
    assert atomic.path.read_bytes() == continued
    assert without_usage(atomic.context(undone.made.created)) == without_usage([*before, *later])
    assert json.loads(undone.made.created.read_bytes().splitlines()[0])["parentSession"] == str(atomic.path)
    assert Undo.objects.get().created == str(undone.made.created)


def without_usage(messages: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in one.items() if name != "usage"} for one in messages]


def test_the_new_session_of_a_compaction_is_deleted_while_nobody_has_written_to_it(fork):
    before, original = fork.context(), fork.path.read_bytes()
    committed = fork.compact()
    assert fork.undo().plan.way is UndoWay.REMOVAL
    assert not committed.made.created.exists()
    assert fork.path.read_bytes() == original
    assert fork.context() == before
    assert Undo.objects.get().backup is None
    entry = AuditEntry.objects.get(action=AuditEntry.Action.UNDO)
    assert entry.session == str(committed.made.created)
    assert entry.bytes_after is None


@pytest.mark.parametrize("added", [b'{"type":"custom","id":"x","parentId":null}\n', b" "])
def test_a_new_session_that_has_continued_is_not_deleted(fork, added):
    committed = fork.compact()
    with committed.made.created.open("ab") as file:
        file.write(added)
    backdate(committed.made.created)
    with unchanged(fork.path.parent):
        assert refused(fork.undo) == "session_changed"
    assert not Undo.objects.exists()


def test_a_new_session_that_is_open_elsewhere_is_not_deleted(fork):
    committed = fork.compact()
    with holding(committed.made.created):
        assert refused(lambda: fork.undo(live=True)) == "open_elsewhere"
        assert committed.made.created.exists()


def test_what_is_undone_is_not_undone_again_but_the_same_plan_can_be_written_and_undone_again(in_place):
    before, committed = in_place.context(), in_place.compact()
    compacted, again = in_place.context(), partial(in_place.undo, name=committed.made.entry_id)
    in_place.undo()
    content = in_place.path.read_bytes()
    assert [refused(in_place.undo), refused(again)] == ["no_compaction", "undone_already"]
    in_place.compact()
    assert in_place.context() == compacted
    assert in_place.undo().plan.way is UndoWay.LEAF
    assert in_place.context() == before
    in_place.continue_with("Go on.")
    assert refused(again) == "undone_already"
    assert in_place.path.read_bytes().startswith(content)


def test_two_compactions_are_undone_one_after_the_other(in_place):
    before, first = in_place.context(), in_place.compact(compression_ratio=0.8)
    between = in_place.context()
    in_place.compact(compression_ratio=0.3)
    assert in_place.undo().plan.way is UndoWay.LEAF
    assert in_place.context() == between
    undone = in_place.undo()
    assert undone.plan.state.undone_id == first.made.entry_id
    assert undone.plan.way is UndoWay.LEAF
    assert in_place.context() == before


def test_in_pi_both_compactions_are_undone_by_edits_after_later_conversation(pi):
    before = pi.context()
    pi.compact(compression_ratio=0.8)
    pi.compact(compression_ratio=0.3)
    pi.continue_with("Go on.", "Done.")
    later = pi.context()[-2:]
    for _ in range(2):
        assert pi.undo().plan.way is UndoWay.EDITS
    assert pi.context() == [*before, *later]
    assert refused(pi.undo) == "no_compaction"


def test_the_first_of_two_compactions_is_undone_under_the_second(in_place):
    """What the second one deletes stays deleted."""
    before, first = in_place.context(), in_place.compact(compression_ratio=0.8)
    second, undone = in_place.compact(compression_ratio=0.3), in_place.undo(name=first.made.entry_id)
    gone = {target.entry_id for target in deleted_by(second) if target.block_index is None}
    found = in_place.context(undone.made.created)
    assert not gone & {one.entry.id for one in undone.plan.without.messages}
    assert len(found) == len(before) - len(gone)


def whole(undone: Applied) -> list[Target]:
    """The entries that stay deleted as a whole."""
    return [target for target in undone.plan.remaining if target.block_index is None]


def a_result_of(scene: Scene, committed: object) -> str:
    tree = load_session(scene.path).tree
    entries = (tree.entry(target.entry_id) for target in deleted_by(committed))
    return next(entry.id for entry in entries if entry.result_for is not None)


def test_a_result_comes_back_with_its_call(in_place):
    before, result_id = in_place.context(), a_result_of(in_place, in_place.compact())
    undone = in_place.undo(result_id)
    assert undone.plan.way is (UndoWay.EDITS if in_place.writer == "context-edit" else UndoWay.SMALLER)
    assert {target.entry_id for target in undone.plan.back} == {result_id, f"e{int(result_id[1:]) - 1}"}
    assert {target.entry_id for target in undone.plan.wanted} == {result_id}
    context, place = in_place.context(), int(result_id[1:]) - 1
    assert before[place] in context
    assert before[place - 1] in context
    assert len(context) < len(before)
    assert not Undo.objects.get().is_whole
    assert AuditEntry.objects.filter(action=AuditEntry.Action.BRING_BACK).count() == 1


def test_the_rest_is_undone_after_some_entries_came_back(in_place):
    before, committed = in_place.context(), in_place.compact()
    in_place.undo(a_result_of(in_place, committed))
    for entry_id in (a_result_of(in_place, committed), "e1"):
        assert refused(partial(in_place.undo, entry_id)) == "not_deleted"
    undone = in_place.undo()
    assert undone.plan.way is UndoWay.LEAF
    assert undone.plan.state.undone_id == committed.made.entry_id
    assert in_place.context() == before
    assert refused(in_place.undo) == "no_compaction"


def test_bringing_back_one_by_one_ends_with_the_context_before(in_place):
    before, committed = in_place.context(), in_place.compact(compression_ratio=0.7)
    left = [target.entry_id for target in deleted_by(committed)]
    while left:
        back = {target.entry_id for target in in_place.undo(left[0]).plan.back}
        left = [entry_id for entry_id in left if entry_id not in back]
    assert in_place.context() == before
    assert Undo.objects.count() > 1
    assert refused(lambda: in_place.undo(name=committed.made.entry_id)) == "undone_already"


def test_after_later_conversation_atomic_gets_a_new_session_with_just_these_entries(atomic):
    before, committed = atomic.context(), atomic.compact()
    atomic.continue_with("Go on.")
    undone = atomic.undo(a_result_of(atomic, committed))
    assert undone.plan.way is UndoWay.FORK
    assert len(atomic.context(undone.made.created)) == len(before) + 1 - len(whole(undone))


def test_single_entries_of_a_fork_come_back_in_another_fork(fork):
    before, committed = fork.context(), fork.compact()
    undone = fork.undo(a_result_of(fork, committed))
    assert undone.plan.way is UndoWay.FORK
    assert undone.made.created not in (None, committed.made.created)
    assert len(fork.context(undone.made.created)) == len(before) - len(whole(undone))
    fork.continue_with("Go on.")
    assert refused(lambda: fork.undo(a_result_of(fork, committed))) == "original_continued"


def test_entries_that_were_summarised_since_do_not_come_back(pi):
    pi.compact()
    leaf_id = load_session(pi.path).leaf_id
    pi.append(since(leaf_id, "compaction", summary="All.", firstKeptEntryId=leaf_id, tokensBefore=1))
    with unchanged(pi.path.parent):
        assert refused(pi.undo) == "summarised"


def test_an_entry_that_was_edited_again_is_not_overwritten(pi):
    committed = pi.compact()
    result_id = a_result_of(pi, committed)
    short = {"content": [{"type": "text", "text": "short"}]}
    pi.append(since(committed.made.entry_id, "context_edit", targetId=result_id, replacement=short))
    assert refused(pi.undo) == "compacted_again"


def test_what_providers_would_refuse_does_not_come_back(in_place):
    """The agent has used the id of a deleted call again."""
    committed = in_place.compact()
    result_id = a_result_of(in_place, committed)
    used = load_session(in_place.path).tree.entry(result_id).result_for
    assert used is not None
    again = [message("again", committed.made.entry_id, assistant(call(used))), message("answer", "again", result(used))]
    in_place.append(*again)
    with unchanged(in_place.path.parent):
        for act in (in_place.undo, partial(in_place.undo, result_id)):
            assert refused(act) == "breaks_conversation"


def test_a_new_session_is_not_deleted_without_a_record_of_its_bytes(fork, monkeypatch):
    committed = fork.compact()
    monkeypatch.setattr("compaction_app.changes.undo.content_written", lambda _: None)
    assert refused(fork.undo) == "not_recorded"
    assert committed.made.created.exists()


def test_a_live_session_and_a_torn_line_need_confirmations(in_place):
    before = in_place.context()
    in_place.compact()
    in_place.append(b'{"type":"mess')
    with unchanged(in_place.path):
        in_place.path.touch()
        assert refused(in_place.undo) == "session_live"
        backdate(in_place.path)
        assert refused(in_place.undo) == "torn_last_line"
    in_place.undo(after_torn_line=True)
    assert in_place.context() == before


def test_what_was_shown_is_undone_or_nothing(in_place):
    in_place.compact()
    request = in_place.request()
    shown = planned(request, datetime.now(UTC)).digest()
    in_place.continue_with("Go on.")
    with unchanged(in_place.path.parent):
        assert refused(partial(undo, request, Confirmations(), datetime.now(UTC), shown=shown)) == "plan_differs"


def test_a_compaction_that_a_restore_removed_has_nothing_to_undo(in_place):
    committed = in_place.compact()
    restore(committed.backup.path, Confirmations(drop_newer=True), datetime.now(UTC))
    backdate(in_place.path)
    assert refused(lambda: in_place.undo(name=committed.made.entry_id)) == "not_in_session"
    assert refused(in_place.undo) == "no_compaction"


def test_a_restore_of_the_backup_of_an_undo_puts_the_compaction_back_in_force(in_place):
    in_place.compact()
    compacted = in_place.context()
    restore(in_place.undo().backup.path, Confirmations(drop_newer=True), datetime.now(UTC))
    backdate(in_place.path)
    assert in_place.context() == compacted
    assert in_place.undo().plan.way is UndoWay.LEAF


def test_a_compaction_without_a_record_is_undone_by_its_line(atomic):
    before = atomic.context()
    atomic.compact()
    Compaction.objects.all().delete()
    assert atomic.undo().plan.way is UndoWay.LEAF
    assert atomic.context() == before
    assert Undo.objects.get().compaction is None


def test_a_compaction_that_the_agent_ignores_since_an_update_is_not_undone(atomic):
    atomic.compact()
    Session.objects.update(reader="atomic-0.9")
    before = snapshot(atomic.path)
    with pytest.raises(RedlineError, match="ignores the compaction") as caught:
        atomic.undo()
    assert (caught.value.code, snapshot(atomic.path)) == ("not_in_force", before)


def test_a_compaction_that_is_not_redlines_is_not_undone(atomic):
    leaf_id = load_session(atomic.path).leaf_id
    atomic.append({**compaction(target("e3")), "id": "own", "parentId": leaf_id, "timestamp": "t"})
    assert refused(atomic.undo) == "no_compaction"
    assert refused(lambda: atomic.undo(name="own")) == "not_ours"
    assert refused(lambda: atomic.undo(name="missing")) == "unknown_entry"


def test_a_change_that_would_not_give_the_context_is_not_written(pi, monkeypatch):
    def wrong(self: PiFormat, entry_id: str, *rest: object, **options: object) -> bytes:
        return json.dumps({"type": "custom", "id": entry_id, "parentId": "e1", "timestamp": "t"}).encode()

    pi.compact()
    monkeypatch.setattr(PiFormat, "leaf_line", wrong)
    with unchanged(pi.path.parent):
        assert refused(pi.undo) == "not_proven"
    assert not Undo.objects.exists()


def test_the_agent_of_a_session_is_still_the_same_after_an_undo(atomic):
    """A smaller compaction is Redline's own line: it does not show that the session is Atomic's."""
    atomic.undo(a_result_of(atomic, atomic.compact()))
    assert Undo.objects.get().entry_id in session_row(atomic.path).own_entries
    assert Document.to_change(atomic.path).reading.reader.name == "atomic-0.8"


SESSIONS = {"pi": ".pi/agent/sessions", "atomic-0.8": ".atomic/agent/sessions"}


def real_scenes(redline: Installation, directory: Path, reader: str, writer: str) -> Iterator[Scene]:
    """Real sessions that can be written to, or a generated one: a few of them, and in `make test-long` all."""
    for number, path in enumerate(some(sessions_to_try(directory), every=4)):
        log = load_session(path).log
        if log.header is not None and log.version == 3:
            yield Scene(place(redline.home / SESSIONS[reader] / f"{number}.jsonl", path.read_bytes()), reader, writer)


@pytest.mark.parametrize("continues", [False, True], ids=["at-once", "continued"])
@pytest.mark.parametrize(("reader", "writer"), IN_PLACE)
def test_a_real_session_has_its_context_again(redline, tmp_path, reader, writer, continues):
    rng, tried = random.Random(7), 0
    for real in real_scenes(redline, tmp_path, reader, writer):
        before, later = real.context(), []
        committed = real.compact()
        if continues:
            real.continue_with("Go on.", "Done.")
            later = real.context()[-2:]
        compacted = real.path.read_bytes()
        undone = real.undo(rng.choice(deleted_by(committed)).entry_id, live=True)
        if undone.made.created is not None or not undone.plan.is_whole:
            undone = real.undo(live=True)
        assert real.path.read_bytes().startswith(compacted)
        assert without_usage(real.context(undone.made.created)) == without_usage([*before, *later])
        tried += 1
    assert tried


@pytest.mark.parametrize("reader", ["atomic-0.8", "pi"])
def test_a_real_session_is_as_it_was_after_the_undo_of_a_fork(redline, tmp_path, reader):
    for real in real_scenes(redline, tmp_path, reader, "fork"):
        content, committed = real.path.read_bytes(), real.compact()
        real.undo(live=True)
        assert not committed.made.created.exists()
        assert real.path.read_bytes() == content

"""A writer with a bug writes nothing: what the agent would rebuild is compared with what was approved; certificates."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction_app.changes import compaction
from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import Preflight, commit
from compaction_app.changes.proof import certificate_in
from compaction_app.models import AuditEntry, Backup, Compaction
from compaction_app.pages.commit import certify_again
from sessions_app.agents.pure.formats import Append, Change, NewFile, WriteFacts
from sessions_app.agents.registry import reading_by
from sessions_app.index.index_store import session_row
from sessions_app.index.indexer import index_file, select_reader
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Deletion, Entry, Target
from sessions_app.sessionlog.errors import BadInput, SystemFailure
from tests.factories import assistant, chain, session_bytes, text, user, working_session
from tests.files import place, snapshot
from tests.installation import refusal
from tests.plans import approved_plan, context_ids

Write = Callable[[Any, Sequence[Entry], Deletion, WriteFacts], Change]
Bug = Callable[[Write], Write]

KEPT = "e27"
"""An entry of the session that no plan deletes."""
LAST_WORDS = b"Now the tests."


def with_targets(change: Callable[[tuple[Target, ...]], tuple[Target, ...]]) -> Bug:
    """The writer deletes other targets than were approved."""

    def bug(write: Write) -> Write:
        return lambda one, branch, deletion, facts: write(
            one, branch, replace(deletion, targets=change(deletion.targets)), facts
        )

    return bug


def with_lines(change: Callable[[Iterable[bytes]], Iterable[bytes]]) -> Bug:
    """The writer writes other lines than it should."""

    def bug(write: Write) -> Write:
        def changed(one: Any, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Change:
            found = write(one, branch, deletion, facts)
            if isinstance(found, Append):
                return Append(tuple(change(found.lines)))
            return NewFile(found.name, change(found.pieces))

        return changed

    return bug


def replace_last_words(lines: Iterable[bytes]) -> list[bytes]:
    """The last message says something else: in a fork by its line, otherwise by one more edit."""
    lines = list(lines)
    if lines[0].startswith(b'{"type":"session"'):
        return [line.replace(LAST_WORDS, b"Now the texts.") for line in lines]
    edit = json.loads(lines[-1])
    replacement = {"content": "Now the texts."}
    edit |= {"id": "0badcafe", "parentId": edit["id"], "targetId": KEPT, "replacement": replacement}
    return [*lines, json.dumps(edit).encode()]


LOSES_AN_ENTRY = with_targets(lambda targets: (*targets, Target(KEPT)))
FORGETS_A_TARGET = with_targets(lambda targets: targets[1:])
ALTERS_A_TEXT = with_lines(replace_last_words)
LOSES_A_LINE = with_lines(lambda lines: list(lines)[:-2])


@pytest.mark.parametrize(
    ("reader", "writer", "bug"),
    [
        pytest.param("atomic-0.8", "context-compaction", LOSES_AN_ENTRY, id="deletion loses an entry"),
        pytest.param("atomic-0.8", "context-compaction", FORGETS_A_TARGET, id="deletion forgets a target"),
        pytest.param("pi", "context-edit", LOSES_AN_ENTRY, id="edits lose an entry"),
        pytest.param("pi", "context-edit", FORGETS_A_TARGET, id="edits forget a target"),
        pytest.param("pi", "context-edit", ALTERS_A_TEXT, id="edits alter a text"),
        pytest.param("pi", "fork", LOSES_AN_ENTRY, id="fork loses an entry"),
        pytest.param("pi", "fork", FORGETS_A_TARGET, id="fork forgets a target"),
        pytest.param("pi", "fork", ALTERS_A_TEXT, id="fork alters a text"),
        pytest.param("pi", "fork", LOSES_A_LINE, id="fork loses a line"),
        pytest.param("atomic-0.9", "fork", ALTERS_A_TEXT, id="fork for Atomic alters a text"),
    ],
)
def test_a_writer_with_a_bug_writes_nothing(redline, monkeypatch, reader, writer, bug):
    path = place(redline.sessions / "s.jsonl", session_bytes(working_session()))
    select_reader(index_file(path), reader)
    approved, before = approved_plan(path, reader=reader, writer=writer), snapshot(path.parent)

    def act() -> None:
        commit(approved, Confirmations(), datetime.now(UTC))

    with monkeypatch.context() as patch:
        kind = type(reading_by(reader, "the test says so").writer(writer))
        patch.setattr(kind, "write", bug(kind.write))
        assert refusal(act) == "6 not_proven"
    assert snapshot(path.parent) == before
    assert [model.objects.count() for model in (Compaction, Backup, AuditEntry)] == [0, 0, 0]
    assert not list((redline.data / "locks").glob("*.intent"))
    act()
    assert Compaction.objects.get().writer == writer


def test_the_refusal_names_the_session_the_writer_and_the_message(redline, monkeypatch):
    path = place(redline.sessions / "s.jsonl", session_bytes(working_session()))
    approved = approved_plan(path, writer="fork")
    fork = type(reading_by("atomic-0.8", "the test says so").writer("fork"))
    monkeypatch.setattr(fork, "write", LOSES_AN_ENTRY(fork.write))
    left = len(context_ids(path)) - len({target.entry_id for target in approved.targets if target.block_index is None})
    with pytest.raises(SystemFailure) as caught:
        commit(approved, Confirmations(), datetime.now(UTC))
    assert caught.value.message.startswith(f"{path}: after the change by fork, message {left} of")


NOW = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
WRITERS = [
    ("context-edit", "pi"),
    ("fork", "pi"),
    *(
        pytest.param(*pair, marks=pytest.mark.long)
        for pair in [("context-compaction", "atomic-0.8"), ("fork", "atomic-0.9")]
    ),
]
"""One that appends and one that writes a new file: the proof does not depend on the form of the lines."""
YES = Confirmations(live=True, not_honoured=True, below_target=True)


def session_at(root: Path, reader: str, *messages: dict[str, Any]) -> Path:
    """A session of these messages, or a worked one."""
    path = place(root / "s.jsonl", session_bytes(chain(*messages) if messages else working_session()))
    Session.objects.filter(pk=session_row(path).pk).update(reader=reader)
    return path


@pytest.mark.parametrize(("writer", "reader"), WRITERS)
def test_a_commit_stores_what_was_checked_before_it(idle_root, writer, reader):
    commit(approved_plan(session_at(idle_root, reader), writer=writer, reader=reader), YES, NOW)
    row = Compaction.objects.get()
    certificate = certificate_in(row)
    assert certificate.holds
    assert (certificate.reader, certificate.difference, certificate.checked_at) == (reader, "", NOW)
    assert AuditEntry.objects.get().certificate == row.certificate


@pytest.mark.parametrize(("writer", "reader"), WRITERS)
def test_a_context_that_providers_would_newly_refuse_is_not_written(idle_root, monkeypatch, writer, reader):
    approved = approved_plan(session_at(idle_root, reader), writer=writer, reader=reader)
    before = snapshot(idle_root)
    monkeypatch.setattr(compaction, "require_approved", lambda *_: None)
    whole = Preflight.make

    def without_a_result(preflight: object, facts: object) -> object:
        """A writer that forgets one side of a pair."""
        targets = preflight.validated.targets
        calls = [target for target in targets if target.block_index is not None]
        object.__setattr__(preflight.validated, "targets", tuple(calls[:1]))
        return whole(preflight, facts)

    monkeypatch.setattr(Preflight, "make", without_a_result)
    assert refusal(lambda: commit(approved, YES, NOW), "result") == "2 breaks_context"
    assert snapshot(idle_root) == before
    assert not Compaction.objects.exists()


def test_it_can_be_made_again_unless_the_compaction_is_not_in_the_file_any_more(idle_root):
    path = session_at(idle_root, "pi")
    original = path.read_bytes()
    commit(approved_plan(path, writer="context-edit", reader="pi"), YES, NOW)
    later = NOW + timedelta(hours=1)
    certify_again(Compaction.objects.get(), later)
    certificate = certificate_in(Compaction.objects.get())
    assert (certificate.checked_at, certificate.difference) == (later, "")
    path.write_bytes(original)
    with pytest.raises(BadInput, match="has no entry"):
        certify_again(Compaction.objects.get(), NOW)


def test_an_empty_rest_that_the_agent_leaves_out_is_no_reason_to_refuse(idle_root):
    answers = (assistant(text(""), text("long " * 400)), assistant(text("more")))
    path = session_at(idle_root, "pi", user("go"), *answers, user("on"), user("and on"))
    approved = approved_plan(path, writer="context-edit", reader="pi", compression_ratio=0.9)
    commit(replace(approved, targets=(Target("e2", 1),), origins={}), YES, NOW)
    certificate = certificate_in(Compaction.objects.get())
    assert [(one.rule, one.is_repaired) for one in certificate.violations] == [("empty_content", True)]

"""The certificate of a compaction: made before the write, stored, shown, and made again on request."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction_app.commit import change as commit_change
from compaction_app.commit.certificate import certify_again, stored_certificate
from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import commit
from compaction_app.models import AuditEntry, Compaction
from sessions_app.index.index_store import session_row
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.targets import Target
from tests.factories import assistant, chain, session_bytes, text, user, working_session
from tests.files import place, snapshot
from tests.plans import approved_plan

NOW = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
WRITERS = [("context-edit", "pi"), ("fork", "pi"), ("context-compaction", "atomic-0.8"), ("fork", "atomic-0.9")]
YES = Confirmations(live=True, not_honoured=True, below_target=True)


def session_at(idle_root: Path, reader: str) -> Path:
    return put(idle_root, reader, working_session())


def put(root: Path, reader: str, recorded: list[Any]) -> Path:
    path = place(root / "s.jsonl", session_bytes(recorded))
    Session.objects.filter(pk=session_row(path).pk).update(reader=reader)
    return path


@pytest.mark.parametrize(("writer", "reader"), WRITERS)
def test_a_commit_stores_what_was_checked_before_it(idle_root, writer, reader):
    path = session_at(idle_root, reader)
    commit(approved_plan(path, writer=writer, reader=reader), YES, NOW)
    compaction = Compaction.objects.get()
    certificate = stored_certificate(compaction)
    assert certificate is not None
    assert certificate.holds
    assert (certificate.reader, certificate.difference, certificate.checked_at) == (reader, "", NOW)
    assert AuditEntry.objects.get().certificate == compaction.certificate


@pytest.mark.parametrize(("writer", "reader"), WRITERS)
def test_a_context_that_providers_would_newly_refuse_is_not_written(idle_root, monkeypatch, writer, reader):
    path = session_at(idle_root, reader)
    approved = approved_plan(path, writer=writer, reader=reader)
    before = snapshot(idle_root)
    monkeypatch.setattr(commit_change, "require_approved", lambda *_: None)
    whole = commit_change.change_of

    def without_a_result(preflight: object, facts: object) -> object:
        """A writer that forgets one side of a pair."""
        targets = preflight.validated.targets  # type: ignore[attr-defined]
        calls = [target for target in targets if target.block_index is not None]
        object.__setattr__(preflight.validated, "targets", tuple(calls[:1]))  # type: ignore[attr-defined]
        return whole(preflight, facts)  # type: ignore[arg-type]

    monkeypatch.setattr(commit_change, "change_of", without_a_result)
    with pytest.raises(BadInput, match="result") as refused:
        commit(approved, YES, NOW)
    assert refused.value.code == "breaks_context"
    assert snapshot(idle_root) == before
    assert not Compaction.objects.exists()


def test_it_can_be_made_again_unless_the_compaction_is_not_in_the_file_any_more(idle_root):
    path = session_at(idle_root, "pi")
    original = path.read_bytes()
    commit(approved_plan(path, writer="context-edit", reader="pi"), YES, NOW)
    later = NOW + timedelta(hours=1)
    certify_again(Compaction.objects.get(), later)
    certificate = stored_certificate(Compaction.objects.get())
    assert certificate is not None
    assert (certificate.checked_at, certificate.difference) == (later, "")
    path.write_bytes(original)
    with pytest.raises(BadInput, match="has no entry"):
        certify_again(Compaction.objects.get(), NOW)


def test_an_empty_rest_that_the_agent_leaves_out_is_no_reason_to_refuse(idle_root):
    answers = (assistant(text(""), text("long " * 400)), assistant(text("more")))
    path = put(idle_root, "pi", chain(user("go"), *answers, user("on"), user("and on")))
    approved = replace(
        approved_plan(path, writer="context-edit", reader="pi", compression_ratio=0.9),
        targets=(Target("e2", 1),),
        origins={},
    )
    commit(approved, YES, NOW)
    certificate = stored_certificate(Compaction.objects.get())
    assert certificate is not None
    assert [(one.rule, one.is_repaired) for one in certificate.violations] == [("empty_content", True)]

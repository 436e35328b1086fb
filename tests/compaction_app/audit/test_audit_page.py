"""The page of the history, and the command of the audit log."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from compaction_app.changes.audit import FileContent, append
from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import approval, commit
from compaction_app.changes.undo import undo, undo_of_run
from compaction_app.models import AuditEntry
from sessions_app.disk.files import sha256_of
from sessions_app.index.indexer import index_file
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.html import elements, links, missing, text_of
from tests.runs import approve_proposals, plan_session

NOW = datetime(2026, 11, 22, 12, 30, 15, tzinfo=UTC)
HASH = "0123456789ab" + "0" * 52
CERTIFICATE = {
    "reader": "pi",
    "checkedAt": "2026-11-22T12:30:15Z",
    "leafId": "e1",
    "messages": 1_234,
    "difference": "",
    "package": {"name": "pi-coding-agent", "version": "0.87.1", "outcome": "equal"},
}


def record(number: int, before: FileContent | None = None, after: FileContent | None = None, **fields: object) -> None:
    known = {"at": NOW, "session": f"/work/s{number}.jsonl", "action": AuditEntry.Action.COMMIT}
    known |= {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}
    append(AuditEntry(change=f"change {number}", **known), before, after)


def break_log() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER audit_entry_no_delete")
        cursor.execute("DELETE FROM compaction_app_auditentry WHERE number = 2")


@pytest.fixture
def committed(redline, known_root):
    path = place(known_root / "work.jsonl", session_bytes(working_session(steps=4)))
    run = approve_proposals(plan_session(index_file(path)))
    now = timezone.now()
    commit(approval(run), Confirmations(), now)
    return run


def test_an_empty_log_says_so_and_else_the_newest_come_first_page_by_page(browser, redline, monkeypatch):
    answer = browser.get("/history")
    assert "No changes yet" in text_of(answer)
    assert "log checked" not in text_of(answer)
    monkeypatch.setattr("compaction_app.pages.audit.PAGE_SIZE", 3)
    for number in range(1, 5):
        record(number)
    first, second = text_of(browser.get("/history")), text_of(browser.get("/history?page=2"))
    assert first.index("/work/s4.jsonl") < first.index("/work/s3.jsonl")
    assert "/work/s1.jsonl" not in first
    assert "/work/s1.jsonl" in second
    assert "Page 1 of 2" in first


def test_a_commit_appears_with_its_run_and_hashes_and_in_json_with_all_that_these_cover(browser, committed, redline):
    path = committed.session.path
    answer = browser.get("/history")
    shown = text_of(answer)
    assert not missing(shown, "1 change since", "log checked now: whole", "passed", "compared with the approved plan")
    assert f"{path.stat().st_size:,} bytes" in shown
    assert sha256_of(path.read_bytes()) in answer.content.decode()
    assert not missing(shown, f"Plan {committed.pk}", "an edit in the session", "1 backup,", "checked")
    plan, own = f"/plans/{committed.pk}", committed.session.get_absolute_url()
    for link in (own, f"{own}/backups", f"{plan}/result", f"{plan}/undo", "/history/backups"):
        assert f'{link}"' in answer.content.decode()
    for page in ("/settings", f"/plans/{committed.pk}/result", f"{committed.session.get_absolute_url()}/backups"):
        assert 'href="/history"' in browser.get(page).content.decode(), page
    document = redline.call("audit", "--json").json
    entry = AuditEntry.objects.get()
    assert document["broken"] is None
    assert (document["count"], document["sha256"]) == (1, entry.sha256)
    assert document["entries"] == [{**entry.content, "previous": entry.previous, "sha256": entry.sha256}]


def test_each_change_says_what_was_done(browser, redline):
    targets = [{"kind": "entry", "entryId": "a"}, {"kind": "content_block", "entryId": "b", "blockIndex": 0}]
    written = "fork, by the running agent"
    record(1, writer=written, new_file="/work/new.jsonl", targets=targets, after=FileContent(12_345, HASH))
    record(2, action=AuditEntry.Action.RESTORE, restored_from="/work/s.bak", before=FileContent(5, HASH))
    record(3, action=AuditEntry.Action.UNDO, new_file="/work/undone.jsonl", certificate=CERTIFICATE)
    shown = text_of(browser.get("/history"))
    assert not missing(shown, "1 entry and 1 block deleted · saved as a new session · by the running agent")
    assert not missing(shown, "in the new file new.jsonl", "12,345 bytes", f"SHA-256 {HASH}")
    assert not missing(shown, "Restored from the backup s.bak", "not known", "Undo", "no file", "passed")
    assert "1,234 messages as in pi, compared with the approved plan and pi-coding-agent" in shown


def test_a_move_and_a_label_name_their_entry_by_what_it_says(browser, redline, known_root):
    session = index_file(place(known_root / "work.jsonl", session_bytes(working_session(steps=4))))
    record(1, action=AuditEntry.Action.MOVE, session=session.path, writer="to e1")
    record(2, action=AuditEntry.Action.LABEL, session=session.path, writer="“here” on e1")
    record(3, action=AuditEntry.Action.MOVE, session=session.path, writer="to gone")
    answer = browser.get("/history")
    assert not missing(text_of(answer), "to: Mend the parser.", "“here” on: Mend the parser.", "to gone")
    assert ("Mend the parser.", f"{session.get_absolute_url()}/entries/e1") in links(answer)


def test_a_broken_log_says_where_and_what_that_means(browser, redline):
    for number in range(1, 4):
        record(number)
    break_log()
    shown = text_of(browser.get("/history"))
    assert not missing(shown, "The log is broken at entry 2.", "an entry was deleted, inserted or moved")
    assert "whole" not in shown


def test_a_line_says_that_its_compaction_was_undone_since(browser, committed, redline):
    undo(undo_of_run(committed.compaction), Confirmations(), timezone.now())
    first, second = elements(browser.get("/history"), "li.change")
    assert not missing(text_of(first), f"Plan {committed.pk} undone", "+")
    assert "undone since" in text_of(second)
    assert "Undo…" not in text_of(second)


def test_changes_are_found_by_kind_and_by_session(browser, redline, committed):
    record(2, action=AuditEntry.Action.LABEL, writer="“here” on gone")
    record(3, action=AuditEntry.Action.RESTORE, restored_from="/work/s.bak")
    tabs = [text_of(one) for one in elements(browser.get("/history"), "nav[aria-label=History] a")]
    assert tabs == ["All 3", "Compactions 1", "Undone 1", "Other changes 1", "Backups 1"]
    for query, number in (
        ("kind=undone", 1),
        ("kind=nonsense", 3),
        ("search=/work/s", 2),
        ("search=mend the", 1),
        ("kind=undone&search=mend", 0),
    ):
        answer = browser.get(f"/history?{query}")
        assert len(elements(answer, "li.change")) == number, query
    assert "No change matches" in text_of(answer)


def test_hostile_names_are_escaped(browser, redline):
    name = "/work/<script>alert(1)</script>\u202e.jsonl"
    record(1, session=Path(name), writer="<b>", new_file=name, backup=name, restored_from=name)
    page = browser.get("/history").content.decode()
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "<b>&lt;" not in page


def test_the_command_lists_the_changes(redline, committed):
    record(2, action=AuditEntry.Action.UNDO, certificate={**CERTIFICATE, "refusal": "no"})
    lines = redline.call("audit").ok().out.splitlines()
    assert lines[0].split()[:3] == ["ENTRY", "WHEN", "CHANGE"]
    assert not missing(lines[1], "undo", "FAILED")
    assert not missing(lines[2], "compaction", str(committed.session.path))
    assert "The audit log is whole: 2 entries" in lines[3]


def test_verify_exits_with_1_if_the_log_is_broken(redline):
    assert redline.call("audit", "--verify").code == 0
    for number in range(1, 4):
        record(number)
    result = redline.call("audit", "--verify")
    assert (result.code, result.out.count("\n")) == (0, 1)
    break_log()
    result = redline.call("audit", "--verify")
    assert (result.code, "broken at entry 2" in result.out) == (1, True)
    result = redline.call("audit", "--verify", "--json")
    assert (result.code, result.json["broken"]["entry"]) == (1, 2)
    assert "entries" not in result.json

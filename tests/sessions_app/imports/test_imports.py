"""The import keeps every byte of a session, refuses other files, and removes only what was imported."""

import json
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from compaction_app.models import Backup, Run
from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.imports.service import safe_name
from sessions_app.index.indexer import index_roots
from sessions_app.index.roots import managed_root
from sessions_app.models import Entry, Session
from sessions_app.storage.files import BACKUP_SUFFIX
from sessions_app.storage.locks import session_lock
from sessions_app.web import uploads
from tests.claude_sessions import SESSION_ID, ClaudeSession
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import snapshot
from tests.html import element, link, links, text_of, texts
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.sessions_app.agents.amp.test_amp import THREAD as AMP_THREAD
from tests.sessions_app.agents.codex.rollouts import THREAD, work

SESSION = session_bytes(chain(user("Mend the parser."), assistant(text("It is mended."))))
OTHER = session_bytes(chain(user("Another task."), assistant(text("Done."))))


def bring(browser: Client, *files: tuple[str, bytes]) -> Any:
    return browser.post("/import", {"sessions": [SimpleUploadedFile(name, data) for name, data in files]})


def managed() -> dict[str, bytes | str]:
    return snapshot(managed_root())


def test_an_imported_session_is_kept_byte_for_byte_and_can_be_read(browser, known_root):
    damaged = SESSION + b'{"torn": \n' + b"\0\0\0\n" + b'{"type":"message"'
    answer = bring(browser, ("run.jsonl", damaged))
    assert answer.status_code == 303
    assert managed() == {"run.jsonl": damaged}
    page = browser.get(answer["Location"])
    assert page.status_code == 200
    assert "Mend the parser." in text_of(page)
    assert "Mend the parser." in text_of(browser.get("/"))


def test_imports_are_private_and_leave_nothing_of_the_upload(browser, known_root, redline):
    bring(browser, ("run.jsonl", SESSION))
    kept = managed_root() / "run.jsonl"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.stat().st_nlink == 1
    assert list((redline.data / "uploads").iterdir()) == []
    for directory in (managed_root(), redline.data / "uploads"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_an_upload_is_never_held_in_memory(browser, known_root, monkeypatch):
    stored: list[str] = []
    usual = tempfile.NamedTemporaryFile

    def seen(*arguments: Any, **named: Any) -> Any:
        stored.append(str(named["dir"]))
        return usual(*arguments, **named)

    monkeypatch.setattr(uploads.tempfile, "NamedTemporaryFile", seen)
    bring(browser, ("small.jsonl", SESSION))
    assert stored == [str(uploads.upload_directory())]


def test_an_import_does_not_count_as_live(browser, known_root):
    bring(browser, ("run.jsonl", SESSION))
    assert "just written to" not in text_of(browser.get("/"))
    assert Session.objects.get(relative_path="run.jsonl").imported_at is not None


def test_identical_bytes_lead_to_the_existing_session(browser, known_root):
    first = bring(browser, ("run.jsonl", SESSION))["Location"]
    answer = bring(browser, ("again.jsonl", SESSION))
    assert answer.status_code == 303
    message = element(browser.get(answer["Location"]), "main [role=status]")
    assert "Already imported (identical file)" in text_of(message)
    assert links(message) == [("run.jsonl", first)]
    assert managed() == {"run.jsonl": SESSION}


def test_another_session_of_the_same_name_gets_its_own_name(browser, known_root):
    bring(browser, ("run.jsonl", SESSION))
    bring(browser, ("run.jsonl", OTHER))
    assert managed() == {"run.jsonl": SESSION, "run-2.jsonl": OTHER}


def test_several_files_at_once_are_reported_one_by_one(browser, known_root):
    bring(browser, ("old.jsonl", OTHER))
    third = session_bytes(chain(user("A third.")))
    answer = bring(browser, ("a.jsonl", SESSION), ("b.jsonl", OTHER), ("c.jsonl", third))
    assert answer.status_code == 303
    first, second, known = texts(browser.get(answer["Location"]), "[role=status] li")
    assert (first, second) == ("Imported: a.jsonl", "Imported: c.jsonl")
    assert "Already imported (identical file)" in known
    assert set(managed()) == {"old.jsonl", "a.jsonl", "c.jsonl"}


def sessions_of_agents(directory: Path) -> dict[str, tuple[str, bytes]]:
    """A session of each agent as its file or export, by the agent's label: the name of the file, and its bytes."""
    claude = ClaudeSession()
    claude.user("Mend the parser.")
    pieces = OPENCODE.export(worked_session(OpenCodeStore(directory)))
    assert pieces is not None
    return {
        "Claude Code": (f"{SESSION_ID}.jsonl", claude.content),
        "Codex": (f"rollout-2026-01-05T10-00-00-{THREAD}.jsonl", work().content),
        "OpenCode": ("ses_1.json", b"".join(pieces)),
        "Amp": ("T-1.json", json.dumps(AMP_THREAD, indent=2).encode()),
    }


def test_a_session_of_any_agent_is_imported_under_its_own_name(browser, known_root, tmp_path):
    for label, (name, content) in sessions_of_agents(tmp_path).items():
        answer = bring(browser, (name, content))
        assert answer.status_code == 303
        assert managed()[name] == content
        page = browser.get(answer["Location"])
        assert label in text_of(page)
        assert name in text_of(browser.get("/import"))
        assert link(page, "The whole session as it is stored")
    index_roots()
    assert Session.objects.filter(missing=False, imported_at__isnull=False).count() == 4


def test_a_file_that_is_not_a_session_is_refused_and_not_kept(browser, known_root, redline):
    for data in (b"", b"hello\n", b"[1, 2]\n", b'{"some": "object"}\n', b"\0" * 5_000):
        answer = bring(browser, ("letter.jsonl", data))
        assert answer.status_code == 422
        assert "letter.jsonl" in text_of(answer)
        assert "is not a session" in text_of(answer)
    assert managed() == {}
    assert list((redline.data / "uploads").iterdir()) == []


def test_a_refused_file_does_not_hold_up_the_others(browser, known_root):
    answer = bring(browser, ("letter.jsonl", b"hello\n"), ("run.jsonl", SESSION))
    assert answer.status_code == 422
    assert "Imported: run.jsonl" in text_of(answer)
    assert managed() == {"run.jsonl": SESSION}


def test_a_form_without_a_file_is_an_error(browser, known_root):
    answer = browser.post("/import", {})
    assert (answer.status_code, "No file was chosen" in text_of(answer)) == (422, True)


def test_a_full_disk_is_reported_before_anything_is_stored(browser, known_root, monkeypatch):
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda _: SimpleNamespace(free=uploads.SPARE))
    answer = bring(browser, ("run.jsonl", SESSION))
    assert answer.status_code == 422
    assert "Free some space" in text_of(answer)
    assert managed() == {}


def test_a_disk_that_fills_up_meanwhile_is_reported_and_nothing_is_kept(browser, known_root, redline, monkeypatch):
    def full(self: Any, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(uploads.StoredUpload, "write", full, raising=False)
    answer = bring(browser, ("run.jsonl", SESSION))
    assert answer.status_code == 422
    assert "does not fit on the disk" in text_of(answer)
    assert managed() == {}
    assert list((redline.data / "uploads").iterdir()) == []


def test_a_name_is_made_safe():
    backup = "run.jsonl.2026-01-05T10-00-00-123Z.compact.bak"
    for brought, kept in {
        "run.jsonl": "run.jsonl",
        "../../etc/passwd": "passwd.jsonl",
        "C:\\sessions\\run.jsonl": "run.jsonl",
        ".hidden.jsonl": "hidden.jsonl",
        "..": "session.jsonl",
        "": "session.jsonl",
        "a b\x1b[31m\u202e.jsonl": "a-b-31m.jsonl",
        "x" * 300: "x" * 114 + ".jsonl",
        backup: f"{backup}.jsonl",
    }.items():
        assert safe_name(brought) == kept


def test_a_name_with_a_path_stays_in_the_managed_root(browser, known_root, redline):
    before = set(snapshot(redline.data.parent))
    bring(browser, ("..%2f..%2fout.jsonl", SESSION))
    new = {name for name in set(snapshot(redline.data.parent)) - before if name.endswith(".jsonl")}
    assert len(new) == 1
    assert new.pop().startswith("data/sessions/")


def test_removing_asks_first_and_then_removes_the_session(browser, known_root):
    bring(browser, ("run.jsonl", SESSION))
    page = browser.get("/import/run.jsonl/remove")
    assert page.status_code == 200
    assert set(managed()) == {"run.jsonl"}
    answer = browser.post("/import/run.jsonl/remove", {"backups": "0"})
    assert (answer.status_code, answer["Location"]) == (303, "/import")
    assert managed() == {}
    assert not Session.objects.exists()
    assert not Entry.objects.exists()


def test_only_imported_sessions_can_be_removed(browser, known_root):
    (known_root / "own.jsonl").write_bytes(SESSION)
    index_roots()
    outside = managed_root().parent / "outside.jsonl"
    outside.write_bytes(SESSION)
    deeper = managed_root() / "deeper"
    deeper.mkdir()
    (deeper / "in.jsonl").write_bytes(SESSION)
    (managed_root() / "link.jsonl").symlink_to(outside)
    for name in ("own.jsonl", "..%2Foutside.jsonl", "%2e%2e", "deeper%2Fin.jsonl", "link.jsonl", "secret_key"):
        for answer in (browser.get(f"/import/{name}/remove"), browser.post(f"/import/{name}/remove")):
            assert answer.status_code == 404, name
    assert (known_root / "own.jsonl").read_bytes() == SESSION
    assert outside.exists()
    assert (deeper / "in.jsonl").exists()
    assert (managed_root() / "link.jsonl").is_symlink()


def test_the_history_of_a_session_is_shown_before_removal_and_kept_after_it(browser, known_root):
    bring(browser, ("run.jsonl", SESSION))
    session = Session.objects.get(relative_path="run.jsonl")
    Run.objects.create(session=session, planner="embedded", created_at=timezone.now())
    page = text_of(browser.get("/import/run.jsonl/remove"))
    assert "1 run" in page
    assert "This record is kept" in page
    browser.post("/import/run.jsonl/remove", {"backups": "0"})
    session.refresh_from_db()
    assert session.missing
    assert session.runs.count() == 1
    assert managed() == {}


def test_backups_are_removed_only_if_they_were_shown(browser, known_root):
    bring(browser, ("run.jsonl", SESSION))
    backup = managed_root() / f"run.jsonl.2026-01-05T10-00-00-123Z{BACKUP_SUFFIX}"
    backup.write_bytes(SESSION)
    refused = browser.post("/import/run.jsonl/remove", {"backups": "0"})
    assert refused.status_code == 409
    assert "1 backup beside it" in text_of(refused)
    assert set(managed()) == {"run.jsonl", backup.name}
    assert browser.post("/import/run.jsonl/remove", {"backups": "1"}).status_code == 303
    assert managed() == {}


def test_a_session_that_is_being_written_to_is_not_removed(browser, known_root, settings):
    bring(browser, ("run.jsonl", SESSION))
    settings.REDLINE = settings.REDLINE.model_copy(update={"lock_seconds": 0})
    with session_lock(settings.REDLINE_DATA_DIR, managed_root() / "run.jsonl", 0):
        answer = browser.post("/import/run.jsonl/remove", {"backups": "0"})
    assert answer.status_code == 409
    assert "is locked" in text_of(answer)
    assert set(managed()) == {"run.jsonl"}


def test_a_backup_of_another_session_is_not_counted(browser, known_root):
    bring(browser, ("run.jsonl", SESSION))
    bring(browser, ("run2.jsonl", OTHER))
    (managed_root() / f"run2.jsonl.2026-01-05T10-00-00-123Z{BACKUP_SUFFIX}").write_bytes(OTHER)
    assert Backup.objects.count() == 0
    browser.post("/import/run.jsonl/remove", {"backups": "0"})
    assert set(managed()) == {"run2.jsonl", f"run2.jsonl.2026-01-05T10-00-00-123Z{BACKUP_SUFFIX}"}

"""The import keeps every byte of a session, refuses other files, and removes only what was imported."""

import json
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from compaction_app.models import Run
from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.disk.files import BACKUP_SUFFIX
from sessions_app.index.indexer import index_roots
from sessions_app.index.roots import managed_root
from sessions_app.models import Entry, Session
from sessions_app.pages.imports import safe_name
from sessions_app.storage.locks import session_lock
from sessions_app.web import uploads
from tests.claude_sessions import SESSION_ID, ClaudeSession
from tests.clients import page
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place, snapshot
from tests.html import element, link, links, missing, text_of, text_sent, texts
from tests.opencode_stores import OpenCodeStore, worked_session
from tests.sessions_app.agents.amp.test_amp import THREAD as AMP_THREAD
from tests.sessions_app.agents.codex.rollouts import THREAD, work

SESSION = session_bytes(chain(user("Mend the parser."), assistant(text("It is mended."))))
OTHER = session_bytes(chain(user("Another task."), assistant(text("Done."))))


def bring(browser: Client, *files: tuple[str, bytes], status: int = 303) -> Any:
    """Import files: the answer has this status."""
    answer = browser.post("/import", {"sessions": [SimpleUploadedFile(name, data) for name, data in files]})
    assert answer.status_code == status
    return answer


@pytest.fixture
def imported(browser, known_root):
    """The answer to the import of run.jsonl."""
    return bring(browser, ("run.jsonl", SESSION))


def remove(browser: Client, name: str = "run.jsonl", backups: int = 0) -> Any:
    return browser.post(f"/import/{name}/remove", {"backups": str(backups)})


def managed() -> dict[str, bytes | str]:
    return snapshot(managed_root())


def uploads_left() -> list[Path]:
    return list(uploads.upload_directory().iterdir())


def test_an_imported_session_is_kept_byte_for_byte_and_can_be_read(browser, known_root):
    damaged = SESSION + b'{"torn": \n' + b"\0\0\0\n" + b'{"type":"message"'
    answer = bring(browser, ("run.jsonl", damaged))
    assert managed() == {"run.jsonl": damaged}
    assert "Mend the parser." in text_of(page(browser, answer["Location"]))
    assert "Mend the parser." in text_of(browser.get("/"))


def test_imports_are_private_do_not_count_as_live_and_leave_nothing_of_the_upload(browser, imported, redline):
    kept = (managed_root() / "run.jsonl").stat()
    assert (stat.S_IMODE(kept.st_mode), kept.st_nlink) == (0o600, 1)
    assert uploads_left() == []
    for directory in (managed_root(), redline.data / "uploads"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert "just written to" not in text_of(browser.get("/"))
    assert Session.objects.get(relative_path="run.jsonl").imported_at is not None


def test_an_upload_is_never_held_in_memory(browser, known_root, monkeypatch):
    stored: list[str] = []
    usual = tempfile.NamedTemporaryFile

    def seen(*arguments: Any, **named: Any) -> Any:
        stored.append(str(named["dir"]))
        return usual(*arguments, **named)

    monkeypatch.setattr(uploads.tempfile, "NamedTemporaryFile", seen)
    bring(browser, ("small.jsonl", SESSION))
    assert stored == [str(uploads.upload_directory())]


def test_identical_bytes_lead_to_the_existing_session_and_another_one_gets_its_own_name(browser, imported):
    answer = bring(browser, ("again.jsonl", SESSION))
    message = element(browser.get(answer["Location"]), "main [role=status]")
    assert "Already imported (identical file)" in text_of(message)
    assert links(message) == [("run.jsonl", imported["Location"])]
    assert managed() == {"run.jsonl": SESSION}
    bring(browser, ("run.jsonl", OTHER))
    assert managed() == {"run.jsonl": SESSION, "run-2.jsonl": OTHER}


def test_several_files_at_once_are_reported_one_by_one(browser, known_root):
    bring(browser, ("old.jsonl", OTHER))
    third = session_bytes(chain(user("A third.")))
    answer = bring(browser, ("a.jsonl", SESSION), ("b.jsonl", OTHER), ("c.jsonl", third))
    first, second, known = texts(browser.get(answer["Location"]), "[role=status] li")
    assert (first, second) == ("Imported: a.jsonl", "Imported: c.jsonl")
    assert "Already imported (identical file)" in known
    assert set(managed()) == {"old.jsonl", "a.jsonl", "c.jsonl"}


def sessions_of_agents(directory: Path) -> dict[str, tuple[str, bytes]]:
    """A session of each agent as its file or export, by the agent's label: the name of the file, and its bytes."""
    claude = ClaudeSession("Mend the parser.")
    pieces = OPENCODE.store.export(worked_session(OpenCodeStore(directory)))
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
        assert managed()[name] == content
        shown = browser.get(answer["Location"])
        assert label in text_of(shown)
        assert name in text_of(browser.get("/import"))
        assert link(shown, "The whole session as it is stored")
    index_roots()
    assert Session.objects.filter(missing=False, imported_at__isnull=False).count() == 4


@pytest.mark.parametrize("data", [b"", b"hello\n", b"[1, 2]\n", b'{"some": "object"}\n', b"\0" * 5_000])
def test_a_file_that_is_not_a_session_is_refused_and_does_not_hold_up_the_others(browser, known_root, data):
    shown = text_of(bring(browser, ("letter.jsonl", data), ("run.jsonl", SESSION), status=422))
    assert not missing(shown, "letter.jsonl", "is not a session", "Imported: run.jsonl")
    assert (managed(), uploads_left()) == ({"run.jsonl": SESSION}, [])


def test_a_form_without_a_file_is_an_error(browser, known_root):
    assert "No file was chosen" in text_of(bring(browser, status=422))


def test_a_full_disk_is_reported_before_anything_is_stored(browser, known_root, monkeypatch):
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda _: SimpleNamespace(free=uploads.SPARE))
    assert "Free some space" in text_of(bring(browser, ("run.jsonl", SESSION), status=422))
    assert managed() == {}


def test_a_disk_that_fills_up_meanwhile_is_reported_and_nothing_is_kept(browser, known_root, monkeypatch):
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(uploads.StoredUpload, "write", full, raising=False)
    assert "does not fit on the disk" in text_of(bring(browser, ("run.jsonl", SESSION), status=422))
    assert (managed(), uploads_left()) == ({}, [])


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
    before = snapshot(redline.data.parent).keys()
    bring(browser, ("..%2f..%2fout.jsonl", SESSION))
    (new,) = (name for name in snapshot(redline.data.parent).keys() - before if name.endswith(".jsonl"))
    assert new.startswith("data/sessions/")


def test_removing_asks_first_and_then_removes_the_session(browser, imported):
    page(browser, "/import/run.jsonl/remove")
    assert set(managed()) == {"run.jsonl"}
    answer = remove(browser)
    assert (answer.status_code, answer["Location"], managed()) == (303, "/import", {})
    assert not Session.objects.exists()
    assert not Entry.objects.exists()


def test_only_imported_sessions_can_be_removed(browser, known_root):
    place(known_root / "own.jsonl", SESSION)
    index_roots()
    outside = place(managed_root().parent / "outside.jsonl", SESSION)
    place(managed_root() / "deeper" / "in.jsonl", SESSION)
    (managed_root() / "link.jsonl").symlink_to(outside)
    before = snapshot(known_root), managed(), outside.read_bytes()
    for name in ("own.jsonl", "..%2Foutside.jsonl", "%2e%2e", "deeper%2Fin.jsonl", "link.jsonl", "secret_key"):
        for answer in (browser.get(f"/import/{name}/remove"), browser.post(f"/import/{name}/remove")):
            assert answer.status_code == 404, name
    assert (snapshot(known_root), managed(), outside.read_bytes()) == before


def test_the_history_of_a_session_is_shown_before_removal_and_kept_after_it(browser, imported):
    session = Session.objects.get(relative_path="run.jsonl")
    Run.objects.create(session=session, planner="embedded", created_at=timezone.now())
    assert not missing(text_of(browser.get("/import/run.jsonl/remove")), "1 run", "This record is kept")
    remove(browser)
    session.refresh_from_db()
    assert (session.missing, session.runs.count(), managed()) == (True, 1, {})


def test_backups_are_removed_only_if_they_were_shown(browser, imported):
    bring(browser, ("run2.jsonl", OTHER))
    name = f"jsonl.2026-01-05T10-00-00-123Z{BACKUP_SUFFIX}"
    own, of_another = (place(managed_root() / f"{session}.{name}", SESSION) for session in ("run", "run2"))
    assert "1 backup beside it" in text_sent(remove(browser), 409)
    assert set(managed()) == {"run.jsonl", "run2.jsonl", own.name, of_another.name}
    assert remove(browser, backups=1).status_code == 303
    assert set(managed()) == {"run2.jsonl", of_another.name}


def test_a_session_that_is_being_written_to_is_not_removed(browser, imported, settings):
    settings.REDLINE = settings.REDLINE.model_copy(update={"lock_seconds": 0})
    with session_lock(settings.REDLINE_DATA_DIR, managed_root() / "run.jsonl", 0):
        answer = remove(browser)
    assert "is locked" in text_sent(answer, 409)
    assert set(managed()) == {"run.jsonl"}

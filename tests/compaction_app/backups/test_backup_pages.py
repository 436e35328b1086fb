"""The backup pages lose nothing unseen, and a name in an address cannot reach another file."""

import hashlib
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote, unquote

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.test import Client

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import commit
from compaction_app.models import Backup, Compaction
from compaction_app.pages import backups as backup_page
from compaction_app.pages.backups import SentFile, disposition
from sessions_app.index.indexer import index_roots
from sessions_app.models import Root, Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.locks import session_lock
from tests.clients import fetched, new_client
from tests.factories import message, session_bytes, user, working_session
from tests.files import backdate, place, snapshot, unchanged
from tests.html import active_markup, element, elements, field, fields, link, links, missing, text_of, texts, values
from tests.plans import approved_plan
from tests.runs import approve_proposals, commit_approved, plan_session
from tests.server import place_in

HTMX = {"HX-Request": "true"}
FOREIGN = "s.jsonl.2025-01-01T00-00-00-000Z.compact.bak"
ACTIONS = ("restore", "verify", "delete", "download")
BELOW = ("backups", "download", *(f"backups/{FOREIGN}/{action}" for action in ACTIONS))


@pytest.fixture
def path(known_root):
    """An indexed session in a configured root, not written to recently."""
    session = place(known_root / "s.jsonl", session_bytes(working_session()))
    index_roots()
    return session


def address(path: Path) -> str:
    session = Session.objects.select_related("root").get(relative_path=path.name)
    return f"/sessions/{session.root_id}/{quote(path.name)}"


def compacted(path: Path, **own: object) -> str:
    """The name of the backup of a compaction that was just written."""
    name = commit(approved_plan(path, **own), Confirmations(live=True), datetime.now(UTC)).backup.path.name
    backdate(path)
    Session.objects.update(own_write_ns=None)
    return name


def grown(path: Path, *words: str) -> bytes:
    """The bytes of the session after its agent added messages an hour ago."""
    more = [message(f"n{number}", "e27", user(word)) for number, word in enumerate(words)]
    place(path, path.read_bytes() + session_bytes(more))
    return path.read_bytes()


def of(path: Path, name: str, action: str = "restore") -> str:
    """The address of a page of a backup."""
    return f"{address(path)}/backups/{name}/{action}"


def shown(browser: Client, page: str) -> str:
    """The state of the session on the page, as its form sends it back."""
    return field(browser.get(page), "plan")


def restored(browser: Client, page: str, *confirmations: str) -> Any:
    return browser.post(page, {"plan": shown(browser, page), "yes": list(confirmations)})


def refuses(browser: Client, path: Path, page: str, *, status: int = 409, **values: Any) -> str:
    """The text of the page that refuses a POST; no file and no row has changed."""
    before, rows = snapshot(path.parent), list(Backup.objects.order_by("pk").values())
    answer = browser.post(page, values)
    assert snapshot(path.parent) == before
    assert list(Backup.objects.order_by("pk").values()) == rows
    assert answer.status_code == status
    return text_of(answer)


def test_the_list_shows_when_and_why_each_backup_was_made_and_what_a_restore_would_remove(browser, path):
    name = compacted(path)
    grown(path, "one", "two")
    (path.parent / FOREIGN).write_bytes(path.read_bytes())
    answer = browser.get(f"{address(path)}/backups")
    ours, foreign = texts(answer, "tbody tr")
    assert datetime.now(UTC).strftime("%-d %b %Y") in ours
    assert not missing(ours, f"Before a compaction {Compaction.objects.get().entry_id}", "Not checked yet")
    assert not missing(ours, "2 user messages and the compaction it was made for", Backup.objects.get().sha256[:12])
    assert any(name in address for _, address in links(elements(answer, "tbody tr")[0]))
    assert not missing(
        foreign, "1 Jan 2025, 00:00:00", "Not made by Redline", "Unverified: not made by Redline", "Nothing"
    )


def test_without_backups_the_list_says_when_one_is_made_and_viewing_it_hashes_nothing(browser, path, monkeypatch):
    page = text_of(browser.get(f"{address(path)}/backups"))
    assert not missing(page, "No backups yet", "One is made before every compaction and before every restore.")
    name = compacted(path)
    monkeypatch.setattr(backup_page.files, "verify", Mock(side_effect=AssertionError("a backup was hashed")))
    assert browser.get(f"{address(path)}/backups").status_code == 200
    assert browser.get(of(path, name)).status_code == 200


def test_backups_too_large_to_compare_in_the_list_are_compared_on_their_own_page(browser, path, monkeypatch):
    first, second = compacted(path, compression_ratio=0.8), compacted(path, compression_ratio=0.5)
    room = path.stat().st_size + (path.parent / second).stat().st_size
    monkeypatch.setattr(backup_page, "COMPARED_BYTES", room)
    rows = elements(browser.get(f"{address(path)}/backups"), "tbody tr")
    newest, older = map(text_of, rows)
    assert any(second in address for _, address in links(rows[0]))
    assert "The compaction it was made for" in newest
    assert "Shown before you restore" in older
    assert "1 compaction and the compaction it was made for" in text_of(browser.get(of(path, first)))


def test_no_address_makes_the_page_say_that_something_was_done(browser, path):
    name, page = compacted(path), f"{address(path)}/backups"
    restored = f"?restored={name}"
    deleted = (f"?deleted={name}", f"?deleted={FOREIGN}", "?deleted=<b>")
    for query in (*deleted, restored, f"{restored}&back={name}&overtaken=1&open=1"):
        assert not elements(browser.get(page + query), "main [role=status]")


def test_a_verification_is_shown_also_in_place_until_the_file_changes(browser, path):
    name, page = compacted(path), f"{address(path)}/backups"
    answer = browser.post(f"{page}/{name}/verify")
    assert answer.status_code == 303
    assert answer["Location"].startswith(f"{page}#backup-")
    assert "Verified now" in text_of(element(browser.get(page), f"#{answer['Location'].split('#')[1]}"))
    part = browser.post(f"{page}/{name}/verify", headers=HTMX)
    assert (part.status_code, text_of(part)) == (200, text_of(element(part, "tr"))), "only the row"
    assert "Verified now" in text_of(part)
    assert field(part, "csrfmiddlewaretoken")

    backup = path.parent / name
    content = backup.read_bytes()
    backup.write_bytes(content[:-9] + b"#" + content[-8:])
    assert "Not checked yet" in text_of(browser.get(page))


def test_a_changed_backup_cannot_be_restored(browser, path):
    name = compacted(path)
    backup = path.parent / name
    backup.write_bytes(backup.read_bytes()[:-9] + b"#")
    page = of(path, name)
    text = refuses(browser, path, page, plan=shown(browser, page), yes=["drop_newer"])
    assert "does not have the SHA-256 that was recorded" in text

    row = text_of(browser.post(of(path, name, "verify"), headers=HTMX))
    assert "Hash mismatch" in row
    assert "Restore…" not in row
    again = browser.get(page)
    assert "This backup cannot be restored" in text_of(again)
    assert values(again, "plan") == []


def test_the_agents_own_backups_are_listed_with_what_made_them_hashed_and_stay_unverified(browser, path):
    labels = ("compact", "auto-compact", "overflow-auto-compact", "context-compact")
    for label in labels:
        place(path.parent / f"s.jsonl.2025-01-01T00-00-00-000Z.{label}.bak", b"the agent's own\n")
    answer = browser.get(f"{address(path)}/backups")
    for label in labels:
        assert f"Not made by Redline: {label} " in text_of(answer)
    anchors = [row.id for row in elements(answer, "tbody tr")]
    assert len(set(anchors)) == len(anchors) == len(labels)
    row = text_of(browser.post(of(path, FOREIGN, "verify"), headers=HTMX))
    assert not missing(row, hashlib.sha256(b"the agent's own\n").hexdigest()[:12], "Unverified")


def test_a_compaction_can_be_restored_and_the_restore_taken_back(browser, path):
    before, name = path.read_bytes(), compacted(path)
    after, page = path.read_bytes(), of(path, name)
    path.with_suffix(".link").hardlink_to(path)
    answer = browser.get(page)
    assert not missing(text_of(answer), f"{len(after):,} → {len(before):,} bytes", "The compaction it was made for.")
    assert "another name (a hard link), which keeps the present content" in text_of(answer)
    assert not elements(answer, "input[type=checkbox]")

    done = restored(browser, page)
    assert done.status_code == 303
    assert path.read_bytes() == before
    backups = browser.get(done["Location"])
    assert "Restored the backup of" in text_of(backups)
    way_back = link(backups, "Undo the restore…")
    assert "Nothing; 1 line comes back." in text_of(browser.get(way_back))
    assert restored(browser, way_back).status_code == 303
    assert path.read_bytes() == after


def test_a_plan_stands_when_the_bytes_that_it_was_made_on_come_back(browser, path):
    run = approve_proposals(plan_session(Session.objects.get()))
    before, name = path.read_bytes(), compacted(path)
    restored(browser, of(path, name))
    assert path.read_bytes() == before
    for page in ("review", "commit"):
        assert not elements(browser.get(f"/plans/{run.pk}/{page}"), "[role=alert] span"), page
    commit_approved(run)
    assert path.read_bytes().startswith(before)


def test_newer_lines_are_listed_and_removed_only_with_confirmation(browser, path):
    before, name = path.read_bytes(), compacted(path)
    after, page = grown(path, *map(str, range(63))), of(path, name)
    text = text_of(browser.get(page))
    assert not missing(text, "63 user messages and the compaction it was made for", "n59", "the other 3")
    assert "Delete the 63 lines that came after this backup." in text
    assert "n60" not in text
    assert "n62" in text_of(browser.get(page, {"rows": "120"}))
    assert "Trust this backup" not in text

    refusal = refuses(browser, path, page, status=422, plan=shown(browser, page))
    sentence = "Delete the 63 lines that came after this backup."
    assert f"Nothing was restored: a confirmation is missing. Tick it if you agree: {sentence}" in refusal
    assert f"{sentence} Confirmation missing" in refusal
    assert "--drop-newer" not in refusal

    done = restored(browser, page, "drop_newer")
    assert path.read_bytes() == before
    way_back = link(browser.get(done["Location"]), "Undo the restore…")
    assert (path.parent / way_back.split("/")[-2]).read_bytes() == after


def test_each_danger_needs_its_own_confirmation(browser, path):
    backup = place(path.parent / FOREIGN, session_bytes(working_session(steps=2)))
    page = of(path, FOREIGN)
    state = shown(browser, page)
    assert "2 confirmations required" in text_of(browser.get(page))
    for given, lacking in (("drop_newer", "unverified"), ("unverified", "drop_newer")):
        assert "Confirmation missing" in refuses(browser, path, page, status=422, plan=state, yes=[given])
        refused = browser.post(page, {"plan": state, "yes": [given]})
        assert fields(refused)["yes"] == [given]
        assert element(refused, "[aria-invalid=true]").attributes["value"] == lacking
    assert restored(browser, page, "drop_newer", "unverified").status_code == 303
    assert path.read_bytes() == backup.read_bytes()


def test_a_confirmation_does_not_cover_lines_added_after_the_page_was_shown(browser, path):
    name = compacted(path)
    grown(path, "seen")
    page = of(path, name)
    state = shown(browser, page)
    grown(path, "seen", "not seen")
    text = refuses(browser, path, page, plan=state, yes=["drop_newer"])
    assert not missing(text, "has changed since this was shown", "3 user messages")
    assert "yes" not in fields(browser.post(page, {"plan": state, "yes": ["drop_newer"]}))
    assert "has changed since" in refuses(browser, path, page, yes=["drop_newer"])


def test_a_live_session_needs_its_own_confirmation_to_be_restored(browser, path):
    before, page = path.read_bytes(), of(path, compacted(path))
    assert "was written to in the last 5 minutes" not in text_of(browser.get(page))
    os.utime(path)
    with unchanged(path):
        assert "was written to in the last 5 minutes" in text_of(browser.get(page))
        assert restored(browser, page).status_code == 422
    assert restored(browser, page, "live").status_code == 303
    assert path.read_bytes() == before
    assert "was written to in the last 5 minutes" not in text_of(browser.get(page))  # that was our own write


def test_a_missing_session_can_be_restored(browser, path):
    before, page = path.read_bytes(), of(path, compacted(path))
    path.unlink()
    index_roots()
    assert "the session file is missing" in text_of(browser.get(f"{address(path)}/backups"))
    assert "none: the session file is missing" in text_of(browser.get(page))
    done = restored(browser, page)
    assert path.read_bytes() == before
    assert "The session file was missing, so there was nothing to back up." in text_of(browser.get(done["Location"]))


def test_a_locked_session_is_not_restored(browser, path, redline, settings):
    name = compacted(path)
    grown(path, "one")
    settings.REDLINE = settings.REDLINE.model_copy(update={"lock_seconds": 0})
    page = of(path, name)
    state = shown(browser, page)
    with session_lock(redline.data, path, 0):
        text = refuses(browser, path, page, plan=state)
        assert "is locked by another Redline process" in text
        assert "Confirmation missing" not in text
        assert "is locked" in refuses(browser, path, of(path, name, "delete"), only="yes")


def test_a_backup_is_deleted_after_a_page_that_shows_what_will_be_lost(browser, path):
    name, session = compacted(path), path.read_bytes()
    page = of(path, name, "delete")
    text = text_of(browser.get(page))
    assert not missing(text, "This is the only backup of s.jsonl", "The record of the compaction is kept")
    assert (path.parent / name).is_file()

    answer = browser.post(page, {"only": "yes"})
    assert answer.status_code == 303
    assert f"Deleted: {name}" in text_of(browser.get(answer["Location"]))
    assert snapshot(path.parent) == {"s.jsonl": session}
    assert Compaction.objects.get().backup.sha256
    assert browser.get(page).status_code == 404


def test_a_backup_that_became_the_only_one_needs_another_confirmation(browser, path):
    first, second = compacted(path, compression_ratio=0.8), compacted(path, compression_ratio=0.5)
    page = of(path, first, "delete")
    text = text_of(browser.get(page))
    assert "the only backup" not in text
    assert "1 more backup of this session is kept" in text
    (path.parent / second).unlink()
    assert "has become the only backup" in refuses(browser, path, page)
    assert browser.post(page, {"only": "yes"}).status_code == 303
    assert not (path.parent / first).exists()


def test_downloads_are_byte_exact(browser, path):
    before = path.read_bytes() + b"\xff\x00 no text {torn"
    path.write_bytes(before)
    backup = place(path.parent / FOREIGN, b"\xfe" * 3_000_000)
    pages = {
        f"{address(path)}/download": (before, "s.jsonl"),
        of(path, FOREIGN, "download"): (backup.read_bytes(), FOREIGN),
    }
    for page, (content, name) in pages.items():
        answer, body = fetched(browser, page)
        assert body == content
        assert answer["Content-Length"] == str(len(content))
        assert answer["Content-Type"] == "application/x-ndjson"
        assert answer["Content-Disposition"] == f'attachment; filename="{name}"'
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert "no-store" in answer["Cache-Control"]
        head = browser.head(page)
        assert (head["Content-Length"], head.content) == (str(len(content)), b"")


def test_a_download_is_the_file_as_it_was_when_opened(tmp_path):
    path = place(tmp_path / "a.jsonl", b"x" * 3_000_000)

    async def received(meanwhile: bytes | None) -> bytes:
        sent, body = SentFile(path), b""
        async for piece in sent:
            body += piece
            if meanwhile is None:
                os.truncate(path, 1_500_000)
            else:
                with path.open("ab") as file:
                    file.write(meanwhile)
        sent.close()
        return body

    assert async_to_sync(received)(b"later") == b"x" * 3_000_000
    with pytest.raises(RedlineError, match="shrank while it was sent"):
        async_to_sync(received)(None)


def test_a_download_is_sent_in_chunks(tmp_path):
    path = place(tmp_path / "a.jsonl", b"x" * 5_000_000)

    async def received() -> list[int]:
        sent = SentFile(path)
        sizes = [len(piece) async for piece in sent]
        sent.close()
        return sizes

    sizes = async_to_sync(received)()
    assert sum(sizes) == 5_000_000
    assert max(sizes) <= backup_page.CHUNK


def test_a_discarded_response_leaves_no_file_open(browser, path):
    descriptors = Path("/dev/fd")
    opened = len(list(descriptors.iterdir()))
    for _ in range(5):
        browser.get(f"{address(path)}/download").close()
    assert len(list(descriptors.iterdir())) <= opened


def test_a_real_server_sends_the_whole_download(shared_server):
    big = b'{"type":"custom","id":"big","data":"' + b"x" * 4_000_000 + b'"}'
    with place_in(shared_server, "download") as server:
        content = server.put("s.jsonl", [*working_session(), big]).read_bytes()
        page = server.session("Mend the parser.")
        with server._opener.open(f"{server.base}{page}/download") as answer:
            assert answer.read() == content
        assert "No backups yet" in server.text(f"{page}/backups")


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("plain-1.jsonl", 'attachment; filename="plain-1.jsonl"'),
        ("a b.jsonl", "attachment; filename=\"a_b.jsonl\"; filename*=UTF-8''a%20b.jsonl"),
        ('x".jsonl\r\nSet-Cookie: a=b', None),
        ("…\u202egnp.jsonl", None),
        ("..", None),
        ("/etc/passwd", None),
        ("%2f%00\\.jsonl", None),
        ("\ud800.jsonl", None),
    ],
)
def test_a_download_has_a_harmless_file_name(name, header):
    value = disposition(name)
    HttpResponse()["Content-Disposition"] = value  # raises an error for line breaks
    assert header is None or value == header
    assert re.fullmatch(
        r"attachment; filename=\"[A-Za-z0-9_-][A-Za-z0-9._-]*\"(; filename\*=UTF-8''[A-Za-z0-9%._~-]+)?", value
    )
    decoded = unquote(value.split("''")[-1])
    assert not set(decoded) & set("\r\n\0\u202e\\/") or "''" not in value


OTHER_NAMES = (
    *("..", "%2e%2e", "..%2fother.jsonl", "..%2f..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "s.jsonl"),
    *(f"{FOREIGN}.sha256", "..%2fshown%2f" + FOREIGN, "%2e%2f" + FOREIGN, FOREIGN + "%00", FOREIGN + "%0a"),
    FOREIGN.replace("s.jsonl", "S.jsonl"),
    "s.jsonl.2025-13-01T00-00-00-000Z.compact.bak",
    "other.jsonl.2025-01-01T00-00-00-000Z.compact.bak",
    "s.jsonl.2025-02-02T00-00-00-000Z.compact.bak",
)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_name_in_an_address_cannot_reach_another_file(browser, path, action):
    place(path.parent / FOREIGN, path.read_bytes())
    other = place(path.parent / "other.jsonl", path.read_bytes())
    place(other.with_name(FOREIGN.replace("s.jsonl", "other.jsonl", 1)), b"another session's\n")
    outside = place(path.parent.parent / "outside.bak", b"outside\n")
    path.with_name("s.jsonl.2025-02-02T00-00-00-000Z.compact.bak").symlink_to(outside)
    index_roots()
    before = snapshot(path.parent)
    values = {"yes": ["drop_newer", "unverified"], "only": "yes", "plan": ""}
    for name in OTHER_NAMES:
        page = of(path, name, action)
        for answer in (browser.get(page), browser.post(page, values), browser.post(page, values, headers=HTMX)):
            assert is_refused(answer, path), name
            assert not answer.streaming, name
            assert b"outside" not in answer.content, name
        assert snapshot(path.parent) == before, name
    assert outside.read_bytes() == b"outside\n"


def is_refused(answer: Any, path: Path) -> bool:
    """Nothing is shown or done; an address for POST only, and any for htmx, may lead to the list of backups."""
    there = answer.headers.get("Location") or answer.headers.get("HX-Redirect")
    if there:
        return str(there) == f"{address(path)}/backups"
    return answer.status_code in {404, 405}


def test_a_missing_backup_or_session_is_explained_with_a_link_onward(browser, path):
    answer = browser.get(f"{address(path)}/backups/nothing<b>/restore")
    assert answer.status_code == 404
    assert "s.jsonl has no backup named nothing<b>" in text_of(answer)
    assert link(element(answer, "main"), "Backups") == f"{address(path)}/backups"
    assert browser.post(of(path, FOREIGN, "verify"), headers=HTMX)["HX-Redirect"] == f"{address(path)}/backups"

    page = address(path)
    path.unlink()
    assert browser.get(f"{page}/download").status_code == 404
    shutil.rmtree(path.parent)
    answer = browser.get(f"{page}/backups")
    assert answer.status_code == 404
    assert "does not exist" in text_of(answer)


def test_a_session_replaced_by_a_link_out_of_its_root_is_not_followed(browser, path):
    elsewhere = place(path.parent.parent / "elsewhere" / "s.jsonl", b"elsewhere\n")
    place(elsewhere.with_name(FOREIGN), b"elsewhere\n")
    path.unlink()
    path.symlink_to(elsewhere)
    for page in BELOW:
        for answer in (browser.get(f"{address(path)}/{page}"), browser.post(f"{address(path)}/{page}")):
            assert is_refused(answer, path)
            assert not answer.streaming
            assert "elsewhere" not in text_of(answer)
    assert elsewhere.read_bytes() == b"elsewhere\n"
    assert elsewhere.with_name(FOREIGN).is_file()


def test_without_a_configured_root_no_page_is_shown(browser, path):
    place(path.parent / FOREIGN, path.read_bytes())
    Root.objects.update(configured=False)
    for page in (f"{address(path)}/{below}" for below in BELOW):
        assert is_refused(browser.get(page), path)
        assert is_refused(browser.post(page), path)


def test_what_only_shows_takes_no_form_and_one_that_deletes_is_sent_with_its_csrf_token(browser, path):
    place(path.parent / FOREIGN, path.read_bytes())
    with unchanged(path.parent):
        for page in ("backups", "download", f"backups/{FOREIGN}/download"):
            assert browser.post(f"{address(path)}/{page}").status_code == 405
    strict, page = new_client(enforce_csrf_checks=True), of(path, FOREIGN, "delete")
    strict.cookies = browser.cookies
    assert strict.post(page, fields(strict.get(page))).status_code == 303


HOSTILE = {
    "markup": "<script>alert(1)< \"><img src=x onerror=alert(1)>' {{ 7|add:7 }} a b%2f?#&;",
    "characters": "\u202egnp.\x1b]0;owned\x07 line\nbreak",
}


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_and_texts_are_inert_on_every_page(browser, known_root, words):
    name = f"{words.replace('/', '_')}.jsonl"
    recorded = working_session()
    recorded[1]["message"]["content"] = words
    path = place(known_root / name, session_bytes(recorded))
    index_roots()
    backup = compacted(path)
    more = [{"type": words, "id": words, "parentId": "e27", "timestamp": "t"}]
    place(path, path.read_bytes() + session_bytes(more))
    page = f"{address(path)}/backups"
    names = (f"{quote(backup)}/restore", f"{quote(backup)}/delete", f"{words}/restore")
    pages = [page, *(f"{page}/{name}" for name in names)]
    for one in pages:
        answer = browser.get(one)
        text = text_of(answer)
        assert answer.status_code in {200, 404}
        assert active_markup(answer) == []
        assert not elements(answer, "img")
        assert not set(answer.content.decode()) & set("\x00\x07\x1b\u202e")
        assert "{{ 7|add:7 }}" in text or answer.status_code == 404 or words != HOSTILE["markup"]
    assert restored(browser, pages[1], "drop_newer").status_code == 303
    assert path.read_bytes() == session_bytes(recorded)
    assert active_markup(browser.get(f"{page}?deleted={quote(name + FOREIGN[7:])}")) == []
    assert fetched(browser, f"{address(path)}/download")[1] == session_bytes(recorded)

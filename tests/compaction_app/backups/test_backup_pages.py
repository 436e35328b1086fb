"""Promises of the pages of backups: nothing is lost by them, and a name in an address is only a name."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.test import Client

from compaction_app.backups import download
from compaction_app.backups import presenter as backup_page
from compaction_app.backups.download import SentFile, disposition
from compaction_app.commit.service import Confirmations, commit
from compaction_app.models import Backup, Compaction
from sessions_app.index.indexer import index_roots
from sessions_app.models import Root, Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.locks import session_lock
from tests.clients import new_client
from tests.factories import message, session_bytes, user, working_session
from tests.files import backdate, place, snapshot
from tests.installation import Installation
from tests.plans import approved_plan
from tests.server import start_server

FOREIGN = "s.jsonl.2025-01-01T00-00-00-000Z.compact.bak"
ACTIONS = ("restore", "verify", "delete", "download")


@pytest.fixture
def path(known_root: Path) -> Path:
    """A quiet session in a configured root, indexed."""
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
    """The session, after its agent went on; it has been quiet since."""
    more = [message(f"n{number}", "e27", user(word)) for number, word in enumerate(words)]
    place(path, path.read_bytes() + session_bytes(more))
    return path.read_bytes()


def text_of(answer: Any) -> str:
    """What a page shows, without its tags, on one line."""
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


def shown(browser: Client, page: str) -> str:
    """The state that a page speaks of, as its form sends it back."""
    found = re.search(r'name="shown" value="([^"]+)"', browser.get(page).content.decode())
    assert found is not None
    return found[1]


def restored(browser: Client, page: str, *yeses: str) -> Any:
    return browser.post(page, {"shown": shown(browser, page), "yes": list(yeses)})


def refuses(browser: Client, path: Path, page: str, **values: Any) -> str:
    """The page that a POST answers with, after which the files and rows are those of before."""
    before, rows = snapshot(path.parent), list(Backup.objects.order_by("pk").values())
    answer = browser.post(page, values)
    assert snapshot(path.parent) == before
    assert list(Backup.objects.order_by("pk").values()) == rows
    assert answer.status_code == 409
    return text_of(answer)


# ---- the list ----------------------------------------------------------------------------------------------


def test_a_session_without_backups_says_when_one_is_made(browser: Client, path: Path) -> None:
    page = text_of(browser.get(f"{address(path)}/backups"))
    assert "No backups yet" in page
    assert "One is made before every compaction and before every restore." in page


def test_the_list_says_of_each_backup_when_why_and_what_a_restore_takes(browser: Client, path: Path) -> None:
    name = compacted(path)
    grown(path, "one", "two")
    (path.parent / FOREIGN).write_bytes(path.read_bytes())
    answer = browser.get(f"{address(path)}/backups")
    ours, foreign = answer.content.decode().split("<tbody>")[1].split("</tr>")[:2]
    assert datetime.now(UTC).strftime("%-d %b %Y") in ours
    assert f'Before a compaction <span class="mono">{Compaction.objects.get().entry_id}' in ours
    assert Backup.objects.get().sha256[:12] in ours
    assert "not checked yet" in ours
    assert "2 user messages and the compaction it was made for" in ours
    assert name in ours
    assert "1 Jan 2025, 00:00:00" in foreign
    assert "Not made by Redline" in foreign
    assert "unverified: Redline did not make it" in foreign
    assert "Nothing" in foreign


def test_looking_at_the_list_hashes_nothing(
    browser: Client, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = compacted(path)

    def fail(*_: object) -> None:
        raise AssertionError("a backup was hashed")

    monkeypatch.setattr(backup_page.files, "verify", fail)
    assert browser.get(f"{address(path)}/backups").status_code == 200
    assert browser.get(f"{address(path)}/backups/{name}/restore").status_code == 200


def test_what_is_too_large_to_compare_for_the_list_is_told_on_its_page(
    browser: Client, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = compacted(path, compression_ratio=0.8), compacted(path, compression_ratio=0.5)
    room = path.stat().st_size + (path.parent / second).stat().st_size
    monkeypatch.setattr(backup_page, "COMPARED_BYTES", room)
    newest, older = (
        browser.get(f"{address(path)}/backups").content.decode().split("<tbody>")[1].split("</tr>")[:2]
    )
    assert second in newest
    assert "The compaction it was made for" in newest
    assert "Told before you restore" in older
    page = text_of(browser.get(f"{address(path)}/backups/{first}/restore"))
    assert "1 compaction and the compaction it was made for" in page


def test_only_what_the_disk_bears_out_is_said_to_be_done(browser: Client, path: Path) -> None:
    name = compacted(path)
    page = f"{address(path)}/backups"
    for query in (
        f"?deleted={name}",
        "?deleted=<b>",
        "?deleted=..",
        f"?deleted=other{FOREIGN}",
        "?restored=x",
    ):
        assert 'role="status"><svg' not in browser.get(page + query).content.decode()
    assert FOREIGN in text_of(browser.get(f"{page}?deleted={FOREIGN}"))


# ---- verifying ---------------------------------------------------------------------------------------------


def test_a_verification_is_shown_until_the_file_is_touched(browser: Client, path: Path) -> None:
    name = compacted(path)
    page = f"{address(path)}/backups"
    answer = browser.post(f"{page}/{name}/verify")
    assert answer.status_code == 303
    assert answer["Location"].startswith(f"{page}#backup-")
    shown_after = browser.get(page).content.decode()
    assert "holds, verified now" in shown_after
    assert f'id="{answer["Location"].split("#")[1]}"' in shown_after

    backup = path.parent / name
    content = backup.read_bytes()
    backup.write_bytes(content[:-9] + b"#" + content[-8:])
    assert "not checked yet" in text_of(browser.get(page))


def test_htmx_gets_the_row_alone(browser: Client, path: Path) -> None:
    name = compacted(path)
    answer = browser.post(f"{address(path)}/backups/{name}/verify", headers={"HX-Request": "true"})
    row = answer.content.decode()
    assert answer.status_code == 200
    assert row.strip().startswith("<tr")
    assert row.strip().endswith("</tr>")
    assert "holds, verified now" in row
    assert "csrfmiddlewaretoken" in row


def test_a_backup_that_has_changed_cannot_be_restored(browser: Client, path: Path) -> None:
    name = compacted(path)
    backup = path.parent / name
    backup.write_bytes(backup.read_bytes()[:-9] + b"#")
    page = f"{address(path)}/backups/{name}/restore"
    state = shown(browser, page)
    told = refuses(browser, path, page, shown=state, yes=["drop_newer"])
    assert "does not have the SHA-256 that was recorded" in told

    row = text_of(browser.post(f"{address(path)}/backups/{name}/verify", headers={"HX-Request": "true"}))
    assert "does not hold" in row
    assert "Restore…" not in row
    again = browser.get(page).content.decode()
    assert "This backup cannot be restored" in again
    assert 'name="shown"' not in again


def test_a_backup_without_a_recorded_hash_is_hashed_and_stays_unverified(browser: Client, path: Path) -> None:
    backup = place(path.parent / FOREIGN, b"the agent's own\n")
    row = text_of(browser.post(f"{address(path)}/backups/{FOREIGN}/verify", headers={"HX-Request": "true"}))
    assert hashlib.sha256(backup.read_bytes()).hexdigest()[:12] in row
    assert "unverified" in row


def test_the_agents_own_backups_are_listed_with_what_made_them(browser: Client, path: Path) -> None:
    labels = ("compact", "auto-compact", "overflow-auto-compact", "context-compact")
    for label in labels:
        place(path.parent / f"s.jsonl.2025-01-01T00-00-00-000Z.{label}.bak", b"the agent's own\n")
    answer = browser.get(f"{address(path)}/backups")
    for label in labels:
        assert f"Not made by Redline: {label} " in text_of(answer)
    anchors = re.findall(r'id="(backup-[^"]+)"', answer.content.decode())
    assert len(set(anchors)) == len(anchors) == len(labels)


# ---- restoring ---------------------------------------------------------------------------------------------


def test_a_compaction_is_undone_and_the_undoing_is_undone(browser: Client, path: Path) -> None:
    before = path.read_bytes()
    name = compacted(path)
    after = path.read_bytes()
    page = f"{address(path)}/backups/{name}/restore"
    answer = browser.get(page)
    assert f"{len(after):,} → {len(before):,} bytes" in text_of(answer)
    assert "The compaction it was made for." in text_of(answer)
    assert b'type="checkbox"' not in answer.content

    done = restored(browser, page)
    assert done.status_code == 303
    assert path.read_bytes() == before
    told = browser.get(done["Location"]).content.decode()
    assert "Restored: the session was given the bytes of the backup" in told
    way_back = re.search(r'href="([^"]+)">Take the restore back', told)
    assert way_back is not None

    assert "Nothing; 1 line comes back." in text_of(browser.get(unquote(way_back[1])))
    assert restored(browser, unquote(way_back[1])).status_code == 303
    assert path.read_bytes() == after


def test_what_came_after_a_backup_is_listed_and_goes_only_with_a_yes(browser: Client, path: Path) -> None:
    before = path.read_bytes()
    name = compacted(path)
    after = grown(path, *map(str, range(53)))
    page = f"{address(path)}/backups/{name}/restore"
    told = text_of(browser.get(page))
    assert "53 user messages and the compaction it was made for" in told
    assert "n49" in told
    assert "n50" not in told
    assert "and 3 more" in told
    assert "Take away the 53 lines that came after this backup." in told
    assert "Trust this backup" not in told

    refusal = refuses(browser, path, page, shown=shown(browser, page))
    assert "Nothing was restored: an explicit yes is missing." in refusal
    assert "Take away the 53 lines that came after this backup. this yes is missing" in refusal
    assert "--drop-newer" not in refusal

    done = restored(browser, page, "drop_newer")
    assert path.read_bytes() == before
    back = re.search(r"back=([^&]+)", done["Location"])
    assert back is not None
    assert (path.parent / back[1]).read_bytes() == after


def test_each_yes_is_asked_for_by_itself(browser: Client, path: Path) -> None:
    backup = place(path.parent / FOREIGN, session_bytes(working_session(steps=2)))
    page = f"{address(path)}/backups/{FOREIGN}/restore"
    state = shown(browser, page)
    assert "2 things need your explicit yes" in text_of(browser.get(page))
    for yes, missing in (("drop_newer", "Trust this backup"), ("unverified", "Take away the")):
        told = refuses(browser, path, page, shown=state, yes=[yes])
        assert told.count("this yes is missing") == 1
        assert re.search(missing + "[^.]*[.] this yes is missing", told)
    assert restored(browser, page, "drop_newer", "unverified").status_code == 303
    assert path.read_bytes() == backup.read_bytes()


def test_a_yes_does_not_cover_what_came_after_it_was_shown(browser: Client, path: Path) -> None:
    name = compacted(path)
    grown(path, "seen")
    page = f"{address(path)}/backups/{name}/restore"
    state = shown(browser, page)
    grown(path, "seen", "not seen")
    told = refuses(browser, path, page, shown=state, yes=["drop_newer"])
    assert "not as it was when this was shown" in told
    assert "3 user messages" in told
    answer = browser.post(page, {"shown": state, "yes": ["drop_newer"]}).content.decode()
    assert not re.search(r"<input[^>]* checked", answer)
    assert "not as it was" in refuses(browser, path, page, yes=["drop_newer"])


def test_a_live_session_needs_its_own_confirmation_to_be_restored(browser: Client, path: Path) -> None:
    before = path.read_bytes()
    name = compacted(path)
    page = f"{address(path)}/backups/{name}/restore"
    assert "was written to in the last 5 minutes" not in text_of(browser.get(page))
    os.utime(path)
    after = path.read_bytes()
    assert "was written to in the last 5 minutes" in text_of(browser.get(page))
    assert restored(browser, page).status_code == 409
    assert path.read_bytes() == after
    assert restored(browser, page, "live").status_code == 303
    assert path.read_bytes() == before
    assert "was written to in the last 5 minutes" not in text_of(browser.get(page))  # that was our own write


def test_a_session_that_is_gone_comes_back(browser: Client, path: Path) -> None:
    before = path.read_bytes()
    name = compacted(path)
    page = f"{address(path)}/backups/{name}/restore"
    path.unlink()
    index_roots()
    assert "the session file is gone" in text_of(browser.get(f"{address(path)}/backups"))
    assert "there is no session to back up" in text_of(browser.get(page))
    done = restored(browser, page)
    assert path.read_bytes() == before
    assert "It was gone before, so no backup was made." in text_of(browser.get(done["Location"]))


def test_a_session_that_is_being_written_is_not_restored(
    browser: Client, path: Path, redline: Installation, settings: Any
) -> None:
    name = compacted(path)
    grown(path, "one")
    settings.REDLINE = settings.REDLINE.model_copy(update={"lock_seconds": 0})
    page = f"{address(path)}/backups/{name}/restore"
    state = shown(browser, page)
    with session_lock(redline.data, path, 0):
        told = refuses(browser, path, page, shown=state)
        assert "is locked by another Redline process" in told
        assert "this yes is missing" not in told
        assert "is locked" in refuses(browser, path, f"{address(path)}/backups/{name}/delete", only="yes")


# ---- deleting ----------------------------------------------------------------------------------------------


def test_a_backup_is_deleted_after_a_page_that_says_what_goes(browser: Client, path: Path) -> None:
    name = compacted(path)
    session = path.read_bytes()
    page = f"{address(path)}/backups/{name}/delete"
    told = text_of(browser.get(page))
    assert "This is the only backup of s.jsonl" in told
    assert "The record of the compaction stays" in told
    assert (path.parent / name).is_file()

    answer = browser.post(page, {"only": "yes"})
    assert answer.status_code == 303
    assert f"Deleted: {name}" in text_of(browser.get(answer["Location"]))
    assert snapshot(path.parent) == {"s.jsonl": session}
    assert Compaction.objects.get().backup.sha256
    assert browser.get(page).status_code == 404


def test_a_backup_that_became_the_only_one_is_not_deleted_unseen(browser: Client, path: Path) -> None:
    first, second = compacted(path, compression_ratio=0.8), compacted(path, compression_ratio=0.5)
    page = f"{address(path)}/backups/{first}/delete"
    told = text_of(browser.get(page))
    assert "the only backup" not in told
    assert "1 more backup of this session stays" in told
    (path.parent / second).unlink()
    assert "has become the only backup" in refuses(browser, path, page)
    assert browser.post(page, {"only": "yes"}).status_code == 303
    assert not (path.parent / first).exists()


# ---- downloading -------------------------------------------------------------------------------------------


def fetched(browser: Client, page: str) -> tuple[Any, bytes]:
    """A download with its body, received as an ASGI server receives it."""
    answer: Any = browser.get(page)
    assert answer.is_async

    async def body() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return answer, async_to_sync(body)()


def test_downloads_are_the_bytes_themselves(browser: Client, path: Path) -> None:
    before = path.read_bytes() + b"\xff\x00 no text {torn"
    path.write_bytes(before)
    backup = place(path.parent / FOREIGN, b"\xfe" * 3_000_000)
    pages = {
        f"{address(path)}/download": (before, "s.jsonl"),
        f"{address(path)}/backups/{FOREIGN}/download": (backup.read_bytes(), FOREIGN),
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


def test_a_download_is_the_file_as_it_was_when_it_was_opened(tmp_path: Path) -> None:
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


def test_a_download_never_holds_the_file(tmp_path: Path) -> None:
    path = place(tmp_path / "a.jsonl", b"x" * 5_000_000)
    sizes = async_to_sync(_sizes)(SentFile(path))
    assert sum(sizes) == 5_000_000
    assert max(sizes) <= download.CHUNK


async def _sizes(sent: SentFile) -> list[int]:
    sizes = [len(piece) async for piece in sent]
    sent.close()
    return sizes


def test_an_answer_that_is_thrown_away_leaves_no_file_open(browser: Client, path: Path) -> None:
    opened = _open_files()
    for _ in range(5):
        browser.get(f"{address(path)}/download").close()
    assert _open_files() <= opened


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_a_real_server_sends_a_download_whole(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        content = (
            session_bytes(working_session())
            + b'{"type":"custom","id":"big","data":"'
            + b"x" * 4_000_000
            + b'"}\n'
        )
        place(server.root / "s.jsonl", content)
        page = server.session("Mend the parser.")
        with server._opener.open(f"{server.base}{page}/download") as answer:
            assert answer.read() == content
        assert "No backups yet" in server.get(f"{page}/backups")


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
def test_a_download_has_a_name_that_can_do_nothing(name: str, header: str | None) -> None:
    told = disposition(name)
    HttpResponse()["Content-Disposition"] = told  # which refuses line breaks
    assert header is None or told == header
    assert re.fullmatch(
        r"attachment; filename=\"[A-Za-z0-9_-][A-Za-z0-9._-]*\"(; filename\*=UTF-8''[A-Za-z0-9%._~-]+)?", told
    )
    decoded = unquote(told.split("''")[-1])
    assert not set(decoded) & set("\r\n\0\u202e\\/") or "''" not in told


# ---- names, methods, who may -------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "name",
    [
        "..",
        "%2e%2e",
        "..%2fother.jsonl",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "s.jsonl",
        f"{FOREIGN}.sha256",
        "s.jsonl.2025-13-01T00-00-00-000Z.compact.bak",
        "other.jsonl.2025-01-01T00-00-00-000Z.compact.bak",
        "s.jsonl.2025-02-02T00-00-00-000Z.compact.bak",
        "..%2fshown%2f" + FOREIGN,
        "%2e%2f" + FOREIGN,
        FOREIGN + "%00",
        FOREIGN + "%0a",
        FOREIGN.replace("s.jsonl", "S.jsonl"),
    ],
)
def test_a_name_in_an_address_is_only_a_name(browser: Client, path: Path, name: str, action: str) -> None:
    place(path.parent / FOREIGN, path.read_bytes())
    other = place(path.parent / "other.jsonl", path.read_bytes())
    place(other.with_name(FOREIGN.replace("s.jsonl", "other.jsonl", 1)), b"another session's\n")
    outside = place(path.parent.parent / "outside.bak", b"outside\n")
    path.with_name("s.jsonl.2025-02-02T00-00-00-000Z.compact.bak").symlink_to(outside)
    index_roots()
    before = snapshot(path.parent.parent / "shown")
    page = f"{address(path)}/backups/{name}/{action}"
    values = {"yes": ["drop_newer", "unverified"], "only": "yes", "shown": ""}
    for answer in (
        browser.get(page),
        browser.post(page, values),
        browser.post(page, values, headers={"HX-Request": "true"}),
    ):
        assert is_refused(answer, path)
        assert not answer.streaming
        assert b"outside" not in answer.content
    assert snapshot(path.parent.parent / "shown") == before
    assert outside.read_bytes() == b"outside\n"


def is_refused(answer: Any, path: Path) -> bool:
    """Nothing is shown or done; an address that only acts may lead to the list of backups."""
    if answer.status_code == 303:
        return str(answer["Location"]) == f"{address(path)}/backups"
    return answer.status_code in {404, 405}


def test_what_is_not_there_is_said_in_words_with_a_way_on(browser: Client, path: Path) -> None:
    answer = browser.get(f"{address(path)}/backups/nothing<b>/restore")
    assert answer.status_code == 404
    assert "s.jsonl has no backup named nothing&lt;b&gt;" in text_of(answer)
    assert f'href="{address(path)}/backups"' in answer.content.decode()
    gone = browser.post(f"{address(path)}/backups/{FOREIGN}/verify", headers={"HX-Request": "true"})
    assert gone["HX-Redirect"] == f"{address(path)}/backups"

    page = address(path)
    path.unlink()
    assert browser.get(f"{page}/download").status_code == 404
    shutil.rmtree(path.parent)
    answer = browser.get(f"{page}/backups")
    assert answer.status_code == 404
    assert "is not there" in text_of(answer)


def test_a_session_that_became_a_link_out_of_its_root_is_not_followed(browser: Client, path: Path) -> None:
    elsewhere = place(path.parent.parent / "elsewhere" / "s.jsonl", b"elsewhere\n")
    place(elsewhere.with_name(FOREIGN), b"elsewhere\n")
    path.unlink()
    path.symlink_to(elsewhere)
    for page in ("backups", "download", *(f"backups/{FOREIGN}/{action}" for action in ACTIONS)):
        for answer in (browser.get(f"{address(path)}/{page}"), browser.post(f"{address(path)}/{page}")):
            assert is_refused(answer, path)
            assert not answer.streaming
            assert "elsewhere" not in text_of(answer)
    assert elsewhere.read_bytes() == b"elsewhere\n"
    assert elsewhere.with_name(FOREIGN).is_file()


def test_only_configured_roots_have_backups_in_the_browser(browser: Client, path: Path) -> None:
    place(path.parent / FOREIGN, path.read_bytes())
    page = address(path)
    Root.objects.update(configured=False)
    for below in ("backups", "download", *(f"backups/{FOREIGN}/{action}" for action in ACTIONS)):
        assert is_refused(browser.get(f"{page}/{below}"), path)
        assert is_refused(browser.post(f"{page}/{below}"), path)


def test_nobody_without_the_cookie_gets_any_of_it(client: Client, path: Path) -> None:
    place(path.parent / FOREIGN, path.read_bytes())
    for below in ("backups", "download", *(f"backups/{FOREIGN}/{action}" for action in ACTIONS)):
        assert client.get(f"{address(path)}/{below}").status_code == 403
        assert client.post(f"{address(path)}/{below}").status_code == 403


def test_what_changes_something_needs_the_token_of_a_form(browser: Client, path: Path) -> None:
    place(path.parent / FOREIGN, path.read_bytes())
    strict = new_client(enforce_csrf_checks=True)
    strict.cookies = browser.cookies
    before = snapshot(path.parent)
    for action in ("restore", "verify", "delete"):
        page = f"{address(path)}/backups/{FOREIGN}/{action}"
        assert strict.post(page, {"yes": ["unverified"], "only": "yes"}).status_code == 403
    assert snapshot(path.parent) == before

    form = strict.get(f"{address(path)}/backups/{FOREIGN}/delete").content.decode()
    token = re.search(r'csrfmiddlewaretoken" value="([^"]+)"', form)
    assert token is not None
    page = f"{address(path)}/backups/{FOREIGN}/delete"
    assert strict.post(page, {"only": "yes", "csrfmiddlewaretoken": token[1]}).status_code == 303


def test_other_methods_are_refused(browser: Client, path: Path) -> None:
    place(path.parent / FOREIGN, path.read_bytes())
    before = snapshot(path.parent)
    backup = f"{address(path)}/backups/{FOREIGN}"
    wrong = [
        (browser.post, f"{address(path)}/backups"),
        (browser.post, f"{address(path)}/download"),
        (browser.post, f"{backup}/download"),
        (browser.delete, f"{backup}/delete"),
        (browser.put, f"{backup}/restore"),
    ]
    for method, page in wrong:
        assert method(page).status_code == 405
    assert snapshot(path.parent) == before


HOSTILE = [
    "<script>alert(1)<",
    "\"><img src=x onerror=alert(1)>'",
    "a b%2f?#&;",
    "\u202egnp.",
    "{{ 7|add:7 }}",
    "\x1b]0;owned\x07",
    "line\nbreak",
]


@pytest.mark.parametrize("words", HOSTILE)
def test_names_and_texts_are_inert_on_every_page(browser: Client, known_root: Path, words: str) -> None:
    name = f"{words.replace('/', '_')}.jsonl"
    recorded = working_session()
    recorded[1]["message"]["content"] = words
    path = place(known_root / name, session_bytes(recorded))
    index_roots()
    backup = compacted(path)
    more = [{"type": words, "id": words, "parentId": "e27", "timestamp": "t"}]
    place(path, path.read_bytes() + session_bytes(more))
    page = f"{address(path)}/backups"
    pages = [
        page,
        f"{page}/{quote(backup)}/restore",
        f"{page}/{quote(backup)}/delete",
        f"{page}/{words}/restore",
    ]
    for one in pages:
        answer = browser.get(one)
        text = answer.content.decode()
        assert answer.status_code in {200, 404}
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert not set(text) & set("\x00\x07\x1b\u202e")
        assert "{{ 7|add:7 }}" in text or "14" not in text or words != HOSTILE[4]
    assert restored(browser, pages[1], "drop_newer").status_code == 303
    assert path.read_bytes() == session_bytes(recorded)
    told = browser.get(f"{page}?deleted={quote(name + FOREIGN[7:])}").content.decode()
    assert "<script>alert" not in told
    assert fetched(browser, f"{address(path)}/download")[1] == session_bytes(recorded)

"""The page of all backups: every byte on disk is counted once, and every backup is compared with its recorded hash."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from compaction_app.backups import overview
from compaction_app.commit.service import Confirmations, commit
from sessions_app.index.indexer import index_roots
from sessions_app.models import Root, Session
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.html import element, elements, link, missing, text_of, texts
from tests.plans import approved_plan


@pytest.fixture
def backups(known_root):
    """The backups of two sessions, that of the longer one first."""
    for name, more in (("long.jsonl", b"\n" * 5_000), ("short.jsonl", b"")):
        place(known_root / name, session_bytes(working_session()) + more)
    index_roots()
    return [
        commit(approved_plan(known_root / name), Confirmations(live=True), datetime.now(UTC)).backup.path
        for name in ("long.jsonl", "short.jsonl")
    ]


def words(browser: Client, address: str = "/backups") -> str:
    answer = browser.get(address)
    assert answer.status_code == 200
    return text_of(answer)


def verify(browser: Client, **data: str) -> Any:
    return browser.post("/backups/verify", data, follow=True)


def test_every_backup_is_there_with_its_session_and_the_space_that_it_takes(browser, backups):
    shown, sizes = browser.get("/backups"), [path.stat().st_size for path in backups]
    assert [
        int(str(one.attributes["title"]).split()[0].replace(",", "")) for one in elements(shown, "td [title$=bytes]")
    ] == sizes
    assert not missing(text_of(shown), "2 backups of 2 sessions", "2 not checked yet", "Before a compaction")
    for session in Session.objects.all():
        assert f"{session.get_absolute_url()}/backups" in [
            one.attributes["href"] for one in elements(shown, ".backups__session a")
        ]
    assert link(browser.get("/"), "Backups") == "/backups"


def test_all_are_verified_and_a_damaged_one_is_told_apart(browser, backups):
    content = backups[1].read_bytes()
    backups[1].chmod(0o600)
    backups[1].write_bytes(content[:-2] + b"x\n")
    shown = text_of(verify(browser))
    assert not missing(shown, "1 verified", "1 with a hash mismatch")
    assert "not checked yet" not in shown
    assert [mark.split()[0] for mark in texts(browser.get("/backups"), ".hash .mark")] == ["Verified", "Hash"]
    assert "1 damaged" in text_of(element(browser.get("/backups"), "title"))


def test_a_long_verification_goes_on_in_steps(browser, backups, monkeypatch):
    monkeypatch.setattr(overview, "STEP_BYTES", 1)
    first = verify(browser)
    assert first.redirect_chain[-1][0] == "/backups?done=1"
    assert not missing(text_of(first), "1 of 2 were read", "1 verified")
    assert element(first, "input[name=from]").attributes["value"] == "1"
    last = verify(browser, **{"from": "1"})
    assert last.redirect_chain[-1][0] == "/backups"
    assert "2 verified" in text_of(last)


def test_a_script_asks_for_the_next_step_until_there_is_none(browser, backups, monkeypatch):
    monkeypatch.setattr(overview, "STEP_BYTES", 1)
    part = browser.post("/backups/verify", headers={"HX-Request": "true"})
    assert element(part, "form[hx-post]").attributes["hx-trigger"] == "load, submit"
    part = browser.post("/backups/verify", {"from": "1"}, headers={"HX-Request": "true"})
    assert "hx-trigger" not in element(part, "form[hx-post]").attributes
    assert "2 verified" in text_of(part)


def test_a_backup_that_is_gone_is_counted_and_takes_no_space(browser, backups):
    backups[0].unlink()
    assert not missing(words(browser), "1 backup of 2 sessions", "1 not there any more")
    assert "1 verified" in text_of(verify(browser))


def test_backups_of_a_root_that_is_not_configured_are_not_shown(browser, backups):
    Root.objects.update(configured=False)
    assert not missing(words(browser), "No backups yet", "One is made before every compaction")


def test_numbers_that_are_none_begin_at_the_start(browser, backups):
    assert "2 verified" in text_of(verify(browser, **{"from": "-1"}))
    assert "2 backups" in words(browser, "/backups?page=x&done=9999999999999")

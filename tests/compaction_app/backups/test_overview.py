"""The page of all backups: every byte on disk is counted once, and every backup is compared with its recorded hash. A
session that must not lose bytes is not offered for a restore, which would be refused, on any page or by a command."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import commit
from compaction_app.pages import backups as backup_page
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Root, Session
from tests.factories import session_bytes, working_session
from tests.files import backdate, place, snapshot
from tests.html import addresses, element, elements, link, missing, text_of, text_sent, texts
from tests.plans import approved_plan
from tests.runs import approve_proposals, commit_approved, plan_session
from tests.sessions import use_root
from tests.sessions_app.agents.codex.rollouts import work


@pytest.fixture
def backups(known_root):
    """The backups of two sessions, that of the longer one first."""
    content = session_bytes(working_session())
    paths = [
        place(known_root / "long.jsonl", content + b" " * 5_000 + b"\n"),
        place(known_root / "short.jsonl", content),
    ]
    index_roots()
    return [commit(approved_plan(path), Confirmations(live=True), datetime.now(UTC)).backup.path for path in paths]


def words(browser: Client, address: str = "/history/backups") -> str:
    return text_sent(browser.get(address), 200)


def verify(browser: Client, **data: str) -> Any:
    return browser.post("/history/backups/verify", data, follow=True)


def test_every_backup_is_there_with_its_session_and_the_space_that_it_takes(browser, backups):
    shown, sizes = browser.get("/history/backups"), [path.stat().st_size for path in backups]
    titles = [str(one.attributes["title"]) for one in elements(shown, "td [title$=bytes]")]
    assert titles == [f"{size:,} bytes" for size in sizes]
    assert not missing(text_of(shown), "2 backups of 2 sessions", "2 not checked yet", "Before a compaction")
    named = [one.attributes["href"] for one in elements(shown, ".backups__session a")]
    assert not missing(named, *(f"{session.get_absolute_url()}/backups" for session in Session.objects.all()))
    assert link(browser.get("/"), "History") == "/history"


def test_all_are_verified_and_a_damaged_one_is_told_apart(browser, backups):
    content = backups[1].read_bytes()
    backups[1].chmod(0o600)
    backups[1].write_bytes(content[:-2] + b"x\n")
    shown = text_of(verify(browser))
    assert not missing(shown, "1 verified", "1 with a hash mismatch")
    assert "not checked yet" not in shown
    assert [mark.split()[0] for mark in texts(browser.get("/history/backups"), ".hash .mark")] == ["Verified", "Hash"]
    assert "1 damaged" in text_of(element(browser.get("/history/backups"), "title"))


def test_a_long_verification_goes_on_in_steps_for_which_a_script_asks(browser, backups, monkeypatch):
    monkeypatch.setattr(backup_page, "STEP_BYTES", 1)
    first = verify(browser)
    assert first.redirect_chain[-1][0] == "/history/backups?done=1"
    assert not missing(text_of(first), "1 of 2 were read", "1 verified")
    assert element(first, "input[name=from]").attributes["value"] == "1"
    last = verify(browser, **{"from": "1"})
    assert last.redirect_chain[-1][0] == "/history/backups"
    assert "2 verified" in text_of(last)
    monkeypatch.setattr(backup_page, "STEP_BYTES", 1)
    part = browser.post("/history/backups/verify", headers={"HX-Request": "true"})
    assert element(part, "form[hx-post]").attributes["hx-trigger"] == "load, submit"
    part = browser.post("/history/backups/verify", {"from": "1"}, headers={"HX-Request": "true"})
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
    assert "2 backups" in words(browser, "/history/backups?page=x&done=9999999999999")


@pytest.fixture
def run(redline, settings):
    """A committed run on a thread of Codex, below a configured root."""
    use_root(settings, redline.home / ".codex" / "sessions", "codex")
    directory = redline.home / ".codex" / "sessions" / "2026" / "01" / "05"
    path = backdate(work().save(directory))
    index_roots()
    run = approve_proposals(plan_session(Session.objects.get()))
    commit_approved(run, live=True, below_target=True)
    index_file(backdate(path))
    return run


@pytest.fixture
def path(run):
    return run.session.real_path()


@pytest.fixture
def backup(run):
    return Path(run.compaction.backup.path)


@pytest.fixture
def page(run):
    return f"/sessions/{run.session.root_id}/{run.session.relative_path}"


def test_the_list_and_the_result_offer_the_undo_instead(browser, run, page, backup):
    found = browser.get(f"{page}/backups")
    links = addresses(found)
    assert not [one for one in links if one.endswith("/restore")]
    assert f"/plans/{run.pk}/undo" in links
    assert "must not lose bytes" in text_of(found)
    assert "Before you restore" not in text_of(found)
    verified = browser.post(f"{page}/backups/{backup.name}/verify", headers={"HX-Request": "true"})
    assert "Restore" not in text_of(verified)
    result = text_of(browser.get(f"/plans/{run.pk}/result"))
    assert "Undo" in result
    assert "restore a backup" not in result


def test_a_kept_address_of_a_restore_says_why_there_is_none(browser, page, path, backup):
    before, shown = snapshot(path.parent), browser.get(f"{page}/backups/{backup.name}/restore")
    assert shown.status_code == 409
    assert "must not lose bytes" in text_of(shown)
    assert "Restore this backup" not in text_of(shown)
    assert browser.post(f"{page}/backups/{backup.name}/restore").status_code == 409
    assert snapshot(path.parent) == before


def test_the_commands_say_what_to_do_instead(redline, path, backup):
    assert "redline undo" in redline.call("backups", path).out
    for arguments in ((), ("--yes",)):
        refused = redline.call("restore", backup, *arguments)
        assert refused.code != 0
        assert not missing(refused.err, "must not lose bytes", "Undo")
        assert "--yes" not in refused.err
        assert "Would be deleted" not in refused.out


def test_a_lost_session_is_restored_as_any_other(browser, page, path, backup):
    path.unlink()
    assert [one for one in addresses(browser.get(f"{page}/backups")) if one.endswith("/restore")]
    assert "Restore this backup" in text_of(browser.get(f"{page}/backups/{backup.name}/restore"))

"""A session that must not lose bytes: no page and no command offers a restore, which would be refused."""

from pathlib import Path

import pytest

from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Session
from tests.files import backdate, snapshot
from tests.html import addresses, missing, text_of
from tests.runs import approve_proposals, commit_approved, plan_session
from tests.sessions import use_root
from tests.sessions_app.agents.codex.rollouts import work


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
    assert f"/runs/{run.pk}/undo" in links
    assert "must not lose bytes" in text_of(found)
    assert "Before you restore" not in text_of(found)
    verified = browser.post(f"{page}/backups/{backup.name}/verify", headers={"HX-Request": "true"})
    assert "Restore" not in text_of(verified)
    result = text_of(browser.get(f"/runs/{run.pk}/result"))
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
        assert "Would be removed" not in refused.out


def test_a_lost_session_is_restored_as_any_other(browser, page, path, backup):
    path.unlink()
    assert [one for one in addresses(browser.get(f"{page}/backups")) if one.endswith("/restore")]
    assert "Restore this backup" in text_of(browser.get(f"{page}/backups/{backup.name}/restore"))

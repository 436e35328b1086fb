"""A session that its agent has archived is marked, and no page offers what the agent would not continue."""

from pathlib import Path

import pytest

from sessions_app.index.indexer import index_roots
from sessions_app.models import Session
from tests.files import backdate
from tests.html import text_of
from tests.runs import approve_proposals, plan_session
from tests.sessions import use_root
from tests.sessions_app.agents.codex.rollouts import THREAD, summarised, user, work


@pytest.fixture(params=["sessions", "archived_sessions"])
def session(redline, settings, request):
    """A thread of Codex with a compaction of its own, archived or not."""
    directory = redline.home / ".codex" / request.param
    use_root(settings, directory, "codex")
    backdate(work(summarised("so far"), user("On.")).save(directory))
    index_roots()
    return Session.objects.get()


def test_an_archived_session_is_marked_and_not_forked(browser, session):
    is_archived = "archived_sessions" in session.root.path
    command = f"codex unarchive {THREAD}"
    assert ("archived" in text_of(browser.get("/"))) is is_archived
    assert (command in text_of(browser.get(session.get_absolute_url()))) is is_archived
    timeline = text_of(browser.get(f"{session.get_absolute_url()}/timeline"))
    assert ("Fork from before this point" in timeline) is not is_archived
    assert (command in timeline) is is_archived
    assert "Compact that instead" in timeline


def test_another_writer_is_offered_for_a_fork_that_cannot_be_made(browser, session):
    backdate(work().save(Path(session.root.path)))
    index_roots()
    run = approve_proposals(plan_session(Session.objects.get(), preserve_recent=0))
    shown = text_of(browser.get(f"/runs/{run.pk}/commit", {"writer": "fork"}))
    is_archived = "archived_sessions" in session.root.path
    assert ("Codex does not resume what is beside it" in shown) is is_archived
    assert ("Use the writer compacted" in shown) is is_archived

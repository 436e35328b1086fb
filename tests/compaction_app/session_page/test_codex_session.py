"""The page of a Codex thread: subagents are linked with the calls that started them, and of an archived thread, nothing
is offered that Codex would not continue."""

from itertools import chain
from pathlib import Path

import pytest

from compaction_app.review.lines import ref_of
from compaction_app.runs.reviews import review_of
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Session
from tests.files import backdate
from tests.html import addresses, missing, text_of
from tests.runs import approve_proposals, plan_session
from tests.sessions import use_root
from tests.sessions_app.agents.codex.rollouts import (
    THREAD,
    Rollout,
    answer,
    call,
    line,
    meta,
    output,
    reasoning,
    summarised,
    user,
    work,
)

CHILD = "01a20000-0000-7000-8000-00000000000c"
OTHER = "01a20000-0000-7000-8000-00000000000d"


@pytest.fixture
def sessions(redline, settings):
    """A thread, and that of a subagent that it started."""
    directory = redline.home / ".codex" / "sessions"
    use_root(settings, directory, "codex")
    item = {"type": "SubAgentActivity", "id": "c1", "kind": "started", "agent_thread_id": CHILD}
    started = line("event_msg", {"type": "item_completed", "item": item})
    Rollout(meta(), user("Go."), call("c1", "spawn_agent"), started, output("c1"), answer("Done.")).save(directory)
    child = Rollout(meta(CHILD, parent_thread_id=THREAD, source={"subagent": {}}), user("Look around."), answer("x"))
    child.save(directory, f"rollout-2026-01-05T10-00-00-{CHILD}.jsonl")
    index_roots()
    return [Session.objects.get(header_id=thread) for thread in (THREAD, CHILD)]


def test_a_subagent_is_linked_with_the_call_that_started_it(browser, sessions):
    parent, child = (session.get_absolute_url() for session in sessions)
    assert child not in addresses(browser.get("/"))
    assert child in addresses(browser.get("/?show=subagents"))
    shown = browser.get(f"{parent}?view=all")
    assert child in addresses(shown)
    assert "started the subagent Look around." in text_of(shown)
    shown = browser.get(child)
    assert f"{parent}/entries/2" in addresses(shown)
    assert "started by spawn_agent" in text_of(shown)


def test_a_review_names_what_the_agents_rules_tie_to_a_deletion(browser, sessions):
    talk = [[reasoning(f"r{n}", f"rs_{n}"), call(f"c{n}"), output(f"c{n}", "x" * 900), user("On.")] for n in range(4)]
    path = Rollout(meta(OTHER), user("Go."), *chain.from_iterable(talk), answer("Done.")).save(
        Path(sessions[0].path).parent, f"rollout-2026-01-05T10-00-01-{OTHER}.jsonl"
    )
    run = plan_session(index_file(path))
    proposed = next(iter(review_of(run).leads())).target
    review = text_of(browser.get(f"/plans/{run.pk}?at={ref_of(proposed)}"))
    assert not missing(review, "Thinking in turn 1 is deleted with it", "Its call is deleted with it")


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
    assert ("Fork from before this change" in timeline) is not is_archived
    assert (command in timeline) is is_archived
    assert "Compact that instead" in timeline


def test_another_writer_is_offered_for_a_fork_that_cannot_be_made(browser, session):
    backdate(work().save(Path(session.root.path)))
    index_roots()
    run = approve_proposals(plan_session(Session.objects.get(), preserve_recent=0))
    shown = text_of(browser.get(f"/plans/{run.pk}/confirm", {"writer": "fork"}))
    is_archived = "archived_sessions" in session.root.path
    assert ("Codex does not resume what is beside it" in shown) is is_archived
    assert ("An edit in this session instead" in shown) is is_archived

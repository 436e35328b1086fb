"""Promises of the page of a timeline: every change of the context, what it removed, and nothing of it can act."""

from pathlib import Path
from typing import Any

import pytest

from compaction_app.entries.branches import branch_state
from compaction_app.models import AuditEntry
from sessions_app.models import Session
from tests.clients import page
from tests.compaction_app.hostile import TOGETHER
from tests.factories import assistant, call, chain, context_edit, message, result, summary_compaction, text, user
from tests.files import unchanged
from tests.html import assert_inert, elements, links, missing, text_of, text_sent
from tests.sessions import add_session

TALK = (user("go"), assistant(text("a look"), call("c1")), result("c1", "x" * 4_000), assistant(text("done")))
FORKABLE = chain(*TALK, summary_compaction("so far", "e4"), user("on"))


def add(root: Path, recorded: list[Any]) -> str:
    return add_session(root, "a.jsonl", recorded, "pi")


def test_each_change_is_listed_and_the_last_one_is_selected(browser, idle_root):
    url = add(idle_root, chain(*TALK, summary_compaction("so far", "e3"), user("on"), context_edit("e3", None)))
    answer = page(browser, f"{url}/timeline")
    assert not missing(text_of(answer), "2 changes", "edits: what it replaced", "xxxx")
    assert ("Show the context", f"{url}?view=sees&leaf=e7") in links(answer)
    assert not missing(text_of(page(browser, f"{url}/timeline?at=e5")), "summary: what it replaced", "a look")


def test_the_chart_has_axes_and_its_points_lead_to_their_changes(browser, idle_root):
    url = add(idle_root, FORKABLE)
    answer = page(browser, f"{url}/timeline")
    for chart in elements(answer, "svg.chart"):
        assert not missing(text_of(chart), "tokens", "turn", "1", "2", "’s summary")
        assert [str(one.attributes["href"]) for one in elements(chart, "a")] == ["?at=e5"]


def test_a_branch_without_changes_says_so_and_has_no_points(browser, idle_root):
    url = add(idle_root, chain(*TALK))
    assert "it only grew" in text_of(page(browser, f"{url}/timeline"))
    for query in ("at=e2", "leaf=nowhere"):
        page(browser, f"{url}/timeline?{query}", 404)


@pytest.mark.parametrize("hostile", TOGETHER)
def test_what_a_session_contains_is_inert(browser, idle_root, hostile):
    talk = chain(user("go"), assistant(text(hostile)), context_edit("e2", None))
    url = add(idle_root, [*talk, {**message(hostile or "e4", "e3", user("on"))}])
    assert_inert(page(browser, f"{url}/timeline"))


def test_the_conversation_before_a_summary_is_continued_in_a_fork(browser, idle_root):
    url = add(idle_root, FORKABLE)
    with unchanged(idle_root / "a.jsonl"):
        assert "Fork from before this change" in text_of(page(browser, f"{url}/timeline"))
        answer = browser.post(f"{url}/fork", {"entry": "e4", "at": "e5"}, follow=True)
        fork = Session.objects.exclude(relative_path="a.jsonl").get()
        assert answer.redirect_chain[-1][0] == fork.get_absolute_url()
        roles = [message.role for message in branch_state(fork).context.messages]
        assert roles == ["user", "assistant", "toolResult", "assistant"]
    recorded = AuditEntry.objects.get()
    assert (recorded.action, recorded.new_file) == ("fork", str(fork.path))


def test_a_fork_from_an_unknown_entry_is_refused_on_the_page(browser, idle_root):
    answer = browser.post(f"{add(idle_root, FORKABLE)}/fork", {"entry": "nowhere", "at": "e5"})
    assert "The session has no entry nowhere" in text_sent(answer, 409)
    assert [path.name for path in idle_root.iterdir()] == ["a.jsonl"]

"""Promises of the page of a timeline: every change of the context, what it removed, and nothing of it can act."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.display.branches import branch_state, forget_branches
from compaction_app.models import AuditEntry
from sessions_app.models import Session
from tests.factories import (
    assistant,
    call,
    chain,
    context_edit,
    message,
    result,
    summary_compaction,
    text,
    user,
)
from tests.html import HOSTILE_TEXTS, assert_inert, links, text_of
from tests.sessions import add_session

TALK = (
    user("go"),
    assistant(text("a look"), call("c1")),
    result("c1", "x" * 4_000),
    assistant(text("done")),
)


def add_pi_session(root: Path, recorded: list[Any]) -> str:
    """Write and index a session, to be read as pi reads it; returns the URL of its page."""
    url = add_session(root, "a.jsonl", recorded)
    Session.objects.update(reader="pi")
    return url


def page(browser: Client, url: str) -> Any:
    answer = browser.get(url)
    assert answer.status_code == 200
    return answer


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    forget_branches()


def test_each_change_is_listed_and_the_last_one_is_selected(browser: Client, idle_root: Path) -> None:
    url = add_pi_session(
        idle_root,
        chain(*TALK, summary_compaction("so far", "e3"), user("on"), context_edit("e3", None)),
    )
    html = page(browser, f"{url}/timeline")
    shown = text_of(html)
    assert "2 changes of the context" in shown
    assert "Removed at point 2" in shown
    assert "xxxx" in shown
    assert ("Show", f"{url}?view=sees&leaf=e7") in links(html)


def test_another_change_can_be_selected(browser: Client, idle_root: Path) -> None:
    url = add_pi_session(
        idle_root,
        chain(*TALK, summary_compaction("so far", "e3"), user("on"), context_edit("e3", None)),
    )
    shown = text_of(page(browser, f"{url}/timeline?at=e5"))
    assert "Removed at point 1" in shown
    assert "a look" in shown


def test_a_branch_without_changes_says_so(browser: Client, idle_root: Path) -> None:
    url = add_pi_session(idle_root, chain(*TALK))
    assert "it only grew" in text_of(page(browser, f"{url}/timeline"))


def test_a_point_that_does_not_exist_is_not_found(browser: Client, idle_root: Path) -> None:
    url = add_pi_session(idle_root, chain(*TALK))
    assert browser.get(f"{url}/timeline?at=e2").status_code == 404
    assert browser.get(f"{url}/timeline?leaf=nowhere").status_code == 404


@pytest.mark.parametrize("hostile", HOSTILE_TEXTS)
def test_what_a_session_contains_is_inert(browser: Client, idle_root: Path, hostile: str) -> None:
    talk = chain(user("go"), assistant(text(hostile)), context_edit("e2", None))
    url = add_pi_session(idle_root, [*talk, {**message(hostile or "e4", "e3", user("on"))}])
    assert_inert(page(browser, f"{url}/timeline"))


def test_the_conversation_before_a_summary_is_continued_in_a_fork(browser: Client, idle_root: Path) -> None:
    url = add_pi_session(idle_root, chain(*TALK, summary_compaction("so far", "e4"), user("on")))
    original = (idle_root / "a.jsonl").read_bytes()
    shown = page(browser, f"{url}/timeline")
    assert "Fork from before this point" in text_of(shown)
    answer = browser.post(f"{url}/fork", {"entry": "e4", "at": "e5"}, follow=True)
    fork = Session.objects.exclude(relative_path="a.jsonl").get()
    assert answer.redirect_chain[-1][0] == fork.get_absolute_url()
    assert [message.role for message in branch_state(fork).context.messages] == [
        "user",
        "assistant",
        "toolResult",
        "assistant",
    ]
    assert (idle_root / "a.jsonl").read_bytes() == original
    recorded = AuditEntry.objects.get()
    assert (recorded.action, recorded.new_file) == ("fork", str(fork.path))


def test_a_fork_from_an_unknown_entry_is_refused_on_the_page(browser: Client, idle_root: Path) -> None:
    url = add_pi_session(idle_root, chain(*TALK, summary_compaction("so far", "e4"), user("on")))
    answer = browser.post(f"{url}/fork", {"entry": "nowhere", "at": "e5"})
    assert answer.status_code == 409
    assert "The session has no entry nowhere" in text_of(answer)
    assert [path.name for path in idle_root.iterdir()] == ["a.jsonl"]

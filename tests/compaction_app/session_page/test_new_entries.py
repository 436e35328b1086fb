"""Promises of an open page that follows its session: it is told what was added, for every agent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.display.branches import branch_state
from compaction_app.session_page.new_entries import ShownBranch, draw_news
from redline.configuration import RootSetting
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.models import Session
from tests.browser.agent_sessions import AMP_THREAD, AgentHome, claude_session, codex_thread
from tests.claude_sessions import text as claude_text
from tests.factories import assistant, chain, compaction, message, session_bytes, text, user, whole
from tests.files import append_as_agent, place
from tests.html import element, elements, text_of
from tests.sessions import add_session
from tests.sessions_app.agents.codex import rollouts
from tests.sessions_app.agents.codex.rollouts import Rollout


def news(session: Session, last: str, view: str = "sees") -> str:
    return draw_news(session.pk, ShownBranch(view, last), datetime.now(UTC))


def newer(session: Session, last: str, view: str = "sees") -> str:
    return text_of(element(news(session, last, view), "#newer"))


def test_new_entries_are_counted_with_their_tokens_and_the_context(browser: Client, idle_root: Path) -> None:
    address = add_session(idle_root, "a.jsonl", chain(user("one")))
    session = Session.objects.get()
    assert newer(session, "e1") == ""
    append_as_agent(
        idle_root / "a.jsonl",
        session_bytes([message("e2", "e1", assistant(text("x" * 400))), message("e3", "e2", user("two"))]),
    )
    index_roots()
    drawn = news(session, "e1")
    link = element(drawn, "#newer a")
    added = re.fullmatch(r"2 new entries \+([0-9]+)", text_of(link))
    assert added is not None
    size = branch_state(Session.objects.get()).size
    assert int(added[1]) == size.of(101)
    assert link.attributes["href"] == f"{address}?view=sees&at=e2"
    assert link.attributes["data-last"] == "e3"
    assert str(size) in text_of(element(drawn, "#context-facts"))
    assert {one.attributes["hx-swap-oob"] for one in elements(drawn, "[id]")} == {"true"}
    assert newer(session, "e3") == ""
    assert newer(session, "", "removed") == ""


def test_a_branch_that_was_left_is_not_continued_silently(browser: Client, idle_root: Path) -> None:
    recorded = chain(user("one"), assistant(text("two")))
    add_session(idle_root, "a.jsonl", recorded)
    session = Session.objects.get()
    append_as_agent(idle_root / "a.jsonl", session_bytes([message("x2", "e1", assistant(text("other")))]))
    index_roots()
    assert newer(session, "e2") == "This branch has changed: show it as it is now"
    assert newer(session, "e1", "all") == "1 new entry +1"


def test_a_removed_entry_is_new_where_removed_ones_are_shown(browser: Client, idle_root: Path) -> None:
    recorded = chain(user("one"), assistant(text("two")), user("three"), compaction(whole("e2")))
    add_session(idle_root, "a.jsonl", recorded)
    assert newer(Session.objects.get(), "", "removed") == "1 new entry"


def claude(home: AgentHome) -> tuple[Path, Callable[[], object]]:
    session = claude_session("Mend it.")
    path = home.claude(1, session.content)
    size = len(session.content)

    def grow() -> None:
        session.reply("more", claude_text("It is mended."))
        append_as_agent(path, session.content[size:])

    return path, grow


def codex(home: AgentHome) -> tuple[Path, Callable[[], object]]:
    before = codex_thread("Mend it.")
    path = home.codex(1, before.content)

    def grow() -> None:
        line = Rollout(rollouts.meta(), rollouts.answer("It is mended.")).content.splitlines(keepends=True)[
            -1
        ]
        append_as_agent(path, line)

    return path, grow


def opencode(home: AgentHome) -> tuple[Path, Callable[[], object]]:
    path = home.opencode.session()
    home.opencode.user("Mend it.")
    return path, lambda: home.opencode.user("It is mended.")


def amp(home: AgentHome) -> tuple[Path, Callable[[], object]]:
    path = home.amp()
    said = {"role": "assistant", "content": [{"type": "text", "text": "It is mended."}]}
    grown = {**AMP_THREAD, "messages": [*AMP_THREAD["messages"], said]}
    return path, lambda: place(path, json.dumps(grown).encode())


@pytest.mark.parametrize("make", [claude, codex, opencode, amp])
def test_a_session_of_every_agent_is_followed(
    make: Callable[[AgentHome], tuple[Path, Callable[[], object]]],
    browser: Client,
    settings: Any,
    tmp_path: Path,
) -> None:
    home = AgentHome(tmp_path)
    path, grow = make(home)
    roots = [RootSetting.model_validate(root) for root in home.roots]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": roots})
    index_roots()
    session = index_file(path)
    page = browser.get(session.get_absolute_url())
    last = element(page, "[data-follows]").attributes["data-last"]
    assert last
    assert newer(session, last) == ""
    grow()
    index_file(path)
    drawn = news(session, last)
    assert "1 new entry" in text_of(element(drawn, "#newer"))
    shown = browser.get(str(element(drawn, "#newer a").attributes["href"]), headers={"HX-Request": "true"})
    assert "It is mended." in text_of(shown)


@pytest.mark.parametrize(
    "said", [[], {}, {"view": "x", "last": "e1"}, {"view": "sees", "last": 1}, "sees", None]
)
def test_a_page_says_what_it_shows(said: object) -> None:
    assert ShownBranch.of(said) is None
    assert ShownBranch.of({"view": "all", "last": "e1"}) == ShownBranch("all", "e1")


def test_another_branch_is_not_followed(browser: Client, idle_root: Path) -> None:
    address = add_session(idle_root, "a.jsonl", chain(user("one"), user("two")))
    assert elements(browser.get(address), "[ws-connect]")
    assert not elements(browser.get(address, {"leaf": "e1"}), "[ws-connect]")

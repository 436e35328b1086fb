"""Promises of an open page that follows its session: it is told what was added, for every agent."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.entries.branches import branch_state
from compaction_app.pages.session.consumers import ShownBranch, draw_news
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


def page_of(browser: Client, session: Session, view: str = "sees") -> ShownBranch:
    """What a page that is drawn now says that it shows."""
    page = browser.get(session.get_absolute_url(), {"view": view})
    said = element(page, "[data-follows]").attributes
    drawn = element(page, "#extent").attributes["data-drawn"]
    numbers = {name: int(said[f"data-{name}"] or "") for name in ("count", "from", "to")}
    return ShownBranch.of(json.dumps({"view": said["data-view"], "last": said["data-last"], "drawn": drawn} | numbers))


def news(session: Session, shown: ShownBranch) -> str:
    return draw_news(session.pk, shown, datetime.now(UTC))


def newer(session: Session, shown: ShownBranch) -> str:
    return text_of(element(news(session, shown), "#newer"))


def follow(browser: Client, root: Path, *messages: dict[str, Any], view: str = "sees") -> tuple[Session, ShownBranch]:
    """A session of these messages, and what a page that is drawn now says that it shows."""
    add_session(root, "a.jsonl", chain(*messages))
    session = Session.objects.get()
    return session, page_of(browser, session, view)


def grow(root: Path, *recorded: dict[str, Any]) -> None:
    append_as_agent(root / "a.jsonl", session_bytes(recorded))
    index_roots()


def test_new_entries_are_counted_with_their_tokens_and_the_context(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(user("one")))
    session = Session.objects.get()
    shown = page_of(browser, session)
    assert newer(session, shown) == ""
    assert not elements(news(session, shown), "#map-wide, #turns-wide, #views")
    grow(idle_root, message("e2", "e1", assistant(text("x" * 400))), message("e3", "e2", user("two")))
    drawn = news(session, shown)
    link = element(drawn, "#newer a")
    added = re.fullmatch(r"2 new entries \+([0-9]+)", text_of(link))
    size = branch_state(Session.objects.get()).size
    assert int(added[1]) == size.of(101)
    assert link.attributes["href"] == f"{address}?view=sees&at=e2"
    assert (link.attributes["data-last"], link.attributes["data-count"]) == ("e3", "3")
    assert str(size.tokens) in text_of(element(drawn, "#context-facts"))
    assert newer(session, page_of(browser, session)) == ""


def test_what_surrounds_the_entries_follows_the_session(browser, idle_root):
    session, shown = follow(browser, idle_root, user("one"), assistant(text("x" * 40_000)))
    grow(idle_root, message("e3", "e2", user("two")), message("e4", "e3", assistant(text("y" * 40_000))))
    drawn, page = news(session, shown), browser.get(session.get_absolute_url())
    sizes = ("context-facts", "context-narrow", "stick-size")
    for part in ("extent", "views", "turn-count", "turns-wide", "turns-narrow", "stick-turn", *sizes):
        assert text_of(element(drawn, f"#{part}")) == text_of(element(page, f"#{part}")), part
    assert "2 turns, 4 entries" in text_of(element(drawn, "#extent"))
    assert "What the model sees 4" in text_of(element(drawn, "#views"))
    assert "two" in text_of(element(drawn, "#turns-wide"))
    for part in ("#map-wide", "#map-narrow"):
        maps = [element(one, f"{part} svg.map").attributes["viewBox"] for one in (drawn, page)]
        assert maps[0] == maps[1]
        assert element(drawn, f"{part} [type=range]").attributes["max"] == "4"
    frames = [int(element(source, ".map__window").attributes["height"] or "") for source in (drawn, page)]
    assert frames[0] < frames[1]  # the open page shows two of the four entries


def test_the_title_follows_the_session(browser, idle_root):
    session, shown = follow(browser, idle_root, user("one"))
    assert element(news(session, shown), "[data-title]").attributes["data-title"] == "one · Redline"
    Session.objects.update(window=1_000, context_tokens=2_000)
    drawn, page = news(session, shown), browser.get(session.get_absolute_url())
    assert element(drawn, "[data-title]").attributes["data-title"] == text_of(element(page, "title"))
    assert "almost full" in text_of(element(page, "title"))


def test_a_branch_that_was_left_is_not_continued_silently(browser, idle_root):
    session, shown = follow(browser, idle_root, user("one"), assistant(text("two")))
    grow(idle_root, message("x2", "e1", assistant(text("other"))))
    assert newer(session, shown) == "This session continues on another branch: show it as it is now"
    assert not elements(news(session, shown), "#map-wide, #turns-wide, #views")


@pytest.mark.parametrize("view", ["sees", "removed"])
def test_a_compaction_is_said_although_the_last_entry_stays(view, browser, idle_root):
    session, shown = follow(
        browser, idle_root, *[user(f"said {n}") for n in range(4)], compaction(whole("e1")), view=view
    )
    grow(idle_root, {**compaction(whole("e1"), whole("e2")), "id": "e6", "parentId": "e5"})
    said = newer(session, shown)
    if view == "sees":
        assert said == "What the model sees of this session has changed: show it as it is now"
        assert "Deleted 2" in text_of(element(news(session, shown), "#views"))
    else:
        assert said == "1 new entry"


def test_a_compaction_is_a_new_entry_of_the_full_history_and_what_it_removes_one_of_the_removed(browser, idle_root):
    add_session(idle_root, "a.jsonl", chain(user("one"), assistant(text("two")), user("three")))
    session = Session.objects.get()
    history, removed = page_of(browser, session, "all"), page_of(browser, session, "removed")
    grow(idle_root, {**compaction(whole("e2")), "id": "e4", "parentId": "e3"})
    assert "1 new entry" in newer(session, history)
    assert newer(session, removed) == "1 new entry"


def claude(home: AgentHome) -> tuple[Path, Callable[[], object]]:
    session = claude_session("Mend it.")
    path, size = home.claude(1, session.content), len(session.content)

    def grow() -> None:
        session.reply("more", claude_text("It is mended."))
        append_as_agent(path, session.content[size:])

    return path, grow


def codex(home: AgentHome) -> tuple[Path, Callable[[], object]]:
    path = home.codex(1, codex_thread("Mend it.").content)

    def grow() -> None:
        line = Rollout(rollouts.meta(), rollouts.answer("It is mended.")).content.splitlines(keepends=True)[-1]
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
def test_a_session_of_every_agent_is_followed(make, browser, settings, tmp_path):
    home = AgentHome(tmp_path)
    path, grow = make(home)
    roots = [RootSetting.model_validate(root) for root in home.roots]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": roots})
    index_roots()
    session = index_file(path)
    shown = page_of(browser, session)
    assert shown.last
    assert newer(session, shown) == ""
    grow()
    index_file(path)
    drawn = news(session, shown)
    assert "1 new entry" in text_of(element(drawn, "#newer"))
    added = browser.get(str(element(drawn, "#newer a").attributes["href"]), headers={"HX-Request": "true"})
    assert "It is mended." in text_of(added)


SAID = {"view": "all", "last": "e1", "count": 3, "from": 1, "to": 2, "drawn": "3.1.2"}
WRONG = [{"view": "x"}, {"last": 1}, {"last": ""}, {"count": "3"}, {"count": 1}, {"from": -1}, {"from": 3}, {"to": 1.5}]


def test_a_page_says_what_it_shows_and_a_message_of_another_form_is_ignored():
    assert ShownBranch.of(json.dumps(SAID)) == ShownBranch("all", "e1", 3, 1, 2, "3.1.2")
    for said in (*[json.dumps(SAID | one) for one in WRONG], "", "[]", "{}", "null", "{" * 5_000, "[" * 100_000):
        assert ShownBranch.of(said) is None, said[:90]


def test_another_branch_is_not_followed(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(user("one"), user("two")))
    assert elements(browser.get(address), "[ws-connect]")
    assert not elements(browser.get(address, {"leaf": "e1"}), "[ws-connect]")

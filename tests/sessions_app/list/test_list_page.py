"""The list of sessions: what it shows in each state, and what it costs with 5,000 sessions.

It says which sessions an agent has open, although nothing was written to them lately.
"""

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from redline.configuration import RootSetting
from sessions_app.index import progress
from sessions_app.index.demo_session import offer_demo
from sessions_app.index.indexer import index_file, index_roots
from sessions_app.index.roots import configured_roots, managed_root
from sessions_app.models import Root, Session
from sessions_app.pages.list import draw, subscription_in
from sessions_app.templatetags.formatting import size
from tests.claude_sessions import SESSION_ID, timed, user as claude_user
from tests.factories import chain, result, session_bytes, user
from tests.files import place
from tests.html import element, elements, link, links, missing, text_of, texts
from tests.processes import held
from tests.sessions_app.agents.codex import rollouts
from tests.sessions_app.agents.codex.rollouts import THREAD, Rollout, meta

ANOTHER = "01a20000-0000-7000-8000-000000000002"


def put(root: Path, **questions: str) -> None:
    """A session with each question; all are indexed."""
    for name, question in questions.items():
        place(root / f"{name}.jsonl", session_bytes(chain(user(question))))
    index_roots()


def drawn(message: str) -> str:
    """What the socket sends to a page that asks with this message."""
    subscription = subscription_in(message)
    assert subscription is not None
    return draw(subscription)


def test_before_the_first_scan_the_page_does_not_claim_that_there_are_no_sessions(browser, known_root):
    assert "No sessions yet" in text_of(browser.get("/"))
    progress.begin()
    page = text_of(browser.get("/"))
    assert ("Looking for sessions" in page, str(known_root) in page, "No sessions yet" in page) == (True, True, False)
    progress.remember({"indexing": None})
    assert "No sessions yet" in text_of(browser.get("/"))


def test_the_progress_of_indexing_and_of_the_search_index_is_shown_on_one_line_each(browser, known_root):
    progress.remember({"texts": {"searchable": 30, "sessions": 40}})
    listing = element(browser.get("/"), "#listing")
    assert "Reading texts for the search: 30 of 40 sessions can be searched" in text_of(listing)
    assert "75" in [bar.attributes["width"] for bar in elements(listing, "svg rect")]
    progress.remember({"texts": None})
    assert "search:" not in text_of(element(browser.get("/"), "#listing"))
    indexing = {"done": 12, "found": 40, "bytes": 1_200_000_000, "of_bytes": 3_400_000_000, "file": "<b>\x1b.jsonl"}
    progress.remember({"sessions": [], "indexing": indexing})
    listing = element(browser.get("/"), "#listing")
    assert "Indexing: 12 of 40 sessions, 1.2 GB of 3.4 GB <b>\\x1b.jsonl" in text_of(listing)
    assert "35" in [bar.attributes["width"] for bar in elements(listing, "svg rect")]


def test_an_unreadable_root_is_named(browser, known_root):
    fault = f"The root {known_root} cannot be read: Permission denied."
    progress.remember({"roots": {str(known_root): fault}})
    assert fault in text_of(browser.get("/"))
    progress.remember({"roots": {}})
    assert fault not in text_of(browser.get("/"))


def test_a_filter_without_matches_is_explained(browser, known_root):
    put(known_root, s="one")
    assert not missing(text_of(browser.get("/?q=another")), "No matching sessions", "1 session is indexed.")


def test_a_fork_is_marked_in_the_list_and_names_its_original(browser, known_root):
    header, *entries = chain(user("hello"))
    place(known_root / "a.jsonl", session_bytes([{**header, "parentSession": "/s/<b>.jsonl"}, *entries]))
    index_roots()
    page = browser.get("/")
    assert [text_of(one) for one in elements(page, "span.mark") if "title" in one.attributes] == ["fork"]
    session = Session.objects.get()
    assert "fork of <b>.jsonl" in text_of(browser.get(session.get_absolute_url()))
    # Each is linked with the other, whichever way the fork names its original, and experiments take one of them.
    original = index_file(place(known_root / "o.jsonl", session_bytes([{**header, "id": "orig"}, *entries])))
    for named in (str(original.path), "orig"):
        place(known_root / "a.jsonl", session_bytes([{**header, "id": "own", "parentSession": named}, *entries]))
        index_roots()
        for one, other in ((original, session), (session, original)):
            assert ("hello", other.get_absolute_url()) in links(browser.get(one.get_absolute_url()))
        assert list(Session.objects.originals()) == [original]


def test_sessions_in_the_managed_root_are_marked(browser, known_root):
    assert "imported" not in text_of(browser.get("/"))
    offer_demo()
    index_roots()
    page = text_of(browser.get("/"))
    assert "agent unknown" not in page
    assert not missing(page, "Demo: ", "imported", "Try it on the demo", "1 session of 1 agent")
    assert [root.path for root in configured_roots()] == [str(known_root), str(managed_root())]
    assert managed_root().stat().st_mode & 0o777 == 0o700


def test_sessions_are_grouped_by_the_day_of_their_last_use_unless_they_are_sorted_otherwise(browser, known_root):
    put(known_root, a="today", b="yesterday", c="on Sunday", d="long ago", e="never")
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    for title, days in {"today": 0, "yesterday": 1, "on Sunday": 3, "long ago": 40}.items():
        used = midnight - timedelta(days=days, hours=0 if days == 0 else -9)
        Session.objects.filter(title=title).update(last_used=used)
    Session.objects.filter(title="never").update(last_used=None)
    page = browser.get("/")
    days = {text_of(element(day, ".day th")): texts(day, "a.name") for day in elements(page, "#listing tbody")}
    assert days == {
        "Today 1 session": ["today"],
        "Yesterday 1 session": ["yesterday"],
        "This week 1 session": ["on Sunday"],
        "Older 2 sessions": ["long ago", "never"],
    }
    assert texts(page, "#listing time")[:3] == ["00:00", "09:00", f"{midnight - timedelta(days=3):%a} 09:00"]
    by_name = browser.get("/?sort=name")
    assert (len(elements(by_name, "#listing tbody")), elements(by_name, ".day")) == (1, [])


def test_a_row_has_its_two_most_urgent_marks_and_names_the_others(browser, known_root):
    put(known_root, s="one")
    full = {"context_tokens": 190_000, "context_basis": "reported", "window": 200_000, "reserve_tokens": 20_000}
    Session.objects.update(damage_count=2, compaction_count=3, tokens_after_first=190_000, **full)
    row = element(browser.get("/"), "#listing tr[id]")
    assert texts(row, ".mark") == ["almost full", "3 summaries", "+1 2 damaged lines"]
    assert row.attributes["data-stop"] == "needs"


def test_an_agent_has_a_shape_and_a_model_no_date(browser, known_root):
    put(known_root, s="one")
    Session.objects.update(model="claude-opus-4-5-20251101")
    page = element(browser.get("/"), ".sessions__agent .sub")
    assert text_of(page) == "claude-opus-4-5"
    assert len(elements(browser.get("/"), 'td.sessions__agent use[href="#i-agent-atomic"]')) == 1


def test_the_introduction_stands_above_the_list_until_it_is_hidden(browser, known_root):
    put(known_root, s="one")
    assert len(elements(browser.get("/"), ".intro-strip")) == 1
    assert browser.post("/introduction/hide").status_code == 303
    assert elements(browser.get("/"), ".intro-strip") == []
    assert "one" in text_of(browser.get("/"))


def test_the_demo_is_made_again_when_it_is_tried(browser, known_root):
    opened = browser.post("/demo")
    assert (opened.status_code, opened["Location"]) == (303, Session.objects.get().get_absolute_url())
    assert browser.post("/demo")["Location"] == opened["Location"]
    assert len(elements(browser.get("/"), ".intro")) == 1, "no session but the demo"
    put(known_root, s="one")
    assert len(elements(browser.get("/"), ".intro-strip")) == 1


def test_updates_do_not_redraw_the_filter(browser, known_root):
    put(known_root, s="one")
    page = browser.get("/")
    part = browser.get("/", headers={"HX-Request": "true"})
    sent = drawn('{"query": "?sort=name", "asked": 3}')
    for source in (page, part, sent):
        assert len(elements(source, "#listing tbody")) == len(elements(source, "#summary")) == 1
    for update in (part, sent):
        assert not elements(update, "form")
        assert element(update, "#summary").attributes["hx-swap-oob"] == "true"
    assert not elements(page, "[hx-swap-oob]")
    assert element(sent, "#listing").attributes["data-asked"] == "3"
    assert not elements(page, "[data-asked]")


def test_the_list_keeps_its_limits_with_5000_sessions(browser, known_root):
    alike = {"window": 200_000, "reserve_tokens": 16_384, "context_basis": "reported", "version": 3}
    alike |= {"root": Root.objects.get(path=str(known_root)), "last_used": datetime(2026, 1, 5, tzinfo=UTC)}
    Session.objects.bulk_create(
        Session(
            relative_path=f"--project-{n % 60}--/2026-01-05T10-00-00-000Z_{n:036}.jsonl",
            title=f"Session {n}: mend the parser so that long titles are cut at the end of a line, and only there",
            cwd=f"/home/dev/projects/some-project-{n % 60}",
            model=f"model-{n % 12}",
            context_tokens=n * 37 % 220_000,
            entry_count=n,
            size=n * 1_000,
            header_id=f"{n:036}",
            mtime_ns=n,
            damage_count=n % 9 == 0,
            **alike,
        )
        for n in range(5_000)
    )
    narrowed = "/?q=parser&project=/home/dev/projects/some-project-7"
    browser.get("/")  # the first page of a process loads more
    for address in ("/", "/?show=due&sort=context", narrowed, "/?page=83"):
        with CaptureQueriesContext(connection) as queries:
            answer = browser.get(address)
        # Seven for the list, and one for the agents that wait, which every page names.
        assert len(queries) <= 8
        assert len(answer.content) < 150_000


def test_sizes_below_a_kilobyte_are_exact():
    sizes = {0: "0 B", 412: "412 B", 999: "999 B", 1_000: "1 kB", 2_400_000: "2.4 MB"}
    assert {number: size(number) for number in sizes} == sizes


def test_a_session_that_cannot_be_continued_is_marked_with_the_reason(browser, known_root):
    place(known_root / "s.jsonl", session_bytes(chain(user("one"), result("<b>"))))
    put(known_root, t="two")
    (mark,) = elements(browser.get("/"), ".mark")
    assert text_of(mark) == "cannot be continued"
    assert "Entry e2 is a result of call <b>" in str(mark.attributes["title"])
    listed = text_of(element(browser.get("/?show=damaged"), "#listing"))
    assert ("one" in listed, "two" in listed) == (True, False)


def test_an_empty_list_says_where_was_looked_for_each_agent_and_what_to_do(browser, known_root, tmp_path, settings):
    roots = [*settings.REDLINE.roots, RootSetting(path=tmp_path / "gone", agent="codex")]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": roots})
    answer = browser.get("/")
    empty, missing_one = f"Atomic {known_root} empty", f"Codex {tmp_path / 'gone'} not found"
    assert texts(answer, ".places li") == [empty, missing_one]
    assert link(answer, "Add a folder…") == "/settings#folders"
    assert link(answer, "Import a session file…") == "/import"


def test_the_tabs_count_what_the_filters_leave(browser, known_root):
    place(known_root / "broken.jsonl", session_bytes(chain(user("count the plums"), result("c1"))))
    put(known_root, apples="count the apples", pears="count the pears")

    def tabs(query: str) -> list[str]:
        page = browser.get(f"/{query}")
        assert "3 sessions of 1 agent" in text_of(element(page, "#summary"))
        return [text_of(tab) for tab in elements(page, ".tabs a")]

    assert tabs("") == ["All 3", "Needs you 0", "Almost full 0", "Live 0", "Compacted 0", "Damaged 1"]
    assert tabs("?q=pears") == ["All 1", "Needs you 0", "Almost full 0", "Live 0", "Compacted 0", "Damaged 0"]
    assert tabs("?q=plums&show=damaged") == [
        "All 1",
        "Needs you 0",
        "Almost full 0",
        "Live 0",
        "Compacted 0",
        "Damaged 1",
    ]


@pytest.fixture
def roots(tmp_path, settings, known_root):
    """Two threads of Codex and two sessions of Claude Code, last written to an hour ago."""
    codex, claude = tmp_path / ".codex" / "sessions", tmp_path / ".claude" / "projects"
    for thread, said in ((THREAD, "count the apples"), (ANOTHER, "count the pears")):
        name = f"rollout-2026-01-05T10-00-00-{thread}.jsonl"
        place(codex / "2026" / "01" / "05" / name, Rollout(meta(thread), rollouts.user(said)).content)
    for session, said in ((SESSION_ID, "count the plums"), (ANOTHER, "count the quinces")):
        line = claude_user("u1", None, said) | {"sessionId": session}
        place(claude / "-home-dev-project" / f"{session}.jsonl", timed([line]))
    chosen = [RootSetting(path=codex, agent="codex"), RootSetting(path=claude, agent="")]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": chosen})
    configured_roots()
    index_roots()
    return tmp_path


def thread_lock(roots: Path, thread: str = THREAD) -> AbstractContextManager[None]:
    """A client of Codex has a thread open."""
    return held(place(roots / ".codex" / "thread-writer-locks" / f"{thread}.lock", b""))


@contextmanager
def running_client(roots: Path, **recorded: Any) -> Iterator[None]:
    """This process has registered itself as a client of Claude Code."""
    register = roots / ".claude" / "sessions" / f"{os.getpid()}.json"
    place(register, json.dumps({"sessionId": SESSION_ID, **recorded}).encode())
    yield
    register.unlink()


def live_rows(page: object) -> dict[str, str]:
    """What the list says of each live session, by its title."""
    return {
        text_of(element(row, "a.name")): str(element(row, ".mark--live").attributes["title"])
        for row in elements(page, "#listing tbody tr")
        if elements(row, ".mark--live")
    }


def test_a_session_that_a_running_client_has_open_is_live(browser, roots):
    assert live_rows(browser.get("/")) == {}
    with thread_lock(roots):
        assert live_rows(browser.get("/")) == {"count the apples": "Open in Codex"}
    assert live_rows(browser.get("/")) == {}  # its lock file was left behind
    with running_client(roots):
        assert live_rows(browser.get("/")) == {"count the plums": "Open in Claude Code"}
    assert live_rows(browser.get("/")) == {}
    with running_client(roots, sessionId=7):
        assert live_rows(browser.get("/")) == {}, "it may be open"


def test_the_tab_counts_and_shows_the_open_sessions(browser, roots):
    assert "Live 0" in texts(browser.get("/"), ".tabs a")
    with thread_lock(roots), running_client(roots):
        page = browser.get("/?show=live")
        assert "Live 2" in texts(page, ".tabs a")
        assert set(live_rows(page)) == {"count the apples", "count the plums"}


def test_the_socket_draws_open_sessions_as_the_page_does(roots):
    with thread_lock(roots, ANOTHER):
        assert live_rows(drawn('{"query": "?show=live", "asked": 1}')) == {"count the pears": "Open in Codex"}


def test_a_copy_of_an_open_session_in_another_root_is_not_live(browser, roots, settings):
    copies = roots / "copies"
    name = f"rollout-2026-01-05T10-00-00-{THREAD}.jsonl"
    place(copies / name, Rollout(meta(), rollouts.user("count the copies")).content)
    chosen = [*settings.REDLINE.roots, RootSetting(path=copies, agent="codex")]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": chosen})
    configured_roots()
    index_roots()
    with thread_lock(roots):
        assert list(live_rows(browser.get("/"))) == ["count the apples"]

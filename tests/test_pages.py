"""The pages: what they show, how a browser's tabs tell them apart, and that hostile transcripts are inert.

Who may see them: test_security.
"""

import json

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions_app.index.indexer import index_roots
from sessions_app.models import Session
from sessions_app.server.running_server import TOKEN_FILE, new_token
from tests.factories import assistant, call, chain, conversation, result, text, thinking, user
from tests.html import HOSTILE_TEXTS, assert_inert, elements, link, links, missing, outermost, text_of, text_sent
from tests.sessions import add_session


def words_of(browser: Client, address: str) -> str:
    """The words of a page."""
    return text_of(browser.get(address))


# ---- access ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("HEAD", {}, 204),
        *(("GET", {name: "prefetch"}, 204) for name in ("Sec-Purpose", "Purpose", "X-Moz")),
        ("GET", {"Sec-Purpose": "prefetch;prerender"}, 204),
        ("GET", {"X-Purpose": "preview"}, 204),
        *((method, {}, 405) for method in ("POST", "PUT", "OPTIONS", "DELETE")),
    ],
)
def test_who_only_looks_at_a_link_neither_logs_in_nor_uses_its_token_up(redline, client, method, headers, status):
    token = new_token(django_settings.REDLINE_DATA_DIR)
    answer = client.generic(method, f"/launch?token={token}", headers=headers)
    assert (answer.status_code, dict(answer.cookies), answer.content) == (status, {}, b"")
    assert client.get("/").status_code == 403
    assert client.get("/launch", {"token": token}).status_code == 302


def test_a_replaced_or_empty_token_admits_nobody(redline, client):
    old = new_token(django_settings.REDLINE_DATA_DIR)
    new_token(django_settings.REDLINE_DATA_DIR)
    assert client.get("/launch", {"token": old}).status_code == 403
    (django_settings.REDLINE_DATA_DIR / TOKEN_FILE).write_text("")
    assert client.get("/launch", {"token": ""}).status_code == 403


def test_a_link_from_another_site_can_be_followed_by_a_click_and_never_leads_to_another_host(redline, client):
    answer = client.get("/sessions/1/a.jsonl", headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403
    assert "/sessions/1/a.jsonl" in [address for _, address in links(answer)]
    # The path that a server receives for http://HOST//evil.example/x.
    answer = client.get("/", headers={"sec-fetch-site": "cross-site"}, PATH_INFO="//evil.example/x")
    assert answer.status_code == 403
    assert "/%2Fevil.example/x" in [address for _, address in links(answer)]


# ---- the list --------------------------------------------------------------------------------------------


def test_the_list_shows_the_agents_sessions_alone_to_htmx_and_marks_a_missing_file(browser, idle_root):
    add_session(idle_root, "a.jsonl", conversation("fix the parser"))
    assert not missing(words_of(browser, "/"), "fix the parser", "/home/dev/project", "window unknown")
    part = browser.get("/", headers={"HX-Request": "true"})
    assert [one.id for one in outermost(part)] == ["listing", "summary"]
    (idle_root / "a.jsonl").unlink()
    index_roots()
    assert "file missing" in words_of(browser, "/")


def test_a_session_without_a_title_is_shown_by_its_file_name(browser, idle_root):
    add_session(idle_root, "silent.jsonl", chain(assistant(text("hello"))))
    assert "silent.jsonl" in words_of(browser, "/")


def test_the_list_can_be_narrowed(browser, idle_root):
    done = {"type": "context_compaction", "deletedTargets": [{"kind": "entry", "entryId": "e3"}]}
    add_session(idle_root, "a.jsonl", conversation("fix the parser"))
    add_session(idle_root, "b.jsonl", chain(user("was compacted"), *[assistant(text(one)) for one in "ab"], done))
    add_session(idle_root, "c.jsonl", [*chain(user("is damaged")), b"{"])
    every = {"fix the parser", "was compacted", "is damaged"}
    for query, titles in {
        "?q=parser": {"fix the parser"},
        "?q=PARSER": {"fix the parser"},
        "?show=compacted": {"was compacted"},
        "?show=damaged": {"is damaged"},
        "?show=nonsense&sort=nonsense&page=nonsense": every,
        "?page=999": every,
        "?project=/nowhere": set(),
        "?age=day": every,
    }.items():
        page = words_of(browser, f"/{query}")
        assert {title for title in every if title in page} == titles, query


def test_a_full_window_is_due_and_a_narrowed_list_says_so(browser, idle_root, settings):
    settings.REDLINE.windows["m-small"] = 20_000
    answer = assistant(text("x"), provider="p", model="m-small", usage={"totalTokens": 19_000})
    add_session(idle_root, "a.jsonl", chain(user("full"), answer))
    page = browser.get("/?show=due")
    assert "full" in text_of(page)
    assert elements(page, ".mark--strong")


# ---- a session -------------------------------------------------------------------------------------------


def test_a_session_shows_what_the_model_sees_and_says_so_if_its_file_is_missing(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", conversation("fix the parser"))
    page = browser.get(address)
    for shown in ("about fix the parser", "result of fix the parser", "src/0.py", "Opened as Atomic 0.8"):
        assert shown in text_of(page)
    assert elements(page, '[title^="Protected: it contains what the user said"]')
    (idle_root / "a.jsonl").unlink()
    assert "is not there any more" in text_sent(browser.get(address), 409)


def test_a_long_output_is_shortened_and_expanded_on_demand(browser, idle_root):
    long = "\n".join(f"line {number}" for number in range(300))
    address = add_session(idle_root, "a.jsonl", chain(user("go"), assistant(call("c")), result("c", long)))
    page = words_of(browser, address)
    assert "Show all 300 lines" in page
    assert "line 299" not in page
    assert "line 299" in words_of(browser, f"{address}/entries/e3/text?block=0")
    assert browser.get(f"{address}/entries/e3/text?block=7").status_code == 404


def test_a_long_branch_is_paginated(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*(user(f"word-{number}-") for number in range(100))))
    first = browser.get(address)
    assert "word-0-" in text_of(first)
    part = browser.get(link(first, "Later entries"), headers={"HX-Request": "true"})
    assert "word-40-" in text_of(part)
    assert "word-39-" not in text_of(part)
    assert not elements(part, "html, h1")


def test_other_branches_can_be_reached(browser, idle_root):
    recorded = chain(user("go"), assistant(text("first way")))
    other = {"type": "message", "id": "x1", "parentId": "e1", "message": assistant(text("second way"))}
    address = add_session(idle_root, "a.jsonl", [*recorded, other])
    assert not missing(words_of(browser, address), "second way", "another branch, 1 entry")
    assert "first way" in words_of(browser, f"{address}?leaf=e2")


def test_a_session_page_needs_few_queries(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", conversation(*map(str, range(200))))
    browser.get(address)
    with CaptureQueriesContext(connection) as queries:
        answer = browser.get(address)
    assert len(queries) <= 12
    assert len(answer.content) < 250_000


# ---- titles ----------------------------------------------------------------------------------------------

PAGES = ("", "/tree", "/tree/compare", "/timeline", "/doctor", "/backups", "/compact", "/settings")


def title(browser: Client, address: str) -> str:
    (found,) = elements(browser.get(address), "title")
    return text_of(found)


def test_the_title_of_each_page_of_a_session_names_the_session(browser, idle_root):
    url = add_session(idle_root, "a.jsonl", chain(user("Mend the parser."), assistant(text("Done."))))
    titles = [title(browser, url + page) for page in PAGES]
    assert all("Mend the parser." in one for one in titles), titles
    assert len(set(titles)) == len(PAGES)


def test_a_title_tells_that_the_session_is_due_or_cannot_be_read(browser, idle_root):
    url = add_session(idle_root, "a.jsonl", chain(user("Mend the parser."), assistant(text("Done."))))
    assert "almost full" not in title(browser, url)
    Session.objects.update(window=1_000, context_tokens=2_000)
    assert title(browser, url) == "Mend the parser., almost full · Redline"
    (idle_root / "a.jsonl").unlink()
    assert title(browser, url) == "Unreadable: Mend the parser. · Redline"


# ---- hostile transcripts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("words", HOSTILE_TEXTS)
def test_hostile_transcript_text_is_inert_everywhere(browser, idle_root, words):
    told = [thinking(words), text(words), call(words, words, argument=words)]
    entries = (
        user(words),
        assistant(*told, model=words, provider=words),
        result(words, words, name=words),
        {"type": words},
        {"type": "session_info", "name": words},
    )
    header, *recorded = chain(*entries)
    address = add_session(idle_root, "a.jsonl", [{**header, "cwd": words, "id": words}, *recorded])
    for below in ("", "?view=all", "/entries/e2", "/entries/e2/text?block=1"):
        assert_inert(browser.get(address + below))
    assert_inert(browser.get("/"))


def test_a_line_of_a_million_characters_is_a_short_page(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(user("go"), assistant(call("c")), result("c", "x" * 1_000_000)))
    assert len(browser.get(address).content) < 250_000
    whole = browser.get(f"{address}/entries/e3/text?block=0")
    assert "600,000 more characters not shown" in text_of(whole)
    assert json.dumps("x") not in whole.content.decode()

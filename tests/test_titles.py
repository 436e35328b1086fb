"""Titles of pages: a browser's tabs and history tell sessions and their state apart."""

from django.test import Client

from sessions_app.models import Session
from tests.factories import assistant, chain, text, user
from tests.html import element, text_of
from tests.sessions import add_session

PAGES = ("", "/tree", "/tree/compare", "/timeline", "/doctor", "/backups", "/compact", "/settings")


def title(browser: Client, address: str) -> str:
    return text_of(element(browser.get(address), "title"))


def test_the_title_of_each_page_of_a_session_names_the_session(browser, idle_root):
    url = add_session(idle_root, "a.jsonl", chain(user("Mend the parser."), assistant(text("Done."))))
    titles = [title(browser, url + page) for page in PAGES]
    assert all("Mend the parser." in one for one in titles), titles
    assert len(set(titles)) == len(PAGES)


def test_a_title_tells_that_the_session_is_due_or_cannot_be_read(browser, idle_root):
    url = add_session(idle_root, "a.jsonl", chain(user("Mend the parser."), assistant(text("Done."))))
    assert "due" not in title(browser, url)
    Session.objects.update(window=1_000, context_tokens=2_000)
    assert title(browser, url) == "Mend the parser., due · Redline"
    (idle_root / "a.jsonl").unlink()
    assert title(browser, url) == "Unreadable: Mend the parser. · Redline"

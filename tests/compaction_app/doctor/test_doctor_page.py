"""The page of a session's diagnosis, and the repaired copy that its form writes."""

from pathlib import Path
from typing import Any

import pytest

from compaction_app.pages import doctor
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from tests import html
from tests.clients import page
from tests.factories import HEADER, chain, message, result, session_bytes, user
from tests.files import place, snapshot, unchanged
from tests.html import missing, text_of, text_sent

A, B = message("a", None, user("one")), message("b", "lost", user("two"))
DAMAGED = session_bytes([A, b"\0" * 9, B])


def placed(root: Path, content: bytes, name: str = "s.jsonl") -> str:
    """The address of the page for a session with this content."""
    return f"{index_file(place(root / name, content)).get_absolute_url()}/doctor"


def test_findings_and_the_difference_are_shown_before_anything_is_written(browser, known_root):
    address = placed(known_root, DAMAGED)
    with unchanged(known_root):
        shown = text_of(page(browser, address))
        fatal = "Atomic 0.9.11 and newer, Atomic 0.9.9 and 0.9.10: refuses to open the session"
        orphan = ("Entry b has a parent that does not exist", f"{DAMAGED.index(session_bytes([B]))}")
        assert not missing(shown, "3 problems", "The session has no header line", fatal, *orphan)
        assert not missing(
            shown, "What a repaired copy changes", 'lost "lost"', 'inserted "a"', "s.repaired.jsonl", "s.repaired.lost"
        )


def test_the_form_writes_the_copy_and_the_page_links_to_it(browser, known_root):
    address = placed(known_root, DAMAGED)
    written = browser.post(address)
    assert (written.status_code, written.headers["Location"]) == (303, address)
    shown = browser.get(address)
    assert "Wrote s.repaired.jsonl" in text_of(shown)
    copy = Session.objects.get(relative_path="s.repaired.jsonl")
    assert html.elements(shown, f'a[href="{copy.get_absolute_url()}"]')
    assert not html.elements(shown, "form[action$=doctor] button")
    assert (known_root / "s.jsonl").read_bytes() == DAMAGED
    assert "Nothing is wrong" in text_of(page(browser, f"{copy.get_absolute_url()}/doctor"))


def test_nothing_is_overwritten(browser, known_root):
    address = placed(known_root, DAMAGED)
    (known_root / "s.repaired.lost").write_bytes(b"mine")
    with unchanged(known_root):
        assert not missing(text_sent(browser.post(address), 409), "exists already", "What is wrong")


def test_broken_pairs_are_shown_without_a_repair(browser, known_root):
    address = placed(known_root, session_bytes(chain(user("go"), result("x"))))
    shown = text_of(page(browser, address))
    refusal = "providers refuse: a tool result has no tool call"
    assert not missing(shown, "1 problem ", refusal, "A repaired copy would be no different")
    assert "No copy was made" in text_sent(browser.post(address), 409)
    assert sorted(snapshot(known_root)) == ["s.jsonl"]


def test_a_healthy_session_says_so_and_a_missing_file_is_explained(browser, known_root):
    assert "Nothing is wrong with this session" in text_of(
        page(browser, placed(known_root, session_bytes([HEADER, A])))
    )
    address = placed(known_root, DAMAGED)
    (known_root / "s.jsonl").unlink()
    answered = browser.get(address)
    assert answered.status_code >= 400
    assert "does not exist" in text_of(answered)


def test_only_so_many_rows_are_shown(browser, known_root, monkeypatch):
    monkeypatch.setattr(doctor, "FINDINGS_SHOWN", 2)
    monkeypatch.setattr(doctor, "CHANGES_SHOWN", 3)
    recorded: list[Any] = [HEADER, *[line for n in range(5) for line in (message(f"e{n}", None, user("x")), b"x")]]
    shown = browser.get(placed(known_root, session_bytes(recorded)))
    assert len(html.elements(shown, ".findings tbody tr")) == 2
    assert len(html.elements(shown, ".changes tbody tr")) == 3
    assert "and 3 more" in text_of(shown)


def test_text_of_a_session_is_escaped(browser, known_root):
    hostile = message("<b>\u202e", "<script>alert(1)</script>", user("x"))
    body = browser.get(placed(known_root, session_bytes([HEADER, A, hostile, b"<i>\x1b"]))).content.decode()
    assert not [found for found in ("<script>alert", "<i>", "\u202e", "\x1b") if found in body]


@pytest.mark.parametrize("content", [DAMAGED, session_bytes([HEADER, A])])
def test_the_page_of_a_session_leads_here(browser, known_root, content):
    address = placed(known_root, content)
    assert html.elements(browser.get(address.removesuffix("/doctor")), f'a[href="{address}"]')

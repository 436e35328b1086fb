"""The theme: chosen by a form, kept in a cookie, and part of the page itself."""

import re

import pytest
from django.test import Client

from sessions_app.web.pages import THEME_COOKIE
from tests.html import element, texts
from tests.paths import PROJECT

TOKENS = (PROJECT / "static/redline/css/tokens.css").read_text(encoding="utf-8")


def drawn_in(browser: Client, address: str = "/") -> str | None:
    return element(browser.get(address), "html").attributes.get("data-theme")


def test_the_theme_is_that_of_the_system_until_a_known_one_is_chosen(browser):
    assert drawn_in(browser) is None
    assert texts(browser.get("/"), "#themes [aria-current]") == ["As the system"]
    for other in ("", '"><script>'):
        browser.post("/theme", {"theme": "dark", "next": "/"})
        browser.post("/theme", {"theme": other, "next": "/"})
        assert drawn_in(browser) is None
    browser.cookies[THEME_COOKIE] = "sepia"
    assert drawn_in(browser) is None


@pytest.mark.parametrize("name", ["light", "dark"])
def test_a_chosen_theme_is_on_every_page_and_leads_back(browser, name):
    answer = browser.post("/theme", {"theme": name, "next": "/settings?x=1"})
    assert (answer.status_code, answer["Location"]) == (303, "/settings?x=1")
    cookie = answer.cookies[THEME_COOKIE]
    assert (cookie["samesite"], bool(cookie["httponly"]), cookie["path"]) == ("Strict", True, "/")
    for address in ("/", "/settings", "/nothing/here"):
        assert drawn_in(browser, address) == name


def test_the_form_knows_the_page_that_it_is_on_and_never_leads_elsewhere(browser):
    found = element(browser.get("/?q=a+b"), "#themes input[name=next]")
    assert found.attributes["value"] == "/?q=a+b"
    sites = ("//evil.example", "https://evil.example/", "javascript:alert(1)", "/\\evil.example")
    for elsewhere in ("", "settings", *sites):
        assert browser.post("/theme", {"theme": "dark", "next": elsewhere})["Location"] == "/", elsewhere


def test_every_colour_is_written_once_for_both_themes():
    """A second copy of the dark colours could differ from the first one."""
    colours = [line for line in TOKENS.splitlines() if "#" in line]
    assert colours
    for line in colours:
        assert re.fullmatch(r"\s*--[\w-]+: light-dark\(#[0-9a-f]{6}, #[0-9a-f]{6}\);", line), line

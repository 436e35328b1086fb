"""The help on each page: no page is without it, and none is described that does not exist."""

from typing import Final

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from redline.page_help import HELP
from tests.html import element, elements, text_of, texts

NO_PAGES: Final = """
    api_ certify decide approve_rest download export handoff picture place reader reindex review_json review_markdown
    review_place stop resume again transcript verify take_back decline waiting_agents migrate use_draft discard_draft
    lost_report agreement test_ csv json hide_introduction demo log_out theme palette preview fork delete_experiment
    dismiss automatic_planning
""".split()
"""Parts of the names of routes that show no page of their own: actions, files, parts of pages."""


def routes(resolver: URLResolver, space: str = "") -> set[str]:
    found: set[str] = set()
    for one in resolver.url_patterns:
        if isinstance(one, URLResolver):
            found |= routes(one, one.namespace or space)
        elif isinstance(one, URLPattern) and one.name:
            found.add(f"{space}:{one.name}")
    return found


def test_every_page_has_five_lines_of_help():
    known = routes(get_resolver())
    assert HELP.keys() <= known
    missing = {name for name in known - HELP.keys() if not any(part in name.partition(":")[2] for part in NO_PAGES)}
    assert missing == set(), "write their lines in redline/page_help.py"
    assert {len(page.lines) for page in HELP.values()} == {5}


@pytest.mark.parametrize(("address", "title"), [("/", "Sessions"), ("/inbox", "Inbox"), ("/search", "Search")])
def test_the_help_names_the_page_and_its_keys(browser, known_root, address, title):
    sheet = element(browser.get(address), "#keys-help")
    assert f"This page: {title}" in text_of(sheet)
    assert len(elements(sheet, ".sheet__lines li")) == 5
    assert "Keys everywhere" in texts(sheet, "h3")


def test_an_unknown_address_has_help_too(browser, known_root):
    assert "This page: Redline" in text_of(element(browser.get("/nothing/here"), "#keys-help"))

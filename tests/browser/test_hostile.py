"""Hostile transcripts are shown as text: they execute nothing, hide nothing, and break no page."""

import json
import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.browser.acts import confirm_all, number_of
from tests.browser.scenarios import approve_everything, finished_run, title, titled_session
from tests.budget import FACTOR
from tests.factories import (
    assistant,
    bash,
    branch_summary,
    call,
    chain,
    custom,
    result,
    session_bytes,
    text,
    thinking,
    user,
)
from tests.files import place
from tests.server import place_in

MARKUP: Final = (
    "<script>window.hit=1</script><img src=x onerror=window.hit=2><svg onload=window.hit=3>"
    "<iframe src=https://evil.example/></iframe><style>*{display:none}</style></pre></article></main>"
    "<a href='javascript:window.hit=4'>evil link</a> [evil](javascript:window.hit=5) javascript:window.hit=6 "
    '"><svg onload="window.hit=7"> \' onfocus=window.hit=8 autofocus \' <base href=https://evil.example/> '
    "{{ settings.SECRET_KEY }} {% load shown %}{% now 'Y' %} ]]> <!-- --> <form action=https://evil.example>"
)
STEERING: Final = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;https://evil.example\x07 \x9b2J \x00\x08\x7f \r \x85 "
    "\u202eevil\u202c \u2066\u2067\u2068\u2069 \u200e\u200f\u061c \u200b\u200d\ufeff \u2028\u2029"
)
EVIL: Final = MARKUP + STEERING
HALVES: Final = " \ud83d \ude00\ud83d "
"""Halves of surrogate pairs, as in a text that was cut: JSON can represent them, encodings cannot."""
TEXT: Final = EVIL + HALVES
ID: Final = "\"><svg onload='window.hit=9'>/{{x}}\u202e%2e#?&\\"
NAME: Final = "\"><svg onload=window.hit=10>'{{x}}\u202e#?&.jsonl"
PAGE_BYTES: Final = 4_000_000
LONG: Final = 12_000_000 if FACTOR > 1 else PAGE_BYTES + 1_000_000
"""The length of one text, on one line of the file and of the page, in characters."""
INERT: Final = Path(__file__).with_name("inert.js").read_text(encoding="utf-8")


def hostile_session() -> bytes:
    """A session in which every text that a page could show is hostile, and one text is long."""
    header, *entries = chain(
        user(TEXT),
        {"type": "session_info", "name": EVIL},
        {"type": "model_change", "provider": EVIL, "modelId": EVIL},
        {"type": "thinking_level_change", "thinkingLevel": EVIL},
        assistant(thinking(TEXT), text(TEXT), call(EVIL, EVIL, **{EVIL: EVIL}), provider=EVIL, model=EVIL, usage={}),
        result(EVIL, TEXT, name=EVIL),
        custom(TEXT) | {"customType": EVIL},
        bash(TEXT, TEXT, 1),
        bash(EVIL, EVIL),
        branch_summary(TEXT),
        {"type": "label", "targetId": "e6", "label": EVIL},
        {"type": EVIL, "data": EVIL},
        {"type": "custom", "customType": EVIL, "data": {EVIL: TEXT}},
        {"type": "custom_message", "customType": EVIL, "content": TEXT, "display": True},
        {"type": "compaction", "summary": TEXT, "firstKeptEntryId": EVIL},
        *(
            said
            for step in range(6)
            for said in (
                assistant(text(f"{step} {TEXT}"), call(f"{EVIL}{step}", "read", path=f"{EVIL}{step}.py")),
                result(f"{EVIL}{step}", TEXT * 4),
            )
        ),
        assistant(text("The long one."), call("long", "read", path="src/long.py")),
        result("long", EVIL + "long " * (LONG // 5) + EVIL),
        user(EVIL),
        assistant(text(TEXT), stopReason="error", errorMessage=EVIL),
        user(EVIL),
        user(f"{EVIL} the last"),
    )
    header = {**header, "cwd": f"/home/{EVIL}", "id": EVIL}
    renamed = [json.loads(json.dumps(one).replace('"e6"', json.dumps(ID))) for one in entries]
    damaged = b'{"type": "message", "id": "' + EVIL.encode()
    return session_bytes([header, *renamed[:12], damaged, *renamed[12:]])


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "hostile") as mine:
        place(mine.root / NAME, hostile_session())
        yield mine


@pytest.fixture(scope="module")
def address(server):
    return server.session(NAME)


@pytest.fixture(scope="module")
def run(server, address):
    return finished_run(server, address)


def is_inert(page: Page) -> None:
    """Expect that nothing hostile is active, and that the page can be used."""
    faults = page.evaluate(INERT)
    assert not faults, "\n".join(faults)
    timing = page.evaluate("performance.getEntriesByType('navigation')[0].toJSON()")
    assert timing["decodedBodySize"] < PAGE_BYTES
    assert page.evaluate("document.documentElement.outerHTML.length") < PAGE_BYTES


def is_shown(page: Page) -> None:
    """Expect an inert page that shows the hostile text as text."""
    is_inert(page)
    expect(page.locator("main")).to_contain_text("<script>window.hit=1</script>")
    expect(page.locator("main")).to_contain_text("{{ settings.SECRET_KEY }}")


def unfold(page: Page, links: str, most: int) -> None:
    """Follow links that load more of a text into the page."""
    for _ in range(min(most, number_of(page.locator(links)))):
        link = page.locator(links).first.element_handle()
        link.click()
        link.wait_for_element_state("hidden")


def test_the_list_is_inert(server, browse):
    watched = browse(server)
    page = watched.open("/")
    page.locator("#listing[data-asked]").wait_for()
    is_inert(page)
    is_inert(watched.open(f"/?q={quote(MARKUP[:150])}&model={quote(MARKUP)}&project={quote(MARKUP)}"))
    page.get_by_label("Filter by name or project").fill("<script>window")
    page.locator("#listing[data-asked='2']").wait_for()
    is_shown(page)


def test_a_session_is_inert_in_each_view(server, browse, address):
    page = browse(server).open(f"{address}?view=removed")
    is_inert(page)
    for view in ("sees", "all"):
        page.goto(f"{server.base}{address}?view={view}")
        is_shown(page)
        unfold(page, "a.more:has-text('Show a')", 20)
        is_shown(page)


def test_an_entry_with_a_hostile_id_has_a_url_and_is_inert(server, browse, address):
    page = browse(server).open(f"{address}?view=all")
    links = page.evaluate("[...document.querySelectorAll('.entry__who a.ref, .band a.ref')].map((one) => one.href)")
    assert len(links) > 10
    hostile = [link for link in links if "svg" in link.rsplit(".jsonl", 1)[1]]
    assert hostile
    for link in {hostile[0], links[0], links[-1]}:
        page.goto(link)
        is_shown(page)
        expect(page.locator(".is-selected")).to_have_count(1)
        by_name = "?entry=" in link
        page.goto(link.replace("?entry=", "/text?entry=") if by_name else f"{link}/text")
        is_shown(page)


def test_a_text_of_millions_of_characters_makes_an_ordinary_page(server, browse, address):
    page = browse(server).open(f"{address}?view=all&at=e29")
    article = page.locator("article", has_text="long long long").first
    is_shown(page)
    article.locator("a.more").click()
    expect(article).to_contain_text("more characters not shown")
    is_inert(page)
    page.goto(article.locator("a.ref").first.evaluate("(one) => one.href") + "/text")
    is_shown(page)


def test_a_run_its_review_and_its_commit_page_are_inert(server, browse, address, run):
    watched = browse(server)
    is_inert(watched.open("/inbox"))
    is_inert(watched.open(run))
    is_shown(watched.open(f"{address}/compact"))
    page = watched.open(run)
    is_inert(page)
    row = page.locator("li.proposal").first
    row.locator(".proposal__what").click()
    row.get_by_role("button", name=re.compile("^Approve")).click()
    page.locator("li.proposal.is-approved").first.wait_for()
    page.goto(f"{server.base}{run}?at={row.get_attribute('data-key')}")
    page.locator(".proposal__open").wait_for()
    unfold(page, "p.fold a.plain:visible, a.more[hx-get]:visible", 8)
    is_shown(page)
    is_shown(watched.open(f"{run}/stays?from=0&to=999999999"))
    is_inert(watched.open(f"{run}/confirm"))


def test_no_hostile_text_makes_a_page_wider_than_its_window(server, browse, address, run):
    page = browse(server).open()
    paths = ["/", f"{address}?view=all", f"{address}/compact", f"{address}/backups", f"{address}/entries/e1/text"]
    paths += ["/inbox", run, run, f"{run}/stays?from=0&to=99", f"{run}/confirm", "/settings", "/import"]
    wide = {}
    for path in paths:
        page.goto(server.base + path)
        for width in (390, 1_440):
            page.set_viewport_size({"width": width, "height": 900})
            wide[path, width] = page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth")
    assert {where: pixels for where, pixels in wide.items() if pixels > 0} == {}


def test_sessions_with_lone_surrogates_in_names_can_be_planned_and_reviewed(server, browse):
    recorded = titled_session("halved")
    for one in recorded[2:-2]:
        for part in (one["message"], *one["message"]["content"]):
            for key in {"id", "name", "toolCallId", "toolName"} & part.keys():
                part[key] += HALVES
    recorded[-1]["message"]["content"] += HALVES
    place(server.root / "halved.jsonl", session_bytes(recorded))
    run = finished_run(server, server.session(title("halved")))
    watched = browse(server)
    is_inert(watched.open(run))
    page = watched.open(run)
    expect(page.locator("li.proposal")).not_to_have_count(0)
    is_inert(page)


LIKE_URLS = {"climbing": "a/../b", "above": "..", "double": "a//b", "text": "a/text", "quoted": "%2e%2e"}


def test_an_id_with_url_syntax_is_only_an_id(server, browse):
    page = browse(server).open()
    for name, entry_id in LIKE_URLS.items():
        recorded = json.loads(json.dumps(titled_session(name, steps=2)).replace('"e3"', json.dumps(entry_id)))
        place(server.root / f"{name}.jsonl", session_bytes(recorded))
        page.goto(f"{server.base}{server.session(title(name))}?view=all")
        page.get_by_role("link", name=entry_id, exact=True).first.click()
        expect(page.locator(".is-selected a.ref").first).to_have_text(entry_id)


def test_settings_backups_and_missing_pages_are_inert(server, browse, address):
    watched = browse(server)
    watched.expect("status of 404")
    page = watched.open()
    for path in ("/settings", f"{address}/backups", "/import", "/nothing/" + quote(MARKUP)):
        page.goto(server.base + path)
        is_inert(page)


def test_a_commit_its_result_and_its_backups_are_inert(server, browse, address, run):
    path = server.root / NAME
    before = path.read_bytes()
    approve_everything(server, run)
    watched = browse(server)
    page = watched.open(f"{run}/confirm")
    confirm_all(page)
    page.get_by_role("button", name="Back up and save the edit").click()
    page.wait_for_url(re.compile("/result$"))
    is_inert(page)
    after = path.read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == before.count(b"\n") + 1
    page.goto(f"{server.base}{address}/backups")
    is_inert(page)
    page.get_by_role("link", name="Restore…").first.click()
    page.wait_for_url("**/restore")
    is_inert(page)
    page.go_back()
    page.get_by_role("link", name="Delete…").first.click()
    page.wait_for_url("**/delete")
    is_inert(page)
    is_shown(watched.open(f"{address}?view=removed"))

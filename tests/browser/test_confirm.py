"""Confirm in a browser: what was not opened is looked at, what needs a yes is ticked, and the result is read."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.acts import confirm_all, number_of
from tests.browser.scenarios import (
    approve_everything,
    decide,
    finished_run,
    title,
    titled_session,
    undecided_keys,
)
from tests.server import place_in


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "look") as mine:
        for name in ("scripted", "plain", "ticks"):
            mine.put(f"{name}.jsonl", titled_session(name))
        mine.put("large.jsonl", titled_session("large", steps=340))
        yield mine


@pytest.mark.parametrize("scripted", [True, False], ids=["scripted", "plain"])
def test_the_rest_is_looked_at_approved_and_committed(server, browse, *, scripted):
    run = finished_run(server, server.session(title("scripted" if scripted else "plain")))
    decide(server, run, reject=undecided_keys(server, run)[0])
    page = browse(server, java_script_enabled=scripted).open(f"{run}/confirm?undecided=1")
    expect(page.get_by_text(re.compile(r"You did not open \d+ of them"))).to_be_visible()
    page.get_by_role("link", name=re.compile(r"^Look at \d")).first.click()
    samples = page.locator("article.sample")
    expect(samples.first.locator("pre")).to_contain_text("line")
    looked_at = number_of(samples)
    page.get_by_role("button", name=re.compile("^Approve")).click()
    page.wait_for_url("**/confirm")
    expect(page.get_by_role("heading", level=1)).to_contain_text(re.compile(r"Delete [\d,]+ of\s+[\d,]+ tokens\?"))
    expect(page.get_by_text(re.compile(rf"^{looked_at} of \d+$"))).to_be_visible()
    expect(page.get_by_text("opened", exact=True).first).to_be_visible()
    page.locator('a[href="?writer=fork"]').click()
    page.wait_for_url("**/confirm?writer=fork")
    confirm_all(page)
    page.get_by_role("button", name="Back up and make the new session").click()
    page.wait_for_url("**/result")
    page.get_by_text("Who proposed it, who approved it").click()
    page.locator("#who tbody th a").first.click()
    expect(page.locator("#each tbody tr").first).to_contain_text("call")


def test_a_missing_tick_is_a_place_that_the_button_and_the_key_lead_to(server, browse):
    run = finished_run(server, server.session(title("ticks")))
    approve_everything(server, run)
    page = browse(server).open(f"{run}/confirm?writer=fork")
    button, tick = page.get_by_role("button", name="Back up and make the new session"), page.locator("#yes-unopened")
    missing, link = page.get_by_role("link", name="1 tick missing"), page.locator("a[data-tick=yes-unopened]")
    expect(button).to_be_hidden()
    for lead in (missing.click, lambda: page.keyboard.press("Control+Enter")):
        lead()
        expect(tick).to_be_focused()
        expect(page.get_by_role("status").filter(has_text="Needs your yes")).to_be_visible()
        page.evaluate("document.activeElement.blur()")
    tick.check()
    expect(button).to_be_visible()
    expect(missing).to_be_hidden()
    expect(link).to_have_class(re.compile("tick-link--given"))
    tick.uncheck()
    expect(missing).to_be_visible()
    tick.check()
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/result")


def test_a_plan_of_160_deletions_is_confirmed_on_one_and_a_half_thousand_pixels(server, browse):
    run = finished_run(server, server.session(title("large")))
    approve_everything(server, run)
    page = browse(server, viewport={"width": 1440, "height": 900}).open(f"{run}/confirm")
    approved = re.search(r"([\d,]+) approved", page.locator(".plan-head").text_content() or "")
    assert approved is not None
    assert int(approved[1]) >= 160
    assert page.evaluate("document.documentElement.scrollHeight") <= 1500


def test_the_command_is_copied(server, browse):
    run = finished_run(server, server.session(title("scripted")))
    server.post(f"{run}/confirm?undecided=1", f"{run}/approve-rest")
    result = server.post(f"{run}/confirm?writer=fork", f"{run}/confirm", yes=["unopened", "names"])
    watched = browse(server)
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.base)
    page = watched.open(result)
    command = page.locator("[data-copy] code").text_content()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("status").filter(has_text="Copied")).to_have_count(1)
    assert page.evaluate("navigator.clipboard.readText()") == command

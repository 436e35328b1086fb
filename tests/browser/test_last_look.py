"""The last look in a browser: what nobody opened is looked at, the rest is approved, and the result is read."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.acts import confirm_all, number_of
from tests.browser.scenarios import decide, finished_run, title, titled_session, undecided_keys
from tests.server import place_in


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "look") as mine:
        for name in ("scripted", "plain"):
            mine.put(f"{name}.jsonl", titled_session(name))
        yield mine


@pytest.mark.parametrize("scripted", [True, False], ids=["scripted", "plain"])
def test_the_rest_is_looked_at_approved_and_committed(server, browse, *, scripted):
    run = finished_run(server, server.session(title("scripted" if scripted else "plain")))
    decide(server, run, reject=undecided_keys(server, run)[0])
    page = browse(server, java_script_enabled=scripted).open(f"{run}/confirm?undecided=1")
    expect(page.get_by_text("were opened by nobody")).to_be_visible()
    page.get_by_role("link", name=re.compile(r"^Look at \d")).first.click()
    samples = page.locator("article.sample")
    expect(samples.first.locator("pre")).to_contain_text("line")
    looked_at = number_of(samples)
    page.get_by_role("button", name=re.compile("^Approve")).click()
    page.wait_for_url("**/commit")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Strike about")
    expect(page.get_by_text(re.compile(rf"^{looked_at} of \d+$"))).to_be_visible()
    expect(page.get_by_text("opened", exact=True).first).to_be_visible()
    page.get_by_role("link", name=re.compile("^fork")).click()
    page.wait_for_url("**/commit?writer=fork")
    confirm_all(page)
    page.get_by_role("button", name="Back up and make the fork").click()
    page.wait_for_url("**/result")
    expect(page.get_by_role("heading", name="Who proposed it, who approved it")).to_be_visible()
    page.locator("#who tbody th a").first.click()
    expect(page.locator("#each tbody tr").first).to_contain_text("call")


def test_the_command_is_copied(server, browse):
    run = finished_run(server, server.session(title("scripted")))
    server.post(f"{run}/confirm?undecided=1", f"{run}/approve-rest")
    result = server.post(f"{run}/confirm?writer=fork", f"{run}/confirm")
    watched = browse(server)
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.base)
    page = watched.open(result)
    command = page.locator("[data-copy] code").text_content()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("status").filter(has_text="Copied")).to_have_count(1)
    assert page.evaluate("navigator.clipboard.readText()") == command

"""The Models page in a browser: a local server needs two forms and one button, with and without script."""

import re

import pytest
from playwright.sync_api import Page, expect

from compaction_app.scripted.server import ScriptedProvider
from tests.browser.page_checks import have_no_faults_here
from tests.server import place_in

INVALID = "status of 422"


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "models") as mine:
        yield mine


@pytest.fixture(scope="module")
def provider():
    with ScriptedProvider(pace=0.02) as running:
        yield running


def add_provider(page: Page, name: str, base_url: str) -> None:
    page.get_by_role("link", name="Add a provider").click()
    page.get_by_role("link", name="http://localhost:11434/v1").click()
    expect(page.get_by_label("Base URL")).to_have_value("http://localhost:11434/v1")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Base URL").fill(base_url)
    page.get_by_role("button", name="Add the provider").click()
    page.wait_for_url(re.compile(r"/models(#|$)"))


def add_model(page: Page, provider: str, name: str) -> None:
    page.get_by_role("link", name="Add a model").click()
    page.get_by_label("Provider").select_option(provider)
    page.get_by_label("Name").fill(name)
    page.get_by_label("Context window").fill("32k")
    page.get_by_role("button", name="Add the model").click()
    expect(page.get_by_text("Enter the context window in digits")).to_be_visible()
    expect(page.get_by_label("Name")).to_have_value(name)
    page.get_by_label("Context window").fill("32,000")
    page.get_by_role("button", name="Add the model").click()
    expect(page.get_by_role("status").filter(has_text=f"{provider}/{name}")).to_be_visible()


@pytest.mark.parametrize("scripted", [True, False], ids=["with-script", "without-script"])
def test_a_local_server_is_added_tested_and_removed(server, provider, browse, scripted):
    watched = browse(server, java_script_enabled=scripted)
    watched.expect(INVALID)
    page = watched.open("/settings/models")
    name = "local" if scripted else "plain"
    add_provider(page, name, provider.base_url("openai"))
    add_model(page, name, "wrong-key")
    if scripted:
        have_no_faults_here(page, "models-message", 1)
    earlier = len(provider.requests)
    before = page.url
    page.get_by_role("button", name="Test wrong-key").click()
    verdict = page.locator(".verdict", has=page.locator("svg"))
    expect(verdict).to_have_count(1)
    expect(verdict).to_contain_text("key")
    assert len(provider.requests) == earlier + 1
    # With script, the result is inserted into the current page.
    if scripted:
        expect(page).to_have_url(before)
    else:
        expect(page).not_to_have_url(before)
    page.get_by_role("link", name="Delete… wrong-key").click()
    page.get_by_role("button", name="Delete the model").click()
    expect(page.get_by_role("status").filter(has_text=f"Deleted: {name}/wrong-key")).to_be_visible()
    page.get_by_role("link", name=re.compile(f"Delete… {name}")).click()
    page.get_by_role("button", name="Delete the provider").click()
    expect(page.get_by_role("heading", name="No provider is set up")).to_be_visible()


def test_the_thinking_style_is_shown_only_if_it_matters(server, browse):
    page = browse(server).open("/settings/models/add")
    page.get_by_label("Provider").select_option("openai")
    expect(page.get_by_text("a budget of tokens")).to_be_hidden()
    page.get_by_label("Provider").select_option("anthropic")
    expect(page.get_by_text("a budget of tokens")).to_be_visible()

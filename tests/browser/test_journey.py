"""The whole journey in a browser: from the launch address to a commit, back again, without a script, and with an
imported session."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.acts import confirm_all
from tests.browser.page_objects import Journey, journey_server, whole_journey
from tests.browser.scenarios import titled_session
from tests.factories import session_bytes


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with journey_server(tmp_path_factory.mktemp("walk")) as running:
        yield running


def test_the_launch_address_logs_one_browser_in_and_its_token_disappears(server, browse):
    address = server.new_launch_path()
    page = browse(server, known=False).open(address)
    assert page.url == f"{server.base}/"
    expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("history.length") == 2
    other = browse(server, known=False)
    other.expect("status of 403")
    expect(other.open(address).get_by_text("This address no longer works")).to_be_visible()


def test_a_session_is_browsed_compacted_reviewed_committed_and_restored(server, browse):
    whole_journey(browse(server), scripted=True)


@pytest.mark.long
def test_links_and_forms_alone_lead_the_same_way(server, browse):
    whole_journey(browse(server, java_script_enabled=False), scripted=False)


@pytest.mark.long
def test_an_imported_session_is_compacted_and_downloaded_byte_for_byte(server, browse, tmp_path):
    brought = tmp_path / "from elsewhere.jsonl"
    brought.write_bytes(session_bytes(titled_session("imported")))
    watched = browse(server)
    page = watched.open("/import")
    page.get_by_label("Drop session files here").set_input_files(brought)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Mend the imported parser.")
    journey = Journey(watched, page)
    journey.plan(server.session("from-elsewhere.jsonl", below=server.data / "sessions"))
    page.get_by_role("link", name=re.compile("^Review")).first.click()
    journey.approve_groups()
    page.get_by_role("link", name=re.compile("^Confirm [0-9]")).click()
    page.wait_for_url("**/confirm")
    # Its agent is a guess, so that a new session is offered first.
    page.locator('a[href="?writer=context-edit"]').click()
    page.wait_for_url("**/confirm?writer=context-edit")
    confirm_all(page)
    page.get_by_role("button", name="Back up and save the edit").click()
    page.wait_for_url(re.compile("/result$"))
    expect(page.get_by_role("link", name="Download it")).to_be_visible()
    page.goto(f"{server.base}/import")
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="Download").click()
    got = Path(downloaded.value.path()).read_bytes()
    assert got == (server.data / "sessions" / "from-elsewhere.jsonl").read_bytes()
    assert got.startswith(brought.read_bytes())
    added = [json.loads(line) for line in got[len(brought.read_bytes()) :].splitlines()]
    assert {line["type"] for line in added} == {"context_edit"}
    assert downloaded.value.suggested_filename == "from-elsewhere.jsonl"

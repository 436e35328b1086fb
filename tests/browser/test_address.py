"""The address in a real browser: the secret name is resolved without setup, and logging out ends the session."""

import pytest
from playwright.sync_api import expect

from tests.browser.page_checks import have_no_faults_here
from tests.browser.scenarios import titled_session
from tests.server import place_in, start_server


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "address") as mine:
        mine.put("addressed.jsonl", titled_session("addressed", steps=2))
        mine.session("Mend the addressed parser.")
        yield mine


def test_a_browser_opens_the_secret_name_and_logs_out(server, browse):
    watched, other = browse(server, known=False), browse(server)
    page = watched.open(server.new_launch_path())
    assert page.url == f"{server.base}/"
    answer = page.reload()
    assert answer is not None
    address = answer.server_addr()
    assert address is not None
    assert (address["ipAddress"], address["port"]) in (("[::1]", server.port), ("127.0.0.1", server.port))
    # The socket of the list has rendered it.
    page.locator("#listing[data-asked]").wait_for()
    listing = other.open("/")
    listing.locator("#listing[data-asked]").wait_for()
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("link", name="This browser").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("You are logged out")
    watched.expect("status of 403")
    page.goto(server.base)
    expect(page.get_by_role("heading", level=1)).to_have_text("This browser has no access to Redline")
    have_no_faults_here(page, "launch", 3)
    listing.reload()
    expect(listing.get_by_role("heading", level=1)).to_have_text("Sessions")


def test_the_plain_address_explains_where_to_go_without_the_secret_name(server, browse):
    watched = browse(server)
    watched.expect("status of 403")
    watched.expect("request elsewhere")
    page = watched.context.new_page()
    page.goto(server.plain)
    expect(page.get_by_role("heading", level=1)).to_have_text("Redline’s pages have their own address")
    assert server.base.split("//")[1].split(".")[0] not in page.content()


def test_a_plain_server_works_in_a_browser(tmp_path_factory, browse):
    with start_server(tmp_path_factory.mktemp("plain"), arguments=["--plain"]) as plain:
        page = browse(plain).open("/")
        page.locator("#listing[data-asked]").wait_for()
        page.get_by_role("link", name="Settings").click()
        page.get_by_role("link", name="This browser").click()
        expect(page.get_by_role("button", name="Log out")).to_be_visible()

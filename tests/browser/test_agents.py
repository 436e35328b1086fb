"""An installation without sessions: its pages, and agents that are connected and disconnected."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.page_checks import have_no_faults, have_no_faults_here
from tests.files import place
from tests.server import start_server

BEFORE = b'{\n  "model": "opus" // mine\n}\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with a home of its own: connections change the files of agents there. Each test removes its own."""
    base = tmp_path_factory.mktemp("agents")
    place(base / "data" / "demo_made", b"").parent.chmod(0o700)
    with start_server(base) as running:
        yield running


def test_the_pages_of_an_empty_installation_fit_and_are_accessible(server, browse):
    pages = {
        "list-empty": "/",
        "models-empty": "/settings/models",
        "audit-empty": "/history",
        "backups-of-all-empty": "/history/backups",
    }
    have_no_faults(browse(server), pages)


def test_claude_code_is_connected_and_disconnected(server, browse):
    path = Path(server.environment["HOME"]) / ".claude" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(BEFORE)
    page = browse(server).open("/settings")
    page.get_by_role("link", name="Agents", exact=True).click()
    page.get_by_role("link", name="Connect Claude Code").click()
    expect(page.locator(".diff__added", has_text="redline ask claude-code")).to_be_visible()
    expect(page.get_by_text("Claude Code ignores the whole file")).to_be_visible()
    assert path.read_bytes() == BEFORE
    page.get_by_role("button", name="Connect Claude Code").click()
    expect(page.get_by_text("Claude Code is connected in all projects.")).to_be_visible()
    assert b"redline ask claude-code" in path.read_bytes()
    section = page.get_by_role("region", name="Claude Code")
    expect(section.get_by_text("in all projects since")).to_be_visible()
    section.get_by_role("link", name="Disconnect…").click()
    expect(page.get_by_text("byte for byte")).to_be_visible()
    page.get_by_role("button", name="Disconnect", exact=True).click()
    expect(page.get_by_text("its token is void")).to_be_visible()
    expect(section.get_by_role("link", name="Connect Claude Code")).to_be_visible()
    assert path.read_bytes() == BEFORE
    assert list(path.parent.iterdir()) == [path]
    path.unlink()


def test_a_token_is_revoked_although_the_file_cannot_be_changed(server, browse):
    page = browse(server).open("/settings/agents/claude-code/connect")
    page.get_by_role("button", name="Connect Claude Code").click()
    expect(page.get_by_text("Claude Code is connected in all projects.")).to_be_visible()
    path = Path(server.environment["HOME"]) / ".claude" / "settings.json"
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    section = page.get_by_role("region", name="Claude Code")
    section.get_by_role("link", name="Disconnect…").click()
    expect(page.get_by_role("button", name="Revoke the token only")).to_be_visible()
    have_no_faults_here(page, "agents-token")
    page.get_by_role("button", name="Revoke the token only").click()
    expect(page.get_by_text("its token is void")).to_be_visible()
    assert path.read_bytes() == content[:-3]
    path.write_bytes(content)
    page.reload()
    expect(section.get_by_text("belongs to no connection of this Redline")).to_be_visible()
    section.get_by_role("link", name="Disconnect the bridge…").click()
    page.get_by_role("button", name="Disconnect", exact=True).click()
    expect(section.get_by_role("link", name="Connect Claude Code")).to_be_visible()
    assert not path.exists()


def test_its_pages_fit_and_are_accessible(server, browse):
    base = Path(server.environment["HOME"])
    project = base / "work" / "a-project-with-a-rather-long-name-for-a-directory"
    project.mkdir(parents=True)
    watched = browse(server)
    for address in (f"/settings/agents/codex/connect?project={project}", "/settings/agents/claude-code/connect"):
        page = watched.open(address)
        page.get_by_role("button", name="Connect C").click()
        expect(page.get_by_role("heading", name="Agents")).to_be_visible()
    (base / ".claude" / "settings.json").write_text("{}")
    pages = {
        "agents-connected": "/settings/agents",
        "connect-pi": "/settings/agents/pi/connect",
        "remove-codex": f"/settings/agents/codex/remove?project={project}",
    }
    have_no_faults(watched, pages)

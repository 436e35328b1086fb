"""An agent is connected and disconnected on its page; what is shown is what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Watched
from tests.browser.test_shots import HEIGHT, WIDTHS, faults_at_this_width
from tests.server import Server, start_server

Opener = Callable[..., Watched]
BEFORE = b'{\n  "model": "opus" // mine\n}\n'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "sessions").mkdir()
    with start_server(tmp_path) as running:
        yield running


def test_claude_code_is_connected_and_disconnected(server: Server, browse: Opener) -> None:
    path = Path(server.environment["HOME"]) / ".claude" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(BEFORE)
    page = browse(server).open("/")
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
    section.get_by_role("link", name="Remove…").click()
    expect(page.get_by_text("byte for byte")).to_be_visible()
    page.get_by_role("button", name="Remove the connection").click()
    expect(page.get_by_text("its token is void")).to_be_visible()
    expect(section.get_by_role("link", name="Connect Claude Code")).to_be_visible()
    assert path.read_bytes() == BEFORE
    assert list(path.parent.iterdir()) == [path]


def test_a_token_is_revoked_although_the_file_cannot_be_changed(server: Server, browse: Opener) -> None:
    page = browse(server).open("/agents/claude-code/connect")
    page.get_by_role("button", name="Connect Claude Code").click()
    expect(page.get_by_text("Claude Code is connected in all projects.")).to_be_visible()
    path = Path(server.environment["HOME"]) / ".claude" / "settings.json"
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    section = page.get_by_role("region", name="Claude Code")
    section.get_by_role("link", name="Remove…").click()
    expect(page.get_by_role("button", name="Revoke the token only")).to_be_visible()
    faults = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        faults += [f"{width} px: {fault}" for fault in faults_at_this_width(page, "agents")]
    assert not faults, "\n".join(faults)
    page.get_by_role("button", name="Revoke the token only").click()
    expect(page.get_by_text("its token is void")).to_be_visible()
    assert path.read_bytes() == content[:-3]
    path.write_bytes(content)
    page.reload()
    expect(section.get_by_text("belongs to no connection of this Redline")).to_be_visible()
    section.get_by_role("link", name="Remove the bridge…").click()
    page.get_by_role("button", name="Remove the connection").click()
    expect(section.get_by_role("link", name="Connect Claude Code")).to_be_visible()
    assert not path.exists()


def test_its_pages_fit_and_are_accessible(server: Server, browse: Opener) -> None:
    base = Path(server.environment["HOME"])
    project = base / "work" / "a-project-with-a-rather-long-name-for-a-directory"
    project.mkdir(parents=True)
    for address in (f"/agents/codex/connect?project={project}", "/agents/claude-code/connect"):
        page = browse(server).open(address)
        page.get_by_role("button", name="Connect C").click()
        expect(page.get_by_role("heading", name="Agents")).to_be_visible()
    (base / ".claude" / "settings.json").write_text("{}")
    faults: list[str] = []
    for address in ("/agents", "/agents/pi/connect", f"/agents/codex/remove?project={project}"):
        page = browse(server).open(address)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            faults += [f"{address}, {width} px: {fault}" for fault in faults_at_this_width(page, "agents")]
    assert not faults, "\n".join(faults)

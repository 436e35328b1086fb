"""The whole walk in a browser for each agent: found in the list, planned, reviewed, committed in its form, undone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.browser.agent_sessions import (
    AgentHome,
    claude_id,
    claude_session,
    codex_id,
    codex_thread,
    opencode_session,
)
from tests.browser.chromium import Watched
from tests.browser.page_objects import Journey
from tests.browser.scenarios import title
from tests.server import Server, start_server


@dataclass(frozen=True)
class AgentWalk:
    """What is particular to one agent on the walk."""

    label: str
    writer: str
    button: str
    command: str
    """It resumes the session."""


WALKS: Final = {
    "claude": AgentWalk("Claude Code", "boundary", "Back up and append", f"claude --resume {claude_id(1)}"),
    "codex": AgentWalk("Codex", "compacted", "Back up and append", f"codex resume {codex_id(1)}"),
    "opencode": AgentWalk("OpenCode", "delete", "Back up and change", "opencode --session ses_1"),
}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> AgentHome:
    return AgentHome(tmp_path_factory.mktemp("agents") / "home")


@pytest.fixture(scope="module")
def server(agents: AgentHome) -> Iterator[Server]:
    agents.claude(1, claude_session(title("claude")).content)
    agents.codex(1, codex_thread(title("codex")).content)
    opencode_session(agents.opencode, "ses_1", title("opencode"))
    agents.amp()
    with start_server(agents.home.parent, REDLINE_ROOTS=json.dumps(agents.roots)) as running:
        running.wait_for(lambda: "4 sessions in" in running.get("/"))
        yield running


@pytest.mark.parametrize("name", WALKS)
def test_a_session_of_each_agent_is_found_compacted_in_its_own_form_and_undone(
    server: Server, agents: AgentHome, browse: Callable[..., Watched], name: str
) -> None:
    walk, watched = WALKS[name], browse(server)
    page = watched.open("/")
    journey = Journey(watched, page)
    _find(page, walk, title(name))
    before, seen = _recorded(agents, name), _seen(page)

    journey.click("Compact…")
    journey.press("Start planning")
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    journey.click("Review the proposals")
    journey.approve_groups()
    journey.click(re.compile("^Last look"))
    page.wait_for_url("**/commit")
    journey.click(walk.writer)
    page.wait_for_url(f"**/commit?writer={walk.writer}")
    journey.confirm_all()
    journey.press(walk.button)
    page.wait_for_url(re.compile("/result$"))

    expect(page.get_by_role("heading", level=1)).to_contain_text(f"recorded by {walk.writer}")
    expect(page.get_by_text("The agent can continue from it.")).to_be_visible()
    expect(page.locator("[data-copy] code")).to_have_text(walk.command)
    assert _recorded(agents, name) != before
    result = page.url
    journey.click("Open the session")
    assert 0 < _seen(page) < seen

    page.goto(result)
    journey.click("Undo…")
    page.wait_for_url(re.compile("/undo$"))
    journey.confirm_all()
    journey.press("Undo the compaction")
    page.wait_for_url(re.compile("/result$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("undone")
    journey.click("Open the session")
    assert _seen(page) == seen
    if name == "opencode":
        assert _recorded(agents, name) == before
    else:
        assert _recorded(agents, name)[0].startswith(before[0])


def _find(page: Page, walk: AgentWalk, name: str) -> None:
    """Open a session from the list, through the filter by agent."""
    rows = page.locator("table.sessions tbody tr")
    expect(rows).to_have_count(4)
    page.get_by_label("Agent", exact=True).select_option(label=walk.label)
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(walk.label)
    rows.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def _seen(page: Page) -> int:
    """How many entries the model sees, as the session's page says."""
    words = page.get_by_role("link", name=re.compile("What the model sees")).inner_text()
    return int(words.split()[-1].replace(",", ""))


def _recorded(agents: AgentHome, name: str) -> list[bytes]:
    """What is recorded of an agent's session: the bytes of its file, or its parts."""
    if name == "opencode":
        return [repr(row).encode() for row in agents.opencode.parts()]
    kind = {"claude": ".claude/projects", "codex": ".codex/sessions"}[name]
    return [path.read_bytes() for path in sorted(Path(agents.home, kind).rglob("*.jsonl"))]

"""A walk with a real session: a branch is left with a summary and come back to, an entry is labelled, a conversation is
got back from before a compaction, a summary is drafted, edited and appended, and taken back."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from playwright.sync_api import Page, expect

from compaction_app.scripted.server import ScriptedProvider
from tests.browser.chromium import Watched
from tests.factories import chain, session_bytes, summary_compaction, turns_of_work, user
from tests.files import backdate, place
from tests.paths import corpus
from tests.scripted_models import add_provider
from tests.server import Server, start_server

NAME: Final = "walk.jsonl"
EDITED: Final = "The tests of the parser come first."


def walked_session() -> bytes:
    """A real session of pi that it has compacted; without one, a generated one."""
    found = corpus()
    if found is not None:
        return (found / "pi" / "before-compaction.v3.jsonl").read_bytes()
    first, later = ([one["message"] for one in turns_of_work(turns)[1:]] for turns in (4, 8))
    for message in later[: 4 * 5 : 4]:
        # A name that only the replaced part has.
        message["content"] += " Look at sessionManager."
    compaction = summary_compaction("## Goal\nThe cache.", "e13")
    return session_bytes(chain(*first, compaction, *later, user("Go on.")))


@contextmanager
def walk_server(base: Path, provider: ScriptedProvider) -> Iterator[Server]:
    """A server with the session, and the scripted provider as its only model."""
    root = base / "home" / ".pi" / "agent" / "sessions"
    header, rest = walked_session().split(b"\n", 1)
    # pi resumes only in a directory that exists.
    named = json.dumps({**json.loads(header), "cwd": str(base)}).encode()
    backdate(place(root / NAME, named + b"\n" + rest))
    roots = json.dumps([{"path": str(root), "agent": "pi"}])
    with start_server(base, roots=root, REDLINE_ROOTS=roots) as server:
        limits = {"window": "400000", "output_limit": "16000", "thinking_style": "budget"}
        add_provider(server, "scripted", provider.base_url("openai"), "good-plan", **limits)
        server.wait_for(lambda: "parser" in server.get("/") or NAME in server.get("/"))
        yield server


@dataclass
class SummaryWalk:
    """A user with one page."""

    watched: Watched
    page: Page

    @property
    def path(self) -> Path:
        return self.watched.server.root / NAME

    @property
    def url(self) -> str:
        return self.watched.server.base + self.watched.server.session(NAME)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]

    def press(self, words: str) -> None:
        self.page.get_by_role("button", name=words).first.click()

    def confirm(self, words: str) -> None:
        """Press a button that writes, on the page that the last step leads to; what it asks is agreed to."""
        expect(self.page.get_by_role("button", name=words)).to_be_visible()
        # A commit a moment ago makes the session look as if it were in use.
        backdate(self.path)
        self.page.reload()
        self.press(words)
        expect(self.page.locator(".banner--done")).to_be_visible()

    def draft(self) -> None:
        """Have the model write a draft, and wait for it."""
        page = self.page
        page.locator("#planner").select_option("scripted/good-plan")
        expect(page.locator("#sent")).to_contain_text("no tools, no reasoning")
        self.press("Write a draft")
        expect(page.get_by_role("heading", level=1)).to_have_text("Draft of a summary")

    def leave_branch(self) -> str:
        """Leave the branch for an earlier entry, with a summary; returns the entry that was the last one."""
        recorded, page = self.lines(), self.page
        target = next(one for one in reversed(recorded[: len(recorded) // 2]) if _is_reply(one))
        page.goto(f"{self.url}/tree/move?entry={quote(target['id'])}")
        page.get_by_role("link", name="Summarise what you leave…").click()
        self.draft()
        self.press("Move with this summary…")
        self.confirm("Back up and move")
        written = self.lines()[-1]
        assert (written["type"], written["parentId"]) == ("branch_summary", target["id"])
        assert written["fromId"] == recorded[-1]["id"]
        return str(recorded[-1]["id"])

    def move_back(self, leaf_id: str) -> None:
        """Follow the link by which the last step is taken back."""
        self.page.get_by_role("link", name="move back").click()
        expect(self.page.get_by_role("heading", level=1)).to_have_text("Continue from here?")
        self.confirm("Move here")
        written = self.lines()[-1]
        assert (written["type"], written["parentId"]) == ("custom", leaf_id)

    def label(self) -> None:
        """Label the last reply."""
        reply = next(one for one in reversed(self.lines()) if _is_reply(one))
        self.page.goto(f"{self.url}/entries/{reply['id']}")
        self.page.locator(f"[id='{reply['id']}']").hover()
        self.page.get_by_role("link", name="Label…").click()
        self.page.get_by_label("Label", exact=True).fill("before the summary")
        backdate(self.path)
        self.page.get_by_role("button", name=re.compile("label", re.IGNORECASE)).first.click()
        expect(self.page.locator(".banner--done")).to_contain_text("before the summary")
        assert self.lines()[-1]["type"] == "label"

    def fork_from_before(self) -> Path:
        """Get the conversation back that a compaction replaced, as a new session; returns its path."""
        known = set(self.path.parent.glob("*.jsonl"))
        compaction = next(one for one in self.lines() if one["type"] == "compaction")
        self.page.goto(f"{self.url}/lost?entry={quote(compaction['id'])}")
        self.press("Fork from before it")
        expect(self.page.get_by_role("link", name="Tree", exact=True)).to_be_visible()
        (made,) = set(self.path.parent.glob("*.jsonl")) - known
        return made

    def summarise(self) -> dict[str, Any]:
        """Draft a summary of the beginning, edit it, and append it; returns the line."""
        page = self.page
        page.goto(self.url)
        page.get_by_role("link", name="Summarise…").click()
        self.draft()
        before = page.locator("#missing").inner_text()
        text = page.get_by_label(re.compile("The text the model will see"))
        text.press("Control+Home")
        text.press_sequentially(f"{EDITED}\n\n")
        inserted = page.locator("button[name=insert]").first.get_attribute("value") or ""
        insert = page.locator(f'button[name=insert][value="{inserted}"]')
        insert.first.click()
        expect(page.locator("#missing")).not_to_have_text(before)
        expect(insert).to_have_count(0)
        expect(page.locator("#changed")).to_contain_text("+")
        self.press("Append this summary…")
        expect(page.locator(".generated")).to_contain_text(EDITED)
        self.confirm("Back up and append")
        expect(page.get_by_role("heading", level=1)).to_contain_text("became a summary")
        written = self.lines()[-1]
        assert written["type"] == "compaction"
        assert written["summary"].startswith(f"{EDITED}\n\n{inserted}")
        return written


def _is_reply(recorded: dict[str, Any]) -> bool:
    """Whether a line is an answer without calls, after which a conversation can continue."""
    message = recorded.get("message", {})
    content = message.get("content") or []
    return message.get("role") == "assistant" and not any(one.get("type") == "toolCall" for one in content)

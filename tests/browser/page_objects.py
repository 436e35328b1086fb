"""A user's steps on the pages, from the list of sessions to the commit and back.

Every step uses only the links and form buttons that a page offers, works with script and without it, and waits for its
effect.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Locator, Page, expect

from tests.browser.acts import confirm_all, number_of, texts_of
from tests.browser.chromium import Watched
from tests.browser.scenarios import forked_session, place_titled, session_of_turns, title
from tests.factories import session_bytes
from tests.files import backdate, place
from tests.plans import context_ids, context_without
from tests.server import Server, start_server

JOURNEYS: Final = ("scripted", "plain")
OTHERS: Final = 70
"""Other sessions on the server: more than one page of the list."""
SESSIONS: Final = len(JOURNEYS) + 1 + OTHERS
INVALID: Final = r"the server responded with a status of 422"


@contextmanager
def journey_server(base: Path) -> Iterator[Server]:
    """A server with a session for each journey, one with two branches, and enough others for a second page."""
    root = base / "sessions"
    for name in JOURNEYS:
        place(root / f"{name}.jsonl", session_bytes(session_of_turns(12)))
    place(root / "forked.jsonl", forked_session())
    for number in range(OTHERS):
        backdate(place_titled(root, f"other-{number}", steps=1, words=number), hours=2)
    with start_server(base) as server:
        server.wait_for(lambda: f"{SESSIONS} sessions of" in server.get("/"))
        yield server


@dataclass
class Journey:
    """A user with one page in a watched window, with or without script."""

    watched: Watched
    page: Page
    scripted: bool = True

    @property
    def server(self) -> Server:
        return self.watched.server

    @property
    def name(self) -> str:
        return f"{JOURNEYS[0] if self.scripted else JOURNEYS[1]}.jsonl"

    @property
    def path(self) -> Path:
        return self.server.root / self.name

    def click(self, name: str | re.Pattern[str], role: Any = "link", within: Locator | None = None) -> None:
        (within or self.page.locator("body")).get_by_role(role, name=name).locator("visible=true").first.click()

    def press(self, name: str | re.Pattern[str], within: Locator | None = None) -> None:
        self.click(name, "button", within)

    # ---- 2: the list ------------------------------------------------------------------------------------

    def browse_list(self) -> None:
        """Filter, sort, and turn the page."""
        page = self.page
        page.get_by_label("Filter by name or project").fill("forked")
        if not self.scripted:
            self.press("Filter")
        rows = page.locator("table.sessions tr[id]")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text(title("forked"))
        page.get_by_label("Filter by name or project").fill("")
        if not self.scripted:
            self.press("Filter")
        expect(rows).to_have_count(60)
        self.click("Entries")
        expect(page.locator("th[aria-sort=descending]")).to_contain_text("Entries")
        expect(rows).to_have_count(60)
        counts = [int(re.sub(r"\D", "", text)) for text in texts_of(rows.locator("td:nth-child(4)"))]
        assert counts == sorted(counts, reverse=True)
        self.click("Next")
        expect(rows).to_have_count(SESSIONS - 60)
        expect(page).to_have_url(re.compile("[?&]page=2"))

    # ---- 3: a session -----------------------------------------------------------------------------------

    def view_session(self) -> None:
        """The three views, a fork, a shortened output, the URL of an entry."""
        page = self.page
        page.goto(f"{self.server.base}/?q=forked")
        self.click(title("forked"))
        expect(page.get_by_role("heading", level=1)).to_contain_text(title("forked"))
        for view in ("Everything", "Deleted", "What the model sees"):
            self.click(re.compile(view))
            expect(page.locator(".tabs [aria-current=page]")).to_contain_text(view)
        output = page.locator("article", has_text="line 0").first
        expect(output).not_to_contain_text("line 119")
        output.locator("a.more").click()
        expect(page.get_by_text(re.compile(r"line 118\s+line 119"))).to_be_visible()
        if not self.scripted:
            page.go_back()
        self.click("e3")
        expect(page.locator("article#e3.is-selected")).to_be_visible()
        expect(page).to_have_url(re.compile("/entries/e3$"))
        self.click(re.compile("another branch"))
        expect(page.get_by_text("This is the first way.")).to_be_visible()
        expect(page.get_by_text("This is the second way.")).to_have_count(0)

    # ---- 4: a run ---------------------------------------------------------------------------------------

    def plan(self, address: str = "") -> None:
        """The panel, then the planning until the review opens, without a manual reload."""
        page = self.page
        page.goto(self.server.base + (address or self.server.session(self.name)))
        self.click("Compact…")
        page.get_by_label("Keep", exact=True).fill("60")
        page.get_by_label("What you will work on next").fill("the parser")
        self.press(re.compile("^Plan"))
        page.wait_for_url(re.compile(r"/plans/\d+$"))
        self.click("Planner’s log")
        calls = [int(number) for number in texts_of(page.locator("#log .event__number")) if number]
        assert calls == list(range(1, len(calls) + 1))

    # ---- 5: the review ----------------------------------------------------------------------------------

    def review(self) -> None:
        """Approve, reject, undo, delete an entry, narrow, withdraw, approve the groups."""
        page = self.page
        self.click(re.compile("^Review"))
        first, second = (self._row(number) for number in (0, 1))
        self._open(first)
        self.press(re.compile("^Approve"), page.locator(first))
        expect(page.locator(f"{first}.is-approved")).to_contain_text("approved")
        self._open(second)
        self.press(re.compile("^Reject"), page.locator(second))
        expect(page.locator(f"{second}.is-kept")).to_contain_text("rejected")
        self.press(re.compile("Undo"))
        expect(page.locator(f"{second}[data-undecided]")).to_be_visible()
        self._open(second)
        self.press(re.compile("^Reject"), page.locator(second))
        expect(page.locator(f"{second}.is-kept")).to_be_visible()
        mine = self._add_proposal("Delete entry")
        self._open(mine)
        page.locator(mine).get_by_text("Only some blocks…").click()
        page.locator(mine).get_by_role("checkbox", name=re.compile("^text|^call|^thinking")).first.check()
        self.press("Delete only these", page.locator(mine))
        expect(page.locator(mine)).to_have_count(0)
        added = self._add_proposal("Delete block")
        self._open(added)
        self.press("Take back", page.locator(added))
        expect(page.locator(added)).to_have_count(0)
        page.goto(f"{page.url.partition('?')[0]}?by=call&open=none")
        self.approve_groups()

    def approve_groups(self) -> None:
        """Approve what is undecided in each group."""
        bar = self.page.locator("#bar")
        while (left := bar.get_attribute("data-undecided") or "0") != "0":
            self.page.locator("button[name=approve_group]").first.click()
            expect(bar).not_to_have_attribute("data-undecided", left)
        expect(self.page.get_by_role("link", name=re.compile("^Confirm [0-9]"))).to_be_visible()
        expect(self.page.locator("#bar")).to_have_attribute("data-undecided", "0")

    def _row(self, number: int) -> str:
        return f"#{self.page.locator('li.proposal').nth(number).get_attribute('id')}"

    def _open(self, row: str) -> None:
        """Fold a proposal open, if it is not."""
        if not number_of(self.page.locator(f"{row} .proposal__open")):
            # By its key: what is still being loaded above could move the line away from under a click.
            self.page.locator(f"{row} .proposal__what").press("Enter")
        expect(self.page.locator(f"{row} .proposal__open")).to_be_visible()

    def _add_proposal(self, words: str) -> str:
        """Unfold what surrounds proposals until a button has this text, and press it; returns the row that it adds."""
        page = self.page
        if not self.scripted:
            # The last decision left open only its own group.
            page.goto(page.url.partition("?")[0])
        for number in range(number_of(page.locator("li.proposal"))):
            row = self._row(number)
            self._open(row)
            folds = page.locator(f"{row} p.fold a.plain")
            for fold in range(number_of(folds)):
                if self.scripted:
                    # An expanded fold is replaced by its entries.
                    stays = page.locator(f"{row} details.staying")
                    shown = number_of(stays)
                    folds.first.click()
                    expect(stays).not_to_have_count(shown)
                else:
                    folds.nth(fold).click()
                    page.wait_for_url("**/stays?*")
                found = page.locator("details.staying").get_by_role("button", name=re.compile(rf"^{words}( −[\d,]+)?$"))
                if number_of(found):
                    key = found.first.get_attribute("value")
                    found.first.click()
                    mine = page.locator(f'li[data-key="{key}"]')
                    expect(mine).to_contain_text("added by you")
                    return f"#{mine.get_attribute('id')}"
                if not self.scripted:
                    page.go_back()
        raise AssertionError(f"no entry that stays has a button {words}")

    # ---- 6: the commit ----------------------------------------------------------------------------------

    def commit(self) -> bytes:
        """Commit a session that was just written to, which needs a confirmation; returns the previous bytes."""
        page, before = self.page, self.path.read_bytes()
        shutil.copyfile(self.path, self.path.with_suffix(".before"))
        self.click(re.compile("^Confirm [0-9]"))
        page.wait_for_url("**/confirm")
        os.utime(self.path)
        page.reload()
        if self.scripted:
            page.get_by_role("link", name=re.compile("^[0-9]+ ticks? missing$")).click()
            expect(page.locator("input[name=yes]").first).to_be_focused()
        else:
            self.watched.expect(INVALID)
            self.press("Back up and save the edit")
            expect(page.get_by_role("alert")).to_be_visible()
        assert self.path.read_bytes() == before
        confirm_all(self.page)
        self.press("Back up and save the edit")
        page.wait_for_url(re.compile("/result$"))
        expect(page.get_by_role("heading", level=1)).to_contain_text("deleted")
        entry = self._appended(before)
        page.get_by_text("What was written").click()
        expect(page.locator(".file-line").first).to_contain_text(entry["id"])
        return before

    def _appended(self, before: bytes) -> dict[str, Any]:
        """The one line that was added to the file: a compaction that deletes exactly its targets."""
        after = self.path.read_bytes()
        assert after.startswith(before)
        added = after[len(before) :]
        assert added.count(b"\n") == 1
        assert added.endswith(b"\n")
        entry: dict[str, Any] = json.loads(added)
        assert entry["type"] == "context_compaction"
        assert json.loads(before.splitlines()[-1])["id"] == entry["parentId"]
        old = self.path.with_suffix(".before")
        assert context_ids(self.path) == context_without(context_ids(old), entry["deletedTargets"])
        return entry

    # ---- 7: the restore ---------------------------------------------------------------------------------

    def restore(self, before: bytes) -> None:
        """Restore the backup of the compaction, then the backup of that restore."""
        page, after = self.page, self.path.read_bytes()
        self.click("restore a backup")
        page.wait_for_url("**/backups")
        self._restore_by("Restore…")
        assert self.path.read_bytes() == before
        self._restore_by("Undo the restore…")
        assert self.path.read_bytes() == after
        expect(page.locator("table.backups tbody tr")).to_have_count(3)

    def _restore_by(self, link: str) -> None:
        page = self.page
        self.click(link)
        expect(page.get_by_role("heading", level=1)).to_contain_text("Restore the backup of")
        confirm_all(self.page)
        self.press("Restore this backup")
        page.wait_for_url("**/backups")
        expect(page.get_by_role("status").filter(has_text=re.compile("restored", re.IGNORECASE))).to_be_visible()


def whole_journey(watched: Watched, *, scripted: bool) -> None:
    """Steps 2 to 7, one after the other."""
    journey = Journey(watched, watched.open("/"), scripted)
    journey.browse_list()
    journey.view_session()
    journey.plan()
    journey.review()
    before = journey.commit()
    journey.restore(before)

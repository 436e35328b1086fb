"""The number beside a button is what the button does: on rows, groups, opened proposals, selections and additions.

Random decisions are made on real sessions, on a page that is drawn once and then changed by the answers alone, as a
browser with htmx does it. The number shown before each decision is compared with what the counter moves by, and with
what the status says.
"""

import random
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from compaction_app.core.groups import Grouping
from compaction_app.core.review_fold import ACCEPTED
from compaction_app.models import Run
from compaction_app.pages.review.presenter import ReviewDesk
from compaction_app.review.grouped_review import ReviewFilter
from compaction_app.runs.reviews import reviewed
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.context import significant
from sessions_app.sessionlog.entries import Target
from sessions_app.templatetags.formatting import escape_line
from tests.budget import FACTOR
from tests.compaction_app.review.review_page import HTMX, extent, group_keys, page, planned_again, post
from tests.html import Element, Source, element, elements, missing, text_of
from tests.paths import corpus
from tests.test_numbers import GENERATED, copied, root as root

DECISIONS = 40
LOADED_AGAIN = 10
"""Decisions after which the page is loaded again, in other groups."""
PARTS = "li.proposal, .group__row, #bar"
"""What of the page an answer changes; of a proposal that is open, its line is compared."""
SAMPLE = "pi/kimchi-dev-statusline.v3.jsonl"
SESSIONS = (
    SAMPLE,
    "claude-code/entireio-13-db96e5c261-0.jsonl",
    "claude-code/entireio-f6-a415abf2b0-1.jsonl",
    "pi-converted/entireio-14-0612f29948-0.jsonl",
    "pi/before-compaction.v3.jsonl",
)
NUMBER = re.compile(r"[−+]([\d,]+)")


def recorded() -> list[Any]:
    """Real sessions with how many decisions are made on each; without any, a generated one. The rest takes long."""
    if corpus() is None:
        return [pytest.param(GENERATED, LOADED_AGAIN, id="generated")]
    few = pytest.param(SAMPLE, LOADED_AGAIN, id="a few")
    return [few, *(pytest.param(name, DECISIONS, id=name, marks=pytest.mark.long) for name in SESSIONS)]


def number(source: Source, css: str) -> int:
    """The exact value of the number that an element shows; 0 if it shows none."""
    return sum(int(one.attributes["value"] or 0) for one in elements(source, css)[:1])


def line_of(part: Element) -> str:
    return text_of((part.css(".proposal__line") or [part])[0])


def shown_number(words: str) -> int:
    """The number in a button's words or a sentence, as it is shown; 0 if there is none."""
    found = NUMBER.search(words)
    return int(found[1].replace(",", "")) if found is not None else 0


@dataclass
class ReviewInBrowser:
    """A review page as it was loaded, and as the answers to decisions changed it."""

    client: Client
    run: Run
    chance: random.Random
    by: str = ""
    parts: dict[str, Element] = field(default_factory=dict)
    sent: dict[str, list[str]] = field(default_factory=dict)
    counted: int | None = None
    """The number of proposals that the pressed button of a group names."""
    pressed_unsigned: bool = False
    """Whether the row that was pressed was rejected: its number, without a sign, is what it deletes if it may go."""

    def load(self, by: str) -> None:
        """Load the page in these groups, the four first open. They are in the order of the numbers that they show."""
        self.by, closed = by, page(self.client, self.run, f"?by={by}&open=none")
        sizes = [number(one, ".group__tokens data") for one in elements(closed, ".group__row")]
        assert sizes == sorted(sizes, reverse=True)
        keys = group_keys(closed)[:4]
        shown = page(self.client, self.run, f"?by={by}" + "".join(f"&open={key}" for key in keys))
        self.parts = {}
        self.sent = extent(shown)
        self.draw(shown)

    def is_as_loaded_again(self) -> bool:
        """Whether each part is what it would be if the page was loaded again."""
        shown = page(self.client, self.run, f"?by={self.by}" + "".join(f"&open={key}" for key in self.sent["open"]))
        again = {str(one.id): line_of(one) for one in elements(shown, PARTS)}
        return again == {name: line_of(one) for name, one in self.parts.items() if name in again}

    def draw(self, source: Any) -> None:
        if elements(source, "#groups"):
            self.parts, self.sent = {}, extent(source)
        self.parts |= {str(one.id): one for one in elements(source, PARTS)}

    @property
    def rows(self) -> list[Element]:
        return [one for name, one in self.parts.items() if name.startswith("p-")]

    @property
    def groups(self) -> list[Element]:
        return [one for name, one in self.parts.items() if name.startswith("r-")]

    @property
    def approved(self) -> int:
        found = elements(self.parts["bar"], ".sum__now data.red")
        return int(found[0].attributes["value"] or 0) if found else 0

    def press(self, **pressed: Any) -> str:
        """Press a button; returns what the status says."""
        answer = post(self.client, self.run, True, by=self.by, **self.sent, **pressed)
        assert answer.status_code == 200, text_of(answer)
        self.draw(answer)
        return text_of(element(answer, "#message"))

    # ---- what can be pressed: its button, the number beside it, and whether that is exact ---------------

    def row(self) -> tuple[dict[str, Any], int] | None:
        """What the number of a row stands for: its approval, or what takes it back."""
        row = self.chance.choice(self.rows)
        acts = str(row.attributes["data-acts"]).split()
        act = next((one for one in acts if one in ("approve", "reject", "withdraw")), "")
        if not act or "is-refused" in str(row.attributes["class"]):
            return None
        self.pressed_unsigned = not row.css(".proposal__line > .tokens del")
        return {act: row.attributes["data-key"]}, number(row, ".proposal__line > .tokens data")

    def rejected_row(self) -> tuple[dict[str, Any], None] | None:
        """The number of an undecided row is that of its approval; a rejection may bring others back."""
        undecided = [row for row in self.rows if "data-undecided" in row.attributes]
        return ({"reject": self.chance.choice(undecided).attributes["data-key"]}, None) if undecided else None

    def group(self) -> tuple[dict[str, Any], int]:
        """The first button of a group."""
        group = self.chance.choice(self.groups)
        (button, *_) = elements(group, "button")
        words = text_of(button)
        self.counted = sum(map(int, re.findall(r"\d+", words.replace(",", "")))) if "Approve" in words else None
        return {str(button.attributes["name"]): button.attributes["value"]}, number(group, ".group__tokens data")

    def opened_button(self) -> tuple[dict[str, Any], int] | None:
        """A button of a proposal that is open, with the number in its words."""
        key = self.chance.choice(self.rows).attributes["data-key"]
        part = self.part("review", part="open", at=key)
        buttons = elements(part, ".proposal__acts button")
        if not buttons:
            return None
        button = self.chance.choice(buttons)
        return {str(button.attributes["name"]): key}, shown_number(text_of(button))

    def selection(self) -> tuple[dict[str, Any], int] | None:
        undecided = [str(row.attributes["data-key"]) for row in self.rows if "data-undecided" in row.attributes]
        picked = self.chance.sample(undecided, min(len(undecided), 4))
        if not picked:
            return None
        return {"approve_picked": "1", "pick": picked}, number(self.part("review", part="picked", pick=picked), "data")

    def addition(self) -> tuple[dict[str, Any], int] | None:
        start = self.chance.randrange(200)
        buttons = elements(self.part("stays", **{"from": start, "to": start + 20}), 'button[name="add"]')
        if not buttons:
            return None
        button = self.chance.choice(buttons)
        return {"add": button.attributes["value"]}, shown_number(text_of(button))

    def part(self, page_name: str, **query: Any) -> Any:
        return self.client.get(f"/plans/{self.run.pk}/{page_name}?{urlencode(query, doseq=True)}", headers=HTMX)

    def undo(self) -> tuple[dict[str, Any], None]:
        return {"undo": "1"}, None


KINDS = {"row": 8, "group": 3, "opened_button": 3, "rejected_row": 2, "selection": 2, "addition": 1, "undo": 1}
"""How often each is pressed."""
IN_WORDS = ("opened_button", "addition")
"""Whose numbers are in words, and so rounded."""


@pytest.mark.parametrize(("name", "decisions"), recorded())
def test_the_number_beside_a_button_is_what_it_moves(browser, redline, root, name, decisions):
    run = planned_again(index_file(copied(name, root)))
    made: Counter[str] = Counter()
    chance = random.Random(name)
    shown = ReviewInBrowser(browser, run, chance)
    while made.total() < decisions * FACTOR:
        if made.total() % LOADED_AGAIN == 0:
            shown.load(chance.choice(["reason", "turn", "tool"]))
        kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
        shown.counted = None
        button = getattr(shown, kind)()
        if button is None:
            continue
        pressed, expected = button
        last = reviewed(run).last
        before, desk = shown.approved, ReviewDesk(run, ReviewFilter(by=Grouping(shown.by)))
        status = shown.press(**pressed)
        moved, after = abs(shown.approved - before), ReviewDesk(run, desk.chosen)
        made[kind] += 1
        what = f"{name}, decision {made.total()}: {kind} {pressed} shows {expected} and moves {moved}: {status}"
        as_shown = {significant(moved + step) for step in (-1, 0, 1)}
        if kind in IN_WORDS:
            assert expected in as_shown, what
        elif expected is not None:
            is_held = moved == 0 and shown.pressed_unsigned and "cannot be deleted" in status
            assert abs(moved - expected) <= 1 or is_held, what
        assert shown_number(status.rpartition(":")[2]) in as_shown, what
        approved = sum(is_accepted(after, target) and not is_accepted(desk, target) for target in leads_of(after))
        assert shown.counted in (None, approved) or "cannot be deleted" in status, what
        made_step = last if kind == "undo" else reviewed(run).last
        own = made_step.step.targets if made_step is not None else ()
        assert not missing(status, *others_in_words(desk, after, own)), what
        assert made.total() % LOADED_AGAIN or shown.is_as_loaded_again(), what
    print(f"{name}: {made.total()} decisions, each number is what moved: {dict(made)}")


def others_in_words(before: ReviewDesk, after: ReviewDesk, own: Collection[Target]) -> list[str]:
    """What a status has to name of the proposals that were decided with those that a decision was about."""
    changed = {
        target
        for target, item in {**before.review.items, **after.review.items}.items()
        if item.leader is None and target not in own and is_accepted(before, target) != is_accepted(after, target)
    }
    groups = Counter(title_of(after if target in after.review.items else before, target) for target in changed)
    if len(groups) > 2:
        return [f"and {len(changed)} in {len(groups)} groups"]
    return [f"{count} in “{title}”" for title, count in groups.items()]


def leads_of(desk: ReviewDesk) -> list[Target]:
    return [item.target for item in desk.leads]


def is_accepted(desk: ReviewDesk, target: Target) -> bool:
    item = desk.review.items.get(target)
    return item is not None and item.standing in ACCEPTED


def title_of(desk: ReviewDesk, target: Target) -> str:
    return escape_line(desk.titles.by(desk.chosen.by)(desk.review.items[target]))

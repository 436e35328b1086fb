"""The time from a key press to its visible effect, in Chromium: the keys of a review of 982 proposals.

The page itself measures it: from the moment of the key press to the frame after the one that draws the effect,
including the response of the server if the key makes a decision.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devtools.chromium import ARGUMENTS, MISSING, find_chromium
from sessions_app.sessionlog.errors import BadInput

from .figures import Figure
from .pages import QUIET_SECONDS, REVIEWED_BYTES, REVIEWED_ENTRIES, BenchServer, address_of, planned
from .scale import run_command
from .sessions import generate, write_session

if TYPE_CHECKING:
    from playwright.sync_api import Page

PRESSES: Final = 100
GROUP_PRESSES: Final = 10
WARMED_UP: Final = 8
"""The number of warm-up presses before those that are measured."""
DECISIONS: Final = "aaxau"
"""The keys that decide, in turn: three approvals, a rejection, and an undo."""
MOVES: Final = "jjjk"
GROUP_DECISIONS: Final = "Au"
_WATCH: Final = """() => {
    let pressed = 0;
    let settle = () => {};
    window.expectDrawn = () => {
        window.drawn = new Promise((resolve, reject) => {
            settle = resolve;
            setTimeout(() => reject(new Error("the key moved nothing")), 30_000);
        });
    };
    const note = () => {
        const from = pressed;
        pressed = 0;
        if (from) requestAnimationFrame(() => setTimeout(() => settle(performance.now() - from)));
    };
    document.addEventListener("keydown", (event) => { pressed = event.timeStamp; }, true);
    const isBar = (node) => node.id === "bar";
    const changes = new MutationObserver((found) => {
        if (window.moves) return;
        if (found.some((one) => Array.from(one.addedNodes).some(isBar))) note();
    });
    changes.observe(document.getElementById("main"), { childList: true });
    document.addEventListener("focusin", () => { if (window.moves) note(); });
}"""


def review_keys() -> Iterator[Figure]:
    """The median and the slowest of PRESSES keys that decide, and of those that move the cursor."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as missing:
        raise BadInput(
            "no_playwright",
            "The keys of the review were not measured: Playwright is missing. `make bench` installs it.",
        ) from missing
    chromium = find_chromium()
    if chromium is None:
        raise BadInput("no_chromium", f"The keys of the review were not measured. {MISSING}.")
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        root, data = Path(name) / "sessions", Path(name) / "data"
        root.mkdir()
        path = root / "reviewed.jsonl"
        write_session(path, generate(entries=REVIEWED_ENTRIES, entry_bytes=REVIEWED_BYTES, seed=5))
        os.utime(path, (time.time() - QUIET_SECONDS,) * 2)
        run_command(data, "index", str(root))
        with BenchServer(data, [root]) as server, sync_playwright() as playwright:
            run = planned(server.browser, address_of(server, "reviewed"), keep="50")
            base = f"http://{server.browser.host}"
            window = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
            context = window.new_context(viewport={"width": 1_440, "height": 900})
            cookies = server.browser.cookies.items()
            context.add_cookies([{"name": name, "value": value, "url": base} for name, value in cookies])
            page = context.new_page()
            page.goto(f"{base}{run}")
            page.wait_for_load_state("networkidle")
            page.evaluate(_WATCH)
            yield from _figures("review_key", _times(page, DECISIONS, PRESSES), 60, 150)
            yield from _figures("review_group_key", _times(page, GROUP_DECISIONS, GROUP_PRESSES), None, None)
            page.evaluate("window.moves = true")
            yield from _figures("review_move_key", _times(page, MOVES, PRESSES), 60, 150)
            window.close()


def _times(page: Page, keys: str, presses: int) -> list[float]:
    """The milliseconds of presses of these keys in turn, each pressed when the one before it is drawn."""
    page.keyboard.press("n")
    page.wait_for_timeout(500)
    times = []
    for number in range(WARMED_UP + presses):
        page.evaluate("expectDrawn()")
        page.keyboard.press(keys[number % len(keys)])
        # Waiting for the promise, not asking again and again: that would take time from what is measured.
        times.append(float(page.evaluate("window.drawn")))
    return times[WARMED_UP:]


def _figures(name: str, times: list[float], median: float | None, slowest: float | None) -> Iterator[Figure]:
    yield Figure(f"{name}_median", round(statistics.median(times), 1), "ms", median)
    yield Figure(f"{name}_slowest", round(max(times), 1), "ms", slowest)

"""What every page keeps to: it fits its window, it is accessible, and what it shows has names.

`make test` looks at each page in one width, theme and choice of fonts, by a fixed rotation in which each combination
occurs; with REDLINE_EVERY_VIEW, as in `make test-all`, in all of them. With REDLINE_SHOTS a screenshot of each is
stored there.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.acts import settle
from tests.browser.chromium import Watched

HEIGHT: Final = 900


class View(NamedTuple):
    """The width of a window in pixels, its theme, and whether it has the fonts of the pages or any."""

    width: int
    theme: str
    fonts: str


VIEWS: Final = tuple(
    View(width, theme, fonts)
    for fonts in ("own", "generic")
    for width, theme in ((390, "light"), (1_440, "dark"), (390, "dark"), (1_440, "light"))
)
IN_EVERY_VIEW: Final = bool(os.environ.get("REDLINE_EVERY_VIEW") or os.environ.get("REDLINE_SHOTS"))
AXE_SCRIPT: Final = Axe().axe_script
AXE_RULES: Final = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
    "rules": {"region": {"enabled": True}},
    "resultTypes": ["violations"],
    "selectors": False,
    "preload": False,
}
"""WCAG 2.2 at level AA, and that everything is in a landmark. The last two save time: nothing here uses them."""
GENERIC_FONTS: Final = """() => {
    for (const [name, font] of [["--sans", "sans-serif"], ["--serif", "serif"], ["--mono", "monospace"]])
        document.documentElement.style.setProperty(name, font);
}"""
OWN_FONTS: Final = """() => {
    for (const name of ["--sans", "--serif", "--mono"]) document.documentElement.style.removeProperty(name);
}"""
OUTLINE: Final = Path(__file__).with_name("outline.js").read_text(encoding="utf-8")


def have_no_faults(watched: Watched, pages: Mapping[str, str], first: int = 0) -> None:
    """Check pages, given by name and path; the rotation begins with the view of this number."""
    faults: list[str] = []
    watched.context.add_init_script(AXE_SCRIPT)  # sent once, which takes a third of the time of a check
    page = watched.open()  # one tab for all: another would cost as much as the page
    for number, (name, path) in enumerate(pages.items(), first):
        page.goto(watched.server.base + path)
        faults += faults_of(page, name, number)
    assert not faults, "\n".join(faults)


def have_no_faults_here(page: Page, name: str, number: int = 0) -> None:
    """Check a page that a test has led to; in the rotation it has this number."""
    faults = faults_of(page, name, number)
    assert not faults, "\n".join(faults)


def faults_of(page: Page, name: str, number: int) -> list[str]:
    """The faults of the page with this number in the rotation."""
    views = VIEWS if IN_EVERY_VIEW else (VIEWS[number % len(VIEWS)],)
    return [fault for view in views for fault in _faults_in(page, name, view)]


def _faults_in(page: Page, name: str, view: View) -> list[str]:
    page.set_viewport_size({"width": view.width, "height": HEIGHT})
    page.emulate_media(color_scheme=view.theme)
    settle(page)
    page.evaluate(GENERIC_FONTS if view.fonts == "generic" else OWN_FONTS)
    found = outline_faults(page)
    if view.fonts == "own" or not IN_EVERY_VIEW:
        found += _violations(page)
        keep(page, f"{name}-{view.width}-{view.theme}")
    return [f"{name}, {view.width} px, {view.theme}, {view.fonts} fonts: {fault}" for fault in found]


def outline_faults(page: Page) -> list[str]:
    """The faults in the outline of a page, as text."""
    found = page.evaluate(OUTLINE)
    faults = [
        f"{kind}: {one}" for kind in ("unlabelled", "unnamed", "empty", "twice", "clipped") for one in found[kind]
    ]
    if found["width"] > 0:
        faults.append(f"it is {found['width']} px too wide")
    if found["titles"] != 1:
        faults.append(f"it has {found['titles']} titles")
    if found["ink"] > 1:
        faults.append(f"it has {found['ink']} ink buttons")
    return faults


def _violations(page: Page) -> list[str]:
    """The findings of axe-core. The window is as high as the page, so that no sticky bar covers what is below it."""
    size = page.viewport_size
    assert size is not None
    tall = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({**size, "height": max(size["height"], tall)})
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found: list[dict[str, Any]] = page.evaluate("rules => axe.run(rules).then((found) => found.violations)", AXE_RULES)
    page.set_viewport_size(size)
    return [f"{broken['id']}: {node['html'][:160]}" for broken in found for node in broken["nodes"]]


def keep(page: Page, name: str) -> None:
    """Store a screenshot of the whole page, if requested."""
    directory = os.environ.get("REDLINE_SHOTS")
    if directory:
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)

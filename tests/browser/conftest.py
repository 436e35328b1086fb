"""One Chromium for all browser tests; its windows are checked for errors at the end of each test.

The browser ends with this package: while Playwright runs, its thread has an event loop, and Django refuses to use the
database in the tests that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from devtools.chromium import ARGUMENTS, MISSING, find_chromium
from tests.browser.chromium import Watched, window
from tests.server import Server
from tests.wait import WAIT_SECONDS

Opener = Callable[..., Watched]

expect.set_options(timeout=WAIT_SECONDS * 1_000)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.fail(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium: Browser) -> Iterator[Opener]:
    """Opens windows on a server, as `chromium.window` does; every error on their pages is reported."""
    opened: list[Watched] = []

    def browse(server: Server, **options: Any) -> Watched:
        opened.append(window(chromium, server, **options))
        return opened[-1]

    yield browse
    for one in opened:
        one.context.close()
    for one in opened:
        one.judge()

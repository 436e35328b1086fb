"""One Chromium for all browser tests of a worker; its windows are checked for errors at the end of each test.

The browser ends with this package: while Playwright runs, its thread has an event loop, and Django refuses to use the
database in the tests that follow.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from playwright.sync_api import expect, sync_playwright

from devtools.chromium import ARGUMENTS, MISSING, find_chromium
from tests.browser.agent_sessions import AgentHome
from tests.browser.chromium import Watched, window
from tests.browser.scenarios import leave_nothing_queued
from tests.files import place
from tests.server import Server, place_in, start_server
from tests.wait import WAIT_SECONDS

A_KEY: Final = "sk-0123456789abcdefghijkl"

expect.set_options(timeout=WAIT_SECONDS * 1_000)


@pytest.fixture(scope="package")
def chromium():
    path = find_chromium()
    if path is None:
        pytest.fail(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def idle_server(tmp_path_factory):
    """A server that leaves runs to workers, so that they stay as a test makes them; it knows all agents' sessions.

    Tests take an `idle_place` in it.
    """
    base = tmp_path_factory.mktemp("idle")
    place(base / "data" / "demo_made", b"").parent.chmod(0o700)
    roots = [{"path": str(base / "atomic"), "agent": "atomic"}, *AgentHome(base / "home").roots]
    environment = {"REDLINE_WORK_IN": "worker", "ANTHROPIC_API_KEY": A_KEY, "REDLINE_ROOTS": json.dumps(roots)}
    with start_server(base, roots=base / "atomic", **environment) as running:
        yield running


@contextmanager
def idle_place(server: Server, name: str) -> Iterator[Server]:
    """A place in the idle server."""
    with place_in(server, name) as mine:
        try:
            yield mine
        finally:
            leave_nothing_queued(server)


@pytest.fixture
def browse(chromium):
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

"""A browser that is watched: whatever a page complains of, or asks of somebody else, fails the test that opened it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, WebSocket

from tests.server import Server
from tests.wait import WAIT_SECONDS, wait_until

ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
MISSING: Final = "Chromium is missing: `make test-deps` installs it, or set REDLINE_CHROMIUM"
ABORTED: Final = "net::ERR_ABORTED"
"""Of a request whose page was left, and of an address that became a download."""
LOST: Final = (
    r"WebSocket connection to '[^']*' failed|net::ERR_CONNECTION_REFUSED",
    r"console: \[object Event\]",
)
"""What the console says of a socket whose server is gone."""

Found = TypeVar("Found")


def find_chromium() -> str | None:
    """The browser that tests drive: `$REDLINE_CHROMIUM`, else the first that the path has."""
    named = os.environ.get("REDLINE_CHROMIUM")
    if named:
        return shutil.which(named)
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next((path for path in found if path), None)


@dataclass
class Watched:
    """One browser's window on one server, and what it complained of."""

    server: Server
    context: BrowserContext
    complaints: list[str] = field(default_factory=list)
    _expected: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context.on("console", self._said)
        self.context.on("weberror", lambda error: self.complaints.append(f"error: {error.error}"))
        self.context.on("dialog", self._asked)
        self.context.on("request", self._went)
        self.context.on("requestfailed", self._failed)
        self.context.on("page", lambda page: page.on("websocket", self._connected))

    def open(self, path: str = "/") -> Page:
        """A page of the server, in a tab of its own."""
        page = self.context.new_page()
        page.goto(self.server.base + path)
        return page

    def expect(self, *patterns: str) -> None:
        """Complaints that match are what this test is about; each has to come."""
        self._expected.extend(patterns)

    def missing(self) -> list[str]:
        """The expected complaints that have not come yet."""
        return [one for one in self._expected if not any(re.search(one, each) for each in self.complaints)]

    def judge(self) -> None:
        """Fail where there was a complaint that nobody expected, or an expected one is missing."""
        unexpected = [
            one for one in self.complaints if not any(re.search(each, one) for each in self._expected)
        ]
        assert not unexpected, "\n".join(unexpected)
        assert not self.missing()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.complaints.append(f"console: {message.text}")

    def _asked(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _went(self, request: Request) -> None:
        if not request.url.startswith((f"{self.server.base}/", "data:")):
            self.complaints.append(f"request elsewhere: {request.url}")

    def _failed(self, request: Request) -> None:
        if request.failure != ABORTED:
            self.complaints.append(f"request failed: {request.url} {request.failure}")

    def _connected(self, socket: WebSocket) -> None:
        if not socket.url.startswith(self.server.base.replace("http", "ws") + "/"):
            self.complaints.append(f"socket elsewhere: {socket.url}")


def poll(page: Page, look: Callable[[], Found]) -> Found:
    """What `look` returns once it is true. Meanwhile the events of the page's browser reach their handlers.

    `Page.wait_for_function` cannot do this here: the pages' content security policy forbids what it evaluates.
    """

    def looked() -> Found:
        page.wait_for_timeout(20)
        return look()

    return wait_until(looked)


def window(chromium: Browser, server: Server, *, known: bool = True, **options: Any) -> Watched:
    """A fresh window; `known`: with the cookie that a launch address becomes."""
    context = chromium.new_context(**{"viewport": {"width": 1_440, "height": 900}, **options})
    context.set_default_timeout(WAIT_SECONDS * 1_000)
    if known:
        context.add_cookies(
            [{"name": one.name, "value": one.value or "", "url": server.base} for one in server.cookies]
        )
    return Watched(server, context)

"""A watched browser: any error on a page, or any request to another host, fails the test that opened it."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, Route, WebSocket, expect

from tests.server import Server
from tests.wait import WAIT_SECONDS, wait_until

LATER_SCRIPTS: Final = re.compile(r"/js/(?!early\.js)|/django_htmx/")
PROBE: Final = "/static/redline/redline.css?probe"
ABORTED: Final = "net::ERR_ABORTED"
"""The errors of a request whose page was left, and of an address that became a download."""
LOST: Final = (r"WebSocket connection to '[^']*' failed|net::ERR_CONNECTION_REFUSED", r"console: \[object Event\]")
"""The console messages about a socket whose server has ended."""

Found = TypeVar("Found")


@dataclass
class Watched:
    """One browser's window on one server, with its errors."""

    server: Server
    context: BrowserContext
    complaints: list[str] = field(default_factory=list)
    _expected: list[str] = field(default_factory=list)
    _allowed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context.on("console", self._said)
        self.context.on("weberror", lambda error: self.complaints.append(f"error: {error.error}"))
        self.context.on("dialog", self._asked)
        self.context.on("request", self._went)
        self.context.on("requestfailed", self._failed)
        self.context.on("page", lambda page: page.on("websocket", self._connected))

    def open(self, path: str = "/") -> Page:
        """A page of the server, in a new tab."""
        page = self.context.new_page()
        page.goto(self.server.base + path)
        return page

    def expect(self, *patterns: str) -> None:
        """Expect errors that match these patterns; each has to occur."""
        self._expected.extend(patterns)

    def allow(self, *patterns: str) -> None:
        """Allow errors that match these patterns, for pages of which some are refused."""
        self._allowed.extend(patterns)

    def missing(self) -> list[str]:
        """The expected errors that have not occurred yet."""
        return [one for one in self._expected if not any(re.search(one, each) for each in self.complaints)]

    def judge(self) -> None:
        """Fail if there was an unexpected error, or if an expected one is missing."""
        known = [*self._expected, *self._allowed]
        unexpected = [one for one in self.complaints if not any(re.search(each, one) for each in known)]
        assert not unexpected, "\n".join(unexpected)
        assert not self.missing()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.complaints.append(f"console: {message.text} ({message.location['url']})")

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
    """The first true result of `look`. Meanwhile the events of the page's browser reach their handlers.

    `Page.wait_for_function` cannot do this here: the pages' content security policy forbids what it evaluates.
    """

    def looked() -> Found:
        page.wait_for_timeout(20)
        return look()

    return wait_until(looked)


def hold(page: Page, pattern: str, times: int | None = None) -> list[Route]:
    """Keep requests to such addresses from reaching the server until `page.unroute`, or so many of them until they
    are handled; returns them as they come."""
    held: list[Route] = []

    def keep(route: Route) -> None:
        held.append(route)

    intercept(page, pattern, keep, times)
    return held


def intercept(
    page: Page, pattern: str | re.Pattern[str], handle: Callable[[Route], None], times: int | None = None
) -> None:
    """Have the page's requests to such addresses handled by the test.

    Chromium answers `page.route` before the page's process knows of it: a request that a key makes at once would pass.
    """
    page.route(pattern, handle, times=times)
    page.route(f"**{PROBE}", lambda route: route.fulfill(body="handled"))
    fetched = f"() => fetch('{PROBE}', {{cache: 'no-store'}}).then((answer) => answer.text())"
    wait_until(lambda: page.evaluate(fetched) == "handled")
    page.unroute(f"**{PROBE}")


@contextmanager
def unready(watched: Watched, path: str) -> Iterator[Page]:
    """A page that is visible while its scripts are still on their way; afterwards they have run."""
    watched.context.route(LATER_SCRIPTS, lambda _: None)
    page = watched.context.new_page()
    page.goto(watched.server.base + path, wait_until="commit")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    yield page
    expect(page.locator("html[data-ready]")).to_have_count(0)
    watched.context.unroute(LATER_SCRIPTS)
    expect(page.locator("html[data-ready]")).to_be_attached()


def window(chromium: Browser, server: Server, *, known: bool = True, **options: Any) -> Watched:
    """A new window; `known`: with the launch cookie."""
    context = chromium.new_context(**{"viewport": {"width": 1_440, "height": 900}, **options})
    context.set_default_timeout(WAIT_SECONDS * 1_000)
    if known:
        context.add_cookies(
            [{"name": one.name, "value": one.value or "", "url": server.base} for one in server.cookies]
        )
    return Watched(server, context)

"""A browser's session lasts while it is used, and logging out or revoking the host name ends it for good."""

from typing import Any

import pytest
from django.conf import settings
from django.core import signing
from django.test import Client

from sessions_app.web import launch_tokens
from sessions_app.web.credentials import COOKIE, RENEWAL_SECONDS
from sessions_app.web.launch_tokens import SESSION_SECONDS, browser_host, end_session, has_ended, new_token
from tests.clients import authorized_client, new_client
from tests.html import actions, text_of


@pytest.fixture
def clock(monkeypatch):
    """The time of day, which only the test moves. Request it before the browser, whose cookie is signed with it."""

    class Clock:
        now = signing.time.time()

        def advance(self, seconds: float) -> None:
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(signing.time, "time", lambda: clock.now)
    monkeypatch.setattr(launch_tokens.time, "time", lambda: clock.now)
    return clock


def copy_of(browser: Client) -> Client:
    """Another browser with the same cookie."""
    copy = new_client()
    copy.cookies[COOKIE] = browser.cookies[COOKIE].value
    return copy


def log_out(browser: Client) -> Any:
    return browser.post("/log-out")


def test_a_session_lasts_for_twelve_hours_after_its_last_use(clock, browser, known_root):
    assert SESSION_SECONDS == 12 * 3600
    for _ in range(4):
        clock.advance(SESSION_SECONDS - 1)
        assert browser.get("/").status_code == 200
    assert browser.cookies[COOKIE]["max-age"] == SESSION_SECONDS
    clock.advance(SESSION_SECONDS + 1)
    assert browser.get("/").status_code == 403


def test_a_cookie_is_renewed_only_now_and_then(clock, browser, known_root):
    assert COOKIE not in browser.get("/").cookies
    clock.advance(RENEWAL_SECONDS + 1)
    assert COOKIE in browser.get("/").cookies
    assert COOKIE not in browser.get("/").cookies


def test_logging_out_ends_this_browsers_session_and_every_copy_of_its_cookie(clock, browser, known_root):
    before = copy_of(browser)
    clock.advance(RENEWAL_SECONDS + 1)
    browser.get("/")
    after = copy_of(browser)
    other = authorized_client()
    answer = log_out(browser)
    assert (answer.status_code, "You are logged out" in text_of(answer)) == (200, True)
    assert answer.cookies[COOKIE].value == ""
    for one in (browser, before, after):
        assert one.get("/").status_code == 403
        assert one.get("/api/runs/1").status_code == 401
    assert other.get("/").status_code == 200


def test_logging_out_needs_a_form_of_this_site(known_root):
    strict = authorized_client(enforce_csrf_checks=True)
    assert log_out(strict).status_code == 403
    assert strict.get("/log-out").status_code == 405
    assert "/log-out" in actions(strict.get("/settings"))


def test_ended_sessions_are_remembered_while_their_cookies_could_be_valid(tmp_path, clock):
    end_session(tmp_path, "first")
    clock.advance(SESSION_SECONDS - 1)
    end_session(tmp_path, "second")
    assert has_ended(tmp_path, "first")
    clock.advance(2)
    end_session(tmp_path, "third")
    ended = [line.split()[0] for line in (tmp_path / launch_tokens.ENDED_FILE).read_text().splitlines()]
    assert ended == ["second", "third"]
    assert [path.name for path in tmp_path.iterdir()] == [launch_tokens.ENDED_FILE]


def test_a_new_host_name_ends_all_sessions_and_replaces_the_old_one(browser, known_root):
    old = browser_host(settings.REDLINE_DATA_DIR)
    new = browser_host(settings.REDLINE_DATA_DIR, renewed=True)
    assert old != new
    assert browser.get("/").status_code == 400
    assert browser.get("/", headers={"host": new}).status_code == 403
    token = new_token(settings.REDLINE_DATA_DIR)
    assert browser.get("/launch", {"token": token}).status_code == 400
    assert new_client().get("/launch", {"token": token}).status_code == 302


def test_the_host_name_has_128_bits_and_is_private(tmp_path):
    names = {browser_host(tmp_path, renewed=True) for _ in range(20)}
    assert len(names) == 20
    for name in names:
        assert len(bytes.fromhex(name.removesuffix(".localhost"))) == 16
    (kept,) = tmp_path.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert browser_host(tmp_path) == browser_host(tmp_path)

"""Who is admitted: by Django requests, raw headers and sockets alike, while a session lasts.

A browser's session lasts while it is used, and logging out or revoking the host name ends it for good.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.core import signing
from django.test import Client, RequestFactory

from sessions_app.server import running_server
from sessions_app.web import credentials as socket_auth
from sessions_app.web.credentials import COOKIE, RENEWAL_SECONDS, SALT, Credentials, new_launch_cookie
from tests.clients import authorized_client, new_client
from tests.html import actions, text_sent


def from_headers(**given: str) -> Credentials:
    return Credentials.of_headers([(name.encode(), value.encode("latin-1")) for name, value in given.items()])


def from_request(**given: str) -> Credentials:
    return Credentials.of_request(RequestFactory().get("/", headers=given))


either_way = pytest.mark.parametrize("credentials", [from_headers, from_request])


@either_way
@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:8000", True), ("localhost", True), ("LOCALHOST:1", True), ("[::1]:8000", True),
        ("", False), ("evil.example", False), ("127.0.0.1.evil.example", False), ("127.0.0.1:x", False),
        ("127.0.0.1,evil.example", False),
    ],
)  # fmt: skip
def test_only_our_host_is_accepted(credentials, host, ours):
    assert credentials(host=host).name_our_host() is ours


def test_two_host_headers_are_refused():
    assert not Credentials.of_headers([(b"host", b"127.0.0.1")] * 2).name_our_host()


@either_way
@pytest.mark.parametrize(
    ("origin", "ours"),
    [
        ("http://127.0.0.1:8000", True), ("https://127.0.0.1:8000", False), ("http://127.0.0.1:8001", False),
        ("http://127.0.0.1", False), ("http://127.0.0.1:8000/", False), ("null", False), ("", False),
    ],
)  # fmt: skip
def test_only_our_origin_is_accepted(credentials, origin, ours):
    assert credentials(host="127.0.0.1:8000", origin=origin).come_from_our_page() is ours


@either_way
def test_a_cookie_is_accepted_beside_others_and_only_at_the_secret_host_name(credentials, redline):
    value, host = new_launch_cookie(), running_server.browser_host(redline.data)
    assert credentials(host=host, cookie=f"other=1; {COOKIE}={value}; x").have_launch_cookie()
    forged = ("", "1", f"{value}x", signing.dumps(1, salt="another"), signing.dumps("1", salt=SALT))
    for cookie in ("", f"other={value}", "\xff=;;=", *(f"{COOKIE}={one}" for one in forged)):
        assert not credentials(host=host, cookie=cookie).have_launch_cookie(), cookie
    cookie = f"{COOKIE}={value}"
    for ours in (host, f"{host}:8000", host.upper()):
        assert credentials(host=ours, cookie=cookie).have_launch_cookie(), ours
    for other in ("127.0.0.1:8000", "localhost", "[::1]", f"x.{host}", f"{host}.evil.example", f"{host},{host}", ""):
        assert not credentials(host=other, cookie=cookie).have_launch_cookie(), other


@either_way
def test_the_secret_host_name_is_accepted_until_it_changes(credentials, redline):
    old = running_server.browser_host(redline.data)
    assert credentials(host=old).name_our_host()
    assert not credentials(host=f"x.{old}").name_our_host()
    new = running_server.browser_host(redline.data, renewed=True)
    assert [credentials(host=host).name_our_host() for host in (old, new)] == [False, True]


@either_way
def test_the_api_token_is_a_bearer_token(credentials, redline):
    assert not credentials(authorization="Bearer ").have_token_for("/api/sessions")
    token = running_server.api_token(settings.REDLINE_DATA_DIR)
    assert credentials(authorization=f"bearer {token}").have_token_for("/api/sessions")
    for authorization in ("", token, f"Basic {token}", f"Bearer {token}x", "Bearer "):
        assert not credentials(authorization=authorization).have_token_for("/api/sessions"), authorization


@pytest.fixture
def clock(monkeypatch):
    """The time of day, which only the test moves. Request it before the browser, whose cookie is signed with it."""

    clock = SimpleNamespace(now=signing.time.time())
    monkeypatch.setattr(signing.time, "time", lambda: clock.now)
    monkeypatch.setattr(running_server.time, "time", lambda: clock.now)
    return clock


def copy_of(browser: Client) -> Client:
    """Another browser with the same cookie."""
    copy = new_client()
    copy.cookies[COOKIE] = browser.cookies[COOKIE].value
    return copy


def test_a_session_lasts_for_twelve_hours_after_its_last_use_and_its_cookie_is_renewed(clock, browser, known_root):
    assert COOKIE not in browser.get("/").cookies
    clock.now += RENEWAL_SECONDS + 1
    assert COOKIE in browser.get("/").cookies
    assert COOKIE not in browser.get("/").cookies
    assert running_server.SESSION_SECONDS == 12 * 3600
    for _ in range(4):
        clock.now += running_server.SESSION_SECONDS - 1
        assert browser.get("/").status_code == 200
    assert browser.cookies[COOKIE]["max-age"] == running_server.SESSION_SECONDS
    clock.now += running_server.SESSION_SECONDS + 1
    assert browser.get("/").status_code == 403


def test_logging_out_ends_this_browsers_session_and_every_copy_of_its_cookie(clock, browser, known_root):
    before = copy_of(browser)
    clock.now += RENEWAL_SECONDS + 1
    browser.get("/")
    after = copy_of(browser)
    other = authorized_client()
    answer = browser.post("/log-out")
    assert "You are logged out" in text_sent(answer, 200)
    assert answer.cookies[COOKIE].value == ""
    for one in (browser, before, after):
        assert one.get("/").status_code == 403
        assert one.get("/api/plans/1").status_code == 401
    assert other.get("/").status_code == 200


def test_logging_out_needs_a_form_of_this_site(known_root):
    strict = authorized_client(enforce_csrf_checks=True)
    assert strict.post("/log-out").status_code == 403
    assert strict.get("/log-out").status_code == 405
    assert "/log-out" in actions(strict.get("/settings/browser"))


def test_ended_sessions_are_remembered_while_their_cookies_could_be_valid(tmp_path, clock):
    running_server.end_session(tmp_path, "first")
    clock.now += running_server.SESSION_SECONDS - 1
    running_server.end_session(tmp_path, "second")
    assert running_server.has_ended(tmp_path, "first")
    clock.now += 2
    running_server.end_session(tmp_path, "third")
    ended = [line.split()[0] for line in (tmp_path / running_server.ENDED_FILE).read_text().splitlines()]
    assert ended == ["second", "third"]
    assert [path.name for path in tmp_path.iterdir()] == [running_server.ENDED_FILE]


def test_a_new_host_name_ends_all_sessions_and_replaces_the_old_one(browser, known_root):
    old = running_server.browser_host(settings.REDLINE_DATA_DIR)
    new = running_server.browser_host(settings.REDLINE_DATA_DIR, renewed=True)
    assert old != new
    assert browser.get("/").status_code == 400
    assert browser.get("/", headers={"host": new}).status_code == 403
    token = running_server.new_token(settings.REDLINE_DATA_DIR)
    assert browser.get("/launch", {"token": token}).status_code == 400
    assert new_client().get("/launch", {"token": token}).status_code == 302


def test_the_host_name_has_128_bits_and_is_private(tmp_path):
    names = {running_server.browser_host(tmp_path, renewed=True) for _ in range(20)}
    assert [len(bytes.fromhex(name.removesuffix(".localhost"))) for name in names] == [16] * 20
    (kept,) = tmp_path.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert running_server.browser_host(tmp_path) == running_server.browser_host(tmp_path)


@pytest.mark.parametrize("leaves", [False, True])
def test_messages_to_a_closed_socket_are_dropped(monkeypatch, leaves):
    """The application closes the socket, or the peer has left; either way the server would raise an error."""
    monkeypatch.setattr(socket_auth, "may_connect", lambda _: True)
    sent: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        for kind in ("accept", "send", "close", "send", "close"):
            await send({"type": f"websocket.{kind}"})

    async def send(message: dict[str, Any]) -> None:
        if leaves and sent:
            raise ConnectionResetError
        if "websocket.close" in sent:
            raise RuntimeError("Unexpected ASGI message, after sending websocket.close")
        sent.append(message["type"])

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.disconnect"}

    asyncio.run(socket_auth.only_known_browsers(application)({"headers": []}, receive, send))
    assert sent == (["websocket.accept"] if leaves else ["websocket.accept", "websocket.send", "websocket.close"])

"""Credentials follow the same rules in Django requests and in raw headers."""

from collections.abc import Callable

import pytest
from django.conf import settings
from django.test import RequestFactory

from sessions_app.web.credentials import COOKIE, Credentials, new_launch_cookie
from sessions_app.web.launch_tokens import api_token, browser_host


def from_headers(**given: str) -> Credentials:
    return Credentials.of_headers([(name.encode(), value.encode("latin-1")) for name, value in given.items()])


def from_request(**given: str) -> Credentials:
    return Credentials.of_request(RequestFactory().get("/", headers=given))


either_way = pytest.mark.parametrize("credentials", [from_headers, from_request])
Reading = Callable[..., Credentials]


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
    headers = [(b"host", b"127.0.0.1"), (b"host", b"127.0.0.1")]
    assert not Credentials.of_headers(headers).name_our_host()


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
def test_a_cookie_is_accepted_beside_others_and_refused_if_changed(credentials, redline):
    value, host = new_launch_cookie(), browser_host(redline.data)
    assert credentials(host=host, cookie=f"other=1; {COOKIE}={value}; x").have_launch_cookie()
    for cookie in ("", f"{COOKIE}=", f"{COOKIE}={value}x", f"other={value}", "\xff=;;="):
        assert not credentials(host=host, cookie=cookie).have_launch_cookie(), cookie


@either_way
def test_a_cookie_is_accepted_only_at_the_secret_host_name(credentials, redline):
    cookie, host = f"{COOKIE}={new_launch_cookie()}", browser_host(redline.data)
    for ours in (host, f"{host}:8000", host.upper()):
        assert credentials(host=ours, cookie=cookie).have_launch_cookie(), ours
    for other in ("127.0.0.1:8000", "localhost", "[::1]", f"x.{host}", f"{host}.evil.example", f"{host},{host}", ""):
        assert not credentials(host=other, cookie=cookie).have_launch_cookie(), other


@either_way
def test_the_secret_host_name_is_accepted_until_it_changes(credentials, redline):
    old = browser_host(redline.data)
    assert credentials(host=old).name_our_host()
    assert not credentials(host=f"x.{old}").name_our_host()
    new = browser_host(redline.data, renewed=True)
    assert [credentials(host=host).name_our_host() for host in (old, new)] == [False, True]


@either_way
def test_the_api_token_is_a_bearer_token(credentials, redline):
    assert not credentials(authorization="Bearer ").have_token_for("/api/sessions")
    token = api_token(settings.REDLINE_DATA_DIR)
    assert credentials(authorization=f"bearer {token}").have_token_for("/api/sessions")
    for authorization in ("", token, f"Basic {token}", f"Bearer {token}x", "Bearer "):
        assert not credentials(authorization=authorization).have_token_for("/api/sessions"), authorization

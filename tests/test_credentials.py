"""Promises of credentials: the same rules, whether they are read from a Django request or from raw headers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.conf import settings
from django.test import RequestFactory

from sessions_app.credentials import COOKIE, Credentials, new_launch_cookie
from sessions_app.launching import api_token
from tests.running import Installation

pytest_plugins = ["tests.running"]


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
        ("127.0.0.1:8000", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:8000", True),
        ("", False),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.1:x", False),
        ("127.0.0.1,evil.example", False),
    ],
)
def test_which_host_is_ours(credentials: Reading, host: str, ours: bool) -> None:
    assert credentials(host=host).name_our_host() is ours


def test_two_hosts_are_not_ours() -> None:
    headers = [(b"host", b"127.0.0.1"), (b"host", b"127.0.0.1")]
    assert not Credentials.of_headers(headers).name_our_host()


@either_way
@pytest.mark.parametrize(
    ("origin", "ours"),
    [
        ("http://127.0.0.1:8000", True),
        ("https://127.0.0.1:8000", False),
        ("http://127.0.0.1:8001", False),
        ("http://127.0.0.1", False),
        ("http://127.0.0.1:8000/", False),
        ("null", False),
        ("", False),
    ],
)
def test_which_page_is_ours(credentials: Reading, origin: str, ours: bool) -> None:
    assert credentials(host="127.0.0.1:8000", origin=origin).come_from_our_page() is ours


@either_way
def test_a_cookie_counts_beside_others_and_not_when_changed(
    credentials: Reading, redline: Installation
) -> None:
    value = new_launch_cookie()
    assert credentials(cookie=f"other=1; {COOKIE}={value}; x").have_launch_cookie()
    for cookie in ("", f"{COOKIE}=", f"{COOKIE}={value}x", f"other={value}", "\xff=;;="):
        assert not credentials(cookie=cookie).have_launch_cookie(), cookie


@either_way
def test_the_token_for_scripts_comes_as_bearer(credentials: Reading, redline: Installation) -> None:
    assert not credentials(authorization="Bearer ").have_api_token()
    token = api_token(settings.REDLINE_DATA_DIR)
    assert credentials(authorization=f"bearer {token}").have_api_token()
    for authorization in ("", token, f"Basic {token}", f"Bearer {token}x", "Bearer "):
        assert not credentials(authorization=authorization).have_api_token(), authorization

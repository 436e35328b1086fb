"""Access to the pages: who is admitted, at which host, and what a page allows other sites to do."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.urls.exceptions import NoReverseMatch

from sessions_app.index.indexer import index_paths, index_roots
from sessions_app.index.roots import managed_root
from sessions_app.models import Root, Session
from sessions_app.server.running_server import browser_host, new_token
from sessions_app.web.credentials import COOKIE, is_for_agents, new_launch_cookie
from tests.clients import authorized_client, new_client
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place, unchanged
from tests.html import active_markup, text_of

HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
SAMPLES = ("a.jsonl", "1", "e1", "x")
"""Sample values for the parts of a URL: a session, a number, an entry, a word."""


def patterns() -> Iterator[tuple[str, URLPattern]]:
    """Every URL pattern of both apps, by its full name."""
    for resolver in get_resolver().url_patterns:
        if isinstance(resolver, URLResolver) and resolver.app_name in ("sessions", "compaction"):
            for pattern in resolver.url_patterns:
                assert isinstance(pattern, URLPattern), "an include within an app: walk it too"
                yield f"{resolver.app_name}:{pattern.name}", pattern


def an_address_of(name: str, pattern: URLPattern, root: int) -> str:
    """A URL that the pattern matches; a session in it is `a.jsonl` of the root."""
    wanted: dict[str, Any] = {}
    for part in [*pattern.pattern.converters, *pattern.pattern.regex.groupindex]:
        wanted.setdefault(part, {"root": str(root), "path": "a.jsonl"}.get(part))
    open_parts = [part for part, value in wanted.items() if value is None]
    for sample in SAMPLES[1:] if open_parts else SAMPLES[:1]:
        try:
            return reverse(name, kwargs={**wanted, **dict.fromkeys(open_parts, sample)})
        except NoReverseMatch:
            continue
    raise AssertionError(f"{name} takes none of {SAMPLES}: give the test one that it takes")


@pytest.fixture
def addresses(known_root):
    (known_root / "a.jsonl").write_bytes(session_bytes(chain(user("hello"), assistant(text("hi")))))
    index_roots()
    root = Session.objects.get(relative_path="a.jsonl").root_id
    return [an_address_of(name, pattern, root) for name, pattern in patterns()]


@pytest.fixture
def for_browsers(addresses):
    """Those at which a browser is admitted."""
    return [address for address in addresses if not is_for_agents(address)]


# ---- who is admitted ---------------------------------------------------------------------------------------


def test_without_the_cookie_every_url_is_refused(addresses, client):
    assert len(addresses) > 10
    for address in [*addresses, "/nowhere"]:
        for method in ("get", "head", "post", "put", "delete", "options"):
            refused = 401 if address.startswith("/api/") else 403
            assert getattr(client, method)(address).status_code == refused, (method, address)


def test_a_cookie_of_another_installation_is_refused(client, known_root, settings):
    ours = settings.SECRET_KEY
    settings.SECRET_KEY = "of another installation"  # noqa: S105
    client.cookies[COOKIE] = new_launch_cookie()
    settings.SECRET_KEY = ours
    assert client.get("/").status_code == 403


def test_the_cookie_is_for_this_site_and_not_for_its_scripts(client, known_root):
    given = client.get("/launch", {"token": new_token(django_settings.REDLINE_DATA_DIR)}).cookies[COOKIE]
    assert (given["samesite"], given["httponly"], given["path"], given["domain"]) == ("Strict", True, "/", "")
    token = client.get("/import").cookies["csrftoken"]
    assert (token["samesite"], token["httponly"]) == ("Strict", True)


def test_a_wrong_token_does_not_use_up_the_right_one_which_logs_one_browser_in_and_is_shown_nowhere(client, known_root):
    token = new_token(django_settings.REDLINE_DATA_DIR)
    for given in ("", "x", "ü", "\0", "a" * 10_000):
        assert client.get("/launch", {"token": given}).status_code == 403
    answer = client.get("/launch", {"token": token})
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert client.get("/").status_code == 200
    assert answer["Referrer-Policy"] == "same-origin"
    assert "no-store" in answer["Cache-Control"]
    refused = new_client().get("/launch", {"token": token})
    assert refused.status_code == 403
    assert token not in refused.content.decode()
    assert refused["Referrer-Policy"] == "same-origin"


# ---- at which host -----------------------------------------------------------------------------------------

FOREIGN = [
    *("evil.example", "127.0.0.1.evil.example", "evil.example:80", "localhost@evil.example", "", "127.0.0.1:x"),
    *("[::1", "localhost.evil.example", "evil.localhost", "0123456789abcdef0123456789abcdef.localhost", ".localhost"),
]


def crossed(paths: list[str], hosts: list[str]) -> list[tuple[str, str]]:
    """Every path at the first host, and the first two and the last of them at every host."""
    return [*product(paths, hosts[:1]), *product([*paths[:2], paths[-1]], hosts)]


WELL_KNOWN = ["127.0.0.1:8123", "localhost:8123", "[::1]:8123"]


def test_a_foreign_host_is_refused_whatever_the_path(addresses, browser, client):
    token = new_token(django_settings.REDLINE_DATA_DIR)
    paths = ["/static/redline/redline.css", *addresses, f"/launch?token={token}"]
    for address, host in crossed(paths, FOREIGN):
        assert browser.get(address, headers={"host": host}).status_code == 400, (host, address)
    assert client.get("/launch", {"token": token}).status_code == 302


def test_browsers_are_not_admitted_at_well_known_names(browser, client, addresses):
    """A cookie for it would be sent to every port of this machine."""
    token = new_token(django_settings.REDLINE_DATA_DIR)
    name = browser_host(django_settings.REDLINE_DATA_DIR)
    for address, host in crossed([*addresses, "/", f"/launch?token={token}"], WELL_KNOWN):
        for known in (browser, client):
            answer = known.get(address, headers={"host": host})
            assert answer.status_code == (401 if address.startswith("/api/") else 403), address
            assert name.split(".")[0] not in answer.content.decode() + str(answer.headers)
            assert not answer.cookies
    assert "redline address" in text_of(browser.get("/", headers={"host": WELL_KNOWN[0]}))
    assert client.get("/launch", {"token": token}).status_code == 302


def test_a_plain_server_admits_browsers_at_well_known_names(client, known_root, settings):
    for host in WELL_KNOWN:
        settings.REDLINE_PLAIN = True
        token = new_token(django_settings.REDLINE_DATA_DIR)
        assert client.get("/launch", {"token": token}, headers={"host": host}).status_code == 302
        assert client.get("/", headers={"host": host}).status_code == 200
        assert client.get("/").status_code == 200
        settings.REDLINE_PLAIN = False
        assert client.get("/", headers={"host": host}).status_code == 403


def test_a_forwarded_host_is_ignored(browser, known_root):
    answer = browser.get("/", headers={"x-forwarded-host": "evil.example", "x-forwarded-proto": "https"})
    assert "evil.example" not in answer.content.decode()


# ---- what another site can do ------------------------------------------------------------------------------


def test_a_form_without_its_token_is_refused(for_browsers, redline):
    checking = authorized_client(enforce_csrf_checks=True)
    with unchanged(redline.data.parent / "shown"):
        for address in for_browsers:
            for headers in ({}, {"hx-request": "true"}, {"origin": "http://127.0.0.1:1"}):
                answer = checking.post(address, {"reader": "pi", "yes": "on"}, headers=headers)
                assert answer.status_code == 403, address
                assert "was not sent from one of" in text_of(answer)


def test_unknown_methods_are_refused(for_browsers, browser):
    for address in for_browsers:
        for method in ("put", "patch", "delete", "trace"):
            answer = getattr(browser, method)(address)
            assert answer.status_code == 405, (method, address)
            assert answer["Allow"], address


def test_get_requests_change_nothing(for_browsers, browser, redline):
    """Actions refuse GET: a picture on another site could request them."""
    with unchanged(redline.data.parent / "shown"):
        for address in for_browsers:
            assert browser.get(address).status_code in (200, 302, 303, 404, 405, 409), address


def test_every_response_has_the_security_headers(addresses, browser, client):
    answers = [browser.get(address) for address in [*addresses, "/nowhere", "/launch"]]
    answers += [
        new_client().get("/"),
        Client(headers={"host": "127.0.0.1"}).get("/"),
        browser.get("/", headers={"host": "evil.example"}),
        browser.post("/"),
    ]
    assert {answer.status_code for answer in answers} >= {200, 400, 403, 404, 405}
    for answer in answers:
        where = answer.request["PATH_INFO"]
        policy = answer["Content-Security-Policy"]
        for directive in ("default-src 'none'", "frame-ancestors 'none'", "form-action 'self'"):
            assert directive in policy, where
        assert "unsafe" not in policy
        assert {name: answer.get(name) for name in HEADERS} == HEADERS, where
        assert "private" in answer["Cache-Control"] or "no-store" in answer["Cache-Control"], where
        assert "public" not in answer["Cache-Control"]


def test_no_page_has_inline_script_or_style(addresses, browser):
    for address in addresses:
        answer = browser.get(address)
        if answer.get("Content-Type", "").startswith("text/html") and not answer.streaming:
            assert active_markup(answer) == [], address


# ---- paths -------------------------------------------------------------------------------------------------

TRICKS = [
    *("../secret.jsonl", "x/../../secret.jsonl", "%2e%2e/secret.jsonl", "%2e%2e%2fsecret.jsonl"),
    *("..%2Fsecret.jsonl", "..%5csecret.jsonl", "%2Fetc%2Fsecret.jsonl", "/etc/secret.jsonl"),
    *("secret.jsonl%00.jsonl", "%00.jsonl", "link.jsonl", "linked/secret.jsonl", "x" * 5_000 + ".jsonl"),
    *("%ff%fe.jsonl", "%ed%a0%80.jsonl"),
]


def test_no_url_leads_out_of_a_root(known_root, browser):
    outside = known_root.parent / "private"
    outside.mkdir()
    for hidden in (known_root.parent / "secret.jsonl", outside / "secret.jsonl"):
        hidden.write_bytes(session_bytes(chain(user("a secret of the house"))))
    (known_root / "link.jsonl").symlink_to(known_root.parent / "secret.jsonl")
    (known_root / "linked").symlink_to(outside)
    (known_root / "a.jsonl").write_bytes(session_bytes(chain(user("hello"))))
    index_roots()
    root = Root.objects.get(path=str(known_root)).pk
    for trick, after in product(TRICKS, ("", "/entries/e1", "/entries/e1/text", "/compact")):
        answer = browser.get(f"/sessions/{root}/{trick}{after}")
        assert answer.status_code == 404, (trick, after)
        assert "a secret of the house" not in answer.content.decode()


def test_an_unknown_root_has_no_sessions(addresses, browser):
    for root in ("0", "999", "99999999999999999999", "-1", "1%20", "0x1", "x"):
        assert browser.get(f"/sessions/{root}/a.jsonl").status_code == 404
        assert browser.get(f"/plans/{root}/log").status_code == 404


def test_a_session_that_becomes_a_link_out_of_its_root_is_not_followed(known_root, browser, addresses):
    secret = known_root.parent / "secret.jsonl"
    secret.write_bytes(session_bytes(chain(user("a secret of the house"))))
    (known_root / "a.jsonl").unlink()
    (known_root / "a.jsonl").symlink_to(secret)
    index_roots()
    for address in addresses:
        answer = browser.get(address)
        if not answer.streaming:
            assert "a secret of the house" not in answer.content.decode(), address


def test_a_root_used_only_on_the_command_line_has_no_urls(known_root, browser):
    own = known_root.parent / "own"
    place(own / "a.jsonl", session_bytes(chain(user("a secret of the house"))))
    index_paths([own])
    assert browser.get(f"/sessions/{Root.objects.get(path=str(own)).pk}/a.jsonl").status_code == 404
    assert "a secret" not in browser.get("/").content.decode()


def test_overlong_or_odd_queries_are_answered(known_root, browser):
    managed_root()
    odd = ("page=" + "9" * 5_000, "q=" + "x" * 50_000, "q=%00", "new=1.2.x.%00." + "9" * 400, "show=%ff")
    for address, query in product(("/", "/settings", "/import"), odd):
        assert browser.get(f"{address}?{query}").status_code == 200, (address, query[:20])

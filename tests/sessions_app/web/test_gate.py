"""The gate keeps nothing that strangers send, and receives nothing that is too long."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from sessions_app.server.running_server import api_token, browser_host
from sessions_app.web.credentials import COOKIE, new_launch_cookie
from sessions_app.web.gate import MOST_PARTS, gated
from sessions_app.web.middleware import REFUSED_BODY
from tests.factories import chain, session_bytes, user
from tests.html import field, form
from tests.raw_http import ask, connected, cookie_of, head
from tests.server import Server

PIECE = b"x" * 65_536


def received(scope: dict[str, Any], pieces: list[bytes]) -> bytes:
    """What the application receives of a body sent in these pieces. The scope may mark it as refused."""
    coming = iter(pieces)
    got: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": next(coming), "more_body": coming.__length_hint__() > 0}

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            got.append(message["body"])
            if not message["more_body"]:
                return

    async def send(message: dict[str, Any]) -> None:
        raise AssertionError("the gate answers nothing itself")

    asyncio.run(gated(application)(scope, receive, send))
    return b"".join(got)


def request(path: str = "/settings", method: str = "POST", host: str = "{ours}", **headers: str) -> dict[str, Any]:
    given = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    ours = f"{browser_host(settings.REDLINE_DATA_DIR)}:8000"
    encoded = [(name.encode(), value.format(ours=ours).encode()) for name, value in given.items()]
    return {"type": "http", "method": method, "path": path, "headers": encoded}


@pytest.fixture
def known(redline):
    """The Cookie header of an authorized browser."""
    return f"{COOKIE}={new_launch_cookie()}"


@pytest.mark.parametrize(
    "changed",
    [
        {"cookie": ""}, {"cookie": f"{COOKIE}=forged"}, {"host": "evil.example"},
        {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000"}, {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:8001"}, {"origin": "https://{ours}"}, {"origin": "null"},
        {"method": "PUT"}, {"method": "GET"}, {"path": "/nowhere"}, {"path": "nowhere"},
        {"path": "/api/sessions/1/a.jsonl/compact", "authorization": "Bearer wrong"},
    ],
)  # fmt: skip
def test_a_body_that_would_be_refused_is_not_received(known, changed):
    scope = request(**{"cookie": known, "origin": "http://{ours}", **changed})
    assert (received(scope, []), REFUSED_BODY in scope) == (b"", False)


def test_bodies_of_a_known_browser_and_a_script_are_received_unless_announced_as_too_long(known):
    token = api_token(settings.REDLINE_DATA_DIR)
    for scope in (
        request(cookie=known, origin="http://{ours}"),
        request(cookie=known),
        request("/api/sessions/1/a.jsonl/compact", cookie=known),
        request("/api/sessions/1/a.jsonl/compact", authorization=f"Bearer {token}"),
    ):
        assert received(scope, [b"one ", b"two"]) == b"one two"
    for path in ("/settings", "/import"):
        scope = request(path, cookie=known, content_length=str(10**18))
        assert received(scope, []) == b""
        assert "Nothing was done" in scope[REFUSED_BODY]


def test_each_route_limits_the_length_of_its_body(known):
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    assert limit < settings.FILE_UPLOAD_MAX_MEMORY_SIZE, "only uploads are kept on disk"
    assert len(received(request(cookie=known), [b"x" * limit])) == limit
    longer = [PIECE] * (limit // len(PIECE) + 1)
    for headers in ({}, {"content_length": "5"}, {"transfer_encoding": "chunked"}):
        scope = request(cookie=known, **headers)
        assert len(received(scope, longer)) <= limit
        assert f"{limit:,} bytes" in scope[REFUSED_BODY]
    assert len(received(request("/import", cookie=known), longer)) > limit


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_form_with_too_many_parts_is_cut_off(known, size):
    for parts, is_refused in ((MOST_PARTS + 1, True), (MOST_PARTS, False)):
        form = b"--limit\r\n\r\n" * parts
        scope = request("/import", cookie=known, content_type="multipart/form-data; boundary=limit")
        got = received(scope, [form[start : start + size] for start in range(0, len(form), size)])
        assert is_refused or got == form
        assert (REFUSED_BODY in scope) is is_refused
        assert (f"more than {MOST_PARTS} parts" in scope.get(REFUSED_BODY, "")) is is_refused


def written_by(server: Server) -> int:
    """Bytes that the server has written to files so far, including unnamed ones."""
    counters = Path(f"/proc/{server.child.pid}/io").read_text(encoding="ascii")
    return int(counters.split("wchar: ")[1].split()[0])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="what a process writes is looked up there")
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("stranger", "path", "status"),
    [
        ({}, "/import", 403),
        ({}, "/api/runs/1/stop", 401),
        ({"Host": "evil.example"}, "/import", 400),
        ({"Origin": "http://127.0.0.1:1"}, "/import", 403),
        ({"Authorization": "Bearer wrong"}, "/api/runs/1/stop", 401),
    ],
)
def test_nothing_sent_by_a_stranger_is_kept(server, stranger, path, status, chunked):
    pieces, piece, end = 100, PIECE, b""
    headers = {"Content_Type": "multipart/form-data; boundary=x", "Content_Length": str(pieces * len(PIECE))}
    if chunked:
        piece, end = b"%x\r\n%s\r\n" % (len(PIECE), PIECE), b"0\r\n\r\n"
        headers["Transfer_Encoding"] = "chunked"
        del headers["Content_Length"]
    headers |= stranger | ({"Cookie": cookie_of(server)} if stranger else {})
    before = written_by(server)
    assert ask(server, head("POST", path, server, **headers), [*[piece] * pieces, end]).status == status
    # The server's other work may write a little meanwhile.
    assert written_by(server) - before < pieces * len(PIECE) / 10
    assert list((server.data / "uploads").iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what a process has open is looked up there")
def test_a_long_upload_is_buffered_in_the_data_directory(server):
    """Not in Python's temporary directory, which is memory on many systems."""
    known = {"Cookie": cookie_of(server), "Content_Length": "8000000"}
    with connected(server) as opened:
        opened.sendall(head("POST", "/import", server, **known))
        opened.sendall(b"x" * 7_999_999)
        server.wait_for(lambda: str(server.data / "uploads") in open_files(server))


def open_files(server: Server) -> str:
    found = []
    for descriptor in Path(f"/proc/{server.child.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return " ".join(found)


def test_an_oversized_request_is_413_with_an_explanation(server):
    known = {"Cookie": cookie_of(server), "Content_Length": "3000000"}
    page, answer = (ask(server, head("POST", path, server, **known)) for path in ("/settings", "/api/runs/1/stop"))
    assert (page.status, b"longer than 2,000,000 bytes" in page.body) == (413, True)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (413, "body_too_long")


def test_an_upload_of_any_length_is_received(server):
    token = field(form(server.get("/import"), "/import"), "csrfmiddlewaretoken")
    session = session_bytes(chain(*(user(f"word {number} " * 100) for number in range(3_000))))
    assert len(session) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    body = (
        b'--limit\r\nContent-Disposition: form-data; name="csrfmiddlewaretoken"\r\n\r\n%s\r\n'
        b'--limit\r\nContent-Disposition: form-data; name="sessions"; filename="large.jsonl"\r\n\r\n%s\r\n--limit--\r\n'
    ) % (token.encode(), session)
    known = {"Cookie": cookie_of(server), "Origin": server.base, "Content_Length": str(len(body))}
    sent = head("POST", "/import", server, Content_Type="multipart/form-data; boundary=limit", **known)
    answer = ask(server, sent, [body])
    assert (answer.status, answer.header("Location").endswith("large.jsonl")) == (303, True)

"""A key goes to its own origin in one header, and into nothing else: no error, log, trace, redirect or cookie."""

import json
import logging
import traceback

import pytest

from compaction_app.providers.connection_test import try_model
from compaction_app.providers.error_mapping import Rejected
from compaction_app.providers.types import AnswerEnd, Dialect, Endpoint
from tests.compaction_app.providers.raw_server import (
    QUICK,
    UNTIL_CLOSED,
    Play,
    RawServer,
    ReceivedRequest,
    answer,
    collect,
    error_from,
)
from tests.compaction_app.providers.streams import LOOKING, both, chunk, on_a_loop, sse, text_block

KEY = "sk-proj-Abc123Def456Ghi789Jkl0wxyz"
PIECES = [KEY[start : start + 6].lower() for start in range(len(KEY) - 5)]
"""More of the key than may be seen anywhere."""


def shows_key(text: str) -> bool:
    return any(piece in text.lower() for piece in PIECES)


def echo(dialect: Dialect, status: str, kind: str = "application/json") -> bytes:
    said = {"type": "error", "error": {"type": "odd", "message": f"You sent {KEY}, {KEY[:20]} and {KEY[12:]}"}}
    return answer(json.dumps(said).encode(), f"{status} {KEY}", kind, f"x-key: {KEY}")


@both
async def test_the_key_goes_into_its_header_and_no_cookie_is_kept(dialect):
    cookie = "set-cookie: who=you; path=/"
    async with RawServer(answer(LOOKING[dialect], "200 OK", "text/event-stream", cookie)) as server:
        await collect(server.endpoint(dialect, KEY))
        await collect(server.endpoint(dialect))
    first, second = server.requests
    assert "cookie" not in second.head.lower()
    name = {"anthropic": f"x-api-key: {KEY}\r\n", "openai": f"authorization: Bearer {KEY}\r\n"}[dialect]
    assert name in first.head.replace("X-Api-Key", "x-api-key").replace("Authorization", "authorization")
    assert first.head.count(KEY) == 1
    assert KEY.encode() not in first.body
    assert "authorization" not in second.head.lower()
    assert "x-api-key" not in second.head.lower()


@both
async def test_no_error_shows_it_however_it_is_echoed(dialect, caplog):
    caplog.set_level(logging.DEBUG)
    start = sse(*text_block(0, "a")) if dialect == "anthropic" else sse(chunk({"content": "a"}))
    said = {"type": "error", "error": {"message": f"no {KEY}"}}
    plays = [echo(dialect, status) for status in ("400", "401", "402", "403", "404", "405", "413", "418", "429", "500")]
    plays += [
        echo(dialect, "200"), echo(dialect, "529", "text/event-stream"),
        answer(KEY.encode(), "500 No", "text/plain"), answer(sse(said)), answer(start + sse(said)),
        answer(f"event: error\ndata: {KEY}\n\n".encode()), answer(f"data: {KEY}\n\n".encode()),
        UNTIL_CLOSED.replace(b"200 OK", KEY.encode() + b" OK"), f"{KEY} {KEY}\r\n{KEY}\r\n\r\n".encode(),
        answer(b"", "302 Found", "text/plain", f"location: https://{KEY}.example.com/{KEY}?k={KEY}"),
    ]  # fmt: skip
    for play in plays:
        async with RawServer(_said_once(play)) as server:
            endpoint = server.endpoint(dialect, KEY)
            error = await error_from(endpoint)
            trace = "".join(traceback.format_exception(error))
            assert not shows_key(f"{error} {error!r} {error.args} {error.what} {error.advice} {trace}"), play
            assert error.__context__ is None
            assert error.__cause__ is None
            verdict = await try_model(endpoint, "m-1", 4_000, "", "budget", QUICK)
            assert not verdict.ok
            assert not shows_key(repr(verdict))
    assert not shows_key(caplog.text)


def _said_once(said: bytes) -> Play:
    async def play(received: ReceivedRequest) -> None:
        await received.say(said)
        received.writer.close()

    return play


@both
async def test_no_redirect_takes_it_along(dialect):
    async with RawServer(answer(LOOKING[dialect])) as other:
        for status in (301, 302, 303, 307, 308):
            location = f"location: http://127.0.0.1:{other.port}/v1/messages"
            async with RawServer(answer(b"", f"{status} Moved", "text/plain", location)) as server:
                error = await error_from(server.endpoint(dialect, KEY))
                assert len(server.requests) == 1
            assert (type(error), error.code) == (Rejected, "redirected")
            assert f"127.0.0.1:{other.port}" in error.message
        assert other.connections == 0


@both
async def test_a_key_unfit_for_a_header_is_refused_and_not_quoted(dialect):
    async with RawServer(answer(LOOKING[dialect])) as server:
        for key in (f"{KEY}\n", f"{KEY}\r\nx-more: 1", f"ü{KEY}", f"{KEY} {KEY}", f"{KEY}\0", f"{KEY}\u2028"):
            error = await error_from(server.endpoint(dialect, key))
            assert (type(error), error.code) == (Rejected, "bad_key")
            assert not shows_key("".join(traceback.format_exception(error)))
        assert server.connections == 0


@both
async def test_no_key_is_sent_over_plain_http_to_another_machine(dialect):
    for host in ("192.0.2.1", "localhost.example.com", "127.1", "0.0.0.0:9"):
        error = await error_from(Endpoint("p", dialect, f"http://{host}", KEY))
        assert (type(error), error.code) == (Rejected, "key_unprotected"), host
        assert not shows_key(error.message)


@both
async def test_local_requests_bypass_the_proxy(dialect, monkeypatch):
    async with RawServer(answer(LOOKING[dialect])) as proxy, RawServer(answer(LOOKING[dialect])) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        for host in ("127.0.0.1", "localhost"):
            assert isinstance((await collect(server.endpoint(dialect, KEY, host)))[-1], AnswerEnd)
        assert (proxy.connections, len(server.requests)) == (0, 2)
        # Every request to another machine goes through it.
        await collect(Endpoint("p", dialect, "http://elsewhere.invalid"))
        assert proxy.requests[0].head.startswith("POST http://elsewhere.invalid/")


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "nonsense://x"])
@on_a_loop
async def test_an_unusable_proxy_is_reported(proxy, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", proxy)
    error = await error_from(Endpoint("p", "openai", "http://elsewhere.invalid"))
    assert (type(error), error.code) == (Rejected, "bad_proxy")

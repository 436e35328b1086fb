"""Temporary failures are retried, as often and as late as the provider demands; permanent ones are not."""

import email.utils
import json
import time
from typing import Any

import pytest

from compaction_app.providers.client import Patience
from compaction_app.providers.errors import Overflow, QuotaUsed, Unavailable
from compaction_app.providers.types import Dialect, Retrying, Sent
from tests.compaction_app.providers.raw_server import RawServer, answer, as_json, collect, cutting, failure, on_a_loop
from tests.compaction_app.providers.streams import LOOKING, both, chunk, message, sse, text_block

ERRORS: dict[Dialect, Any] = {
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "openai": {"error": {"message": "Overloaded", "type": "server_error", "code": None}},
}


@both
@on_a_loop
async def test_temporary_statuses_are_retried(dialect):
    for status in (408, 409, 429, 500, 502, 503, 504, 529):
        refusal = as_json(ERRORS[dialect], f"{status} No")
        async with RawServer(refusal, answer(LOOKING[dialect])) as server:
            pieces = await collect(server.endpoint(dialect))
        assert [type(piece) for piece in pieces[:3]] == [Sent, Retrying, Sent], status
        assert f"({status})" in pieces[1].why
        assert "Try again" not in pieces[1].why


@both
@on_a_loop
async def test_permanent_statuses_are_not_retried(dialect):
    for status in (400, 401, 402, 403, 404, 405, 413, 418, 422):
        refusal = as_json({"error": {"message": "no"}}, f"{status} No", "retry-after: 0")
        async with RawServer(refusal) as server:
            assert not isinstance(await failure(server, dialect), Unavailable), status
            assert len(server.requests) == 1


@both
@on_a_loop
async def test_an_error_that_calls_itself_a_stream_is_still_an_error(dialect):
    """JSON with status 529, whatever its content type says."""
    body = json.dumps(ERRORS[dialect]).encode()
    async with RawServer(answer(body, "529 Overloaded", "text/event-stream")) as server:
        error = await failure(server, dialect)
    assert isinstance(error, Unavailable)
    assert "“Overloaded”" in error.message


@both
@on_a_loop
async def test_an_error_whose_body_never_comes_is_known_by_its_status(dialect):
    head = b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"
    async with RawServer(cutting(head)) as server:
        assert (await failure(server, dialect)).code == "no_key"


@both
@on_a_loop
async def test_an_overload_before_the_first_piece_of_a_response_is_retried(dialect):
    first = sse({"type": "message_start", "message": {}}, {"type": "ping"}) if dialect == "anthropic" else b""
    async with RawServer(answer(first + sse(ERRORS[dialect])), answer(LOOKING[dialect])) as server:
        pieces = await collect(server.endpoint(dialect))
    assert [type(piece) for piece in pieces[:3]] == [Sent, Retrying, Sent]


@both
@on_a_loop
async def test_an_overload_inside_an_answer_ends_it_after_its_first_piece(dialect):
    start = sse(*text_block(0, "a")) if dialect == "anthropic" else sse(chunk({"content": "a"}))
    async with RawServer(answer(start + sse(ERRORS[dialect]))) as server:
        error = await failure(server, dialect)
        assert len(server.requests) == 1
    assert isinstance(error, Unavailable)


@both
@on_a_loop
async def test_an_exhausted_quota_is_never_retried(dialect):
    said = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    async with RawServer(as_json(said, "429 Too Many Requests", "retry-after: 0.001")) as server:
        error = await failure(server, dialect)
        assert len(server.requests) == 1
    assert isinstance(error, QuotaUsed)
    async with RawServer(answer(sse(said))) as server:
        assert isinstance(await failure(server, dialect), QuotaUsed)
        assert len(server.requests) == 1


@both
@on_a_loop
async def test_an_overflow_is_known_by_status_and_inside_an_answer(dialect):
    said = {"type": "error", "error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}
    for body in (as_json(said, "400 Bad Request"), answer(sse(said)), as_json(said, "200 OK")):
        async with RawServer(body) as server:
            assert isinstance(await failure(server, dialect), Overflow)
            assert len(server.requests) == 1


@both
@on_a_loop
async def test_a_window_that_is_full_in_the_middle_is_an_overflow(dialect):
    full = "model_context_window_exceeded"
    of_dialect = {"anthropic": message(text_block(0, "a"), stop=full), "openai": sse(chunk({"content": "a"}, full))}
    async with RawServer(answer(of_dialect[dialect])) as server:
        assert isinstance(await failure(server, dialect), Overflow)


def in_seconds(seconds: float) -> str:
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


LONG_PAST = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("retry-after: 0.05", 0.05),
        ("retry-after-ms: 60", 0.06),
        ("RETRY-AFTER:0.07", 0.07),
        *((f"retry-after: {unusable}", 0.09) for unusable in ("0", "-5", "soon", "nan", "inf", LONG_PAST)),
    ],
)
@on_a_loop
async def test_the_provider_decides_how_long_to_wait(header, seconds):
    patience = Patience(attempts=2, longest_wait=0.09)
    async with RawServer(as_json({}, "429 No", header), answer(LOOKING["openai"])) as server:
        began = time.monotonic()
        pieces = await collect(server.endpoint("openai"), patience=patience)
        assert time.monotonic() - began >= seconds
    assert pieces[1].seconds == pytest.approx(seconds)


@pytest.mark.parametrize("header", ["retry-after: 3600", "retry-after-ms: 3600000"])
@on_a_loop
async def test_a_wait_that_is_too_long_is_not_begun(header):
    async with RawServer(as_json({}, "429 No", header)) as server:
        error = await failure(server, "openai", Patience())
        assert len(server.requests) == 1
    assert isinstance(error, Unavailable)
    assert "It demands a wait of 3,600 s" in error.message


@on_a_loop
async def test_a_date_to_wait_for_is_understood():
    async with RawServer(as_json({}, "503 No", f"retry-after: {in_seconds(7_200)}")) as server:
        error = await failure(server, "openai", Patience())
        assert len(server.requests) == 1
    assert "of 7,1" in error.message or "of 7,200 s" in error.message


@on_a_loop
async def test_waits_grow_and_have_an_end():
    patience = Patience(attempts=5, longest_wait=0.02)
    async with RawServer(as_json({}, "500 No")) as server:
        error = await failure(server, "openai", patience)
        assert len(server.requests) == 5
    assert "Redline tried 5 times." in error.message

"""What a provider sends is bounded: compressed data is refused, an answer has a deadline, and a wait has a limit."""

import asyncio
import contextlib
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from compaction_app.providers import sse
from compaction_app.providers.client import Patience, ask
from compaction_app.providers.connection_test import try_model
from compaction_app.providers.errors import Broken, TimedOut
from compaction_app.providers.types import AnswerEnd, ArgumentsPiece
from tests.compaction_app.providers.provider_bombs import bomb
from tests.compaction_app.providers.raw_server import (
    QUICK,
    STREAM,
    Play,
    RawServer,
    ReceivedRequest,
    answer,
    as_json,
    chunked,
    collect,
    failure,
    falling_silent,
    on_a_loop,
)
from tests.compaction_app.providers.streams import LOOKING, both, small_request
from tests.wait import WAIT_SECONDS

KEY = "sk-0123456789abcdefghij"


# ---- compressed data --------------------------------------------------------------------------------------


@both
@on_a_loop
async def test_only_uncompressed_responses_are_requested(dialect):
    async with RawServer(answer(LOOKING[dialect])) as server:
        await collect(server.endpoint(dialect))
        (request,) = server.requests
    accepted = [line for line in request.head.lower().split("\r\n") if line.startswith("accept-encoding:")]
    assert accepted == ["accept-encoding: identity"]


@both
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/plain"])
@on_a_loop
async def test_a_compressed_answer_is_refused_unread(dialect, kind):
    for encoding in ("gzip", "gzip, gzip", "br", "deflate", "zstd", "x-own"):
        compressed = answer(bomb(megabytes=1), "200 OK", kind, f"content-encoding: {encoding}")
        async with RawServer(compressed) as server:
            error = await failure(server, dialect)
            assert len(server.requests) == 1
        assert isinstance(error, Broken)
        assert error.code == "compressed"
        assert f"“{encoding}”" in error.message
        assert "Turn compression off" in error.message


@both
@on_a_loop
async def test_an_answer_declared_uncompressed_is_read(dialect):
    for encoding in ("identity", "IDENTITY", ""):
        plain = answer(LOOKING[dialect], "200 OK", "text/event-stream", f"content-encoding: {encoding}")
        async with RawServer(plain) as server:
            assert isinstance((await collect(server.endpoint(dialect)))[-1], AnswerEnd), encoding


@both
@on_a_loop
async def test_a_compressed_error_is_recognized_by_its_status(dialect):
    body = gzip.compress(json.dumps({"error": {"message": "You exceeded your current quota"}}).encode())
    refused = answer(body, "401 No", "application/json", "content-encoding: gzip")
    async with RawServer(refused) as server:
        error = await failure(server, dialect, key=KEY)
    assert error.code == "wrong_key"
    assert "quota" not in error.message


@both
@on_a_loop
async def test_the_connection_test_reports_a_compressed_response(dialect):
    async with RawServer(
        answer(bomb(megabytes=1), "200 OK", "text/event-stream", "content-encoding: gzip, gzip")
    ) as server:
        verdict = await try_model(server.endpoint(dialect), "m-1", 4_000, "", "budget", QUICK)
    assert not verdict.ok
    assert "sends a compressed answer: “gzip, gzip”" in verdict.message


@on_a_loop
async def test_an_encoding_that_quotes_the_key_does_not_show_it():
    async with RawServer(answer(b"", "200 OK", "text/event-stream", f"content-encoding: {KEY}")) as server:
        error = await failure(server, "openai", key=KEY)
    assert KEY not in error.message


# ---- the deadline of an answer ----------------------------------------------------------------------------


DEADLINE = Patience(connect=30, first_byte=30, between=30, whole=0.3, attempts=3)


def repeating(first: bytes, again: bytes, pause: float) -> Play:
    """Something endless: each byte shows that the server is alive."""

    async def play(received: ReceivedRequest) -> None:
        await received.say(first)
        while not received.writer.is_closing():
            await received.say(again)
            await asyncio.sleep(pause)

    return play


JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9000\r\n\r\n"
ENDLESS = {
    "at once": repeating(STREAM, chunked(b": still here\n\n"), 0),
    "slowly": repeating(STREAM, chunked(b": still here\n\n"), 0.02),
    "one JSON value": repeating(JSON_HEAD, b" ", 0.02),
    "a head that never comes": falling_silent(),
}


@pytest.mark.parametrize("play", ENDLESS.values(), ids=ENDLESS)
@on_a_loop
async def test_an_answer_without_an_end_has_a_deadline(play):
    async with RawServer(play) as server:
        error = await failure(server, "openai", DEADLINE)
        assert len(server.requests) == 1
    assert isinstance(error, TimedOut)
    assert error.code == "too_long"
    assert "had not finished its answer after 0.3 s" in error.message
    assert "answer_minutes" in error.message


@both
@on_a_loop
async def test_what_comes_after_a_whole_answer_does_not_count_against_its_deadline(dialect):
    """The deadline ends the connection; the answer is whole and is used."""
    end = LOOKING[dialect].rindex(b"event: message_stop" if dialect == "anthropic" else b"data: [DONE]")
    play = repeating(STREAM + chunked(LOOKING[dialect][:end]), chunked(b": more\n\n"), 0.02)
    loop = asyncio.get_running_loop()
    usual, found, patience = loop.time, [], replace(QUICK, whole=WAIT_SECONDS / 2)
    async with (
        RawServer(play) as server,
        contextlib.aclosing(ask(server.endpoint(dialect), small_request(), patience)) as pieces,
    ):
        async for piece in pieces:
            found.append(piece)
            if isinstance(piece, ArgumentsPiece):
                # The rest of the answer has come with it. The time is over now.
                loop.time = lambda: usual() + patience.whole
    assert isinstance(found[-1], AnswerEnd)


# ---- sizes ------------------------------------------------------------------------------------------------


@both
@on_a_loop
async def test_the_bytes_of_an_answer_are_counted_with_any_content(dialect):
    play = repeating(STREAM, chunked(b"event: ping\ndata: {}\n\n" * 1_000), 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sse, "STREAM_BYTES", 200_000)
        async with RawServer(play) as server:
            error = await failure(server, dialect)
    assert isinstance(error, Broken)
    assert "it is longer than 200,000 bytes" in error.message


# ---- the wait that a provider demands ---------------------------------------------------------------------

FAR = "Fri, 31 Dec 9999 23:59:59 GMT"
TOO_LONG = ["retry-after: 1e300", f"retry-after: {'9' * 300}", f"retry-after: {FAR}", "retry-after: 86401"]


@pytest.mark.parametrize("header", TOO_LONG, ids=["1e300", "300 digits", "the year 9999", "86401"])
@on_a_loop
async def test_an_excessive_wait_is_not_started_and_reported_briefly(header):
    async with RawServer(as_json({}, "429 No", header)) as server:
        error = await failure(server, "openai", Patience())
        assert len(server.requests) == 1
    demanded = "It demands a wait of more than a day before the next attempt, and Redline waits 60 s at most."
    assert demanded in error.message
    assert len(error.message) < 400


MALFORMED = {
    "words": "retry-after: in a while",
    "nothing": "retry-after:",
    "two values": "retry-after: 3600, 3600",
    "hexadecimal": "retry-after: 0xffff",
    "a broken date": "retry-after: Fri, 99 Foo 9999 99:99:99 GMT",
    "a date without a zone": "retry-after: Fri, 31 Dec 0001 23:59:59 -9999",
    "5,000 digits": f"retry-after: {'9' * 5_000}",
}


@pytest.mark.parametrize("header", MALFORMED.values(), ids=MALFORMED)
@on_a_loop
async def test_a_malformed_wait_is_ignored(header):
    patience = Patience(attempts=2, longest_wait=0.05)
    async with RawServer(as_json({}, "429 No", header), answer(LOOKING["openai"])) as server:
        pieces: list[Any] = await collect(server.endpoint("openai"), patience=patience)
    assert isinstance(pieces[-1], AnswerEnd)

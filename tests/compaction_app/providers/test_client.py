"""Requests over a real socket: servers that fail in any way, what is tried again, and a caller that stops."""

import asyncio
import email.utils
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from compaction_app.core.messages import AssistantMessage, CallPart, TextPart, UserMessage
from compaction_app.providers.client import Patience, ask, size_of
from compaction_app.providers.error_mapping import (
    Broken,
    Overflow,
    QuotaUsed,
    Rejected,
    TimedOut,
    Unavailable,
    Unreachable,
)
from compaction_app.providers.types import AnswerEnd, CallBegun, Dialect, Endpoint, Piece, Retrying, Sent, TextPiece
from sessions_app.sessionlog.errors import BadInput
from tests.compaction_app.providers.raw_server import (
    QUICK,
    STREAM,
    UNTIL_CLOSED,
    RawServer,
    ReceivedRequest,
    answer,
    as_json,
    chunked,
    collect,
    cutting,
    error_from,
    failed,
    failure,
    falling_silent,
)
from tests.compaction_app.providers.streams import (
    LOOKING,
    USED,
    begun,
    both,
    chunk,
    message,
    on_a_loop,
    small_request,
    sse,
    text_block,
)
from tests.html import missing
from tests.wait import WAIT_SECONDS

END = b"0\r\n\r\n"
SLOW = Patience(connect=5, first_byte=0.3, between=0.3, attempts=2, longest_wait=0.01)
LOOKED = AssistantMessage([TextPart("Let me look."), CallPart("t1", "look", '{"at": "ü"}')])


@both
async def test_an_answer_arrives_piece_by_piece(dialect):
    async with RawServer(answer(LOOKING[dialect])) as server:
        pieces = await collect(server.endpoint(dialect))
    assert isinstance(pieces[0], Sent)
    assert (pieces[1:3], pieces[-1].answer) == ([TextPiece("Let me "), TextPiece("look.")], LOOKED)
    path = {"anthropic": "/v1/messages", "openai": "/chat/completions"}[dialect]
    assert server.requests[0].head.startswith(f"POST {path} HTTP/1.1\r\n")


@both
async def test_the_reported_size_is_the_size_sent(dialect):
    request = small_request(UserMessage("größer als 大きさ 🔎 \ud83d lone"))
    async with RawServer(answer(LOOKING[dialect])) as server:
        pieces = await collect(server.endpoint(dialect), request)
    assert pieces[0] == Sent(len(server.requests[0].body.decode())) == Sent(size_of(request, dialect))
    assert "大きさ 🔎 \ufffd lone" in json.dumps(server.requests[0].json, ensure_ascii=False)


@both
async def test_a_connection_is_used_again_after_a_whole_answer_and_its_end_is_not_waited_for(dialect):
    async with RawServer(STREAM + chunked(LOOKING[dialect]) + END) as server:
        for _ in range(3):
            await collect(server.endpoint(dialect))
        assert (len(server.requests), server.connections) == (3, 1)
    async with RawServer(falling_silent(STREAM + chunked(LOOKING[dialect]))) as server:
        # A wait for the end of the stream would last longer than a test may.
        pieces = await collect(server.endpoint(dialect), patience=replace(QUICK, between=10 * WAIT_SECONDS))
        assert isinstance(pieces[-1], AnswerEnd)


@both
async def test_a_stream_is_read_under_any_content_type(dialect):
    for kind in ("text/event-stream; charset=latin-1", "TEXT/EVENT-STREAM", "text/plain", ""):
        async with RawServer(answer(LOOKING[dialect], kind=kind)) as server:
            assert (await collect(server.endpoint(dialect)))[-1].answer == LOOKED, kind


@both
async def test_an_answer_that_comes_whole_is_read(dialect):
    text = "Let me look."
    parts = [{"type": "text", "text": text}, {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "ü"}}]
    calls = [{"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at": "ü"}'}}]
    said = {"role": "assistant", "content": text, "tool_calls": calls}
    counted = {"input_tokens": 10, "output_tokens": 5}
    choices = [{"index": 0, "message": said, "finish_reason": "tool_calls"}]
    whole: dict[Dialect, Any] = {
        "anthropic": {"type": "message", "content": parts, "stop_reason": "tool_use", "usage": counted},
        "openai": {**USED, "object": "chat.completion", "choices": choices},
    }
    async with RawServer(as_json(whole[dialect], "200 OK")) as server:
        pieces = await collect(server.endpoint(dialect))
    assert pieces[-1].answer == LOOKED
    assert pieces[-1].usage is not None
    assert TextPiece(text) in pieces


@both
async def test_json_or_a_stream_that_is_not_a_response_is_broken(dialect):
    bodies = {
        "application/json": [b"{}", b"[]", b"", b"{", b"3", b"[" * 100_000, b"\xff", b'{"done": true}\n{"done": true}'],
        "text/event-stream": [b"", b"\n\n", b": hello\n\n", b"welcome", b"data: {}\n\n", b"id: 1\n\n"],
    }  # fmt: skip
    for kind, body in [(kind, body) for kind, all_of_them in bodies.items() for body in all_of_them]:
        await failed(answer(body, kind=kind), dialect, Broken)


@both
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", STREAM], ids=["nothing", "half a head", "a head"])
async def test_a_connection_that_breaks_before_the_first_byte_is_tried_again(dialect, said):
    async with RawServer(cutting(said), answer(LOOKING[dialect])) as server:
        pieces = await collect(server.endpoint(dialect))
    assert [type(piece) for piece in pieces[:3]] == [Sent, Retrying, Sent]
    retrying = pieces[1]
    assert retrying.attempt == 1
    assert "closed the connection" in retrying.why
    assert isinstance(pieces[-1], AnswerEnd)
    assert server.requests[0].body == server.requests[1].body


@both
async def test_after_repeated_broken_responses_the_client_gives_up_with_the_number_of_attempts(dialect):
    error = await failed(cutting(), dialect, Unreachable, requests=QUICK.attempts)
    assert "Redline tried 2 times." in error.message


@both
@pytest.mark.parametrize("head", [STREAM, UNTIL_CLOSED], ids=["chunks", "until closed"])
async def test_a_response_that_breaks_off_is_not_requested_again(dialect, head):
    async def play(received: ReceivedRequest) -> None:
        await received.say(head + (chunked(begun(dialect)) if head is STREAM else begun(dialect)))
        received.writer.close()

    error = await failed(play, dialect, Broken)
    assert not missing(error.message, "ended too early", "Its calls were not run.")


@both
async def test_a_response_is_complete_once_it_has_a_stop_reason(dialect):
    """The missing rest is only the number of tokens."""
    rest = {"anthropic": b"event: message_stop", "openai": b'data: {"id": "chatcmpl-1", "choices": []'}
    sent = LOOKING[dialect].partition(rest[dialect])[0]
    async with RawServer(cutting(UNTIL_CLOSED + sent)) as server:
        assert (await collect(server.endpoint(dialect)))[-1].answer == LOOKED


@both
async def test_an_unreachable_address_is_reported(dialect):
    async with RawServer(b"") as server:
        endpoint = server.endpoint(dialect)
    error = await error_from(endpoint)
    assert isinstance(error, Unreachable)
    assert not missing(error.message, f"{endpoint.host} cannot be reached", "Nothing was sent.")


@both
@pytest.mark.parametrize("said", [b"", STREAM], ids=["nothing", "a head"])
async def test_silence_before_the_first_byte_times_out_and_closes_the_connection(dialect, said):
    async with RawServer(falling_silent(said)) as server:
        error = await failure(server, dialect, SLOW)
        await server.requests[0].closed.wait()
        assert len(server.requests) == 1
    assert isinstance(error, TimedOut)
    assert "did not answer within 0.3 s" in error.message


@both
async def test_silence_within_a_response_times_out_and_closes_the_connection(dialect):
    async with RawServer(falling_silent(STREAM + chunked(begun(dialect)))) as server:
        error = await failure(server, dialect, replace(SLOW, first_byte=5))
        await server.requests[0].closed.wait()
    assert isinstance(error, TimedOut)
    assert "stopped sending in the middle of its answer, for 0.3 s" in error.message


@both
async def test_a_web_page_is_not_a_response_nor_is_what_is_no_http(dialect):
    welcome = b"<!doctype html><title>Welcome</title>"
    error = await failed(answer(welcome, kind="text/html; charset=utf-8"), dialect, Rejected)
    assert error.code == "not_this_dialect"
    assert "Welcome" not in error.message
    await failed(cutting(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), dialect, Unreachable, QUICK.attempts)


@both
async def test_an_event_without_an_end_is_cut_off(dialect):
    async def play(received: ReceivedRequest) -> None:
        await received.say(UNTIL_CLOSED + b"data: ")
        while not received.writer.is_closing():
            await received.say(b"x" * 100_000)

    assert "one of its events is longer" in (await failed(play, dialect, Broken)).message


@on_a_loop
async def test_an_invalid_address_is_bad_input():
    for address in ("", "h", "ftp://h", "https://user:pw@h", "https://h?x"):
        with pytest.raises(BadInput) as caught:
            await collect(Endpoint("p", "openai", address))
        assert caught.value.code == "bad_base_url", address


async def request_to(server: RawServer) -> ReceivedRequest:
    while not server.requests:
        await asyncio.sleep(0.001)
    return server.requests[0]


async def read_all(pieces: AsyncIterator[Piece]) -> None:
    async for _ in pieces:
        pass


@both
async def test_closing_in_the_middle_of_a_call(dialect):
    async with RawServer(falling_silent(STREAM + chunked(begun(dialect)))) as server:
        pieces = ask(server.endpoint(dialect), small_request())
        async for piece in pieces:
            if isinstance(piece, CallBegun):
                break
        await pieces.aclose()
        await server.requests[0].closed.wait()


@both
async def test_cancelling_before_the_first_byte_or_while_the_next_piece_is_waited_for(dialect):
    for said in (b"", STREAM + chunked(begun(dialect))):
        async with RawServer(falling_silent(said)) as server:
            task = asyncio.create_task(read_all(ask(server.endpoint(dialect), small_request())))
            received = await request_to(server)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await received.closed.wait()
            assert len(server.requests) == 1


@both
async def test_cancelling_a_wait_before_asking_again(dialect):
    busy = answer(b"{}", "429 No", "application/json", "retry-after: 30")
    async with RawServer(busy) as server:
        waiting = asyncio.Event()

        async def read() -> None:
            async for piece in ask(server.endpoint(dialect), small_request()):
                if isinstance(piece, Retrying):
                    assert piece.seconds == 30
                    waiting.set()

        task = asyncio.create_task(read())
        await waiting.wait()
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(server.requests) == 1


@both
async def test_closing_before_anything_was_sent_or_at_a_wait_before_asking_again(dialect):
    async with RawServer(answer(b"{}", "503 No", "application/json")) as server:
        pieces = ask(server.endpoint(dialect), small_request(), Patience(longest_wait=30))
        async for piece in pieces:
            if isinstance(piece, Retrying):
                break
        await pieces.aclose()
        assert len(server.requests) == 1
    async with RawServer(falling_silent()) as server:
        pieces = ask(server.endpoint(dialect), small_request())
        assert isinstance(await anext(pieces), Sent)
        await pieces.aclose()
        assert not server.requests


@on_a_loop
async def test_a_timeout_is_reported_and_closes_the_connection():
    limit = asyncio.timeout(None)

    async def play(received: ReceivedRequest) -> None:
        limit.reschedule(asyncio.get_running_loop().time())
        await received.wait()

    async with RawServer(play) as server:
        with pytest.raises(TimeoutError):
            async with limit:
                await read_all(ask(server.endpoint("openai"), small_request()))
        await server.requests[0].closed.wait()


@on_a_loop
async def test_twenty_concurrent_requests_each_get_their_response():
    models = [f"m-{number}" for number in range(20)]
    async with RawServer(answer(LOOKING["openai"])) as server:
        endpoint = server.endpoint("openai")
        found = await asyncio.gather(*(collect(endpoint, small_request(model=model)) for model in models))
        assert all(found)
        assert sorted(received.json["model"] for received in server.requests) == sorted(models)


ERRORS: dict[Dialect, Any] = {
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "openai": {"error": {"message": "Overloaded", "type": "server_error", "code": None}},
}


@both
async def test_temporary_statuses_and_an_overload_before_the_first_piece_are_retried(dialect):
    for status in (408, 409, 429, 500, 502, 503, 504, 529):
        refusal = as_json(ERRORS[dialect], f"{status} No")
        async with RawServer(refusal, answer(LOOKING[dialect])) as server:
            pieces = await collect(server.endpoint(dialect))
        assert [type(piece) for piece in pieces[:3]] == [Sent, Retrying, Sent], status
        assert f"({status})" in pieces[1].why
        assert "Try again" not in pieces[1].why
    first = sse({"type": "message_start", "message": {}}, {"type": "ping"}) if dialect == "anthropic" else b""
    async with RawServer(answer(first + sse(ERRORS[dialect])), answer(LOOKING[dialect])) as server:
        pieces = await collect(server.endpoint(dialect))
    assert [type(piece) for piece in pieces[:3]] == [Sent, Retrying, Sent]


@both
async def test_permanent_statuses_are_not_retried(dialect):
    for status in (400, 401, 402, 403, 404, 405, 413, 418, 422):
        refusal = as_json({"error": {"message": "no"}}, f"{status} No", "retry-after: 0")
        async with RawServer(refusal) as server:
            assert not isinstance(await failure(server, dialect), Unavailable), status
            assert len(server.requests) == 1


@both
async def test_an_error_is_known_though_it_calls_itself_a_stream_or_its_body_never_comes(dialect):
    """JSON with status 529, whatever its content type says."""
    body = json.dumps(ERRORS[dialect]).encode()
    error = await failed(answer(body, "529 Overloaded", "text/event-stream"), dialect, Unavailable, QUICK.attempts)
    assert "“Overloaded”" in error.message
    head = b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"
    assert (await failed(cutting(head), dialect)).code == "no_key"


@both
async def test_neither_an_exhausted_quota_nor_an_overload_inside_an_answer_is_retried(dialect):
    said = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    await failed(as_json(said, "429 Too Many Requests", "retry-after: 0.001"), dialect, QuotaUsed)
    await failed(answer(sse(said)), dialect, QuotaUsed)
    start = sse(*text_block(0, "a")) if dialect == "anthropic" else sse(chunk({"content": "a"}))
    await failed(answer(start + sse(ERRORS[dialect])), dialect, Unavailable)


@both
async def test_an_overflow_is_known_by_status_inside_an_answer_and_by_its_end(dialect):
    said = {"type": "error", "error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}
    for body in (as_json(said, "400 Bad Request"), answer(sse(said)), as_json(said, "200 OK")):
        await failed(body, dialect, Overflow)
    full = "model_context_window_exceeded"
    of_dialect = {"anthropic": message(text_block(0, "a"), stop=full), "openai": sse(chunk({"content": "a"}, full))}
    await failed(answer(of_dialect[dialect]), dialect, Overflow)


LONG_PAST = "Sun, 06 Nov 1994 08:49:37 GMT"
BROKEN_DATES = ("Fri, 99 Foo 9999 99:99:99 GMT", "Fri, 31 Dec 0001 23:59:59 -9999")
UNUSABLE = ("", "0", "-5", "soon", "nan", "inf", "0xffff", "3600, 3600", "9" * 5_000, LONG_PAST, *BROKEN_DATES)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("retry-after: 0.05", 0.05),
        ("retry-after-ms: 60", 0.06),
        ("RETRY-AFTER:0.07", 0.07),
        *((f"retry-after: {unusable}", 0.09) for unusable in UNUSABLE),
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
    error = await failed(as_json({}, "429 No", header), "openai", Unavailable, patience=Patience())
    assert "It demands a wait of 3,600 s" in error.message


@on_a_loop
async def test_a_date_to_wait_for_is_understood():
    later = email.utils.formatdate(time.time() + 7_200, usegmt=True)
    error = await failed(as_json({}, "503 No", f"retry-after: {later}"), "openai", patience=Patience())
    assert "of 7,1" in error.message or "of 7,200 s" in error.message


@on_a_loop
async def test_waits_grow_and_have_an_end():
    patience = Patience(attempts=5, longest_wait=0.02)
    error = await failed(as_json({}, "500 No"), "openai", requests=5, patience=patience)
    assert "Redline tried 5 times." in error.message

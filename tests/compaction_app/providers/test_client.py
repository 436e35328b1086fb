"""Requests over a real socket, to servers that break off, stop sending, refuse, and answer in unusual ways."""

import json
from dataclasses import replace
from typing import Any

import pytest

from compaction_app.core.messages import AssistantMessage, CallPart, TextPart, UserMessage
from compaction_app.providers.client import Patience, size_of
from compaction_app.providers.errors import Broken, Rejected, TimedOut, Unreachable
from compaction_app.providers.types import AnswerEnd, Dialect, Endpoint, Retrying, Sent, TextPiece
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
    failure,
    falling_silent,
    on_a_loop,
)
from tests.compaction_app.providers.streams import LOOKING, begun, both, small_request
from tests.wait import WAIT_SECONDS

END = b"0\r\n\r\n"
SLOW = Patience(connect=5, first_byte=0.3, between=0.3, attempts=2, longest_wait=0.01)
LOOKED = AssistantMessage([TextPart("Let me look."), CallPart("t1", "look", '{"at": "ü"}')])


# ---- an answer ------------------------------------------------------------------------------------------


@both
@on_a_loop
async def test_an_answer_arrives_piece_by_piece(dialect):
    async with RawServer(answer(LOOKING[dialect])) as server:
        pieces = await collect(server.endpoint(dialect))
    assert isinstance(pieces[0], Sent)
    assert pieces[1:3] == [TextPiece("Let me "), TextPiece("look.")]
    last = pieces[-1]
    assert last.answer == LOOKED
    path = {"anthropic": "/v1/messages", "openai": "/chat/completions"}[dialect]
    assert server.requests[0].head.startswith(f"POST {path} HTTP/1.1\r\n")


@both
@on_a_loop
async def test_the_reported_size_is_the_size_sent(dialect):
    request = small_request(UserMessage("größer als 大きさ 🔎 \ud83d lone"))
    async with RawServer(answer(LOOKING[dialect])) as server:
        pieces = await collect(server.endpoint(dialect), request)
    assert pieces[0] == Sent(len(server.requests[0].body.decode())) == Sent(size_of(request, dialect))
    assert "大きさ 🔎 \ufffd lone" in json.dumps(server.requests[0].json, ensure_ascii=False)


@both
@on_a_loop
async def test_a_connection_is_used_again_after_a_whole_answer(dialect):
    async with RawServer(STREAM + chunked(LOOKING[dialect]) + END) as server:
        for _ in range(3):
            await collect(server.endpoint(dialect))
        assert (len(server.requests), server.connections) == (3, 1)


@both
@on_a_loop
async def test_a_server_that_does_not_end_its_stream_costs_no_time(dialect):
    async with RawServer(falling_silent(STREAM + chunked(LOOKING[dialect]))) as server:
        # A wait for the end of the stream would last longer than a test may.
        pieces = await collect(server.endpoint(dialect), patience=replace(QUICK, between=10 * WAIT_SECONDS))
        assert isinstance(pieces[-1], AnswerEnd)


@both
@on_a_loop
async def test_a_stream_is_read_under_any_content_type(dialect):
    for kind in ("text/event-stream; charset=latin-1", "TEXT/EVENT-STREAM", "text/plain", ""):
        async with RawServer(answer(LOOKING[dialect], kind=kind)) as server:
            assert (await collect(server.endpoint(dialect)))[-1].answer == LOOKED, kind


@both
@on_a_loop
async def test_an_answer_that_comes_whole_is_read(dialect):
    text = "Let me look."
    parts = [{"type": "text", "text": text}, {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "ü"}}]
    function = {"name": "look", "arguments": '{"at": "ü"}'}
    calls = [{"id": "t1", "type": "function", "function": function}]
    said = {"role": "assistant", "content": text, "tool_calls": calls}
    whole: dict[Dialect, Any] = {
        "anthropic": {
            "type": "message",
            "content": parts,
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 10, "output_tokens": 5},
        },
        "openai": {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        },
    }
    async with RawServer(as_json(whole[dialect], "200 OK")) as server:
        pieces = await collect(server.endpoint(dialect))
    assert pieces[-1].answer == LOOKED
    assert pieces[-1].usage is not None
    assert TextPiece(text) in pieces


@both
@on_a_loop
async def test_json_or_a_stream_that_is_not_a_response_is_broken(dialect):
    bodies = {
        "application/json": [b"{}", b"[]", b"", b"{", b"3", b"[" * 100_000, b"\xff", b'{"done": true}\n{"done": true}'],
        "text/event-stream": [b"", b"\n\n", b": hello\n\n", b"welcome", b"data: {}\n\n", b"id: 1\n\n"],
    }  # fmt: skip
    for kind, body in [(kind, body) for kind, all_of_them in bodies.items() for body in all_of_them]:
        async with RawServer(answer(body, kind=kind)) as server:
            assert isinstance(await failure(server, dialect), Broken), body[:20]
            assert len(server.requests) == 1


# ---- a connection that breaks -----------------------------------------------------------------------------


@both
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", STREAM], ids=["nothing", "half a head", "a head"])
@on_a_loop
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
@on_a_loop
async def test_after_repeated_broken_responses_the_client_gives_up_with_the_number_of_attempts(dialect):
    async with RawServer(cutting()) as server:
        error = await failure(server, dialect)
        assert len(server.requests) == QUICK.attempts
    assert isinstance(error, Unreachable)
    assert "Redline tried 2 times." in error.message


@both
@pytest.mark.parametrize("head", [STREAM, UNTIL_CLOSED], ids=["chunks", "until closed"])
@on_a_loop
async def test_a_response_that_breaks_off_is_not_requested_again(dialect, head):
    async def play(received: ReceivedRequest) -> None:
        await received.say(head + (chunked(begun(dialect)) if head is STREAM else begun(dialect)))
        received.writer.close()

    async with RawServer(play) as server:
        error = await failure(server, dialect)
        assert len(server.requests) == 1
    assert isinstance(error, Broken)
    assert "ended too early" in error.message
    assert "Its calls were not run." in error.message


@both
@on_a_loop
async def test_a_response_is_complete_once_it_has_a_stop_reason(dialect):
    """The missing rest is only the number of tokens."""
    rest = {"anthropic": b"event: message_stop", "openai": b'data: {"id": "chatcmpl-1", "choices": []'}
    sent = LOOKING[dialect].partition(rest[dialect])[0]
    async with RawServer(cutting(UNTIL_CLOSED + sent)) as server:
        assert (await collect(server.endpoint(dialect)))[-1].answer == LOOKED


@both
@on_a_loop
async def test_an_unreachable_address_is_reported(dialect):
    async with RawServer(b"") as server:
        endpoint = server.endpoint(dialect)
    with pytest.raises(Unreachable) as caught:
        await collect(endpoint)
    assert caught.value.message.startswith(f"{endpoint.host} cannot be reached")
    assert "Nothing was sent." in caught.value.message


@both
@on_a_loop
async def test_a_server_that_does_not_speak_http_is_reported(dialect):
    async with RawServer(cutting(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")) as server:
        assert isinstance(await failure(server, dialect), Unreachable)


# ---- silence --------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("said", [b"", STREAM], ids=["nothing", "a head"])
@on_a_loop
async def test_silence_before_the_first_byte_times_out_and_closes_the_connection(dialect, said):
    async with RawServer(falling_silent(said)) as server:
        error = await failure(server, dialect, SLOW)
        await server.requests[0].closed.wait()
        assert len(server.requests) == 1
    assert isinstance(error, TimedOut)
    assert "did not answer within 0.3 s" in error.message


@both
@on_a_loop
async def test_silence_within_a_response_times_out_and_closes_the_connection(dialect):
    async with RawServer(falling_silent(STREAM + chunked(begun(dialect)))) as server:
        error = await failure(server, dialect, replace(SLOW, first_byte=5))
        await server.requests[0].closed.wait()
    assert isinstance(error, TimedOut)
    assert "stopped sending in the middle of its answer, for 0.3 s" in error.message


# ---- not this dialect -------------------------------------------------------------------------------------


@both
@on_a_loop
async def test_a_web_page_is_not_a_response(dialect):
    async with RawServer(answer(b"<!doctype html><title>Welcome</title>", kind="text/html; charset=utf-8")) as server:
        error = await failure(server, dialect)
    assert isinstance(error, Rejected)
    assert error.code == "not_this_dialect"
    assert "Welcome" not in error.message


@both
@on_a_loop
async def test_an_event_without_an_end_is_cut_off(dialect):
    async def play(received: ReceivedRequest) -> None:
        await received.say(UNTIL_CLOSED + b"data: ")
        while not received.writer.is_closing():
            await received.say(b"x" * 100_000)

    async with RawServer(play) as server:
        error = await failure(server, dialect)
    assert isinstance(error, Broken)
    assert "one of its events is longer" in error.message


@on_a_loop
async def test_an_invalid_address_is_bad_input():
    for address in ("", "h", "ftp://h", "https://user:pw@h", "https://h?x"):
        with pytest.raises(BadInput) as caught:
            await collect(Endpoint("p", "openai", address))
        assert caught.value.code == "bad_base_url", address

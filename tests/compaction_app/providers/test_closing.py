"""A caller that stops closes the connection immediately, at any point of the answer."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from compaction_app.providers.client import Patience, ask
from compaction_app.providers.types import CallBegun, Dialect, Piece, Retrying, Sent
from tests.compaction_app.providers.raw_server import (
    STREAM,
    RawServer,
    ReceivedRequest,
    answer,
    chunked,
    collect,
    falling_silent,
    on_a_loop,
)
from tests.compaction_app.providers.streams import LOOKING, begun, both, small_request


def stalling_in_a_call(dialect: Dialect) -> RawServer:
    return RawServer(falling_silent(STREAM + chunked(begun(dialect))))


async def request_to(server: RawServer) -> ReceivedRequest:
    while not server.requests:
        await asyncio.sleep(0.001)
    return server.requests[0]


async def read_all(pieces: AsyncIterator[Piece]) -> None:
    async for _ in pieces:
        pass


@both
@on_a_loop
async def test_closing_in_the_middle_of_a_call(dialect):
    async with stalling_in_a_call(dialect) as server:
        pieces = ask(server.endpoint(dialect), small_request())
        async for piece in pieces:
            if isinstance(piece, CallBegun):
                break
        await pieces.aclose()
        await server.requests[0].closed.wait()


@both
@on_a_loop
async def test_cancelling_while_the_next_piece_is_waited_for(dialect):
    async with stalling_in_a_call(dialect) as server:
        task = asyncio.create_task(read_all(ask(server.endpoint(dialect), small_request())))
        received = await request_to(server)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await received.closed.wait()


@both
@on_a_loop
async def test_cancelling_before_the_first_byte(dialect):
    async with RawServer(falling_silent()) as server:
        task = asyncio.create_task(read_all(ask(server.endpoint(dialect), small_request())))
        received = await request_to(server)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await received.closed.wait()
        assert len(server.requests) == 1


@both
@on_a_loop
async def test_closing_before_anything_was_sent(dialect):
    async with RawServer(falling_silent()) as server:
        pieces = ask(server.endpoint(dialect), small_request())
        assert isinstance(await anext(pieces), Sent)
        await pieces.aclose()
        assert not server.requests


@both
@on_a_loop
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
@on_a_loop
async def test_closing_at_a_wait_before_asking_again(dialect):
    async with RawServer(answer(b"{}", "503 No", "application/json")) as server:
        pieces = ask(server.endpoint(dialect), small_request(), Patience(longest_wait=30))
        async for piece in pieces:
            if isinstance(piece, Retrying):
                break
        await pieces.aclose()
        assert len(server.requests) == 1


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

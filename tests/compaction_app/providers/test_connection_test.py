"""“Test”: one tiny tool call, and faults explained in plain words."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from compaction_app.providers import client, connection_test
from compaction_app.providers.client import Patience
from compaction_app.providers.connection_test import LONGEST, TOOL, Verdict, try_model
from compaction_app.providers.types import Dialect, Endpoint, Piece, Retrying, Sent
from compaction_app.scripted.server import ScriptedProvider
from tests.compaction_app.providers.raw_server import QUICK, Play, RawServer, answer
from tests.compaction_app.providers.streams import USED, both, call_block, chunk, fragment, message, sse, text_block


def calling(dialect: Dialect, name: str, *, counted: bool = True) -> bytes:
    if dialect == "anthropic":
        return answer(message(call_block(0, "t", name, '{"ready": true}'), usage=None if counted else {}))
    chunks: list[Any] = [chunk(fragment(0, '{"ready": true}', call_id="t", name=name)), chunk(finish="tool_calls")]
    return answer(sse(*chunks, *([USED] if counted else []), "[DONE]"))


def end_after_first_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """End the time for a test of a model once the model has begun to answer, on machines of any speed."""
    limit = asyncio.timeout(None)

    async def ask(*request: Any) -> AsyncIterator[Piece]:
        async with contextlib.aclosing(client.ask(*request)) as pieces:
            async for piece in pieces:
                yield piece
                if not isinstance(piece, Sent | Retrying):
                    limit.reschedule(asyncio.get_running_loop().time())

    monkeypatch.setattr(connection_test, "ask", ask)
    monkeypatch.setattr(connection_test, "asyncio", SimpleNamespace(timeout=lambda _: limit))


def saying(dialect: Dialect, stop: str) -> bytes:
    if dialect == "anthropic":
        return answer(message(text_block(0, "I am ready!"), stop={"stop": "end_turn", "length": "max_tokens"}[stop]))
    return answer(sse(chunk({"content": "I am ready!"}), chunk(finish=stop), "[DONE]"))


async def tried(dialect: Dialect, play: Play | bytes, key: str = "", thinking: str = "") -> tuple[Verdict, RawServer]:
    async with RawServer(play) as server:
        return await try_model(server.endpoint(dialect, key), "m-1", 64_000, thinking, "budget", QUICK), server


@both
async def test_a_model_that_calls_the_tool_is_ready_and_it_is_said_if_it_counts_no_tokens(dialect):
    verdict, server = await tried(dialect, calling(dialect, TOOL.name))
    assert verdict.ok
    assert verdict.message.startswith(f"It can plan. m-1 at 127.0.0.1:{server.port} called a tool ")
    assert "after 0.0 s" not in verdict.message
    assert "tokens" not in verdict.message
    assert 0 < verdict.seconds < 5
    verdict, _ = await tried(dialect, calling(dialect, TOOL.name, counted=False))
    assert verdict.ok
    assert "It reports no tokens, so they will be estimated." in verdict.message


@both
async def test_the_request_is_one_tiny_tool_call(dialect):
    _, server = await tried(dialect, calling(dialect, TOOL.name), thinking="low")
    assert len(server.requests) == 1
    body = server.requests[0].json
    assert len(server.requests[0].body) < 1_000
    assert (len(body["tools"]), body["max_tokens"]) == (1, 4_096)
    thinking = {"anthropic": body.get("thinking"), "openai": body.get("reasoning_effort")}[dialect]
    assert thinking in ({"type": "enabled", "budget_tokens": 2_048}, "low")


CASES = [
    pytest.param(lambda dialect: saying(dialect, "stop"), "without a tool call", id="only talks"),
    pytest.param(lambda dialect: saying(dialect, "length"), "reached its output limit", id="is cut off"),
    pytest.param(lambda dialect: calling(dialect, "other"), "a tool that it was not offered", id="makes up a tool"),
    pytest.param(lambda _: answer(b"{}", "401 No", "application/json"), "refuses the key", id="wrong key"),
    pytest.param(lambda _: answer(b'{"error":{"message":"model m-1 not found"}}', "404 No", "application/json"),
        "has no model m-1", id="unknown model"),
    pytest.param(lambda _: answer(b"<html>", "404 No", "text/html"), "answers, but not as", id="no such path"),
    pytest.param(lambda _: answer(b"<html>", "200 OK", "text/html"), "it sends a web page", id="a web page"),
    pytest.param(lambda _: answer(b'{"error":{"code":"insufficient_quota"}}', "429 No", "application/json"),
        "quota or credit is used up", id="quota"),
    pytest.param(lambda _: answer(b'{"error":{"message":"m-1 does not support tools"}}', "400 No",
        "application/json"), "does not support tools", id="no tools"),
]  # fmt: skip


@both
@pytest.mark.parametrize(("play", "words"), CASES)
async def test_faults_are_explained_in_plain_words(dialect, play, words):
    verdict, _ = await tried(dialect, play(dialect), key="sk-0123456789abcdef")
    assert not verdict.ok
    assert words in verdict.message
    assert verdict.message.endswith(".")
    assert "sk-0123" not in json.dumps(verdict.message)


@both
async def test_an_unreachable_provider_is_reported_with_its_address(dialect):
    async with RawServer(b"") as server:
        endpoint = server.endpoint(dialect)
    verdict = await try_model(endpoint, "m-1", 4_000, "", "budget", QUICK)
    assert not verdict.ok
    assert f"{endpoint.host} cannot be reached" in verdict.message


@both
@pytest.mark.parametrize(
    ("script", "words"), [("long-thinking", "thought for longer than a minute without"), ("stalls", "a minute")]
)
async def test_one_that_never_comes_to_an_end_is_not_waited_for(dialect, script, words, monkeypatch):
    assert LONGEST == 60
    end_after_first_piece(monkeypatch)
    with ScriptedProvider() as provider:
        endpoint = Endpoint("own", dialect, provider.base_url(dialect))
        patience = Patience(connect=5, first_byte=60, between=30, attempts=1)
        verdict = await try_model(endpoint, script, 4_000, "low", "budget", patience)
        await client.close()
    assert not verdict.ok
    assert words in verdict.message
    assert verdict.message.startswith(f"{script} at {endpoint.host} ")

"""Bytes as providers send them, in both dialects, and what reads them."""

import asyncio
import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any

import httpx

from compaction_app.core.messages import CallPart, Message, UserMessage
from compaction_app.core.tools import ToolSchema
from compaction_app.providers import anthropic, openai
from compaction_app.providers.accumulator import AnswerReader
from compaction_app.providers.client import Body
from compaction_app.providers.types import (
    AnswerEnd,
    ArgumentsPiece,
    CallBegun,
    Dialect,
    Piece,
    Request,
    TextPiece,
    ThoughtPiece,
)
from tests.wait import WAIT_SECONDS

DIALECTS: tuple[Dialect, ...] = ("anthropic", "openai")


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on its own event loop."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), WAIT_SECONDS))

    return run


def both(test: Callable[..., Any]) -> Callable[..., None]:
    """Run a test in each dialect, one after the other, if need be on an event loop; all failures are reported."""
    act = on_a_loop(test) if inspect.iscoroutinefunction(test) else test

    @functools.wraps(test)
    def run(**given: Any) -> None:
        failures = []
        for dialect in DIALECTS:
            try:
                act(dialect=dialect, **given)
            except Exception as failure:  # noqa: BLE001  # it is raised below
                failure.add_note(f"in the dialect {dialect}")
                failures.append(failure)
        if failures:
            raise ExceptionGroup("not in every dialect", failures)

    taken = inspect.signature(test)
    parameters = [one for name, one in taken.parameters.items() if name != "dialect"]
    run.__signature__ = taken.replace(parameters=parameters)
    return run


LOOK = ToolSchema("look", "Look at something.", {"type": "object", "properties": {}, "additionalProperties": False})


def small_request(*messages: Message, **more: Any) -> Request:
    """A small request; without messages it has one of the user's."""
    values = {"model": "m-1", "system": "Act.", "tools": [LOOK], "output_limit": 4_000, **more}
    return Request(messages=messages or (UserMessage("Look."),), **values)


def sse(*events: dict[str, Any] | str, named: bool = False) -> bytes:
    """Events of a stream; `named` with the `event:` line that Anthropic sends."""
    lines = []
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event)
        name = f"event: {event['type']}\n" if named and isinstance(event, dict) else ""
        lines.append(f"{name}data: {data}\n\n")
    return "".join(lines).encode()


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one content block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def message(*blocks: list[dict[str, Any]], stop: str = "tool_use", usage: dict[str, Any] | None = None) -> bytes:
    """A whole answer of the Anthropic dialect."""
    begun = {"id": "msg_1", "role": "assistant", "content": [], "usage": {}}
    counted = usage if usage is not None else {"input_tokens": 10, "output_tokens": 5}
    return sse(
        {"type": "message_start", "message": begun},
        *(event for one in blocks for event in one),
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": counted},
        {"type": "message_stop"},
        named=True,
    )


def text_block(index: int, *fragments: str) -> list[dict[str, Any]]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": one} for one in fragments))


def call_block(index: int, call_id: str, name: str, *fragments: str) -> list[dict[str, Any]]:
    start = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(index, start, *({"type": "input_json_delta", "partial_json": one} for one in fragments))


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of the OpenAI dialect."""
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices, **more}


def fragment(index: int | None, arguments: str | None = None, *, call_id: str = "", name: str = "") -> dict[str, Any]:
    """A delta with a fragment of a tool call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value}
    given = {key: value for key, value in (("index", index), ("id", call_id or None)) if value is not None}
    return {"tool_calls": [{**given, "type": "function", "function": function}]}


USED = {"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}

LOOKING: dict[Dialect, bytes] = {
    "anthropic": message(text_block(0, "Let me ", "look."), call_block(1, "t1", "look", '{"at"', ': "ü"}')),
    "openai": sse(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Let me "}),
        chunk({"content": "look."}),
        chunk(fragment(0, "", call_id="t1", name="look")),
        chunk(fragment(0, '{"at"')),
        chunk(fragment(0, ': "ü"}')),
        chunk(finish="tool_calls"),
        USED,
        "[DONE]",
    ),
}
"""The same answer in both dialects: some text and one call."""


def reader_of(dialect: Dialect, conversation: Sequence[Message] = ()) -> AnswerReader:
    return (anthropic if dialect == "anthropic" else openai).READER(conversation)


async def _read(dialect: Dialect, chunks: Iterable[bytes], conversation: Sequence[Message]) -> list[Piece]:
    async def sent() -> AsyncIterator[bytes]:
        for one in chunks:
            yield one

    reader = reader_of(dialect, conversation)
    pieces: list[Piece] = []
    async for event in Body(httpx.Response(200, content=sent()), 5, 5).events():
        pieces += reader.feed(event.event, event.data)
        if reader.is_done:
            break
    *rest, answered = reader.finish()
    return [*pieces, *rest, answered]


def read(dialect: Dialect, *chunks: bytes, conversation: Sequence[Message] = ()) -> list[Piece]:
    """All pieces of an answer that comes in these chunks of bytes; the last one is the whole answer."""
    return asyncio.run(_read(dialect, chunks, conversation))


def answered(pieces: Sequence[Piece]) -> AnswerEnd:
    last = pieces[-1]
    assert isinstance(last, AnswerEnd)
    return last


def calls(pieces: Sequence[Piece]) -> list[CallPart]:
    return answered(pieces).answer.calls


def shown(pieces: Sequence[Piece]) -> dict[str, Any]:
    """What a viewer has seen: text, reasoning, and each call's name and arguments."""
    seen: dict[str, Any] = {"text": "", "thought": "", "calls": {}}
    for piece in pieces:
        if isinstance(piece, TextPiece):
            seen["text"] += piece.text
        elif isinstance(piece, ThoughtPiece):
            seen["thought"] += piece.text
        elif isinstance(piece, CallBegun):
            assert piece.index not in seen["calls"]
            seen["calls"][piece.index] = [piece.name, ""]
        elif isinstance(piece, ArgumentsPiece):
            seen["calls"][piece.index][1] += piece.text
    return seen


def begun(dialect: Dialect) -> bytes:
    """The stream of LOOKING up to the middle of its call."""
    return LOOKING[dialect].partition(b"\\u00fc")[0]

"""Answers of a model to a client, in the dialects that clients speak."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

TEXT: Final = "OK"
"""The whole answer of the model."""
MESSAGES: Final = "/messages"
RESPONSES: Final = "/responses"
COMPLETIONS: Final = "/chat/completions"


class Answer(NamedTuple):
    """The response to a request."""

    status: int
    content_type: str
    body: bytes

    @classmethod
    def error(cls, status: int, message: str) -> Self:
        """An error; its message is where each dialect expects it."""
        fault = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        return cls.document(fault, status)

    @classmethod
    def document(cls, value: Mapping[str, Any], status: int = 200) -> Self:
        """A JSON document."""
        return cls(status, "application/json", json.dumps(value).encode())

    @classmethod
    def stream(cls, events: Iterable[Mapping[str, Any]], *, end: bytes = b"") -> Self:
        """A stream of events; those that have a type are named by it."""
        body = b"".join(
            (f"event: {event['type']}\n".encode() if "type" in event else b"")
            + b"data: "
            + json.dumps(event).encode()
            + b"\n\n"
            for event in events
        )
        return cls(200, "text/event-stream", body + end)


def short_answer(path: str, body: Mapping[str, Any], tokens: int = 1) -> Answer:
    """A short text in the dialect of a request, as a stream if it asks for one.

    `tokens`: what a Responses request is said to have cost.
    """
    is_stream = bool(body.get("stream"))
    if path.endswith(MESSAGES):
        return Answer.stream(_messages_events()) if is_stream else Answer.document(_message())
    if path.endswith(RESPONSES):
        return Answer.stream(_responses_events(tokens))
    if path.endswith(COMPLETIONS):
        end = b"data: [DONE]\n\n"
        return (
            Answer.stream(_completion_chunks(), end=end)
            if is_stream
            else Answer.document(_completion("message", "stop"))
        )
    return Answer.error(404, "Not found")


def _message() -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "model",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _messages_events() -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**_message(), "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}}
    yield {"type": "content_block_stop", "index": 0}
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def _responses_events(tokens: int) -> Iterator[dict[str, Any]]:
    content = [{"type": "output_text", "text": TEXT, "annotations": []}]
    item = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
    usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {"id": "resp_1", "usage": usage, "output": [item]}}


def _completion(field: str, finish: str | None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion" if field == "message" else "chat.completion.chunk",
        "created": 1,
        "model": "model",
        "choices": [
            {"index": 0, field: {"role": "assistant", "content": TEXT}, "finish_reason": finish},
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _completion_chunks() -> Iterator[dict[str, Any]]:
    yield _completion("delta", "stop")

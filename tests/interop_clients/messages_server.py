"""A model for Claude Code, pi and Atomic that plays queued replies in Anthropic's Messages."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sessions_app.agents.edge.model_server import MESSAGES, Answer, ModelRequest

from .scripted_model import PlayedModel

USAGE: Final = {"input_tokens": 20, "output_tokens": 7}


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """Content blocks, or an HTTP error if `status` is given."""

    blocks: Sequence[Mapping[str, Any]] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    status: int = 200
    error: str = "scripted"
    """What an HTTP error says."""


def said(text: str, **usage: int) -> ScriptedReply:
    return ScriptedReply([text_block(text)], usage)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def thinking_block(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "c2lnbmVk"}


def call_block(call_id: str, name: str, **arguments: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


class MessagesServer(PlayedModel[ScriptedReply]):
    """The model, from `__enter__` to `__exit__`. Without a queued reply it says "done"."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Mapping[str, Any]] = []
        """The bodies of all requests for a reply, in order of arrival."""
        self.before_reply: Callable[[], object] = lambda: None
        """Called while a client waits for its reply."""

    def _answer(self, request: ModelRequest) -> Answer:
        """The reply to a request. One without tools is a side request: for a title."""
        if not request.path.endswith(MESSAGES):
            return Answer.error(404, "scripted")
        self.before_reply()
        with self._lock:
            self.requests.append(request.body)
            is_scripted = bool(request.body.get("tools") and self.replies)
            reply, number = self.replies.popleft() if is_scripted else said("done"), len(self.requests)
        if reply.status != 200:
            return Answer.error(reply.status, reply.error)
        message = _message(request.body["model"], reply, number)
        if request.body.get("stream"):
            return Answer.stream(_events(message, reply))
        return Answer.document(message)


def _message(model: str, reply: ScriptedReply, number: int) -> dict[str, Any]:
    calls = any(block["type"] == "tool_use" for block in reply.blocks)
    return {
        "id": f"msg_scripted{number:06}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(reply.blocks),
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {**USAGE, **reply.usage},
    }


def _events(message: Mapping[str, Any], reply: ScriptedReply) -> Iterator[dict[str, Any]]:
    usage, stop = message["usage"], message["stop_reason"]
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(reply.blocks):
        start, deltas = _parts(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def _parts(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and what is added to it."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {**block, "thinking": "", "signature": ""}, deltas
    arguments = json.dumps(block["input"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]

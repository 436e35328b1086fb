"""A model for Codex and OpenCode that plays queued replies, in OpenAI's Responses or Chat Completions."""

import json
import re
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Self, TypeVar

from sessions_app.agents.edge.model_server import COMPLETIONS, RESPONSES, Answer, ModelRequest, ModelServer


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call."""

    call_id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What the model says: an HTTP error if `status` is given. `tokens` are reported for the request."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[Call] = ()
    tokens: int = 100
    status: int = 200
    error: str = "scripted"
    """The message of an HTTP error."""
    items: Sequence[Mapping[str, Any]] = ()
    """Items of a Responses answer, instead of text, reasoning and calls."""


Reply = TypeVar("Reply")


class PlayedModel(ABC, Generic[Reply]):
    """A model that plays queued replies, from `__enter__` to `__exit__`."""

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self._server = ModelServer(self._answer)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *fault: Any) -> None:
        self._server.__exit__(*fault)

    @property
    def url(self) -> str:
        return self._server.url

    @abstractmethod
    def _answer(self, request: ModelRequest) -> Answer: ...


class ClientRun(NamedTuple):
    """One headless run of a client: what it printed, and the requests that it sent."""

    code: int | None
    output: str
    errors: str
    requests: tuple[Mapping[str, Any], ...]

    @property
    def session_id(self) -> str:
        """The last id of a session, or of a thread, that was printed."""
        return re.findall(r'"(?:sessionID|thread_id)":"([\w-]+)"', self.output)[-1]


class ScriptedModel(PlayedModel[ModelReply]):
    """The model. Requests for titles, which have no tools, are not the conversation's.

    A request without a queued reply is answered with "done".
    """

    def __init__(self) -> None:
        super().__init__()
        self.conversation: list[Mapping[str, Any]] = []
        """The bodies of the conversation's requests, in order of arrival."""
        self._count = 0

    def expect(self, replies: Iterable[ModelReply]) -> int:
        """Queue replies instead of others; returns the number of the conversation's requests so far."""
        self.replies.clear()
        self.replies.extend(replies)
        return len(self.conversation)

    def _answer(self, request: ModelRequest) -> Answer:
        with self._lock:
            self._count += 1
            number, reply = self._count, ModelReply("done")
            if is_conversation(request):
                self.conversation.append(request.body)
                reply = self.replies.popleft() if self.replies else reply
        if reply.status != 200:
            return Answer.error(reply.status, reply.error)
        if request.path.endswith(RESPONSES):
            return Answer.stream(_responses_events(reply, number))
        if request.path.endswith(COMPLETIONS):
            return Answer.stream(_chunks(reply, number), end=b"data: [DONE]\n\n")
        return Answer.error(404, "scripted")


def is_conversation(request: ModelRequest) -> bool:
    """Whether a request is a turn, or a compaction, of a conversation: OpenCode asks for titles too."""
    texts = (str(message.get("content")) for message in request.body.get("messages", ())[:1])
    return not any("title generator" in text for text in texts)


def _responses_events(reply: ModelReply, number: int) -> Iterator[dict[str, Any]]:
    items = list(reply.items or _items(reply, number))
    usage = {"input_tokens": reply.tokens, "output_tokens": 1, "total_tokens": reply.tokens + 1}
    response = {"id": f"resp_{number}", "usage": usage, "output": items}
    yield {"type": "response.created", "response": {"id": f"resp_{number}"}}
    for index, item in enumerate(items):
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": response}


def _items(reply: ModelReply, number: int) -> Iterator[dict[str, Any]]:
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        sealed = f"sealed-{number}"
        yield {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": sealed}
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        yield {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}
    for place, call in enumerate(reply.calls):
        yield {
            "type": "function_call",
            "id": f"fc_{number}_{place}",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
        }


def _chunks(reply: ModelReply, number: int) -> Iterator[dict[str, Any]]:
    usage = {"prompt_tokens": reply.tokens, "completion_tokens": 1, "total_tokens": reply.tokens + 1}
    finish = "tool_calls" if reply.calls else "stop"
    deltas = [*_deltas(reply)]
    for place, delta in enumerate(deltas):
        is_last = place == len(deltas) - 1
        yield {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "model",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish if is_last else None}],
            **({"usage": usage} if is_last else {}),
        }


def _deltas(reply: ModelReply) -> Iterable[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    if reply.reasoning:
        yield {"reasoning_content": reply.reasoning}
    if reply.text:
        yield {"content": reply.text}
    for index, call in enumerate(reply.calls):
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        yield {"tool_calls": [{"index": index, "id": call.call_id, "type": "function", "function": function}]}
    yield {}

"""The Anthropic Messages dialect: requests as it requires them, and its event stream read into an answer.

    message_start · (content_block_start · content_block_delta … · content_block_stop) … · message_delta · message_stop

with `ping` anywhere, `error` instead of the rest, and possibly new kinds of events and blocks
(https://platform.claude.com/docs/en/build-with-claude/streaming). Blocks carry an index, and may be interleaved.

What the API rejects is never sent: empty text, an answer of reasoning alone, two turns of one role in a row.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from compaction_app.core import messages as core_messages

from . import accumulator
from .error_mapping import ProviderFault, Reported, Unreadable
from .types import Endpoint, Piece, ReportedUsage, Request, ThinkingStyle

PATH: Final = "/v1/messages"
VERSION: Final = "2023-06-01"
BUDGETS: Final[Mapping[str, int]] = {
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
}
"""Tokens of reasoning per thinking level, for models that take a number."""
LEAST_BUDGET: Final = 1_024
ANSWER_TOKENS: Final = 1_024
"""The minimum number of tokens of an answer that reasoning must leave for text and calls."""
CACHED: Final[Mapping[str, str]] = {"type": "ephemeral"}
CACHED_TURNS: Final = 2
"""The number of latest user turns that end in a cache breakpoint: with the system prompt, three of at most four."""

_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_BEFORE_XHIGH: Final = re.compile(r"-4[-.]6\b")
"""Models that know the effort `max`, but not `xhigh`."""
_STOPS: Final[Mapping[str, str]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
}
_DELTAS: Final[Mapping[str, tuple[type[accumulator.Part], str]]] = {
    "text_delta": (accumulator.Text, "text"),
    "thinking_delta": (accumulator.Reasoning, "thinking"),
    "input_json_delta": (accumulator.AccumulatedCall, "partial_json"),
}
"""The kinds of fragments, each with the part to which it belongs, and the name of its text."""


# ---- requests -------------------------------------------------------------------------------------------


def headers_for(endpoint: Endpoint) -> dict[str, str]:
    """Headers of a request, with the key."""
    return {"anthropic-version": VERSION} | ({"x-api-key": endpoint.key} if endpoint.key else {})


def body_of(request: Request, host: str = "") -> dict[str, Any]:
    """The body of a request, ready for JSON; the same for every host."""
    del host
    body: dict[str, Any] = {"model": request.model, "max_tokens": request.output_limit, "stream": True}
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, "cache_control": CACHED}]
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
    body["messages"] = _messages(request.messages)
    return body | _thinking(request)


def _thinking(request: Request) -> dict[str, Any]:
    if not request.thinking:
        return {}
    if request.thinking_style == ThinkingStyle.ADAPTIVE:
        # Since Opus 4.7 reasoning is left out unless requested, and nothing could be watched.
        thinking = {"type": "adaptive", "display": "summarized"}
        highest = "max" if _BEFORE_XHIGH.search(request.model) else "xhigh"
        effort = {"minimal": "low", "xhigh": highest}.get(request.thinking, request.thinking)
        return {"thinking": thinking, "output_config": {"effort": effort}}
    tokens = min(BUDGETS[request.thinking], request.output_limit - ANSWER_TOKENS)
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}} if tokens >= LEAST_BUDGET else {}


def _messages(messages: Sequence[core_messages.Message]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if isinstance(message, core_messages.AssistantMessage) else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    # A breakpoint looks back a limited number of blocks, and a turn can have more: so earlier ends are also marked.
    for turn in [turn for turn in turns if turn["role"] == "user"][-CACHED_TURNS:]:
        turn["content"][-1]["cache_control"] = CACHED
    return turns


def _blocks(message: core_messages.Message) -> list[dict[str, Any]]:
    if isinstance(message, core_messages.UserMessage):
        return [{"type": "text", "text": message.text}] if message.text.strip() else []
    if isinstance(message, core_messages.ToolResults):
        return [_result_block(result) for result in message.results]
    blocks = [block for part in message.parts for block in _part_blocks(part)]
    # Reasoning without anything after it is rejected, and is useless to the model.
    return (
        blocks
        if any(not isinstance(part, core_messages.ThinkingPart) for part in message.parts if _part_blocks(part))
        else []
    )


def _result_block(result: core_messages.CallResult) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call_id}
    if result.text:
        block["content"] = result.text
    return block | ({"is_error": True} if result.is_error else {})


def _part_blocks(
    part: core_messages.TextPart | core_messages.ThinkingPart | core_messages.CallPart,
) -> list[dict[str, Any]]:
    if isinstance(part, core_messages.TextPart):
        return [{"type": "text", "text": part.text}] if part.text.strip() else []
    if isinstance(part, core_messages.ThinkingPart):
        return [dict(part.block)] if part.block else []
    found = core_messages.parsed_arguments(part.arguments)
    given = found if isinstance(found, dict) else {"unparsed": part.arguments}
    return [{"type": "tool_use", "id": part.call_id, "name": tool_name(part.name), "input": given}]


def tool_name(name: str) -> str:
    """A tool's name in the form that providers accept back, even if the model invented it."""
    return _NAME.sub("_", name)[:64] or "unnamed"


# ---- the answer -----------------------------------------------------------------------------------------


class AnthropicReader(accumulator.AnswerReader):
    """Reads an answer of Anthropic's dialect."""

    def __init__(self, conversation: Sequence[core_messages.Message] = ()) -> None:
        super().__init__(conversation)
        self._open: dict[int, accumulator.Text | accumulator.Reasoning | accumulator.AccumulatedCall | None] = {}
        self._last = -1
        self._given: dict[int, str] = {}
        self._tokens: dict[str, int] = {}

    def feed(self, event: str, data: str) -> list[Piece]:
        payload = accumulator.event_object(event, data)
        kind = payload.get("type") or event
        if kind == "message_start":
            self._count(accumulator.mapping_of(accumulator.mapping_of(payload.get("message")).get("usage")))
        elif kind == "content_block_start":
            return self._begin(self._index(payload), accumulator.mapping_of(payload.get("content_block")))
        elif kind == "content_block_delta":
            return self._add(self._index(payload), accumulator.mapping_of(payload.get("delta")))
        elif kind == "content_block_stop":
            return self._end(self._index(payload))
        elif kind == "message_delta":
            self._count(accumulator.mapping_of(payload.get("usage")))
            self._stop(accumulator.mapping_of(payload.get("delta")).get("stop_reason"))
        elif kind == "message_stop":
            self._stop(self.builder.stop or "end_turn")
            self.is_done = True
        return []

    def feed_whole(self, payload: Mapping[str, Any]) -> list[Piece]:
        if not isinstance(payload.get("content"), list):
            raise Unreadable("it is JSON without content")
        pieces: list[Piece] = []
        for index, block in enumerate(payload["content"]):
            pieces += [*self._begin(index, accumulator.mapping_of(block)), *self._end(index)]
        self._count(accumulator.mapping_of(payload.get("usage")))
        self._stop(payload.get("stop_reason"))
        self.is_done = True
        return pieces

    def _close(self) -> list[Piece]:
        builder = self.builder
        pieces = [piece for index in list(self._given) for piece in self._end(index)]
        thoughts = [part for part in builder.parts if isinstance(part, accumulator.Reasoning)]
        # Reasoning that the output limit truncated has no signature, and the service accepts none without one.
        has_cut = builder.stop == "length" and any(map(_signed, thoughts))
        for part in thoughts:
            if part.block.get("type") == "thinking":
                is_kept = _signed(part) or (part.buffer and not has_cut)
                part.block = part.block | {"thinking": part.buffer.raw} if is_kept else {}
        usage = ReportedUsage(
            input=self._tokens.get("input_tokens", 0),
            output=self._tokens.get("output_tokens", 0),
            cache_read=self._tokens.get("cache_read_input_tokens", 0),
            cache_write=self._tokens.get("cache_creation_input_tokens", 0),
        )
        builder.usage = usage if usage != ReportedUsage() else None
        return pieces

    # ---- blocks -----------------------------------------------------------------------------------------

    def _index(self, payload: Mapping[str, Any]) -> int:
        index = payload.get("index", self._last)
        if not isinstance(index, int):
            raise Unreadable("a block has no index")
        return index

    def _begin(self, index: int, block: Mapping[str, Any]) -> list[Piece]:
        self._last = index
        kind, builder = block.get("type"), self.builder
        if kind == "text":
            text = self._open[index] = builder.open(accumulator.Text())
            return builder.add(text, accumulator.text_of(block.get("text")))
        if kind in ("thinking", "redacted_thinking"):
            thought = self._open[index] = builder.open(accumulator.Reasoning())
            thought.block = dict(block)
            builder.weigh(accumulator.printed(thought.block))
            return builder.add(thought, accumulator.text_of(block.get("thinking")))
        if kind == "tool_use":
            call = self._open[index] = builder.open_call(accumulator.text_of(block.get("id")))
            # Some servers send the input here, and some an empty one, followed by fragments.
            given = block.get("input")
            self._given[index] = given if isinstance(given, str) else accumulator.printed(given) if given else ""
            name = accumulator.text_of(block.get("name"))
            return builder.name_call(call, name) if name else []
        self._open[index] = None
        return []

    def _add(self, index: int, delta: Mapping[str, Any]) -> list[Piece]:
        if index not in self._open:
            raise Unreadable("a fragment belongs to no block")
        part, kind, builder = self._open[index], accumulator.text_of(delta.get("type")), self.builder
        if isinstance(part, accumulator.Reasoning) and kind == "signature_delta":
            builder.weigh(accumulator.text_of(delta.get("signature")))
            part.block["signature"] = accumulator.text_of(delta.get("signature"))
        wanted, name = _DELTAS.get(kind, ((), ""))
        if not isinstance(part, wanted):
            return []
        fragment = accumulator.text_of(delta.get(name))
        if fragment:
            self._given.pop(index, None)
        return builder.add(part, fragment)

    def _end(self, index: int) -> list[Piece]:
        part, given = self._open.get(index), self._given.pop(index, "")
        return self.builder.add(part, given) if isinstance(part, accumulator.AccumulatedCall) and given else []

    # ---- the rest ---------------------------------------------------------------------------------------

    def _stop(self, reason: object) -> None:
        if reason == "model_context_window_exceeded":
            raise Reported(ProviderFault(0, str(reason), "the model's context window is full"))
        if isinstance(reason, str) and reason:
            self.builder.stop = _STOPS.get(reason, reason[: accumulator.STOP_CHARACTERS])

    def _count(self, usage: Mapping[str, Any]) -> None:
        for name, value in usage.items():
            # Counts are cumulative; servers that know one only at the end, or only at the start, send 0 elsewhere.
            self._tokens[name] = max(accumulator.count_of(value), self._tokens.get(name, 0))


READER: Final = AnthropicReader
"""The name under which `client` finds the reader of any dialect."""


def _signed(part: accumulator.Reasoning) -> bool:
    return bool(part.block.get("signature"))

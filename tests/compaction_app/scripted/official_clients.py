"""What the official clients read from the scripted provider, in one form for both dialects.

The clients are the published `anthropic` and `openai` packages: they, and not Redline's own code, parse the events and
accumulate the answer.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai

from compaction_app.core.tools import TOOL_SCHEMAS
from compaction_app.scripted.request import Dialect
from compaction_app.scripted.server import ScriptedProvider

KEY = "sk-dummy-0123456789"
DIALECTS: tuple[Dialect, ...] = ("anthropic", "openai")
PATHS: Mapping[Dialect, str] = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
TOOLS: Mapping[Dialect, list[Any]] = {
    "anthropic": [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in TOOL_SCHEMAS
    ],
    "openai": [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in TOOL_SCHEMAS
    ],
}


@dataclass
class Read:
    """An answer as returned by the official client; a call's arguments are parsed if they are valid JSON."""

    text: str
    calls: list[tuple[str, Any]]
    stop: str | None
    usage: Mapping[str, Any] | None
    thoughts: str = ""
    seals: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    message: Any = None
    """The message in the form in which it is returned to the conversation."""


def anthropic_client(provider: ScriptedProvider, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=provider.base_url("anthropic"), api_key=KEY, **{"max_retries": 0, **options})


def openai_client(provider: ScriptedProvider, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=provider.base_url("openai"), api_key=KEY, **{"max_retries": 0, **options})


def ask(
    provider: ScriptedProvider,
    dialect: Dialect,
    model: str,
    messages: Sequence[Any] = ({"role": "user", "content": "Begin."},),
    *,
    streams: bool = True,
    **options: Any,
) -> Read:
    """One answer of the official client, streamed or whole. Raises the client's errors."""
    if dialect == "openai":
        return _ask_openai(openai_client(provider, **options), model, messages, streams)
    client = anthropic_client(provider, **options)
    request: dict[str, Any] = {"model": model, "max_tokens": 4_096, "messages": list(messages), "tools": TOOLS[dialect]}
    if not streams:
        return _read_anthropic(client.messages.create(**request))
    with client.messages.stream(**request) as stream:
        return _read_anthropic(stream.get_final_message())


def _read_anthropic(message: anthropic.types.Message) -> Read:
    blocks = message.content
    return Read(
        text="".join(block.text for block in blocks if block.type == "text"),
        calls=[(block.name, block.input) for block in blocks if block.type == "tool_use"],
        stop=message.stop_reason,
        usage=message.usage.model_dump(),
        thoughts="".join(block.thinking for block in blocks if block.type == "thinking"),
        seals=[block.data for block in blocks if block.type == "redacted_thinking"],
        ids=[block.id for block in blocks if block.type == "tool_use"],
        message={
            "role": "assistant",
            "content": [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in blocks],
        },
    )


def _ask_openai(client: openai.OpenAI, model: str, messages: Sequence[Any], streams: bool) -> Read:
    request: dict[str, Any] = {"model": model, "messages": list(messages), "tools": TOOLS["openai"]}
    if not streams:
        whole = client.chat.completions.create(**request)
        choice = whole.choices[0]
        return _read_openai(choice.message.model_dump(exclude_none=True), choice.finish_reason, whole.usage)
    chunks = client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True})
    return read_chunks(chunks)


def read_chunks(chunks: Iterable[openai.types.chat.ChatCompletionChunk]) -> Read:
    """An answer from its chunks: fragments are joined by index; without an index each is a separate call."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    stop, usage = None, None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            stop = choice.finish_reason or stop
            delta = choice.delta
            message["content"] += delta.content or ""
            more = delta.model_extra or {}
            for name in ("reasoning", "reasoning_content"):
                if more.get(name):
                    message[name] = message.get(name, "") + more[name]
            if more.get("reasoning_details"):
                message.setdefault("reasoning_details", []).extend(more["reasoning_details"])
            for fragment in delta.tool_calls or ():
                index = getattr(fragment, "index", None)
                index = len(calls) if index is None else index
                call = calls.setdefault(
                    index, {"type": "function", "id": fragment.id, "function": {"name": "", "arguments": ""}}
                )
                call["function"]["name"] += fragment.function.name or ""
                call["function"]["arguments"] += fragment.function.arguments or ""
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return _read_openai(message, stop, usage)


def _read_openai(message: dict[str, Any], stop: str | None, usage: Any) -> Read:
    details = message.get("reasoning_details", ())
    for number, call in enumerate(message.get("tool_calls", ())):
        call["id"] = call.get("id") or f"own_{number}"
    return Read(
        text=message.get("content") or "",
        calls=[
            (call["function"]["name"], parsed(call["function"]["arguments"])) for call in message.get("tool_calls", ())
        ],
        stop=stop,
        usage=usage.model_dump() if usage else None,
        thoughts=message.get("reasoning") or message.get("reasoning_content") or "",
        seals=[detail["data"] for detail in details if detail["type"] == "reasoning.encrypted"],
        ids=[call["id"] for call in message.get("tool_calls", ())],
        message=message,
    )


def parsed(arguments: str) -> Any:
    """Arguments parsed as JSON; other text is returned unchanged."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def results(dialect: Dialect, read: Read, texts: Sequence[str]) -> list[dict[str, Any]]:
    """The messages that return these results for an answer's calls."""
    pairs = list(zip(read.ids, texts, strict=True))
    if dialect == "openai":
        return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in pairs]
    blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": text} for call_id, text in pairs]
    return [{"role": "user", "content": blocks}]

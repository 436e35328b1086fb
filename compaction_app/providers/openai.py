"""The OpenAI Chat Completions dialect: requests as its servers require them, and their chunks read into an answer.

    chunk … · chunk with finish_reason · chunk with usage · [DONE]

Many servers speak it, each a little differently. Fragments of tool calls are assigned so:

| a fragment with             | and                                          | continues    | or begins      |
|-----------------------------|----------------------------------------------|--------------|----------------|
| an index that is new        |                                              |              | a call         |
| an index that is known      | another id and a name, after a whole call    |              | a call (Ollama) |
| an index that is known      | anything else                                | that call    |                |
| no index, and a known id    |                                              | that call    |                |
| no index, and a name        |                                              |              | a call         |
| no index, and no name       |                                              | the last one |                |

Reasoning comes as `reasoning_content`, `reasoning`, `reasoning_details` or `thinking_blocks`, and is sent back under
the same names.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from compaction_app.core import messages as core_messages

from . import accumulator
from .anthropic import tool_name
from .error_mapping import ProviderFault, Reported, Unreadable
from .types import Endpoint, Piece, ReportedUsage, Request

PATH: Final = "/chat/completions"
_OWN_HOSTS: Final = (".api.openai.com", ".openai.azure.com")
_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_text")
"""Names of reasoning as text. Servers that send the same under two of them require both back."""
_DETAILS: Final = ("reasoning_details", "thinking_blocks")
"""Names of reasoning in parts, with signatures: OpenRouter's, and LiteLLM's for Anthropic's models."""
_DETAIL_TEXTS: Final[Mapping[str, str]] = {
    "reasoning.text": "text",
    "reasoning.summary": "summary",
    "thinking": "thinking",
}
_STOPS: Final[Mapping[str, str]] = {
    "stop": "end",
    "eos": "end",
    "end_turn": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
}


# ---- requests -------------------------------------------------------------------------------------------


def headers_for(endpoint: Endpoint) -> dict[str, str]:
    """Headers of a request, with the key."""
    return {"authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}


def body_of(request: Request, host: str = "") -> dict[str, Any]:
    """The body of a request, ready for JSON. OpenAI's own host uses another name for the output limit."""
    limit = "max_completion_tokens" if f".{host}".endswith(_OWN_HOSTS) else "max_tokens"
    body: dict[str, Any] = {
        "model": request.model,
        limit: request.output_limit,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
    if request.thinking:
        body["reasoning_effort"] = request.thinking
    body["messages"] = _messages(request)
    return body


def _messages(request: Request) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if request.system.strip():
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        if isinstance(message, core_messages.ToolResults):
            messages += [
                {"role": "tool", "tool_call_id": result.call_id, "content": result.text} for result in message.results
            ]
        elif isinstance(message, core_messages.AssistantMessage):
            messages += _answer(message)
        elif message.text.strip():
            _add_user_message(messages, message)
    return messages


def _add_user_message(messages: list[dict[str, Any]], message: core_messages.UserMessage) -> None:
    if messages and messages[-1]["role"] == "user":
        # Templates of local models refuse two turns of one role in a row.
        messages[-1]["content"] += f"\n\n{message.text}"
    else:
        messages.append({"role": "user", "content": message.text})


def _answer(answer: core_messages.AssistantMessage) -> list[dict[str, Any]]:
    text = "".join(part.text for part in answer.parts if isinstance(part, core_messages.TextPart))
    calls = [_call(part) for part in answer.parts if isinstance(part, core_messages.CallPart)]
    if not text.strip() and not calls:
        return []
    message: dict[str, Any] = {"role": "assistant", "content": text if text.strip() else None}
    for part in answer.parts:
        if isinstance(part, core_messages.ThinkingPart):
            message |= part.block
    return [message | ({"tool_calls": calls} if calls else {})]


def _call(call: core_messages.CallPart) -> dict[str, Any]:
    # Servers parse the arguments of earlier calls, and fail if they are not a JSON object.
    is_object = bool(call.arguments.strip()) and isinstance(core_messages.parsed_arguments(call.arguments), dict)
    unparsed = json.dumps({"unparsed": call.arguments}, ensure_ascii=False) if call.arguments.strip() else "{}"
    given = {"name": tool_name(call.name), "arguments": call.arguments if is_object else unparsed}
    return {"id": call.call_id, "type": "function", "function": given}


# ---- the answer -----------------------------------------------------------------------------------------


class OpenAIReader(accumulator.AnswerReader):
    """Reads an answer of OpenAI's dialect: a stream of chunks, or a whole one."""

    def __init__(self, conversation: Sequence[core_messages.Message] = ()) -> None:
        super().__init__(conversation)
        self._text: accumulator.Text | None = None
        self._reasoning: accumulator.Reasoning | None = None
        self._kept: dict[str, accumulator.FragmentBuffer] = {}
        self._details: dict[str, list[_Detail]] = {}
        self._by_index: dict[int, accumulator.AccumulatedCall] = {}
        self._by_id: dict[str, accumulator.AccumulatedCall] = {}
        self._has_refused = False

    def feed(self, event: str, data: str) -> list[Piece]:
        if data.strip() == "[DONE]":
            self.is_done = True
            return []
        return self._read(accumulator.event_object(event, data))

    def feed_whole(self, payload: Mapping[str, Any]) -> list[Piece]:
        if not isinstance(payload.get("choices"), list):
            raise Unreadable("it is JSON without choices")
        pieces = self._read(payload)
        self.is_done = True
        return pieces

    def _close(self) -> list[Piece]:
        if self._reasoning is not None:
            self._reasoning.block = {name: buffer.raw for name, buffer in self._kept.items()}
            for name, details in self._details.items():
                self._reasoning.block[name] = [detail.whole for detail in details]
        if self._has_refused and self.builder.stop == "end":
            self.builder.stop = "refusal"
        return []

    def _read(self, chunk: Mapping[str, Any]) -> list[Piece]:
        pieces: list[Piece] = []
        self._count(accumulator.mapping_of(chunk.get("usage")))
        for choice in map(accumulator.mapping_of, accumulator.list_of(chunk.get("choices"))[:1]):
            if choice.get("index"):
                continue
            self._count(accumulator.mapping_of(choice.get("usage")))
            delta, message = accumulator.mapping_of(choice.get("delta")), accumulator.mapping_of(choice.get("message"))
            payload = delta or message
            pieces += self._read_reasoning(payload)
            pieces += self._read_text(payload)
            for place, fragment in enumerate(accumulator.list_of(payload.get("tool_calls"))):
                # In a message, each one is a complete call.
                numbered = {} if delta else {"index": place}
                pieces += self._read_call({**accumulator.mapping_of(fragment), **numbered})
            self._stop(choice.get("finish_reason"))
        return pieces

    # ---- reasoning and text -----------------------------------------------------------------------------

    def _read_reasoning(self, payload: Mapping[str, Any]) -> list[Piece]:
        shown = ""
        for name in _REASONING:
            fragment = accumulator.text_of(payload.get(name))
            if fragment:
                self.builder.weigh(fragment)
                self._kept.setdefault(name, accumulator.FragmentBuffer()).add(fragment)
                shown = shown or fragment
        details = [
            (name, detail)
            for name in _DETAILS
            for detail in accumulator.list_of(payload.get(name))
            if isinstance(detail, dict)
        ]
        for name, detail in details:
            self.builder.weigh(accumulator.printed(detail))
            kept = self._details.setdefault(name, [])
            if kept and kept[-1].is_continued_by(detail):
                kept[-1].add(detail)
            else:
                kept.append(_Detail(detail))
        if not shown:
            shown = "".join(
                accumulator.text_of(detail.get(_DETAIL_TEXTS.get(str(detail.get("type")), ""))) for _, detail in details
            )
        if (shown or details) and self._reasoning is None:
            self._reasoning = self.builder.open(accumulator.Reasoning())
        return self.builder.add(self._reasoning, shown) if shown and self._reasoning else []

    def _read_text(self, payload: Mapping[str, Any]) -> list[Piece]:
        content = payload.get("content")
        if isinstance(content, list):
            # Mistral's reasoning models send blocks.
            content = "".join(accumulator.text_of(block.get("text")) for block in map(accumulator.mapping_of, content))
        refusal = accumulator.text_of(payload.get("refusal"))
        self._has_refused = self._has_refused or bool(refusal)
        fragment = accumulator.text_of(content) + refusal
        if not fragment:
            return []
        if self._text is None:
            self._text = self.builder.open(accumulator.Text())
        return self.builder.add(self._text, fragment)

    # ---- calls ------------------------------------------------------------------------------------------

    def _read_call(self, fragment: Mapping[str, Any]) -> list[Piece]:
        function = accumulator.mapping_of(fragment.get("function"))
        name, call_id, given = (
            accumulator.text_of(function.get("name")),
            accumulator.text_of(fragment.get("id")),
            function.get("arguments"),
        )
        arguments = given if isinstance(given, str) else "" if given is None else accumulator.printed(given)
        index = fragment.get("index")
        call = self._call_for(index if isinstance(index, int) else None, call_id, name, arguments)
        pieces: list[Piece] = []
        if name and not call.name:
            pieces += self.builder.name_call(call, name)
        return pieces + (self.builder.add(call, arguments) if arguments else [])

    def _call_for(self, index: int | None, call_id: str, name: str, arguments: str) -> accumulator.AccumulatedCall:
        """The call that a fragment continues, or a new one: see the table above."""
        if index is not None:
            call = self._by_index.get(index)
            if call is not None and name and self._is_another(call, call_id, arguments):
                call = None
        else:
            call = self._by_id.get(call_id) or (None if name or not self.builder.calls else self.builder.calls[-1])
        if call is None:
            call = self.builder.open_call(call_id)
        if index is not None:
            self._by_index[index] = call
        if call_id:
            self._by_id[call_id] = call
        return call

    def _is_another(self, call: accumulator.AccumulatedCall, call_id: str, arguments: str) -> bool:
        """Whether a named fragment of a known index begins a call, as from servers that number every call 0."""
        begins = not arguments.strip() or arguments.lstrip().startswith("{")
        if not call.name or not begins:
            return False
        if call_id:
            return self._by_id.get(call_id) is not call and call.buffer.ends_with in ("", "}")
        return call.buffer.ends_with == "}" and bool(arguments.strip())

    # ---- the rest ---------------------------------------------------------------------------------------

    def _stop(self, reason: object) -> None:
        if not isinstance(reason, str) or not reason:
            return
        if reason == "error":
            raise Reported(ProviderFault(0, reason, "the model's provider failed"))
        if reason == "model_context_window_exceeded":
            raise Reported(ProviderFault(0, reason, "the model's context window is full"))
        self.builder.stop = _STOPS.get(reason, reason[: accumulator.STOP_CHARACTERS])

    def _count(self, usage: Mapping[str, Any]) -> None:
        sent, output = (
            accumulator.count_of(usage.get("prompt_tokens")),
            accumulator.count_of(usage.get("completion_tokens")),
        )
        if not sent and not output:
            return
        details = accumulator.mapping_of(usage.get("prompt_tokens_details"))
        read = accumulator.count_of(details.get("cached_tokens")) or accumulator.count_of(
            usage.get("prompt_cache_hit_tokens")
        )
        written = accumulator.count_of(details.get("cache_write_tokens"))
        cost = usage.get("cost")
        is_cost = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e9
        self.builder.usage = ReportedUsage(
            input=max(0, sent - read - written),
            output=output,
            cache_read=read,
            cache_write=written,
            cost=float(cost) if is_cost and isinstance(cost, int | float) else None,
        )


READER: Final = OpenAIReader
"""The name under which `client` finds the reader of any dialect."""


class _Detail:
    """One of OpenRouter's reasoning details, or of LiteLLM's thinking blocks, whose text arrives in fragments."""

    def __init__(self, fragment: Mapping[str, Any]) -> None:
        self._text_name = _DETAIL_TEXTS.get(str(fragment.get("type")), "")
        self._buffer = accumulator.FragmentBuffer()
        self._facts: dict[str, Any] = {}
        self.add(fragment)

    def is_continued_by(self, fragment: Mapping[str, Any]) -> bool:
        same_place = all(self._facts.get(name) == fragment.get(name) for name in ("type", "index"))
        return bool(self._text_name) and same_place and not self._facts.get("signature")

    def add(self, fragment: Mapping[str, Any]) -> None:
        for name, value in fragment.items():
            if name == self._text_name and isinstance(value, str):
                self._buffer.add(value)
            elif self._facts.get(name) in (None, ""):
                self._facts[name] = value

    @property
    def whole(self) -> dict[str, Any]:
        return self._facts | ({self._text_name: self._buffer.raw} if self._buffer else {})

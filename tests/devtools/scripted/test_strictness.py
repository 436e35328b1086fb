"""The scripted provider refuses what the services refuse, with a message: one change of a valid request each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from devtools.scripted.response import Dialect
from devtools.scripted.server import ScriptedProvider
from tests.devtools.scripted.official_clients import TOOLS

Body = dict[str, Any]
ARGUMENTS = '{"pattern": "x"}'


def anthropic_body() -> Body:
    """Two calls and their results, followed by a nudge, and every other field that a client may send."""
    call = {"type": "tool_use", "name": "context_search_transcript", "input": {"pattern": "x"}}
    return {
        "model": "good-plan",
        "max_tokens": 4_096,
        "stream": False,
        "system": [{"type": "text", "text": "Plan.", "cache_control": {"type": "ephemeral"}}],
        "tools": copy.deepcopy(TOOLS["anthropic"]),
        "thinking": {"type": "enabled", "budget_tokens": 2_048},
        "messages": [
            {"role": "user", "content": "Begin."},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "So."}, {**call, "id": "a"}, {**call, "id": "b"}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "{}"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
                    {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
                ],
            },
        ],
    }


def openai_body() -> Body:
    call = {"type": "function", "function": {"name": "context_search_transcript", "arguments": ARGUMENTS}}
    return {
        "model": "good-plan",
        "max_tokens": 4_096,
        "stream": True,
        "stream_options": {"include_usage": True},
        "reasoning_effort": "low",
        "tools": copy.deepcopy(TOOLS["openai"]),
        "messages": [
            {"role": "system", "content": "Plan."},
            {"role": "user", "content": "Begin."},
            {"role": "assistant", "content": "So.", "tool_calls": [{**call, "id": "a"}, {**call, "id": "b"}]},
            {"role": "tool", "tool_call_id": "a", "content": "{}"},
            {"role": "tool", "tool_call_id": "b", "content": "no"},
            {"role": "user", "content": "Go on."},
        ],
    }


BODIES: dict[Dialect, Callable[[], Body]] = {"anthropic": anthropic_body, "openai": openai_body}
PATHS: dict[Dialect, str] = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}


def put(*path: str | int, value: object) -> Callable[[Body], None]:
    """Set the value at a path."""

    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        body[path[-1]] = value

    return change


def drop(*path: str | int) -> Callable[[Body], None]:
    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        del body[path[-1]]

    return change


def move(name: str, start: int, end: int, *path: str | int) -> Callable[[Body], None]:
    """Move an item of a list at a path; `name` is for the test's id."""

    def change(body: Any) -> None:
        for step in path:
            body = body[step]
        body.insert(end, body.pop(start))

    change.__name__ = name
    return change


def add(*path: str | int, value: object) -> Callable[[Body], None]:
    def change(body: Any) -> None:
        for step in path:
            body = body[step]
        body.append(value)

    return change


ANSWER, RESULTS = ("messages", 1), ("messages", 2, "content")
ANTHROPIC: list[tuple[str, Callable[[Body], None], str]] = [
    ("unknown field", put("stream_options", value={}), "stream_options: Extra inputs"),
    ("no max_tokens", drop("max_tokens"), "max_tokens: Field required"),
    ("no model", drop("model"), "model: Field required"),
    ("no messages", put("messages", value=[]), "at least one message"),
    ("max_tokens of nothing", put("max_tokens", value=0), "max_tokens"),
    ("stream as text", put("stream", value="yes"), "stream"),
    ("empty system", put("system", 0, "text", value=""), "non-empty"),
    ("blank prompt", put("messages", 0, "content", value=" \n"), "non-whitespace"),
    ("empty prompt", put("messages", 0, "content", value=""), "non-empty content"),
    ("empty text block", put(*ANSWER, "content", 0, "text", value=""), "non-empty"),
    ("no content at all", put(*ANSWER, "content", value=[]), "non-empty content"),
    (
        "input as text",
        put(*ANSWER, "content", 1, "input", value=ARGUMENTS),
        "input: Input should be a valid dict",
    ),
    ("input as list", put(*ANSWER, "content", 1, "input", value=[]), "input: Input should be a valid dict"),
    ("no input", drop(*ANSWER, "content", 1, "input"), "input: Input should be a valid dict"),
    ("bad id", put(*ANSWER, "content", 1, "id", value="a b"), "id: String should match"),
    ("same id twice", put(*ANSWER, "content", 1, "id", value="b"), "must be unique"),
    ("unknown block field", put(*ANSWER, "content", 1, "index", value=0), "Extra inputs"),
    ("unknown block", put(*ANSWER, "content", 0, value={"type": "reasoning"}), "Input tag 'reasoning'"),
    ("result missing", drop(*RESULTS, 1), "without `tool_result` blocks immediately after: b"),
    ("result of no call", put(*RESULTS, 0, "tool_use_id", value="z"), "unexpected `tool_use_id`"),
    ("result twice", put(*RESULTS, 1, "tool_use_id", value="a"), "single result"),
    (
        "text before results",
        move("text first", 2, 0, *RESULTS),
        "without `tool_result` blocks immediately after",
    ),
    (
        "text between results",
        move("text between", 2, 1, *RESULTS),
        "without `tool_result` blocks immediately",
    ),
    ("empty error result", put(*RESULTS, 1, "content", value=""), "content cannot be empty"),
    ("two user messages", add("messages", value={"role": "user", "content": "Now."}), "roles must alternate"),
    (
        "answer at the end",
        add("messages", value={"role": "assistant", "content": "Then"}),
        "must end with a user message",
    ),
    ("answer first", drop("messages", 0), 'first message must use the "user" role'),
    ("system role", put("messages", 0, "role", value="system"), "Unexpected role"),
    (
        "thought behind text",
        add(*ANSWER, "content", value={"type": "redacted_thinking", "data": ""}),
        "Invalid `data`",
    ),
    (
        "thought without signature",
        put(*ANSWER, "content", 0, value={"type": "thinking", "thinking": "x", "signature": "y"}),
        "Invalid `signature`",
    ),
    ("budget too small", put("thinking", "budget_tokens", value=1_000), "greater than or equal to 1024"),
    (
        "budget too large",
        put("thinking", "budget_tokens", value=4_096),
        "must be greater than `thinking.budget",
    ),
    ("unknown effort", put("output_config", value={"effort": "minimal"}), "output_config.effort"),
    ("forced with thoughts", put("tool_choice", value={"type": "any"}), "tool_choice forces"),
    ("no tools", drop("tools"), "must define tools"),
    ("tool named twice", put("tools", 0, "name", value="context_delete"), "names must be unique"),
    ("tool with a space", put("tools", 0, "name", value="a b"), "name: String should match"),
    ("tool of the other dialect", put("tools", 0, value=TOOLS["openai"][0]), "tools.0"),
    ("schema of a list", put("tools", 0, "input_schema", "type", value="array"), "input_schema.type"),
    (
        "schema that requires what is not there",
        put("tools", 0, "input_schema", "required", value=["nothing"]),
        "required lists an unknown property",
    ),
    (
        "cache mark of a kind",
        put("system", 0, "cache_control", value={"type": "persistent"}),
        "cache_control: Input tag",
    ),
    (
        "five cache marks",
        lambda body: [tool.update(cache_control={"type": "ephemeral"}) for tool in body["tools"]] and None,
        "A maximum of 4 blocks",
    ),
]
OPENAI: list[tuple[str, Callable[[Body], None], str]] = [
    ("unknown field", put("thinking", value={}), "Unknown parameter: 'thinking'"),
    ("no model", drop("model"), "you must provide a model"),
    ("no messages", put("messages", value=[]), "empty array"),
    ("both limits", put("max_completion_tokens", value=10), "at the same time"),
    ("max_tokens of nothing", put("max_tokens", value=0), "below minimum value"),
    ("unknown effort", put("reasoning_effort", value="most"), "Invalid value: 'most'"),
    ("stream options without a stream", put("stream", value=False), "only allowed when 'stream'"),
    ("unknown stream option", put("stream_options", "usage", value=True), "stream_options"),
    ("no tools", put("tools", value=[]), "empty array"),
    (
        "choice without tools",
        lambda body: body.pop("tools") and body.update(tool_choice="auto"),
        "tool_choice",
    ),
    ("tool of the other dialect", put("tools", 0, value=TOOLS["anthropic"][0]), "tools[0].function"),
    ("tool with a dot", put("tools", 0, "function", "name", value="a.b"), "String should match"),
    (
        "strict with optional arguments",
        put("tools", 0, "function", "strict", value=True),
        "including every key in properties",
    ),
    (
        "array without items",
        put("tools", 0, "function", "parameters", "properties", "pattern", value={"type": "array"}),
        "array schema missing items",
    ),
    (
        "arguments as object",
        put("messages", 2, "tool_calls", 0, "function", "arguments", value={}),
        "expected a string",
    ),
    ("no id", drop("messages", 2, "tool_calls", 0, "id"), "tool_calls[0]"),
    ("index left in", put("messages", 2, "tool_calls", 0, "index", value=0), "tool_calls[0]"),
    ("no calls in the list", put("messages", 2, "tool_calls", value=[]), "empty array"),
    ("same id twice", put("messages", 2, "tool_calls", 0, "id", value="b"), "Duplicate value"),
    (
        "no content and no calls",
        put("messages", 2, value={"role": "assistant", "content": None}),
        "expected a string",
    ),
    ("result missing", drop("messages", 4), "did not have response messages: b"),
    (
        "result twice",
        put("messages", 4, "tool_call_id", value="a"),
        "must be a response to a preceeding message",
    ),
    (
        "result of no call",
        put("messages", 3, "tool_call_id", value="z"),
        "must be a response to a preceeding message",
    ),
    (
        "nudge before the results",
        move("nudge first", 5, 3, "messages"),
        "did not have response messages: a, b",
    ),
    ("result without content", put("messages", 3, "content", value=None), "expected a string"),
    ("result with a flag", put("messages", 3, "is_error", value=True), "Unknown parameter"),
    ("unknown role", put("messages", 0, "role", value="model"), "Invalid value: 'model'"),
    (
        "answer at the end",
        add("messages", value={"role": "assistant", "content": "Then"}),
        "must end with a user",
    ),
    ("answer before the prompt", drop("messages", 1), "the first message after the system's"),
]


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as serving:
        yield serving


def post(provider: ScriptedProvider, dialect: Dialect, body: Body, **headers: str) -> httpx.Response:
    sent = {"anthropic-version": "2023-06-01"} if dialect == "anthropic" else {}
    address = provider.base_url("anthropic") + PATHS[dialect]
    return httpx.post(address, json=body, headers={**sent, **headers}, trust_env=False)


@pytest.mark.parametrize("dialect", BODIES)
def test_a_valid_request_is_answered(provider: ScriptedProvider, dialect: Dialect) -> None:
    answer = post(provider, dialect, BODIES[dialect]())
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("change", "words"), [case[1:] for case in ANTHROPIC], ids=[case[0] for case in ANTHROPIC]
)
def test_anthropics_dialect_refuses(
    provider: ScriptedProvider, change: Callable[[Body], None], words: str
) -> None:
    body = anthropic_body()
    change(body)
    answer = post(provider, "anthropic", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert words in answer.json()["error"]["message"]
    assert provider.faults[-1] == answer.json()["error"]["message"]


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in OPENAI], ids=[case[0] for case in OPENAI])
def test_openais_dialect_refuses(
    provider: ScriptedProvider, change: Callable[[Body], None], words: str
) -> None:
    body = openai_body()
    change(body)
    answer = post(provider, "openai", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert words in answer.json()["error"]["message"]


def test_anthropics_version_header_is_required(provider: ScriptedProvider) -> None:
    answer = post(provider, "anthropic", anthropic_body(), **{"anthropic-version": ""})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400,
        "anthropic-version: header is required",
    )


@pytest.mark.parametrize("dialect", BODIES)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe"])
def test_anything_but_an_object_is_refused(provider: ScriptedProvider, dialect: Dialect, body: bytes) -> None:
    answer = httpx.post(
        provider.base_url("anthropic") + PATHS[dialect],
        content=body,
        headers={"anthropic-version": "2023-06-01"} if dialect == "anthropic" else {},
        trust_env=False,
    )
    assert answer.status_code == 400


@pytest.mark.parametrize("path", ["/", "/messages", "/v1/v1/messages", "/v1/complete", "/v1/models/none"])
def test_an_unknown_path_is_404_with_an_explanation(provider: ScriptedProvider, path: str) -> None:
    for headers in ({}, {"anthropic-version": "2023-06-01"}):
        answer = httpx.post(provider.base_url("anthropic") + path, json={}, headers=headers, trust_env=False)
        assert answer.status_code == 404
        assert answer.json()["error"]["message"]
    assert httpx.get(provider.base_url("openai") + "/chat/completions", trust_env=False).status_code == 404

"""The scripted provider refuses what the services refuse, with a message: one change of a valid request each."""

import copy
import functools
import json
import operator
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from compaction_app.scripted.request import Dialect
from compaction_app.scripted.server import ScriptedProvider
from tests.compaction_app.scripted.official_clients import PATHS, TOOLS

Body = dict[str, Any]
ARGUMENTS = '{"pattern": "x"}'


def anthropic_body() -> Body:
    """Two calls and their results, followed by a nudge, and every other field that a client may send."""
    call = {"type": "tool_use", "name": "context_search_transcript", "input": {"pattern": "x"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "{}"}
    said = [{"type": "text", "text": "So."}, {**call, "id": "a"}, {**call, "id": "b"}]
    nudge = {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}
    found = [result, {**result, "tool_use_id": "b", "content": "no", "is_error": True}, nudge]
    return {
        "model": "good-plan",
        "max_tokens": 4_096,
        "stream": False,
        "system": [{"type": "text", "text": "Plan.", "cache_control": {"type": "ephemeral"}}],
        "tools": copy.deepcopy(TOOLS["anthropic"]),
        "thinking": {"type": "enabled", "budget_tokens": 2_048},
        "messages": [
            {"role": "user", "content": "Begin."},
            {"role": "assistant", "content": said},
            {"role": "user", "content": found},
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


def at(path: str, act: Callable[[Any, Any], object]) -> Callable[[Body], None]:
    """A change of what is at a path such as `messages.1.content`: of its container, and its key there."""
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))

    def change(body: Body) -> None:
        act(functools.reduce(operator.getitem, steps, body), last)

    return change


def put(path: str, value: object) -> Callable[[Body], None]:
    return at(path, lambda container, key: operator.setitem(container, key, value))


def drop(path: str) -> Callable[[Body], None]:
    return at(path, operator.delitem)


def move(path: str, start: int, end: int) -> Callable[[Body], None]:
    return at(path, lambda container, key: container[key].insert(end, container[key].pop(start)))


def add(path: str, value: object) -> Callable[[Body], None]:
    return at(path, lambda container, key: container[key].append(value))


UNANSWERED = "without `tool_result` blocks immediately after"
NO_CALL = "must be a response to a preceeding message"
SEALED, FORGED = ({"type": "redacted_thinking", "data": ""}, {"type": "thinking", "thinking": "x", "signature": "y"})
MARK = {"cache_control": {"type": "ephemeral"}}
THEN = {"role": "assistant", "content": "Then"}
ANTHROPIC: list[tuple[str, Callable[[Body], None], str]] = [
    ("unknown field", put("stream_options", {}), "stream_options: Extra inputs"),
    ("no max_tokens", drop("max_tokens"), "max_tokens: Field required"),
    ("no model", drop("model"), "model: Field required"),
    ("no messages", put("messages", []), "at least one message"),
    ("max_tokens of nothing", put("max_tokens", 0), "max_tokens"),
    ("stream as text", put("stream", "yes"), "stream"),
    ("empty system", put("system.0.text", ""), "non-empty"),
    ("blank prompt", put("messages.0.content", " \n"), "non-whitespace"),
    ("empty prompt", put("messages.0.content", ""), "non-empty content"),
    ("empty text block", put("messages.1.content.0.text", ""), "non-empty"),
    ("no content at all", put("messages.1.content", []), "non-empty content"),
    ("input as text", put("messages.1.content.1.input", ARGUMENTS), "input: Input should be a valid dict"),
    ("input as list", put("messages.1.content.1.input", []), "input: Input should be a valid dict"),
    ("no input", drop("messages.1.content.1.input"), "input: Input should be a valid dict"),
    ("bad id", put("messages.1.content.1.id", "a b"), "id: String should match"),
    ("same id twice", put("messages.1.content.1.id", "b"), "must be unique"),
    ("unknown block field", put("messages.1.content.1.index", 0), "Extra inputs"),
    ("unknown block", put("messages.1.content.0", {"type": "reasoning"}), "Input tag 'reasoning'"),
    ("result missing", drop("messages.2.content.1"), f"{UNANSWERED}: b"),
    ("result of no call", put("messages.2.content.0.tool_use_id", "z"), "unexpected `tool_use_id`"),
    ("result twice", put("messages.2.content.1.tool_use_id", "a"), "single result"),
    ("text before results", move("messages.2.content", 2, 0), UNANSWERED),
    ("text between results", move("messages.2.content", 2, 1), UNANSWERED),
    ("empty error result", put("messages.2.content.1.content", ""), "content cannot be empty"),
    ("two user messages", add("messages", {"role": "user", "content": "Now."}), "roles must alternate"),
    ("answer at the end", add("messages", THEN), "must end with a user message"),
    ("answer first", drop("messages.0"), 'first message must use the "user" role'),
    ("system role", put("messages.0.role", "system"), "Unexpected role"),
    ("thought behind text", add("messages.1.content", SEALED), "Invalid `data`"),
    ("thought without signature", put("messages.1.content.0", FORGED), "Invalid `signature`"),
    ("budget too small", put("thinking.budget_tokens", 1_000), "greater than or equal to 1024"),
    ("budget too large", put("thinking.budget_tokens", 4_096), "must be greater than `thinking.budget"),
    ("unknown effort", put("output_config", {"effort": "minimal"}), "output_config.effort"),
    ("forced with thoughts", put("tool_choice", {"type": "any"}), "tool_choice forces"),
    ("no tools", drop("tools"), "must define tools"),
    ("tool named twice", put("tools.0.name", "context_delete"), "names must be unique"),
    ("tool with a space", put("tools.0.name", "a b"), "name: String should match"),
    ("tool of the other dialect", put("tools.0", TOOLS["openai"][0]), "tools.0"),
    ("schema of a list", put("tools.0.input_schema.type", "array"), "input_schema.type"),
    ("requires nothing", put("tools.0.input_schema.required", ["nothing"]), "lists an unknown property"),
    ("unknown cache mark", put("system.0.cache_control", {"type": "persistent"}), "cache_control: Input tag"),
    ("five cache marks", lambda body: [tool.update(MARK) for tool in body["tools"]] and None, "A maximum of 4 blocks"),
]
PROPERTIES = "tools.0.function.parameters.properties"
OPENAI: list[tuple[str, Callable[[Body], None], str]] = [
    ("unknown field", put("thinking", {}), "Unknown parameter: 'thinking'"),
    ("no model", drop("model"), "you must provide a model"),
    ("no messages", put("messages", []), "empty array"),
    ("both limits", put("max_completion_tokens", 10), "at the same time"),
    ("max_tokens of nothing", put("max_tokens", 0), "below minimum value"),
    ("unknown effort", put("reasoning_effort", "most"), "Invalid value: 'most'"),
    ("stream options without a stream", put("stream", value=False), "only allowed when 'stream'"),
    ("unknown stream option", put("stream_options.usage", value=True), "stream_options"),
    ("no tools", put("tools", []), "empty array"),
    ("choice without tools", lambda body: body.pop("tools") and body.update(tool_choice="auto"), "tool_choice"),
    ("tool of the other dialect", put("tools.0", TOOLS["anthropic"][0]), "tools[0].function"),
    ("tool with a dot", put("tools.0.function.name", "a.b"), "String should match"),
    ("optional but strict", put("tools.0.function.strict", value=True), "including every key in properties"),
    ("array without items", put(f"{PROPERTIES}.pattern", {"type": "array"}), "array schema missing items"),
    ("arguments as object", put("messages.2.tool_calls.0.function.arguments", {}), "expected a string"),
    ("no id", drop("messages.2.tool_calls.0.id"), "tool_calls[0]"),
    ("index left in", put("messages.2.tool_calls.0.index", 0), "tool_calls[0]"),
    ("no calls in the list", put("messages.2.tool_calls", []), "empty array"),
    ("same id twice", put("messages.2.tool_calls.0.id", "b"), "Duplicate value"),
    ("nothing said", put("messages.2", {"role": "assistant", "content": None}), "expected a string"),
    ("result missing", drop("messages.4"), "did not have response messages: b"),
    ("result twice", put("messages.4.tool_call_id", "a"), NO_CALL),
    ("result of no call", put("messages.3.tool_call_id", "z"), NO_CALL),
    ("nudge before the results", move("messages", 5, 3), "did not have response messages: a, b"),
    ("result without content", put("messages.3.content", None), "expected a string"),
    ("result with a flag", put("messages.3.is_error", value=True), "Unknown parameter"),
    ("unknown role", put("messages.0.role", "model"), "Invalid value: 'model'"),
    ("answer at the end", add("messages", THEN), "must end with a user"),
    ("answer before the prompt", drop("messages.1"), "the first message after the system's"),
]


@pytest.fixture(scope="module")
def provider():
    with ScriptedProvider() as serving:
        yield serving


def post(provider: ScriptedProvider, dialect: Dialect, body: Body | bytes, **headers: str) -> httpx.Response:
    sent = {"anthropic-version": "2023-06-01"} if dialect == "anthropic" else {}
    address = provider.base_url("anthropic") + PATHS[dialect]
    content = body if isinstance(body, bytes) else json.dumps(body)
    return httpx.post(address, content=content, headers={**sent, **headers}, trust_env=False)


@pytest.mark.parametrize("dialect", BODIES)
def test_a_valid_request_is_answered(provider, dialect):
    answer = post(provider, dialect, BODIES[dialect]())
    assert answer.status_code == 200, answer.text


CASES = [
    pytest.param(dialect, change, words, id=f"{dialect} {name}")
    for dialect, cases in (("anthropic", ANTHROPIC), ("openai", OPENAI))
    for name, change, words in cases
]


@pytest.mark.parametrize(("dialect", "change", "words"), CASES)
def test_each_dialect_refuses(provider, dialect, change, words):
    body = BODIES[dialect]()
    change(body)
    answer = post(provider, dialect, body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]
    assert provider.faults[-1] == error["message"]


def test_anthropics_version_header_and_an_object_are_required(provider):
    answer = post(provider, "anthropic", anthropic_body(), **{"anthropic-version": ""})
    message = answer.json()["error"]["message"]
    assert (answer.status_code, message) == (400, "anthropic-version: header is required")
    for dialect in BODIES:
        for body in (b"", b"{", b"[]", b"\xff\xfe"):
            assert post(provider, dialect, body).status_code == 400, (dialect, body)


def test_an_unknown_path_is_404_with_an_explanation(provider):
    for path in ("/", "/messages", "/v1/v1/messages", "/v1/complete", "/v1/models/none"):
        for headers in ({}, {"anthropic-version": "2023-06-01"}):
            address = provider.base_url("anthropic") + path
            answer = httpx.post(address, json={}, headers=headers, trust_env=False)
            assert (answer.status_code, bool(answer.json()["error"]["message"])) == (404, True), path
    assert httpx.get(provider.base_url("openai") + "/chat/completions", trust_env=False).status_code == 404

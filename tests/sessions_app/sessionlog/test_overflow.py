"""The overflow rule: providers' reports of a context that is too long are recognised, and nothing else is."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.context import (
    ANY_WINDOW,
    OVERFLOWS,
    READ_CHARACTERS,
    Tally,
    has_overflown,
    overflown_window,
    tells_overflow,
    why_due,
)
from sessions_app.sessionlog.entries import Entry
from tests.factories import assistant, chain, compaction, session_log, text, user, whole
from tests.sessions_app.sessionlog.test_context import rebuilt_tally

WORDS = {
    "Anthropic": [
        "prompt is too long: 213462 tokens > 200000 maximum",
        "prompt is too long: 429429 tokens > 200000 maximum",
        '400 {"error":{"type":"invalid_request_error","message":"prompt is too long: 2 tokens > 1 maximum"}}',
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    ],
    "Anthropic, by bytes": ['413 {"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}'],
    "OpenAI": [
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        '400 {"error":{"code":"context_length_exceeded"}}',
        "Codex error: context window exceeded",
    ],
    "OpenAI, OpenRouter, DeepSeek, vLLM": [
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens.",
        "400 This endpoint's maximum context length is 131,072 tokens. However, you requested about 140000 tokens.",
    ],
    "SGLang": [
        "Requested token count exceeds the model's maximum context length of 131072 tokens.",
        "Input length (265330) exceeds model's maximum context length (262144).",
        "the input length exceeds the context length",
    ],
    "vLLM": [
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
    ],
    "Google": ["The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."],
    "xAI": ["This model's maximum prompt length is 131072 but the request contains 537812 tokens."],
    "Groq": ["Please reduce the length of the messages or completion."],
    "Bedrock": [
        "ValidationException: Input is too long for requested model.",
        "Too many input tokens. Max input tokens: 8192, request input token count: 9279",
    ],
    "Mistral": [
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"
    ],
    "Copilot": [
        "prompt token count of 130000 exceeds the limit of 128000",
        '{"error":{"code":"model_max_prompt_tokens_exceeded"}}',
    ],
    "llama.cpp": [
        "the request exceeds the available context size, try increasing it",
        "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
    ],
    "Ollama": ["prompt too long; exceeded max context length by 120 tokens"],
    "LM Studio": [
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "However, the model is loaded with context length of only 32768 tokens, which is not enough.",
    ],
    "MLX": ["Prompt has 5,000 tokens, but the configured context size is 4,096 tokens"],
    "MiniMax": ["invalid params, context window exceeds limit (2013)"],
    "Kimi": ["Your request exceeded model token limit: 262144 (requested: 300000)"],
    "Z.ai": ["Prompt exceeds max length"],
    "Qwen": ["<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]"],
    "Cohere": ["too many tokens: total number of tokens in the prompt cannot exceed 4081"],
    "Hugging Face": [
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 32769.",
    ],
    "Cerebras, Mistral": ["413 status code (no body)", "400 (no body)"],
}
OTHER = [
    *("", "Request was aborted.", "terminated", "fetch failed", "529 overloaded_error: Overloaded"),
    *("429 status code (no body)", "500 status code (no body)"),
    '401 {"error":{"message":"invalid x-api-key"}}',
    "Rate limit reached for model llama on tokens per minute (TPM): Limit 6000, Used 5000. Please try again in 12s.",
    "Request too large for gpt-4 on tokens per min (TPM): Limit 10000, Requested 12000.",
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "Throttling error: Too many input tokens",
    "You exceeded your current quota, please check your plan and billing details.",
    "429 Too Many Requests: prompt is too long for the remaining budget",
    "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens",
    "image exceeds the limit of 5 MB",
    "Your credit balance is too low to access the API.",
    "messages: final assistant content cannot end with trailing whitespace",
    "tool call arguments are too long",
]
WINDOW = 200_000


def test_every_provider_in_the_table_has_an_example_that_its_pattern_matches():
    assert [who for who, _ in OVERFLOWS] == list(WORDS)
    for who, pattern in OVERFLOWS:
        for words in WORDS[who]:
            assert pattern.search(words.lower()), words
            assert tells_overflow(words)
            assert tells_overflow(f"Error:\n  {words.upper()}")


def test_other_faults_are_no_overflows_and_only_the_beginning_of_a_very_long_message_is_read():
    assert list(filter(tells_overflow, OTHER)) == []
    for words in ("input token count " * 100_000, "exceeds the " * 100_000, "4" * 1_000_000):
        # A backtracking pattern would take longer than a test may.
        assert not tells_overflow(words)
    assert not tells_overflow("x" * READ_CHARACTERS + " prompt is too long")


@pytest.mark.parametrize(
    ("stop", "error", "sent", "output", "overflown"),
    [
        ("error", "prompt is too long", 0, 0, True),
        ("error", "fetch failed", WINDOW + 1, 0, False),
        ("stop", "prompt is too long", 0, 0, False),
        ("aborted", "prompt is too long", WINDOW + 1, 0, False),
        ("stop", "", WINDOW, 10, False),
        ("stop", "", WINDOW + 1, 10, True),
        ("toolUse", "", WINDOW + 1, 10, False),
        ("length", "", WINDOW, 1, False),
        ("length", "", WINDOW * 99 // 100, 0, True),
        ("length", "", WINDOW * 99 // 100 - 1, 0, False),
        ("length", "", 0, 0, False),
    ],
)
def test_a_message_overflows_a_window_as_the_agent_judges_it(stop, error, sent, output, overflown):
    assert has_overflown(overflown_window(stop, error, sent, output), WINDOW) is overflown


def test_an_error_message_needs_no_window():
    overflow = overflown_window("error", "prompt is too long", 0, 0)
    assert overflow == ANY_WINDOW
    assert has_overflown(overflow, None)
    assert has_overflown(overflow, 10**9)
    assert not has_overflown(overflown_window("stop", "", WINDOW, 1), None)


@pytest.mark.parametrize(
    ("tokens", "overflow", "window", "why"),
    [
        *((90, None, 100, "threshold"), (80, None, 100, ""), (90, None, None, ""), (None, None, 100, "")),
        *((10, ANY_WINDOW, 100, "overflow"), (10, ANY_WINDOW, None, "overflow")),
        *((90, 99, 100, "threshold"), (90, 100, 100, "overflow")),
    ],
)
def test_a_session_is_due_once(tokens, overflow, window, why):
    assert why_due(tokens, overflow, window, reserve_tokens=15) == why


SMALL, LARGE = {"provider": "p", "model": "small"}, {"provider": "p", "model": "large"}
TOO_LONG = assistant(stopReason="error", errorMessage="prompt is too long: 3 tokens > 2 maximum", **SMALL)
ANSWER = assistant(text("yes"), **SMALL)
SWITCH, SWITCH_BACK = ({"type": "model_change", "provider": "p", "modelId": model} for model in ("large", "small"))


def tally_of(entries: list[Entry], reader: str = "atomic-0.8") -> Tally:
    return rebuilt_tally(READERS[reader], entries)


def overflow_of(*messages: dict[str, Any], reader: str = "atomic-0.8") -> int | None:
    return tally_of(session_log(chain(*messages)).entries, reader).overflow


def test_the_last_assistant_of_the_branch_counts_for_its_own_model():
    assert overflow_of(user("x")) is None
    overflown = (user("x"), TOO_LONG)
    for then in ((), (user("and now?"),), (SWITCH, SWITCH_BACK)):
        assert overflow_of(*overflown, *then) == ANY_WINDOW
    ended = (user("and now?"), ANSWER), (assistant(stopReason="aborted", **SMALL),)
    for then in (*ended, (SWITCH,), (SWITCH, assistant(text("yes"), **LARGE))):
        assert overflow_of(*overflown, *then) is None, then


def test_an_honoured_compaction_ends_an_overflow_and_another_branch_does_not_count():
    ended = [user("x"), ANSWER, TOO_LONG, compaction(whole("e2"))]
    assert overflow_of(*ended) is None
    assert overflow_of(*ended, reader="pi") == ANY_WINDOW, "pi ignores it, so the context is as long as it was"
    assert overflow_of(*ended, user("x"), TOO_LONG) == ANY_WINDOW
    recorded = chain(user("x"), TOO_LONG, user("another way"))
    recorded[3]["parentId"] = "e1"
    assert tally_of(session_log(recorded).entries).overflow is None


steps = st.lists(
    st.sampled_from([user("x"), TOO_LONG, ANSWER, SWITCH, SWITCH_BACK, assistant(stopReason="aborted", **LARGE)])
    | st.builds(
        lambda sent, stop, output: assistant(
            **SMALL, stopReason=stop, usage={"input": sent, "cacheRead": 5, "output": output}
        ),
        st.integers(-5, 10),
        st.sampled_from(["stop", "length", "toolUse"]),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=8,
)


@given(steps, st.sampled_from(sorted(READERS)))
def test_the_incremental_overflow_is_that_of_the_branch(messages, reader):
    entries = session_log(chain(*messages)).entries
    tally = Tally()
    for end, entry in enumerate(entries, 1):
        assert tally.carries(entry)
        tally.add(entry)
        assert tally.overflow == tally_of(entries[:end], reader).overflow
        tally = msgspec.convert(msgspec.to_builtins(tally), Tally)


@pytest.mark.parametrize("error", [None, 7, [], {"a": 1}, "\ud800", "x" * 10_000_000])
def test_any_error_value_can_be_read(error):
    said = assistant(stopReason="error", errorMessage=error, usage={"input": "many", "cacheRead": None})
    assert overflow_of(user("x"), said) is None

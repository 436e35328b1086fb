"""Errors of providers in their own words, and the messages that a user sees."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from compaction_app.providers import error_mapping
from compaction_app.providers.error_mapping import Broken, Overflow, ProviderError, QuotaUsed, Rejected, Unavailable
from compaction_app.providers.types import Dialect, Endpoint

KEY = "sk-proj-Abc123Def456Ghi789Jkl0wxyz"
ENDPOINT = Endpoint("p", "openai", "https://api.example.com/v1", KEY)


def error_for(status: int, body: dict[str, Any] | str, dialect: Dialect = "openai", key: str = KEY) -> ProviderError:
    raw = body if isinstance(body, str) else json.dumps(body)
    fault = error_mapping.fault_of(status, raw.startswith("<"), raw.encode())
    return error_mapping.error_of(fault, Endpoint("p", dialect, "https://api.example.com", key), "m-1")


def anthropic(kind: str, words: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_1"}


def openai(words: str, kind: str | None = None, code: str | int | None = None) -> dict[str, Any]:
    return {"error": {"message": words, "type": kind, "param": None, "code": code}}


OVERFLOWS = [
    (400, anthropic("invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum")),
    (400, anthropic("invalid_request_error",
        "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000")),
    (413, anthropic("request_too_large", "Request exceeds the maximum size")),
    (413, "<html><h1>413 Request Entity Too Large</h1></html>"),
    (400, openai("Your input exceeds the context window of this model.", "invalid_request_error",
        "context_length_exceeded")),
    (400,
        openai("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.")),
    (400, openai("the request exceeds the available context size, try increasing it", "exceed_context_size_error",
        400)),
    (500, openai("the request exceeds the available context size", "exceed_context_size_error", 500)),
    (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400}),
    (400, {"error":
        "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded "
        "with context length of only 4096 tokens"}),
    (400, {"error": "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"}),
    (400, openai("The number of tokens to keep from the initial prompt is greater than the context length.")),
    (429, openai(
        "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 50000.",
        "tokens", "rate_limit_exceeded")),
    (413, openai("Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 9000",
        "tokens", "rate_limit_exceeded")),
]  # fmt: skip
QUOTAS = [
    (400, anthropic("invalid_request_error", "Your credit balance is too low to access the Anthropic API.")),
    (400, anthropic("invalid_request_error",
        "You have reached your specified API usage limits. You will regain access on 2030-01-01")),
    (402, anthropic("billing_error", "Payment required")),
    (429, openai("You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota", "insufficient_quota")),
    (429, openai("Billing hard limit has been reached", "invalid_request_error", "billing_hard_limit_reached")),
    (402, openai("Insufficient Balance", "unknown_error", "invalid_request_error")),
    (402, openai("This request requires more credits, or fewer max_tokens.", code=402)),
    (403, openai("Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys",
        code=403)),
]  # fmt: skip
UNAVAILABLES = [
    (529, anthropic("overloaded_error", "Overloaded"), "overloaded"),
    (500, anthropic("api_error", "Internal server error"), "unavailable"),
    (429, anthropic("rate_limit_error",
        "This request would exceed your organization's rate limit of 40,000 input tokens per minute"),
        "rate_limited"),
    (429, openai("Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 5000. "
        "Please try again in 8s.", "tokens", "rate_limit_exceeded"), "rate_limited"),
    (503, openai("Loading model", "unavailable_error", 503), "unavailable"),
    (502, "<html><title>502 Bad Gateway</title></html>", "unavailable"),
    (408, "", "unavailable"),
    (409, "{", "unavailable"),
    (599, "\xff", "unavailable"),
]  # fmt: skip
REJECTIONS = [
    (401, anthropic("authentication_error", "invalid x-api-key"), "wrong_key"),
    (401, openai("Incorrect API key provided: sk-proj-********wxyz.", "invalid_request_error", "invalid_api_key"),
        "wrong_key"),
    (404, anthropic("not_found_error", "model: claude-none"), "unknown_model"),
    (404, openai("The model `gpt-none` does not exist or you do not have access to it.", "invalid_request_error",
        "model_not_found"), "unknown_model"),
    (404, openai('model "none" not found, try pulling it first', "api_error"), "unknown_model"),
    (400, openai("x/none-4.1 is not a valid model ID", code=400), "unknown_model"),
    (400, openai("Invalid model name passed in model=none. Call `/v1/models` to view available models"),
        "unknown_model"),
    (404, {"object": "error", "message": "The model `none` does not exist.", "type": "NotFoundError", "code": 404},
        "unknown_model"),
    (404, {"detail": "Not Found"}, "not_this_dialect"),
    (404, "404 page not found", "not_this_dialect"),
    (404, "<!doctype html><title>my model of the world</title>", "not_this_dialect"),
    (405, "", "not_this_dialect"),
    (400, openai("registry.ollama.ai/library/gemma:2b does not support tools", "api_error"), "no_tools"),
    (404, openai("No endpoints found that support tool use. To learn more about provider routing", code=404),
        "no_tools"),
    (400, {"object": "error", "message":
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'}, "no_tools"),
    (500, openai("tools param requires --jinja flag", "server_error", 500), "no_tools"),
    (403, openai("Your request was flagged"), "not_allowed"),
    (400, openai("Unsupported value: 'reasoning_effort' does not support 'xhigh'", "invalid_request_error",
        "unsupported_value"), "rejected"),
    (422, {"detail": [{"loc": ["body", "tools"], "msg": "extra fields not permitted"}]}, "rejected"),
    (418, "", "rejected"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), OVERFLOWS)
def test_an_overflow_is_recognized_for_every_provider(status, body):
    assert isinstance(error_for(status, body), Overflow)


@pytest.mark.parametrize(("status", "body"), QUOTAS)
def test_an_exhausted_quota_is_not_a_rate_limit(status, body):
    assert isinstance(error_for(status, body), QuotaUsed)


@pytest.mark.parametrize(("status", "body", "code"), UNAVAILABLES)
def test_temporary_faults_are_unavailable(status, body, code):
    error = error_for(status, body)
    assert isinstance(error, Unavailable)
    assert error.code == code
    assert f"({status})" in error.message


@pytest.mark.parametrize(("status", "body", "code"), REJECTIONS)
def test_permanent_faults_are_rejected_with_advice(status, body, code):
    error = error_for(status, body)
    assert isinstance(error, Rejected)
    assert error.code == code
    assert error.advice
    assert error.message == f"{error.what} {error.advice}"


def test_without_a_key_a_401_reports_that_one_is_required_and_no_web_page_is_quoted():
    error = error_for(401, "", key="")
    assert error.code == "no_key"
    assert error.message.startswith("api.example.com wants a key (401).")
    assert "Bad Gateway" not in error_for(502, "<html><title>502 Bad Gateway</title></html>").message


def test_an_unknown_error_inside_a_stream_is_broken_and_the_other_dialect_gets_advice():
    fault = error_mapping.fault_in({"error": {"message": "something odd"}})
    assert fault == error_mapping.ProviderFault(0, "", "something odd")
    assert isinstance(error_mapping.error_of(fault, ENDPOINT, "m-1"), Broken)
    assert "An Anthropic base URL ends before /v1" in error_for(404, "", "anthropic").message
    assert "mostly ends with /v1" in error_for(404, "", "openai").message


@pytest.mark.parametrize(
    "body_said", [None, [], "x", 3, {}, {"error": None}, {"error": ""}, {"error": {}}, {"type": "message"}]
)
def test_a_response_without_an_error_is_not_an_error(body_said):
    assert error_mapping.fault_in(body_said) is None


@pytest.mark.parametrize(
    "junk", [3, True, [], ["x"], {"a": 1}, "x" * 100_000, "[" * 100_000, {"message": {"a": [1]}}, {"code": {}}]
)
def test_no_form_of_an_error_crashes(junk):
    raw = json.dumps({"error": junk, "message": junk}).encode()
    for status in (0, 400, 404, 429, 500):
        assert len(error_mapping.error_of(error_mapping.fault_of(status, False, raw), ENDPOINT, "m-1").message) < 1_000
    error_mapping.fault_of(400, False, b'{"error":' * 50_000)


def shows_key(text: str) -> bool:
    """Whether a text shows more of the key than its last four characters."""
    return any(KEY[start : start + 8] in text for start in range(len(KEY) - 7)) or KEY[-5:] in text


@pytest.mark.parametrize(
    "words",
    [
        f"Incorrect API key provided: {KEY}. Check it.", f"{KEY}{KEY}", f"Bearer {KEY[:20]}", f"…{KEY[9:]}…",
        " " * 250 + "x" * 290 + f" {KEY}", KEY[:10] + "\u200b" + KEY[10:],
        "\x1b[31m".join(KEY[start : start + 10] for start in range(0, len(KEY), 10)),
        KEY[:6] + "\0\n"[:1] + KEY[6:],
    ],
)  # fmt: skip
def test_no_words_of_a_provider_show_the_key(words):
    for status in (0, 400, 401, 402, 403, 404, 413, 429, 500, 529):
        for body_said in (openai(words), {"detail": words}, {"error": words}, words):
            assert not shows_key(error_for(status, body_said).message)
    assert not shows_key(error_mapping.quoted(words, KEY))


def test_only_the_last_four_characters_stay_as_a_hint():
    assert error_mapping.without_key(f"key {KEY}!", KEY) == "key …wxyz!"
    assert error_mapping.without_key("nothing of it", KEY) == "nothing of it"
    assert KEY not in repr(ENDPOINT)
    assert KEY not in str(ENDPOINT)


@pytest.mark.parametrize(
    ("key", "shown"), [("", "a none b"), ("none", "a none b"), ("a non", "…e b"), ("n", "a none b")]
)
def test_short_keys_for_local_servers_do_not_eat_the_words(key, shown):
    assert error_mapping.without_key("a none b", key) == shown


@given(st.text(st.characters(), max_size=400), st.integers(0, 400))
def test_quoted_text_is_one_short_printable_line(words, place):
    line = error_mapping.shortened(words[:place] + KEY + words[place:], KEY)
    assert len(line) <= error_mapping.QUOTED_CHARACTERS
    assert line == " ".join(line.split())
    assert not any(ord(one) < 32 or 0x7F <= ord(one) < 0xA0 or 0xD800 <= ord(one) < 0xE000 for one in line)
    assert not shows_key(line)

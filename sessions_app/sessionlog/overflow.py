"""Whether an assistant message reports that the context was too long for its model.

After such a report an agent compacts and tries again. Providers report in one of three ways:

| way                 | content of the message                                                      |
|---------------------|-----------------------------------------------------------------------------|
| an error message    | `stopReason` "error", and an `errorMessage` that one of OVERFLOWS matches   |
| no room left        | `stopReason` "length", no output, and at least 99% of the window was filled |
| no report           | `stopReason` "stop", and more was sent than fits into the window            |

Limits on requests or tokens per time are not overflows, even if their messages mention too many tokens: they pass with
time.
"""

from __future__ import annotations

import re
from typing import Final

ANY_WINDOW: Final = 2**53
"""Larger than every window: an error message is an overflow whatever the window is, even if it is unknown."""
READ_CHARACTERS: Final = 4_000
"""The part of an error message that is read; some contain the whole request, after the reason."""
FILLED_PERCENT: Final = 99
REPORTING: Final = frozenset({"error", "stop", "length"})
"""The reasons for stopping with which a message may report it."""

_PASSES: Final = re.compile(
    r"rate.?limit|too many requests|throttl|quota|overloaded|service unavailable|please wait|try again in"
    r"|tokens? per (?:min|hour|day|second)|\btp[md]\b|\bstatus(?: code)?:? 429\b|^(?:error:? )?429\b"
)
"""Errors that pass with time."""

OVERFLOWS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (who, re.compile(words))
    for who, words in (
        ("Anthropic", r"prompt is too long|input length and `?max_tokens`? exceed context limit"),
        (
            "Anthropic, by bytes",
            r"request_too_large|request exceeds the maximum (?:allowed )?(?:size|number of bytes)",
        ),
        ("OpenAI", r"exceeds the context window|context[_ ]length[_ ]exceeded|context[_ ]window[_ ]exceeded"),
        ("OpenAI, OpenRouter, DeepSeek, vLLM", r"maximum context length (?:is|of) [\d,]+"),
        ("SGLang", r"exceeds? (?:the )?(?:model'?s )?(?:maximum )?context length"),
        ("vLLM", r"longer than the (?:maximum )?model'?s? (?:length|context length)"),
        ("Google", r"input token count[^.]{0,60}exceeds the maximum"),
        ("xAI", r"maximum prompt length is [\d,]+"),
        ("Groq", r"reduce the length of the messages"),
        ("Bedrock", r"input is too long for requested model|too many input tokens"),
        ("Mistral", r"too large for model with [\d,]+ maximum context length"),
        ("Copilot", r"(?:prompt )?token count of [\d,]+ exceeds the limit|max_prompt_tokens_exceeded"),
        (
            "llama.cpp",
            r"exceeds? the available context size|exceed_context_size|context size (?:has been |was )?exceeded",
        ),
        ("Ollama", r"prompt too long|exceeded (?:the )?(?:max(?:imum)? )?context length"),
        (
            "LM Studio",
            r"greater than the context length|loaded with context length of only [\d,]+|n_keep[^.]{0,20}>= ?n_ctx",
        ),
        ("MLX", r"prompt has [\d,]+ tokens?, but the configured context size is"),
        ("MiniMax", r"context window exceeds limit"),
        ("Kimi", r"exceeded model token limit"),
        ("Z.ai", r"prompt exceeds max(?:imum)? length"),
        ("Qwen", r"range of input length should be|maximum allowed input length of [\d,]+"),
        ("Cohere", r"too many tokens: |number of tokens in the prompt cannot exceed"),
        (
            "Hugging Face",
            r"`?inputs`? (?:tokens \+ `?max_new_tokens`? )?must (?:be <=|have less than) [\d,]+",
        ),
        ("Cerebras, Mistral", r"\b4(?:00|13) (?:status code )?\(no body\)"),
    )
)
"""Providers and their messages, in lower case and with single blanks."""


def tells_overflow(words: str) -> bool:
    """Whether an error message reports that the context was too long for the model."""
    text = " ".join(words[:READ_CHARACTERS].lower().split())
    return not _PASSES.search(text) and any(pattern.search(text) for _, pattern in OVERFLOWS)


def overflown_window(stop_reason: str, error: str, sent: int, output: int) -> int | None:
    """The largest window, in tokens, that an assistant message reports as too small; None if it reports none.

    `error` is its error message, `sent` the tokens of its input including cached ones, `output` those of its answer.
    """
    if stop_reason == "error":
        return ANY_WINDOW if tells_overflow(error) else None
    if stop_reason == "stop" and sent > 0:
        return sent - 1
    if stop_reason == "length" and not output and sent > 0:
        return 100 * sent // FILLED_PERCENT
    return None

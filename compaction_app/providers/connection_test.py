"""The test of a model: one tiny tool call, and its outcome in plain words."""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Final

from compaction_app.core.messages import UserMessage
from compaction_app.core.tools import ToolSchema

from .client import Patience, ask
from .error_mapping import ProviderError
from .types import AnswerEnd, Endpoint, Request, Retrying, Sent, ThinkingStyle

TOOL: Final = ToolSchema(
    name="say_ready",
    description="Say that you are ready. Call it once, with ready true.",
    parameters={
        "type": "object",
        "properties": {"ready": {"type": "boolean", "description": "true"}},
        "required": ["ready"],
        "additionalProperties": False,
    },
)
SYSTEM: Final = "You act through tools alone."
PROMPT: Final = "This is a test of the connection. Call the tool say_ready once, and write nothing."
OUTPUT_TOKENS: Final = 4_096
"""The output limit: enough for a model that thinks before it calls a tool."""
PATIENCE: Final = Patience(connect=5, first_byte=60, between=30, attempts=1)
"""Short waits, because a user is waiting at the page."""
LONGEST: Final = 60.0
"""The maximum duration of the test, in seconds."""
AT_ONCE: Final = 0.1
"""The longest delay that a user does not notice, in seconds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a model can plan, in words for the user who pressed “Test”."""

    ok: bool
    message: str
    """The outcome, and what to do about a problem. Does not contain the key."""
    seconds: float


async def try_model(
    endpoint: Endpoint,
    model: str,
    output_limit: int,
    thinking: str,
    thinking_style: ThinkingStyle,
    patience: Patience = PATIENCE,
) -> Verdict:
    """Request one tool call from the model, with the thinking level of a run, within LONGEST seconds.

    Raises BadInput if the address is invalid.
    """
    request = Request(
        model=model,
        system=SYSTEM,
        tools=[TOOL],
        messages=[UserMessage(PROMPT)],
        output_limit=min(output_limit, OUTPUT_TOKENS),
        thinking=thinking,
        thinking_style=thinking_style,
    )
    who, began = f"{model} at {endpoint.host}", time.monotonic()
    answered: AnswerEnd | None = None
    begun = False
    bound = asyncio.timeout(LONGEST)
    try:
        async with bound, contextlib.aclosing(ask(endpoint, request, patience)) as pieces:
            async for piece in pieces:
                begun = begun or not isinstance(piece, Sent | Retrying)
                answered = piece if isinstance(piece, AnswerEnd) else None
        assert answered is not None  # noqa: S101  # it is the last piece
        fault = _fault(answered, who)
    except ProviderError as error:
        fault = error.message
    except TimeoutError:
        if not bound.expired():
            raise
        fault = _too_long(who, begun)
    seconds = time.monotonic() - began
    if fault or answered is None:
        return Verdict(ok=False, message=fault, seconds=seconds)
    uncounted = "" if answered.usage else " It reports no tokens, so they will be estimated."
    when = f"after {seconds:.1f} s" if seconds >= AT_ONCE else "at once"
    message = f"It can plan. {who} called a tool {when}.{uncounted}"
    return Verdict(ok=True, message=message, seconds=seconds)


def _too_long(who: str, begun: bool) -> str:
    if not begun:
        return f"{who} sent nothing for a minute. The test was stopped. It may still be loading: test it again."
    return (
        f"{who} thought for longer than a minute without a tool call. The test was stopped. It may plan, but slowly: "
        "give it a lower thinking level, or choose a faster model."
    )


def _fault(answered: AnswerEnd, who: str) -> str:
    if any(call.name == TOOL.name for call in answered.answer.calls):
        return ""
    if answered.answer.calls:
        return f"{who} called a tool that it was not offered. It would not plan well: choose another model."
    if answered.stop == "length":
        return f"{who} reached its output limit before it called a tool. Raise the limit, or lower the thinking level."
    if answered.stop == "refusal":
        return f"{who} refused to answer. Choose another model."
    return (
        f"{who} answered without a tool call, and a planner acts only through tools. "
        "Choose another model, or enable tools on its server."
    )

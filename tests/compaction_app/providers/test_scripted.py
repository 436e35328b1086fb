"""The scripted provider, turn after turn in both dialects: it checks the requests, and refuses faulty ones."""

import asyncio
import contextlib
import json
from dataclasses import replace

import pytest

from compaction_app.core.messages import AssistantMessage, CallResult, Message, ToolResults, UserMessage
from compaction_app.core.tools import TOOL_SCHEMAS
from compaction_app.providers.client import Patience, ask, close
from compaction_app.providers.error_mapping import (
    Broken,
    Overflow,
    QuotaUsed,
    Rejected,
    TimedOut,
    Unavailable,
    Unreachable,
)
from compaction_app.providers.types import AnswerEnd, CallBegun, Dialect, Endpoint, Piece, Request, Retrying
from compaction_app.scripted.server import ScriptedProvider
from tests.compaction_app.providers.streams import both, shown

MANIFEST = {"entries": [{"entryId": f"e{number}", "tokens": 1_000 - number} for number in range(12)]}
PROMPT = f"Plan.\n```json\n{json.dumps(MANIFEST)}\n```"
PATIENCE = Patience(connect=5, first_byte=5, between=5, attempts=3, longest_wait=0.05)
STALLED = replace(PATIENCE, first_byte=0.5, between=0.5)
KEY = "sk-test-0123456789abcdef"


@pytest.fixture(scope="module")
def provider():
    with ScriptedProvider(key=KEY) as running:
        yield running


def exchange(
    provider: ScriptedProvider, dialect: Dialect, script: str, *messages: Message, patience: Patience = PATIENCE
) -> list[Piece]:
    """All pieces of a script's answer to one request."""
    request = Request(script, "Act.", TOOL_SCHEMAS, messages or (UserMessage(PROMPT),), 4_000, "low")

    async def read() -> list[Piece]:
        endpoint = Endpoint("scripted", dialect, provider.base_url(dialect), KEY)
        try:
            async with contextlib.aclosing(ask(endpoint, request, patience)) as pieces:
                return [piece async for piece in pieces]
        finally:
            await close()

    return asyncio.run(read())


def results_of(answer: AssistantMessage) -> ToolResults:
    """What a budget and any other tool would return, half-way to the target."""
    budget = json.dumps({"tokensToDeleteForTarget": 3_000, "message": "ok"})
    return ToolResults([CallResult(call.call_id, call.name, budget) for call in answer.calls])


@both
@pytest.mark.parametrize(
    "script", ["parallel-calls", "no-usage", "thinking-signed", "nonsense-arguments", "stops-early"]
)
def test_three_turns_of_a_script_are_sent_in_the_providers_dialect(provider, dialect, script):
    messages: list[Message] = [UserMessage(PROMPT)]
    ids: list[str] = []
    for _ in range(3):
        pieces = exchange(provider, dialect, script, *messages)
        last = pieces[-1]
        assert [one[1] for one in shown(pieces)["calls"].values()] == [call.arguments for call in last.answer.calls]
        ids += [call.call_id for call in last.answer.calls]
        messages.append(last.answer)
        messages.append(results_of(last.answer) if last.answer.calls else UserMessage("Go on."))
    assert (provider.faults, len(ids), last.usage is None) == ([], len(set(ids)), script == "no-usage")


@both
@pytest.mark.parametrize("script", ["overloaded-twice", "rate-limited", "cut-before"])
def test_temporary_faults_are_retried_until_a_response_comes(provider, dialect, script):
    pieces = exchange(
        provider, dialect, script, patience=replace(PATIENCE, longest_wait=1 if "rate" in script else 0.05)
    )
    assert any(isinstance(piece, Retrying) for piece in pieces)
    assert isinstance(pieces[-1], AnswerEnd)


@both
@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("quota-used", QuotaUsed), ("overflow", Overflow), ("wrong-key", Rejected),
        ("unknown-model", Rejected), ("no-such-script", Rejected), ("stalls-before", TimedOut),
        ("web-page", Rejected), ("redirects", Rejected), ("echoes-key", Rejected),
        ("rate-limited-long", Unavailable), ("cut-always", Unreachable), ("too-large", Overflow),
    ],
)  # fmt: skip
def test_permanent_faults_are_reported_by_kind(provider, dialect, script, kind):
    with pytest.raises(kind) as caught:
        exchange(provider, dialect, script, patience=STALLED if "stalls" in script else PATIENCE)
    assert KEY not in caught.value.message
    assert KEY[:12] not in caught.value.message


@both
@pytest.mark.parametrize("script", ["cut-inside", "cut-after", "error-midway", "stalls"])
def test_what_breaks_in_a_later_turn_ends_it(provider, dialect, script):
    def take_turns() -> None:
        messages: list[Message] = [UserMessage(PROMPT)]
        for _ in range(6):
            last = exchange(provider, dialect, script, *messages, patience=STALLED)[-1]
            messages.extend([last.answer, results_of(last.answer)])

    with pytest.raises((Broken, Unavailable, TimedOut)):
        take_turns()


@both
def test_a_call_is_reported_while_its_arguments_still_arrive(provider, dialect):
    pieces = exchange(provider, dialect, "split-bytes")
    begun = [place for place, piece in enumerate(pieces) if isinstance(piece, CallBegun)]
    assert begun[0] < len(pieces) - 10

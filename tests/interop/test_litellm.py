"""Plans through LiteLLM's proxy: independent code reads Redline's requests and writes the responses that Redline reads.

Each of the proxy's routes is combined with each of the provider's dialects. The provider is strict: LiteLLM's
translation of a request must be valid in the dialect behind it, or there is no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from compaction_app.core.messages import UserMessage
from compaction_app.core.schemas import TOOL_SCHEMAS
from compaction_app.models import PlannerModel, Provider
from compaction_app.providers.client import Patience, ask, close
from compaction_app.providers.errors import Overflow, ProviderError, QuotaUsed, Rejected, Unavailable
from compaction_app.providers.types import Endpoint, Piece, Request, ThoughtPiece
from devtools.scripted.response import Dialect
from devtools.scripted.server import ScriptedProvider
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.installation import Installation, Result
from tests.interop.conftest import Proxy

DIALECTS: tuple[Dialect, ...] = ("anthropic", "openai")
SCRIPTS = (
    *("good-plan", "parallel-calls", "split-bytes", "pings", "no-usage", "fifty-searches"),
    *("stops-early", "unknown-tool", "missing-argument", "nonsense-arguments", "calls-5"),
)
THINKING = (("anthropic", "anthropic"), ("openai", "openai"))
"""Routes and upstreams between which LiteLLM passes reasoning through, in the form of `thinking-plain`."""
ERRORS: dict[str, type[ProviderError]] = {
    "overflow": Overflow,
    "quota-used": QuotaUsed,
    "wrong-key": Rejected,
    "unknown-model": Rejected,
    "overloaded": Unavailable,
    "rate-limited-long": Unavailable,
    "server-error": Unavailable,
}
Plan = Callable[..., Result]


@pytest.fixture(params=DIALECTS)
def route(request: pytest.FixtureRequest) -> Dialect:
    """The route of the proxy."""
    found: Dialect = request.param
    return found


@pytest.fixture(params=DIALECTS)
def upstream(request: pytest.FixtureRequest) -> Dialect:
    """The dialect between the proxy and the provider."""
    found: Dialect = request.param
    return found


@pytest.fixture
def plan(
    redline: Installation, proxy: Proxy, provider: ScriptedProvider, route: Dialect, upstream: Dialect
) -> Plan:
    """`redline compact --dry-run` with a script behind the proxy as the planner."""
    path = place(redline.sessions / "s.jsonl", session_bytes(working_session(steps=30)))
    Provider.objects.create(name="litellm", dialect=route, base_url=proxy.base_url(route))
    provider.requests.clear()

    def planned(script: str, unasked: bool = False, **more: Any) -> Result:
        name = f"{upstream}/{script}"
        PlannerModel.objects.create(
            provider="litellm", name=name, window=200_000, output_limit=8_192, thinking_levels=["low"], **more
        )
        thinking = ["--thinking", "low"] if script.startswith("thinking") and not unasked else []
        return redline.call("compact", path, "--planner", f"litellm/{name}", *thinking, "--dry-run", "--json")

    return planned


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_plan_reaches_its_target(
    plan: Plan, provider: ScriptedProvider, upstream: Dialect, script: str
) -> None:
    ended = plan(script)
    assert ended.code == 0, ended
    assert ended.json["targetMet"]
    assert provider.faults == []
    path = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}[upstream]
    assert {request.path for request in provider.requests} == {path}
    assert {request.model for request in provider.requests} == {script}
    assert provider.requests[0].body["stream"] is True


@pytest.mark.parametrize(("route", "upstream"), THINKING, indirect=True)
def test_reasoning_is_returned_unchanged(plan: Plan, provider: ScriptedProvider) -> None:
    ended = plan("thinking-plain")
    assert provider.faults == []
    assert ended.code == 0, ended
    assert len(provider.requests) > 1


@pytest.mark.parametrize(("route", "upstream"), THINKING[:1], indirect=True)
def test_signed_and_sealed_reasoning_is_returned_unchanged(plan: Plan, provider: ScriptedProvider) -> None:
    assert plan("thinking-signed").code == 0
    assert provider.faults == []


@pytest.mark.parametrize(("route", "upstream"), [("openai", "anthropic")], indirect=True)
def test_thinking_blocks_are_returned_unchanged_through_the_other_dialect(
    plan: Plan, provider: ScriptedProvider
) -> None:
    """LiteLLM passes no thinking level on for an unknown model; this one thinks without being asked."""
    ended = plan("thinking-plain", unasked=True)
    assert provider.faults == []
    assert ended.code == 0, ended
    assert len(provider.requests) > 1


def test_no_session_is_written(plan: Plan, redline: Installation) -> None:
    before = {path: Path(path).read_bytes() for path in (redline.sessions).iterdir()}
    assert plan("good-plan").code == 0
    assert {path: Path(path).read_bytes() for path in (redline.sessions).iterdir()} == before


@pytest.mark.parametrize(("script", "error"), ERRORS.items())
def test_an_error_is_recognised_through_the_proxy(
    proxy: Proxy, route: Dialect, upstream: Dialect, script: str, error: type[ProviderError]
) -> None:
    endpoint = Endpoint("litellm", route, proxy.base_url(route))
    request = Request(f"{upstream}/{script}", "", TOOL_SCHEMAS, [UserMessage("Begin.")], 1_000)
    with pytest.raises(ProviderError) as caught:
        asyncio.run(answered(endpoint, request))
    assert type(caught.value) is error, caught.value.message


async def answered(endpoint: Endpoint, request: Request) -> list[Piece]:
    """The pieces of one answer."""
    async with aclosing(ask(endpoint, request, Patience(attempts=1))) as pieces:
        came = [piece async for piece in pieces]
    await close()
    return came


def test_a_stop_reaches_the_provider(
    proxy: Proxy, provider: ScriptedProvider, route: Dialect, upstream: Dialect
) -> None:
    provider.requests.clear()
    endpoint = Endpoint("litellm", route, proxy.base_url(route))
    request = Request(f"{upstream}/long-thinking", "", TOOL_SCHEMAS, [UserMessage("Begin.")], 1_000)

    async def stopped() -> None:
        async with aclosing(ask(endpoint, request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ThoughtPiece):
                    break
        await close()

    asyncio.run(stopped())
    assert provider.wait_until_closed(10).model == "long-thinking"

"""Plans through LiteLLM's proxy: independent code reads Redline's requests and writes the responses that Redline reads.

Each of the proxy's routes is combined with each of the provider's dialects. The provider is strict: LiteLLM's
translation of a request must be valid in the dialect behind it, or there is no answer.
"""

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from compaction_app.core.messages import UserMessage
from compaction_app.core.tools import TOOL_SCHEMAS
from compaction_app.models import PlannerModel, Provider
from compaction_app.providers.client import Patience, ask, close
from compaction_app.providers.error_mapping import Overflow, ProviderError, QuotaUsed, Rejected, Unavailable
from compaction_app.providers.types import Endpoint, Request, ThoughtPiece
from compaction_app.scripted.request import Dialect
from compaction_app.scripted.server import ScriptedProvider
from tests.factories import session_bytes, working_session
from tests.files import place, snapshot
from tests.installation import Result
from tests.paths import PROJECT
from tests.wait import WAIT_SECONDS

LITELLM = PROJECT / ".venv-interop" / "bin" / "litellm"
START_SECONDS = 300
NOWHERE = "http://127.0.0.1:9"
ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1,localhost",
}
"""Without the user's files and keys; traffic that would leave the machine meets a closed port."""
DIALECTS: tuple[Dialect, ...] = ("anthropic", "openai")
SCRIPTS = (
    *("good-plan", "parallel-calls", "split-bytes", "pings", "no-usage", "fifty-searches"),
    *("stops-early", "unknown-tool", "missing-argument", "nonsense-arguments", "calls-5"),
)
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


@pytest.fixture(scope="session")
def provider():
    with ScriptedProvider() as scripted:
        yield scripted


@pytest.fixture(scope="session")
def proxy(provider, tmp_path_factory):
    """The proxy's endpoint for a client of a dialect: `upstream/script` is one of its models."""
    assert LITELLM.exists(), "LiteLLM is not installed; `make interop` does that, and runs these tests"
    base = tmp_path_factory.mktemp("litellm")
    (base / "config.yaml").write_text(json.dumps(configuration(provider)))  # JSON is YAML
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [LITELLM, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    around = {"PATH": os.environ["PATH"], "HOME": str(base), **ENVIRONMENT}
    with (base / "log").open("wb") as log:
        child = subprocess.Popen(command, cwd=base, env=around, stdout=log, stderr=log)
    try:
        wait_for_proxy(child, port, base / "log")
        urls = {"anthropic": f"http://127.0.0.1:{port}", "openai": f"http://127.0.0.1:{port}/v1"}
        yield lambda route: Endpoint("litellm", route, urls[route])
    finally:
        child.terminate()
        try:
            child.wait(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def configuration(provider: ScriptedProvider) -> dict[str, object]:
    """Every script behind both of the provider's dialects."""
    parameters = {
        f"{dialect}/*": {"model": f"{dialect}/*", "api_base": provider.base_url(dialect), "api_key": "none"}
        for dialect in DIALECTS
    }
    return {
        "model_list": [{"model_name": name, "litellm_params": one} for name, one in parameters.items()],
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        # Anthropic's route uses Chat Completions for OpenAI's upstream, not Responses.
        "litellm_settings": {"num_retries": 0, "use_chat_completions_url_for_anthropic_messages": True},
    }


def wait_for_proxy(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """It starts slowly. Fails with the end of its log."""
    deadline = time.monotonic() + START_SECONDS
    direct = build_opener(ProxyHandler({}))
    while child.poll() is None and time.monotonic() < deadline:
        try:
            direct.open(f"http://127.0.0.1:{port}/health/liveliness", timeout=WAIT_SECONDS).close()
        except OSError:
            time.sleep(0.3)
        else:
            return
    raise AssertionError(f"the proxy does not answer: {log.read_text(errors='replace')[-4_000:]}")


@pytest.fixture(params=DIALECTS)
def route(request):
    """The route of the proxy."""
    return request.param


@pytest.fixture(params=DIALECTS)
def upstream(request):
    """The dialect between the proxy and the provider."""
    return request.param


@pytest.fixture
def plan(redline, proxy, provider, route, upstream):
    """`redline compact --dry-run` with a script behind the proxy as the planner."""
    path = place(redline.sessions / "s.jsonl", session_bytes(working_session(steps=30)))
    Provider.objects.create(name="litellm", dialect=route, base_url=proxy(route).base_url)
    provider.requests.clear()

    def planned(script: str, unasked: bool = False) -> Result:
        name = f"{upstream}/{script}"
        limits = {"window": 200_000, "output_limit": 8_192, "thinking_levels": ["low"]}
        PlannerModel.objects.create(provider="litellm", name=name, **limits)
        thinking = ["--thinking", "low"] if script.startswith("thinking") and not unasked else []
        return redline.call("compact", path, "--planner", f"litellm/{name}", *thinking, "--dry-run", "--json")

    return planned


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_plan_reaches_its_target(plan, provider, upstream, script):
    ended = plan(script)
    assert ended.code == 0, ended
    assert ended.json["targetMet"]
    assert provider.faults == []
    path = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}[upstream]
    assert {request.path for request in provider.requests} == {path}
    assert {request.model for request in provider.requests} == {script}
    assert provider.requests[0].body["stream"] is True


@pytest.mark.parametrize(
    ("route", "upstream", "script", "unasked"),
    [
        ("anthropic", "anthropic", "thinking-plain", False),
        ("openai", "openai", "thinking-plain", False),
        # Signed and sealed.
        ("anthropic", "anthropic", "thinking-signed", False),
        # LiteLLM passes no thinking level on for an unknown model; this one thinks without being asked.
        pytest.param("openai", "anthropic", "thinking-plain", True, marks=pytest.mark.core),
    ],
    indirect=["route", "upstream"],
)
def test_reasoning_is_returned_unchanged(plan, provider, script, unasked):
    ended = plan(script, unasked)
    assert provider.faults == []
    assert ended.code == 0, ended
    assert len(provider.requests) > 1


def test_no_session_is_written(plan, redline):
    before = snapshot(redline.sessions)
    assert plan("good-plan").code == 0
    assert snapshot(redline.sessions) == before


async def asked(endpoint: Endpoint, upstream: Dialect, script: str) -> None:
    """Ask for one answer, up to its first thought."""
    request = Request(f"{upstream}/{script}", "", TOOL_SCHEMAS, [UserMessage("Begin.")], 1_000)
    async with aclosing(ask(endpoint, request, Patience(attempts=1))) as pieces:
        async for piece in pieces:
            if isinstance(piece, ThoughtPiece):
                break
    await close()


@pytest.mark.parametrize(("script", "error"), ERRORS.items())
def test_an_error_is_recognised_through_the_proxy(proxy, route, upstream, script, error):
    with pytest.raises(ProviderError) as caught:
        asyncio.run(asked(proxy(route), upstream, script))
    assert type(caught.value) is error, caught.value.message


def test_a_stop_reaches_the_provider(proxy, provider, route, upstream):
    provider.requests.clear()
    asyncio.run(asked(proxy(route), upstream, "long-thinking"))
    assert provider.wait_until_closed(WAIT_SECONDS).model == "long-thinking"

"""LiteLLM's proxy in front of the scripted provider, on loopback; `make interop` installs it and runs these tests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.scripted.response import Dialect
from devtools.scripted.server import ScriptedProvider
from tests.paths import PROJECT
from tests.wait import WAIT_SECONDS

LITELLM = PROJECT / ".venv-interop" / "bin" / "litellm"
START_SECONDS = 180


class Proxy:
    """The running proxy: `upstream/script` is one of its models."""

    def __init__(self, port: int) -> None:
        self.port = port

    def base_url(self, route: Dialect) -> str:
        """The proxy's base URL for a client of this dialect."""
        return f"http://127.0.0.1:{self.port}" + ("/v1" if route == "openai" else "")


@pytest.fixture(scope="session")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as scripted:
        yield scripted


@pytest.fixture(scope="session")
def proxy(provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    assert LITELLM.exists(), "LiteLLM is not installed; `make interop` does that, and runs these tests"
    base = tmp_path_factory.mktemp("litellm")
    # JSON is YAML.
    (base / "config.yaml").write_text(json.dumps(configuration(provider)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [LITELLM, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with (base / "log").open("wb") as log:
        child = subprocess.Popen(command, cwd=base, env=environment(base), stdout=log, stderr=log)
    try:
        wait_for(child, port, base / "log")
        yield Proxy(port)
    finally:
        child.terminate()
        try:
            child.wait(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def configuration(provider: ScriptedProvider) -> dict[str, object]:
    """Every script behind both of the provider's dialects."""
    models = [
        {
            "model_name": f"{dialect}/*",
            "litellm_params": {
                "model": f"{dialect}/*",
                "api_base": provider.base_url(dialect),
                "api_key": "none",
            },
        }
        for dialect in ("anthropic", "openai")
    ]
    return {
        "model_list": models,
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        # Anthropic's route uses Chat Completions for OpenAI's upstream, not Responses.
        "litellm_settings": {"num_retries": 0, "use_chat_completions_url_for_anthropic_messages": True},
    }


def environment(base: Path) -> dict[str, str]:
    """An environment without the user's files and keys; traffic that would leave the machine meets a closed port."""
    nowhere = "http://127.0.0.1:9"
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(base),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1,localhost",
    }


def wait_for(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline:
        assert child.poll() is None, log.read_text(errors="replace")[-4_000:]
        try:
            with direct.open(f"http://127.0.0.1:{port}/health/liveliness", timeout=WAIT_SECONDS):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.3)
    raise AssertionError(f"the proxy does not answer: {log.read_text(errors='replace')[-4_000:]}")

"""EDGE: Codex's own program, as a dry resume runs it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from sessions_app.agents.dry_resume.scratch import Scratch

PROGRAM: Final = "codex"
PROVIDER: Final = "redline"
BUILT_IN: Final = frozenset({"openai", "ollama", "lmstudio", "ollama-chat", "amazon-bedrock"})
"""Providers that a configuration cannot define."""


def codex_home(scratch: Scratch) -> Path:
    """The directory of Codex's files."""
    return scratch.home / ".codex"


def environment(scratch: Scratch) -> Mapping[str, str]:
    """The environment of the program."""
    return {**scratch.environment, "CODEX_HOME": str(codex_home(scratch)), "CODEX_API_KEY": "none"}


def configure(scratch: Scratch, model: str, providers: Iterable[str] = ()) -> None:
    """Write a configuration: the last provider is in use; a thread resumes only if all its providers are known."""
    names = list(providers) or [PROVIDER]
    url = json.dumps(f"{scratch.model_url}/v1")
    lines = [
        f"model = {_toml(model)}",
        f"model_provider = {_toml(names[-1])}",
        f"openai_base_url = {url}",
        'approval_policy = "never"',
        'sandbox_mode = "read-only"',
    ]
    for name in sorted(set(names) - BUILT_IN):
        lines += [
            f"[model_providers.{_toml(name)}]",
            'name = "Redline"',
            f"base_url = {url}",
            'wire_api = "responses"',
            "requires_openai_auth = false",
            "request_max_retries = 0",
            "stream_max_retries = 0",
        ]
    codex_home(scratch).mkdir(exist_ok=True)
    (codex_home(scratch) / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def command(program: str, prompt: str, thread_id: str = "") -> list[str]:
    """One headless turn, in a thread or in a new one."""
    resume = ("resume", thread_id) if thread_id else ()
    return [program, "exec", "--json", "--skip-git-repo-check", *resume, prompt]


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

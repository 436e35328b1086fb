"""EDGE: Codex's own program: how it is found, and how a dry resume runs it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.base import AgentClient, Client
from sessions_app.agents.codex.pure.records import INJECTED_TEXTS, KEY, without_metadata
from sessions_app.agents.codex.pure.thread_files import THREAD_ID, ThreadFiles
from sessions_app.agents.edge.dry_resume.client import find_client
from sessions_app.agents.edge.dry_resume.process import ClientUnusable, Scratch

from .store import ARCHIVED, thread_id_of

PROVIDER: Final = "redline"
BUILT_IN: Final = frozenset({"openai", "ollama", "lmstudio", "ollama-chat", "amazon-bedrock"})
"""Providers that a configuration cannot define."""
MODEL: Final = "model"
"""The model of a thread that names none."""


class CodexClient(Client):
    program = KEY
    can_be_run = True

    def find_installed(self, program: Path | None) -> AgentClient | None:
        return find_client(CodexProgram, self.program, program)

    def resume_command(self, path: Path) -> Sequence[str]:
        return self.program, "resume", thread_id_of(path) or path.stem

    def unarchive_command(self, path: Path) -> Sequence[str]:
        return (self.program, "unarchive", thread_id_of(path) or path.stem) if ARCHIVED in path.parts else ()


@dataclass(frozen=True, slots=True)
class CodexProgram:
    """The program `codex`."""

    program: str
    label: str = "Codex"
    openings: tuple[str, ...] = INJECTED_TEXTS

    def environment(self, scratch: Scratch) -> Mapping[str, str]:
        """Older versions take the address of the provider `openai` from here, newer ones from the configuration."""
        return {
            **scratch.environment,
            "CODEX_HOME": str(codex_home(scratch)),
            "CODEX_API_KEY": "none",
            "OPENAI_BASE_URL": f"{scratch.model_url}/v1",
        }

    def place(self, name: str, content: Iterable[bytes], scratch: Scratch) -> str:
        found = THREAD_ID.search(name) if name.startswith("rollout-") else None
        if found is None:
            raise ClientUnusable(f"the name {name} has no thread id, by which Codex finds a session.")
        directory = codex_home(scratch) / "sessions" / "2026" / "01" / "01"
        directory.mkdir(parents=True)
        thread = ThreadFiles(name, content)
        for file, lines in thread:
            with (directory / file).open("wb") as copy:
                copy.writelines(lines)
        configure(scratch, thread.model or MODEL, thread.providers)
        return found.group()

    def command(self, prompt: str, session_id: str = "") -> list[str]:
        resume = ("resume", session_id) if session_id else ()
        return [self.program, "exec", "--json", "--skip-git-repo-check", *resume, prompt]

    def messages(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        """Without the instructions, which come first if they have no field of their own; they are the recorded ones.

        Without metadata: for the built-in provider `openai`, newer versions add some to every message.
        """
        items = body.get("input")
        if not isinstance(items, list):
            return None
        own = items if body.get("instructions") else items[1:]
        return [without_metadata(item) if isinstance(item, dict) else item for item in own]


def codex_home(scratch: Scratch) -> Path:
    """The directory of Codex's files."""
    return scratch.home / ".codex"


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


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

"""Codex as installed by `make interop-clients`: headless runs in a home of their own, without a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.codex import client
from sessions_app.agents.dry_resume.process import run_client
from sessions_app.agents.dry_resume.scratch import new_scratch

from .scripted_model import ModelReply, ScriptedModel

PROBE: Final = "REDLINE-PROBE"
RUN_SECONDS: Final = 120
ALL_TOOLS: Final = ("-c", 'sandbox_mode="danger-full-access"')


@dataclass(frozen=True, slots=True)
class CodexRun:
    """One run: what the client printed, and the requests that it sent."""

    code: int | None
    output: str
    errors: str
    requests: tuple[Mapping[str, Any], ...]

    @property
    def thread_id(self) -> str:
        events = (json.loads(line) for line in self.output.splitlines() if line.startswith("{"))
        return str(next(event["thread_id"] for event in events if "thread_id" in event))


class CodexRuns:
    """An installed version, with its own home in `base`; `model` is its only model.

    Its shell tool is `exec_command` with the argument `cmd` (0.104: also `shell_command` with `command`).
    """

    def __init__(self, program: Path, base: Path, model: ScriptedModel, extra: str = "") -> None:
        base.mkdir(parents=True, exist_ok=True)
        self.scratch = new_scratch(base, model.url)
        self.home = client.codex_home(self.scratch)
        self.program = client.CodexProgram(str(program))
        self._model = model
        client.configure(self.scratch, "model")
        config = self.home / "config.toml"
        config.write_text(f"{extra}\n{config.read_text()}")

    def use(self, program: Path) -> None:
        """Run another version from now on."""
        self.program = client.CodexProgram(str(program))

    def run(
        self,
        prompt: str,
        replies: Iterable[ModelReply] = (),
        *,
        thread: str = "",
        how: str = "resume",
        arguments: Sequence[str] = ALL_TOOLS,
    ) -> CodexRun:
        """One headless turn; with a thread, it is continued, or forked if `how` is "fork"."""
        self._model.replies.clear()
        self._model.replies.extend(replies)
        known = len(self._model.conversation)
        first, *rest = self.program.command(prompt, thread)
        command = [first, *(how if part == "resume" else part for part in rest)]
        command[2:2] = arguments
        ended = run_client(
            command,
            cwd=self.scratch.project,
            environment=self.program.environment(self.scratch),
            seconds=RUN_SECONDS,
        )
        return CodexRun(*ended, tuple(self._model.conversation[known:]))

    def files(self, thread: str) -> list[Path]:
        """The rollout files of a thread, with those of its reverts, oldest first."""
        found = (self.home / "sessions").rglob(f"rollout-*{thread}*.jsonl")
        return sorted(found, key=lambda file: ("_" in file.name, file.name))

    def sent(self, thread: str) -> list[Mapping[str, Any]]:
        """The `input` that the client sends when it resumes a thread, up to the probe; the thread stays as it is.

        It begins with the instructions and ends with the context that the client adds, if it does.
        """
        sessions, kept = self.home / "sessions", self.home / "sessions-kept"
        shutil.copytree(sessions, kept)
        try:
            ended = self.run(PROBE, thread=thread)
        finally:
            shutil.rmtree(sessions)
            kept.rename(sessions)
        found = [body["input"] for body in ended.requests if PROBE in json.dumps(body["input"][-1])]
        assert found, (ended.code, ended.output, ended.errors)
        return list(found[0][:-1])

"""Codex as installed by `make interop-clients`: headless runs in a home of their own, without a network."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from sessions_app.agents.codex.edge import client
from sessions_app.agents.edge.dry_resume import new_scratch, run_client
from tests.wait import WAIT_SECONDS

from .scripted_model import ClientRun, ModelReply, ScriptedModel

PROBE: Final = "REDLINE-PROBE"
RUN_SECONDS: Final = 120
COMPLETED: Final = "turn/completed"
ALL_TOOLS: Final = ("-c", 'sandbox_mode="danger-full-access"')


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
    ) -> ClientRun:
        """One headless turn; with a thread, it is continued, or forked if `how` is "fork"."""
        known = self._model.expect(replies)
        first, *rest = self.program.command(prompt, thread)
        command = [first, *(how if part == "resume" else part for part in rest)]
        command[2:2] = arguments
        environment = self.program.environment(self.scratch)
        ended = run_client(command, cwd=self.scratch.project, environment=environment, seconds=RUN_SECONDS)
        return ClientRun(*ended, tuple(self._model.conversation[known:]))

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


class CodexServer:
    """A running app server, from `__enter__` to `__exit__`: how editors let Codex compact a thread."""

    def __init__(self, runs: CodexRuns) -> None:
        first, *_ = runs.program.command("", "")
        self._process = subprocess.Popen(
            [first, "app-server"],
            cwd=runs.scratch.project,
            env=dict(runs.program.environment(runs.scratch)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        self._changed = threading.Condition()
        self._messages: list[Mapping[str, Any]] = []
        self._count = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._read, daemon=True).start()
        client = {"name": "redline-tests", "title": "Tests", "version": "0"}
        self.call("initialize", clientInfo=client, capabilities={"experimentalApi": True})
        self._send({"method": "initialized"})
        return self

    def __exit__(self, *fault: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_SECONDS)

    def start_compaction(self, thread: str) -> None:
        self.call("thread/resume", threadId=thread)
        self.call("thread/compact/start", threadId=thread)

    def compact(self, thread: str) -> Mapping[str, Any]:
        """Compact a thread; returns the turn as it was completed."""
        self.start_compaction(thread)
        turn: Mapping[str, Any] = self.notice(COMPLETED)["params"]["turn"]
        return turn

    def call(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        self._count += 1
        number = self._count
        self._send({"id": number, "method": method, "params": parameters})
        answer = self._first(lambda message: message.get("id") == number and "method" not in message)
        assert "error" not in answer, answer
        result: Mapping[str, Any] = answer["result"]
        return result

    def notice(self, method: str) -> Mapping[str, Any]:
        """The first notice of this kind, as soon as it is there."""
        return self._first(lambda message: message.get("method") == method)

    @property
    def text(self) -> str:
        """All that the server said."""
        return json.dumps(self._messages)

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _first(self, wanted: Any) -> Mapping[str, Any]:
        def found() -> Mapping[str, Any] | None:
            return next(filter(wanted, self._messages), None)

        with self._changed:
            assert self._changed.wait_for(found, WAIT_SECONDS), self._messages
            answer = found()
        assert answer is not None
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._messages.append(json.loads(line))
                self._changed.notify_all()

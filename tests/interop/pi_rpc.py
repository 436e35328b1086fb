"""pi or Atomic in RPC mode with Redline's bridge as an extension, in a home of its own, with a model of the test."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from sessions_app.agents.pi.package import PACKAGE
from tests.factories import HEADER
from tests.interop.install_atomic import CLI as CLI_OF_ATOMIC
from tests.interop.pi_runs import CLI, PINNED
from tests.paths import PROJECT
from tests.wait import WAIT_SECONDS

BRIDGE: Final = PROJECT / "sessions_app" / "agents" / "pi" / "redline.ts"
PLACEHOLDER: Final = '"@CONNECTION@"'
WINDOW: Final = 20_000
"""The context window of the model, in tokens."""
RESERVE: Final = 2_000
COMMON: Final = ("--offline", "--no-skills", "--no-prompt-templates", "--no-context-files", "--no-themes")
SWITCHES: Final = ("--no-approve", *COMMON)
ATOMIC: Final = PROJECT / ".venv-interop" / "atomic"


def pi_command() -> list[str]:
    """The command of the pinned pi."""
    modules = PINNED / "node_modules"
    assert modules.is_dir(), "pi is not installed; `make interop` does that, and runs these tests"
    node = modules / ".bin" / "node"
    return [str(node) if node.exists() else "node", str(modules / PACKAGE / CLI)]


def atomic_command(version: str) -> list[str]:
    """The command of an installed Atomic. It is skipped if its source or packages could not be installed."""
    if not (ATOMIC / version).is_dir():
        pytest.skip(f"Atomic {version} cannot be installed here")
    return [str(ATOMIC / "node_modules" / ".bin" / "bun"), str(ATOMIC / version / CLI_OF_ATOMIC)]


class PiHome:
    """A home with one model, the bridge, and sessions."""

    configuration = ".pi"

    def __init__(
        self,
        directory: Path,
        *,
        base_url: str,
        api: str = "anthropic-messages",
        window: int = WINDOW,
        connection_file: Path | None = None,
    ) -> None:
        self.directory = directory
        self.connection_file = connection_file or directory / "connection.json"
        self.project = directory / "project"
        agent = directory / self.configuration / "agent"
        for made in (self.project, agent / "extensions", agent / "sessions" / "--project--"):
            made.mkdir(parents=True)
        model = {"id": "talk", "contextWindow": window, "maxTokens": 1_000, "input": ["text", "image"]}
        scripted = {"baseUrl": base_url, "api": api, "apiKey": "none", "models": [model]}
        (agent / "models.json").write_text(
            json.dumps({"providers": {"scripted": scripted}}), encoding="utf-8"
        )
        compaction = {"enabled": True, "reserveTokens": RESERVE, "keepRecentTokens": 1}
        (agent / "settings.json").write_text(json.dumps({"compaction": compaction}), encoding="utf-8")
        source = BRIDGE.read_text(encoding="utf-8")
        assert source.count(PLACEHOLDER) == 1
        self.bridge = agent / "extensions" / "redline.ts"
        self.bridge.write_text(
            source.replace(PLACEHOLDER, json.dumps(str(self.connection_file))), encoding="utf-8"
        )
        self.sessions = agent / "sessions" / "--project--"

    def command(self) -> list[str]:
        return [*pi_command(), *SWITCHES]

    def session(self, entries: Sequence[Mapping[str, Any]], name: str = "session") -> Path:
        """A session with these entries in a chain."""
        path = self.sessions / f"{name}.jsonl"
        lines: list[dict[str, Any]] = [{**HEADER, "cwd": str(self.project)}]
        parent = None
        for number, entry in enumerate(entries):
            one = {
                "id": f"e{number:07}",
                "parentId": parent,
                "timestamp": "2026-01-05T10:00:00.000Z",
                **entry,
            }
            parent = one["id"]
            lines.append(one)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        return path


class AtomicHome(PiHome):
    """A home of Atomic, in a version."""

    configuration = ".atomic"

    def __init__(self, directory: Path, version: str, **options: Any) -> None:
        super().__init__(directory, **options)
        self.more_extensions: list[Path] = []
        """Loaded before the bridge."""
        self._command = atomic_command(version)

    def command(self) -> list[str]:
        # Its own extensions need what is compiled.
        loaded = [word for path in (*self.more_extensions, self.bridge) for word in ("-e", str(path))]
        return [*self._command, *COMMON, "--no-extensions", *loaded]


class Pi:
    """A running pi, or Atomic. Commands are sent to it, and all that it says is kept."""

    def __init__(
        self, home: PiHome, session: Path | None, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.said: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._sent = 0
        chosen = ["--session", str(session)] if session else ["--no-session"]
        self._process = subprocess.Popen(
            [*home.command(), "--mode", "rpc", *chosen, "--model", "scripted/talk"],
            cwd=home.project,
            env={
                "HOME": str(home.directory),
                "PATH": os.environ["PATH"],
                "PI_TELEMETRY": "0",
                **(environment or {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reading.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                said = {"type": "output", "text": line.decode(errors="replace")}
            with self._changed:
                self.said.append(said)
                self._changed.notify_all()

    def send(self, kind: str, **fields: Any) -> str:
        """Send a command; returns its id."""
        self._sent += 1
        command = {"id": f"c{self._sent}", "type": kind, **fields}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        return f"c{self._sent}"

    def close(self) -> int:
        """End its input, as a client that leaves; returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(WAIT_SECONDS)

    def first(self, wanted: Callable[[dict[str, Any]], Any], since: int = 0) -> dict[str, Any]:
        """The first thing said, after the first `since`, that is wanted; waits for it."""

        def found() -> dict[str, Any] | None:
            return next((said for said in self.said[since:] if wanted(said)), None)

        with self._changed:
            said = self._changed.wait_for(found, WAIT_SECONDS)
        assert said is not None, self.said[-20:]
        return said

    def response(self, command: str) -> dict[str, Any]:
        return self.first(lambda said: said.get("type") == "response" and said.get("id") == command)

    def run(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Send a command; returns the response to it."""
        return self.response(self.send(kind, **fields))

    def prompt(self, message: str) -> None:
        """Prompt, and wait until the agent is done."""
        since = len(self.said)
        assert self.run("prompt", message=message)["success"]
        self.first(lambda said: said["type"] == "agent_settled", since)

    def shown(self, method: str) -> list[str]:
        """What extensions have shown: texts of `notify`, or of `setStatus`."""
        field = {"notify": "message", "setStatus": "statusText"}[method]
        asked = [said for said in self.said if said.get("type") == "extension_ui_request"]
        return [said.get(field) or "" for said in asked if said["method"] == method]

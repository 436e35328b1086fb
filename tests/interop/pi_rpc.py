"""pi or Atomic in RPC mode with Redline's bridge as an extension, in a home of its own, with a model of the test."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

from sessions_app.agents.pi.edge.client import ExtensionBridge
from tests import factories
from tests.interop.pi_runs import atomic_command, environment_in, pi_command, scripted_model
from tests.interop.stand_in import StandIn
from tests.interop_clients.messages_server import MessagesServer
from tests.wait import WAIT_SECONDS, wait_until

BRIDGE: Final = ExtensionBridge("pi", "pi", ".pi")
WINDOW: Final = 20_000
"""The context window of the model, in tokens."""
FULL: Final = WINDOW - 1_000
"""Tokens at which an agent compacts automatically."""
RESERVE: Final = 2_000
FIRST, SECOND = "e1", "e2"
"""The ids of the first question of a conversation, and of its answer."""
CANCELLED: Final = "Compaction cancelled"
Entries = Iterable[dict[str, Any]]


def answered(*blocks: dict[str, Any], tokens: int = 1_000, **fields: Any) -> dict[str, Any]:
    """An answer of the model as pi records it, with the tokens of its request."""
    usage = {"input": tokens, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": tokens}
    cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)
    by = {"api": "anthropic-messages", "provider": "scripted", "model": "talk"}
    return {**factories.assistant(*blocks), **by, "usage": {**usage, "cost": cost}, **fields}


def conversation(tokens: int = 1_000) -> list[dict[str, Any]]:
    """Two questions and their answers; the last request had so many tokens."""
    return [
        factories.user("first question"),
        answered(factories.text("first answer"), tokens=100),
        factories.user("second question"),
        answered(factories.text("second answer"), tokens=tokens),
    ]


def work(steps: int) -> list[dict[str, Any]]:
    """A question, and so many steps of work on it."""
    recorded = (one["message"] for one in factories.working_session(steps=steps)[1:])
    return [answered(**one) if one["role"] == "assistant" else one for one in recorded]


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
        self.sessions = agent / "sessions" / "--project--"
        self.bridge = agent / "extensions" / "redline.ts"
        for made in (self.project, self.bridge.parent, self.sessions):
            made.mkdir(parents=True)
        scripted_model(agent, base_url, api, "talk", window)
        compaction = {"enabled": True, "reserveTokens": RESERVE, "keepRecentTokens": 1}
        (agent / "settings.json").write_text(json.dumps({"compaction": compaction}), encoding="utf-8")
        self.bridge.write_bytes(BRIDGE.content(None, self.bridge, self.connection_file, ""))

    def command(self) -> list[str]:
        return pi_command()

    def session(self, entries: Entries, name: str = "session") -> Path:
        """A session with these messages and other entries in a chain."""
        header, *lines = factories.chain(*entries)
        for line in lines:
            line["timestamp"] = "2026-01-05T10:00:00.000Z"
            if "message" in line:
                line["message"] = {"timestamp": 1_767_600_000_000, **line["message"]}
        path = self.sessions / f"{name}.jsonl"
        path.write_bytes(factories.session_bytes([{**header, "cwd": str(self.project)}, *lines]))
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
        extensions = (*self.more_extensions, self.bridge)
        return [*self._command, *(word for path in extensions for word in ("-e", str(path)))]


class Pi:
    """A running pi, or Atomic. Commands are sent to it, and all that it says is kept."""

    def __init__(self, home: PiHome, session: Path | None, *, environment: Mapping[str, str] | None = None) -> None:
        self.said: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._sent = 0
        chosen = ["--session", str(session)] if session else ["--no-session"]
        self._process = subprocess.Popen(
            [*home.command(), "--mode", "rpc", *chosen, "--model", "scripted/talk"],
            cwd=home.project,
            env={**environment_in(home.directory), **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
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

    def ended(self) -> dict[str, Any]:
        """The response to the first command; waits for it."""
        return self.response("c1")

    def is_cancelled(self) -> bool:
        """Whether the compaction, which was the first command, was cancelled; waits until it has ended."""
        return self.ended().get("error") == CANCELLED

    def settle(self, since: int = 0) -> None:
        """Wait until the agent is done."""
        self.first(lambda said: said["type"] == "agent_settled", since)

    def prompt(self, message: str) -> None:
        """Prompt, and wait until the agent is done."""
        since = len(self.said)
        assert self.run("prompt", message=message)["success"]
        self.settle(since)

    def shown(self, method: str) -> list[str]:
        """What extensions have shown: texts of `notify`, or of `setStatus`."""
        field = {"notify": "message", "setStatus": "statusText"}[method]
        asked = [said for said in self.said if said.get("type") == "extension_ui_request"]
        return [said.get(field) or "" for said in asked if said["method"] == method]

    def first_notice(self) -> dict[str, Any]:
        return self.first(lambda said: said.get("method") == "notify")

    def wait_for_notice(self, wanted: str) -> None:
        """Wait for what extensions show: this notice only. Agents show it before or after a response."""
        wait_until(lambda: self.shown("notify"), "nothing was shown")
        assert self.shown("notify") == [wanted]


def lines(session: Path, kind: str) -> list[dict[str, Any]]:
    return [one for one in map(json.loads, session.read_text().splitlines()) if one["type"] == kind]


def words(request: dict[str, Any]) -> list[str]:
    """The texts of a request, without the instructions."""
    contents = [one["content"] for one in request["messages"]]
    blocks = [[{"text": one}] if isinstance(one, str) else one for one in contents]
    return ["".join(block["text"] for block in content) for content in blocks]


def was_summarised(session: Path) -> bool:
    return bool(lines(session, "compaction"))


@dataclass
class Asking:
    """An agent with the bridge, a model that a test scripts, and a Redline that a test plays."""

    home: PiHome
    model: MessagesServer
    redline: StandIn

    @cached_property
    def short(self) -> Path:
        """A session that the agent compacts only if it is asked to."""
        return self.home.session(conversation())

    @cached_property
    def full(self) -> Path:
        """A session whose next prompt makes the agent compact."""
        return self.home.session(conversation(FULL))

    def open(self, session: Path | None = None, **environment: str) -> Pi:
        """The agent with a session, by default the short one."""
        return Pi(self.home, session or self.short, environment=environment)

    @contextmanager
    def compacting(self, session: Path | None = None) -> Iterator[Pi]:
        """The agent while it asks about a compaction that was asked for."""
        with self.open(session) as agent:
            agent.send("compact")
            self.redline.next_question()
            yield agent

    @contextmanager
    def prompted(self, session: Path | None = None) -> Iterator[Pi]:
        """The agent while it asks before it sends a prompt, with the full session or another one."""
        with self.open(session or self.full) as agent:
            agent.send("prompt", message="go on")
            self.redline.next_question()
            yield agent

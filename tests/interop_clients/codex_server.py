"""Codex's app server: how editors let it compact a thread, as /compact does in the terminal."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from tests.wait import WAIT_SECONDS

from .codex_runs import CodexRuns

COMPLETED: Final = "turn/completed"


class CodexServer:
    """A running app server, from `__enter__` to `__exit__`."""

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

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
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

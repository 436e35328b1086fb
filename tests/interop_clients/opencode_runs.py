"""OpenCode as installed by `make interop-clients`: headless runs in a home of their own, without a network."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import sqlite3
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from sessions_app.agents.edge.dry_resume import new_scratch, run_client
from sessions_app.agents.opencode.edge import client
from sessions_app.agents.opencode.edge.client import OFFLINE
from tests.wait import wait_until

from .scripted_model import ClientRun, ModelReply, ScriptedModel

PROBE: Final = "REDLINE-PROBE"
RUN_SECONDS: Final = 120
START_SECONDS: Final = 3


class OpencodeRuns:
    """An installed version, with its own home in `base`; `model` is its only model, in a window of so many tokens.

    Its shell tool is `bash` with the arguments `command` and `description`.
    """

    def __init__(self, program: Path, base: Path, model: ScriptedModel, window: int = client.CONTEXT_WINDOW) -> None:
        base.mkdir(parents=True, exist_ok=True)
        self.scratch = new_scratch(base, model.url)
        self.data = client.data_directory(self.scratch)
        self.database = self.data / "opencode.db"
        self._program = client.OpenCodeProgram(str(program))
        self.model = model
        self.environment = {**self._program.environment(self.scratch), **OFFLINE}
        client.configure(self.scratch, "scripted", "model", window)
        file = self.scratch.project / "opencode.json"
        allowed = {"permission": {"edit": "allow", "bash": "allow"}}
        file.write_text(json.dumps(json.loads(file.read_text()) | allowed))

    def run(
        self, prompt: str, replies: Iterable[ModelReply] = (), *, session: str = "", **environment: str
    ) -> ClientRun:
        """One headless turn; with a session, it is continued."""
        known = self.model.expect(replies)
        ended = run_client(
            self._program.command(prompt, session),
            cwd=self.scratch.project,
            environment={**self.environment, **environment},
            seconds=RUN_SECONDS,
        )
        return ClientRun(*ended, tuple(self.model.conversation[known:]))

    def call(self, *arguments: str) -> str:
        """What a command of the client prints."""
        ended = subprocess.run(
            [self._program.program, *arguments],
            cwd=self.scratch.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert ended.returncode == 0, ended
        return ended.stdout

    def sent(self, session: str) -> list[Mapping[str, Any]]:
        """The messages that the client sends when it continues a session, from its instructions up to the probe;
        the session stays as it is."""
        kept = self.data.with_name("opencode-kept")
        shutil.copytree(self.data, kept)
        try:
            ended = self.run(PROBE, session=session)
        finally:
            shutil.rmtree(self.data)
            kept.rename(self.data)
        return probed(ended)

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a query; a change is committed."""
        with closing(sqlite3.connect(self.database, timeout=30)) as database:
            database.row_factory = sqlite3.Row
            found = [dict(row) for row in database.execute(query, values)]
            database.commit()
            return found

    def copied(self) -> Path:
        """A copy of the database beside the client's data."""
        copy = self.data.with_name("copied") / self.data.name / self.database.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.database)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return copy

    def sent_beside(self, session: str) -> list[Mapping[str, Any]]:
        """The same, of a copy of the database: for a session whose server is running."""
        data = self.copied().parent
        try:
            ended = self.run(PROBE, session=session, XDG_DATA_HOME=str(data.parent))
        finally:
            shutil.rmtree(data.parent)
        return probed(ended)

    @contextmanager
    def served(self, environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[OpencodeServer]:
        """The client's own server on a free port, until the end of the block."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        child = subprocess.Popen(
            [self._program.program, "serve", "--port", str(port), "--hostname", "127.0.0.1"],
            cwd=self.scratch.project,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        server = OpencodeServer(f"http://127.0.0.1:{port}", self, child)
        try:
            wait_until(server.answers, "the server does not answer")
            yield server
        finally:
            server.end()


def probed(run: ClientRun) -> list[Mapping[str, Any]]:
    """The messages that were sent before the probe."""
    found = [body["messages"] for body in run.requests if PROBE in json.dumps(body["messages"][-1])]
    assert found, run
    return list(found[0][:-1])


@dataclass(frozen=True, slots=True)
class OpencodeServer:
    """The HTTP interface of a running client."""

    url: str
    runs: OpencodeRuns
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()

    def answers(self) -> bool:
        assert self.process.poll() is None
        # A request that arrives while the server starts is never answered.
        try:
            self.call("GET", "/session", seconds=START_SECONDS)
        except urllib.error.HTTPError as refused:
            return refused.code == http.client.UNAUTHORIZED
        except (urllib.error.URLError, TimeoutError):
            return False
        return True

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, seconds: int = RUN_SECONDS) -> Any:
        """The document of a response; raises HTTPError."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=seconds) as response:
            content = response.read()
        return json.loads(content) if content else None

    def prompt(self, session: str, text: str, replies: Iterable[ModelReply] = ()) -> list[Mapping[str, Any]]:
        """One turn; returns the requests that the client sent."""
        known = self.runs.model.expect(replies)
        self.call("POST", f"/session/{session}/message", {"parts": [{"type": "text", "text": text}]})
        return self.runs.model.conversation[known:]

"""EDGE: an agent's installed client, which continues a copy of a session against a model on loopback.

    copy of the session ─▶ client ─▶ first request with PROBE: the session's messages, and what the client adds
    (a new session)     ─▶ client ─▶ the control: only what the client adds

The client runs in a temporary home, without the user's files, keys or network. If it sends other requests before the
one with PROBE, it compacts the session before it continues.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from sessions_app.agents.edge.installed_version import program_on_path
from sessions_app.sessionlog.certificate import PackageOutcome, PackageResult
from sessions_app.sessionlog.errors import BadInput

from .comparison import PROBE, difference, has_probe
from .model_server import ModelRequest, ModelServer
from .process import ClientExit, ClientUnusable, Scratch, new_scratch, run_client

_VERSION: Final = re.compile(r"(?<![\d.])\d{1,6}\.\d{1,6}\.\d{1,6}")

Messages = Sequence[Mapping[str, Any]]


class ClientProgram(Protocol):
    """What is different from client to client."""

    @property
    def label(self) -> str:
        """The agent's name for people."""
        ...

    @property
    def program(self) -> str:
        """The path of the program."""
        ...

    @property
    def openings(self) -> tuple[str, ...]:
        """How the texts begin that it may add to a user's turn."""
        ...

    def environment(self, scratch: Scratch) -> Mapping[str, str]:
        """The environment in which it runs."""
        ...

    def place(self, name: str, content: Iterable[bytes], scratch: Scratch) -> str:
        """Write a session, given its file's name and its bytes, to where the program finds it.

        Returns the id by which it is continued. Raises ClientUnusable. A run of its own with PROBE is the control.
        """
        ...

    def command(self, prompt: str, session_id: str = "") -> list[str]:
        """One turn without a terminal, in a session or in a new one."""
        ...

    def messages(self, body: Mapping[str, Any]) -> Messages | None:
        """The messages of a request; None if it is not one of the conversation's."""
        ...


class DryResume(NamedTuple):
    """What a client did with a copy of a session."""

    sent: Messages | None
    """The messages of the request with PROBE; None if there was none."""
    added: Messages
    """Those of the control."""
    requests: int
    """The number of requests of the conversation, up to the one with PROBE."""
    exit: ClientExit


def dry_resume(client: ClientProgram, name: str, content: Iterable[bytes]) -> DryResume:
    """Continue a copy of a session, given its file's name and its bytes. Raises ClientUnusable."""
    # What the program left running may still write.
    with (
        tempfile.TemporaryDirectory(prefix="redline-client-", ignore_cleanup_errors=True) as directory,
        ModelServer() as server,
    ):
        scratch = new_scratch(Path(directory), server.url)
        session_id = client.place(name, content, scratch)
        added, _ = _conversation(client, server.requests)
        if added is None:
            control = _run(client, client.command(PROBE), scratch)
            added, _ = _conversation(client, server.requests)
            if added is None:
                raise ClientUnusable(f"it does not run without the user's settings: {control.last_words}")
        del server.requests[:]
        ended = _run(client, client.command(PROBE, session_id), scratch)
        sent, requests = _conversation(client, server.requests)
        return DryResume(sent, added, requests, ended)


@dataclass(frozen=True, slots=True)
class InstalledClient:
    """A client with its version, as a certificate uses it."""

    client: ClientProgram
    version: str

    @property
    def name(self) -> str:
        return self.client.label

    def resume(self, name: str, content: Iterable[bytes], messages: Iterable[Mapping[str, Any]]) -> PackageResult:
        """Whether the client sends these messages when it continues a copy of a session."""
        try:
            outcome, detail = self._outcome(dry_resume(self.client, name, content), messages)
        except ClientUnusable as fault:
            outcome, detail = PackageOutcome.FAILED, f"{self.name} {self.version} could not be used: {fault}"
        return PackageResult(self.name, self.version, outcome, detail)

    def _outcome(self, run: DryResume, messages: Iterable[Mapping[str, Any]]) -> tuple[PackageOutcome, str]:
        if run.sent is None and run.requests:
            return PackageOutcome.DIFFERENT, "it compacts the session, and does not continue it"
        if run.sent is None:
            return PackageOutcome.REFUSED, run.exit.last_words
        if run.requests > 1:
            return PackageOutcome.DIFFERENT, "it compacts the session before it continues it"
        found = difference(run.sent, run.added, messages, self.client.openings)
        return (PackageOutcome.DIFFERENT if found else PackageOutcome.EQUAL), found


def find_client(kind: Callable[[str], ClientProgram], name: str, program: Path | None) -> InstalledClient | None:
    """The client with this program, or the one of this name on the PATH; None if there is none.

    Raises BadInput `no_client` if the program does not print a version.
    """
    found = str(program.absolute()) if program is not None else program_on_path(name)
    client = _installed_client(kind(found)) if found is not None else None
    if client is None and program is not None:
        raise BadInput(
            "no_client",
            f"{program} is not a program that prints a version. Nothing was checked. "
            "Give the path of the agent's program, or leave it out to use the one on the PATH.",
        )
    return client


def _installed_client(client: ClientProgram) -> InstalledClient | None:
    with tempfile.TemporaryDirectory(prefix="redline-client-", ignore_cleanup_errors=True) as directory:
        scratch = new_scratch(Path(directory), "")
        try:
            ended = _run(client, [client.program, "--version"], scratch)
        except ClientUnusable:
            return None
    version = _VERSION.search(ended.output)
    return InstalledClient(client, version.group()) if version is not None else None


def _run(client: ClientProgram, command: Sequence[str], scratch: Scratch) -> ClientExit:
    return run_client(command, cwd=scratch.project, environment=client.environment(scratch))


def _conversation(client: ClientProgram, requests: Sequence[ModelRequest]) -> tuple[Messages | None, int]:
    """The messages of the request with PROBE, and its number among the conversation's."""
    number = 0
    for request in requests:
        messages = client.messages(request.body)
        if messages is not None:
            number += 1
            if has_probe(messages):
                return messages, number
    return None, number

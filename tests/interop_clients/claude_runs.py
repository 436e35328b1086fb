"""Claude Code as installed by `make interop-clients`: headless runs in a home of their own, without a network."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .messages_server import MessagesServer

PROBE: Final = "REDLINE-PROBE"
CLOSING: Final = "No response requested."
"""The reply with which the client closes a conversation that ended with a user's message."""
RUN_SECONDS: Final = 300
SWITCHES: Final = (
    *("--tools", "Read,Bash,Write", "--allowedTools", "Read,Bash,Write"),
    *("--system-prompt", "A test."),
)
QUIET: Final = {
    "ANTHROPIC_API_KEY": "none",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "LANG": "C.UTF-8",
    "TERM": "xterm",
}
_DIGITS: Final = re.compile(r"\d+")

Sent = tuple[str, tuple[str, ...]]
"""One message on the wire: its role, and its blocks as JSON."""


@dataclass(frozen=True, slots=True)
class ClaudeRun:
    """One run: what the client printed, and the requests that it sent."""

    output: str
    requests: tuple[Mapping[str, Any], ...]

    @property
    def result(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self.output.splitlines()[-1])
        return found

    @property
    def session_id(self) -> str:
        return str(self.result["session_id"])

    @property
    def is_error(self) -> bool:
        return bool(self.result["is_error"])


class ClaudeClient:
    """An installed version, with its own home below `base`; `server` is its only model."""

    def __init__(self, program: Path, version: tuple[int, ...], base: Path, server: MessagesServer) -> None:
        self.version = version
        self.home = base / "home"
        self.project = base / "project"
        self._command = ["node", str(program)] if program.suffix == ".js" else [str(program)]
        self._server = server
        self._fresh: frozenset[str] = frozenset()
        for directory in (self.home, self.project):
            directory.mkdir(parents=True, exist_ok=True)

    @property
    def sessions(self) -> Path:
        """The directory of the project's sessions."""
        slug = re.sub(r"[^A-Za-z0-9]", "-", str(self.project))
        directory = self.home / ".claude" / "projects" / slug
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def session(self, session_id: str) -> Path:
        return self.sessions / f"{session_id}.jsonl"

    def run(self, prompt: str, *, resume: str = "", arguments: Iterable[str] = (), **extra: str) -> ClaudeRun:
        """One headless turn; `extra` are environment variables."""
        known = len(self._server.requests)
        snapshot = ("--system-prompt-snapshot", "off") if self.version >= (2, 1, 320) else ()
        command = [*self._command, "-p", "--output-format", "json", *SWITCHES, *snapshot, *arguments]
        ended = subprocess.run(
            [*command, *(("--resume", resume) if resume else ()), "--", prompt],
            cwd=self.project,
            env={
                **QUIET,
                "HOME": str(self.home),
                "PATH": os.environ["PATH"],
                "ANTHROPIC_BASE_URL": self._server.base_url,
                **extra,
            },
            input="",
            capture_output=True,
            encoding="utf-8",
            timeout=RUN_SECONDS,
        )
        assert ended.stdout, (ended.returncode, ended.stderr)
        return ClaudeRun(ended.stdout, tuple(self._server.requests[known:]))

    def context(self, session_id: str) -> list[Sent]:
        """What the client sends of a session when it resumes it; the session has one more turn afterwards."""
        self._fresh = self._fresh or self._fresh_texts()
        run = self.run(PROBE, resume=session_id)
        probes = [one for one in run.requests if PROBE in json.dumps(one["messages"])]
        assert probes, run.output
        return list(sent(probes[0]["messages"], self._fresh))

    def _fresh_texts(self) -> frozenset[str]:
        """What the client adds to every conversation, without digits: all but the words of a session of two turns."""
        first, second = "first words of a conversation", "second words of a conversation"
        run = self.run(first)
        again = self.run(second, resume=run.session_id)
        texts = [*_texts(run.requests[0]["messages"]), *_texts(again.requests[0]["messages"])]
        return frozenset(_without_digits(text) for text in texts if text not in (first, second, "done"))


def sent(messages: Iterable[Mapping[str, Any]], fresh: frozenset[str] = frozenset()) -> Iterator[Sent]:
    """Messages as they are compared: without PROBE, without `fresh` texts, and without marks for the cache."""
    for message in messages:
        blocks = [block for block in _blocks(message) if not _is_added(block, fresh)]
        if blocks:
            yield message["role"], tuple(json.dumps(block, sort_keys=True) for block in blocks)


def _blocks(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = message["content"]
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        yield {key: value for key, value in block.items() if key != "cache_control"}


def _is_added(block: Mapping[str, Any], fresh: frozenset[str]) -> bool:
    text = block.get("text", "")
    return block["type"] == "text" and (text.strip() == PROBE or _without_digits(text) in fresh)


def _texts(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        yield from (block["text"] for block in _blocks(message) if block["type"] == "text")


def _without_digits(text: str) -> str:
    return _DIGITS.sub("", text)

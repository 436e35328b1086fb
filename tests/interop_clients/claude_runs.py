"""Claude Code as installed by `make interop-clients`: headless runs in a home of their own, without a network."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .messages_server import MessagesServer, ScriptedReply

PROBE: Final = "REDLINE-PROBE"
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
_REMINDER: Final = re.compile(r"\s*<system-reminder>(.*?)</system-reminder>", re.DOTALL)
_TAGS: Final = re.compile(r"</?system-reminder>")

Sent = tuple[str, tuple[str, ...]]
"""One message on the wire: its role, the paragraphs of its texts, and its other blocks as JSON."""


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

    def __init__(self, program: Path, base: Path, server: MessagesServer) -> None:
        self._command = [str(program)]
        self.version = self._printed_version()
        self.home = base / "home"
        self.project = base / "project"
        self.server = server
        self._fresh: dict[str, frozenset[str]] = {}
        """By model, the paragraphs that the client adds to every conversation, without digits."""
        for directory in (self.home, self.project):
            directory.mkdir(parents=True, exist_ok=True)

    @property
    def sessions(self) -> Path:
        """The directory of the project's sessions."""
        slug = re.sub(r"[^A-Za-z0-9]", "-", str(self.project))
        directory = self.home / ".claude" / "projects" / slug
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    @property
    def environment(self) -> dict[str, str]:
        own = {"HOME": str(self.home), "PATH": os.environ["PATH"], "ANTHROPIC_BASE_URL": self.server.url}
        return {**QUIET, **own}

    def session(self, session_id: str) -> Path:
        return self.sessions / f"{session_id}.jsonl"

    def say(self, prompt: str, *replies: ScriptedReply, resume: str = "", arguments: Iterable[str] = ()) -> str:
        """One turn with these replies of the model; returns the id of the session."""
        self.server.replies.extend(replies)
        run = self.run(prompt, resume=resume, arguments=arguments)
        assert not self.server.replies, run.output
        return run.session_id

    def run(self, prompt: str, *, resume: str = "", arguments: Iterable[str] = (), **extra: str) -> ClaudeRun:
        """One headless turn; `extra` are environment variables."""
        known = len(self.server.requests)
        snapshot = ("--system-prompt-snapshot", "off") if self.version >= (2, 1, 320) else ()
        command = [*self._command, "-p", "--output-format", "json", *SWITCHES, *snapshot, *arguments]
        ended = subprocess.run(
            [*command, *(("--resume", resume) if resume else ()), "--", prompt],
            cwd=self.project,
            env={**self.environment, **extra},
            input="",
            capture_output=True,
            encoding="utf-8",
            timeout=RUN_SECONDS,
        )
        assert ended.stdout, (ended.returncode, ended.stderr)
        return ClaudeRun(ended.stdout, tuple(self.server.requests[known:]))

    def context(self, session_id: str) -> list[Sent]:
        """What the client sends of a session when it resumes it; the session has one more turn afterwards."""
        run = self.run(PROBE, resume=session_id)
        probes = [one["messages"] for one in run.requests if PROBE in json.dumps(one["messages"])]
        assert probes, run.output
        self._learn_fresh(run.requests[0]["model"])
        messages = probes[0]
        place = next(at for at, message in enumerate(messages) if PROBE in _texts([message]))
        return self.comparable(messages[: place + 1])

    def comparable(self, messages: Iterable[Mapping[str, Any]]) -> list[Sent]:
        """Messages without PROBE, without what the client adds to every conversation, and without marks for the
        cache; neighbouring messages of the user are one."""
        found: list[Sent] = []
        for message in messages:
            role = message["role"]
            blocks = tuple(text for block in _blocks(message) for text in self._comparable_block(block))
            if blocks and role == "user" and found and found[-1][0] == role:
                found[-1] = role, found[-1][1] + blocks
            elif blocks:
                found.append((role, blocks))
        return found

    def _comparable_block(self, block: Mapping[str, Any]) -> Iterator[str]:
        """A block as JSON; the paragraphs of a text, which the client joins and wraps in different ways."""
        if block["type"] == "text":
            for paragraph in _paragraphs(block["text"]):
                if paragraph != PROBE and not self._is_fresh(paragraph):
                    yield paragraph
            return
        content = block.get("content")
        if block["type"] == "tool_result" and isinstance(content, str):
            block = {**block, "content": _REMINDER.sub(self._left_of_reminder, content)}
        yield json.dumps(block, sort_keys=True)

    def _left_of_reminder(self, found: re.Match[str]) -> str:
        """A reminder that the client has made a part of a result, unless it would have been added anyway."""
        return "" if all(map(self._is_fresh, _paragraphs(found[1]))) else found[0]

    def _is_fresh(self, paragraph: str) -> bool:
        return any(_without_digits(paragraph) in fresh for fresh in self._fresh.values())

    def _printed_version(self) -> tuple[int, ...]:
        printed = subprocess.run([*self._command, "--version"], capture_output=True, encoding="utf-8", check=True)
        return tuple(map(int, printed.stdout.split()[0].split(".")))

    def _learn_fresh(self, model: str) -> None:
        """Find what the client adds: all but the words of a session of two turns."""
        if model in self._fresh:
            return
        first, second = "first words of a conversation", "second words of a conversation"
        run = self.run(first, arguments=("--model", model))
        again = self.run(second, resume=run.session_id, arguments=("--model", model))
        texts = [*_texts(run.requests[0]["messages"]), *_texts(again.requests[0]["messages"])]
        found = (paragraph for text in texts for paragraph in _paragraphs(text))
        self._fresh[model] = frozenset(_without_digits(one) for one in found if one not in (first, second, "done"))


def _blocks(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = message["content"]
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        yield {key: value for key, value in block.items() if key != "cache_control"}


def _texts(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    return [block["text"] for message in messages for block in _blocks(message) if block["type"] == "text"]


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a text, without the tags around a reminder."""
    for paragraph in _TAGS.sub("\n\n", text).split("\n\n"):
        if paragraph.strip():
            yield paragraph.strip()


def _without_digits(text: str) -> str:
    return _DIGITS.sub("", text)

"""EDGE: Claude Code's own program: how it is found, and how a dry resume runs it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.base import AgentClient, Client
from sessions_app.agents.claude_code.pure.sent import INTERRUPTED
from sessions_app.agents.edge.dry_resume.client import find_client
from sessions_app.agents.edge.dry_resume.process import Scratch

FEW_TOOLS: Final = ("--tools", "Read,Bash,Write", "--disable-slash-commands")
"""Calls are sent with the names that they were recorded with, and fewer reminders are added."""
_NOT_IN_SLUG: Final = re.compile(r"[^A-Za-z0-9]")


class ClaudeCodeClient(Client):
    program = "claude"
    can_be_run = True

    def find_installed(self, program: Path | None) -> AgentClient | None:
        return find_client(ClaudeCodeProgram, self.program, program)

    def resume_command(self, path: Path) -> Sequence[str]:
        return self.program, "--resume", path.stem


@dataclass(frozen=True, slots=True)
class ClaudeCodeProgram:
    """The program `claude`."""

    program: str
    label: str = "Claude Code"
    openings: tuple[str, ...] = ("<system-reminder>",)

    def environment(self, scratch: Scratch) -> Mapping[str, str]:
        """Without requests beside the conversation."""
        return {
            **scratch.environment,
            "CLAUDE_CONFIG_DIR": str(scratch.home / ".claude"),
            "ANTHROPIC_BASE_URL": scratch.model_url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def place(self, name: str, content: Iterable[bytes], scratch: Scratch) -> str:
        session_id = _session_id(Path(name).stem)
        directory = sessions_directory(scratch)
        directory.mkdir(parents=True)
        with (directory / f"{session_id}.jsonl").open("wb") as copy:
            copy.writelines(content)
        return session_id

    def command(self, prompt: str, session_id: str = "") -> list[str]:
        resume = ("--resume", session_id) if session_id else ()
        return [self.program, "-p", "--output-format", "json", *FEW_TOOLS, *resume, "--", prompt]

    def messages(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        """A request without tools is not a turn: it may be for a title."""
        messages = body.get("messages")
        return list(map(_in_short, messages)) if body.get("tools") and isinstance(messages, list) else None


def _in_short(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message as `sent` gives it: the client's sentence about an interrupted call in short."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    blocks = [
        {**block, "content": INTERRUPTED}
        if isinstance(block, dict) and str(block.get("content")).startswith(INTERRUPTED.rstrip("]"))
        else block
        for block in content
    ]
    return {**message, "content": blocks}


def sessions_directory(scratch: Scratch) -> Path:
    """The directory of the project's sessions."""
    return scratch.home / ".claude" / "projects" / _NOT_IN_SLUG.sub("-", str(scratch.project))


def _session_id(name: str) -> str:
    """The id in the name of a file. A copy with another name gets an id, because the name decides."""
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid.uuid4())

"""EDGE: OpenCode's own program, as a dry resume runs it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.dry_resume.comparison import PROBE
from sessions_app.agents.dry_resume.process import SECONDS, ClientUnusable, run_client
from sessions_app.agents.dry_resume.scratch import Scratch

from .session_rows import SessionRows

CONTEXT_WINDOW: Final = 10_000_000
"""Tokens; nothing that was recorded fills it, so that the client does not compact before it sends."""
MEDIA: Final = {"modalities": {"input": ["text", "image", "pdf"], "output": ["text"]}}
"""What the model takes: of other media, the client sends an error in the place of each."""


@dataclass(frozen=True, slots=True)
class OpenCodeProgram:
    """The program `opencode`."""

    program: str
    label: str = "OpenCode"
    openings: tuple[str, ...] = ()

    def environment(self, scratch: Scratch) -> Mapping[str, str]:
        return {**scratch.environment, "OPENCODE_DISABLE_AUTOUPDATE": "1"}

    def place(self, name: str, content: Iterable[bytes], scratch: Scratch) -> str:
        """The client makes its own database, with a session that gets the rows of this one."""
        del name
        rows = SessionRows(content)
        configure(scratch, *rows.model)
        made = run_client(
            self.command(PROBE),
            cwd=scratch.project,
            environment=self.environment(scratch),
            seconds=SECONDS,
        )
        try:
            return rows.insert(data_directory(scratch) / "opencode.db")
        except (sqlite3.Error, ValueError) as fault:
            raise ClientUnusable(f"it made no database for a session ({fault}): {made.last_words}") from fault

    def command(self, prompt: str, session_id: str = "") -> list[str]:
        resume = ("--session", session_id) if session_id else ()
        return [self.program, "run", "--format", "json", *resume, prompt]

    def messages(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        """A request without tools is not a turn: it is for a title."""
        return list(body["messages"]) if body.get("tools") and isinstance(body.get("messages"), list) else None


def data_directory(scratch: Scratch) -> Path:
    """The directory of OpenCode's sessions."""
    return scratch.home / ".local" / "share" / "opencode"


def configure(scratch: Scratch, provider: str, model: str, window: int = CONTEXT_WINDOW) -> None:
    """Write a configuration of the project with one model."""
    limits = {"context": window, "output": 8_000}
    configuration = {
        "autoupdate": False,
        "share": "disabled",
        "model": f"{provider}/{model}",
        "small_model": f"{provider}/{model}",
        "provider": {
            provider: {
                "npm": "@ai-sdk/openai-compatible",
                "name": provider,
                "options": {"baseURL": f"{scratch.model_url}/v1", "apiKey": "none"},
                "models": {model: {"name": model, "limit": limits, "tool_call": True, "attachment": True, **MEDIA}},
            }
        },
    }
    (scratch.project / "opencode.json").write_text(json.dumps(configuration), encoding="utf-8")

"""EDGE: OpenCode's own program, as a dry resume runs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sessions_app.agents.dry_resume.scratch import Scratch

PROGRAM: Final = "opencode"
CONTEXT_WINDOW: Final = 10_000_000
"""Tokens; nothing that was recorded fills it, so that the client does not compact before it sends."""


def data_directory(scratch: Scratch) -> Path:
    """The directory of OpenCode's sessions."""
    return scratch.home / ".local" / "share" / "opencode"


def environment(scratch: Scratch) -> Mapping[str, str]:
    """The environment of the program."""
    return {**scratch.environment, "OPENCODE_DISABLE_AUTOUPDATE": "1"}


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
                "models": {model: {"name": model, "limit": limits, "tool_call": True}},
            }
        },
    }
    (scratch.project / "opencode.json").write_text(json.dumps(configuration), encoding="utf-8")


def command(program: str, prompt: str, session_id: str = "") -> list[str]:
    """One headless turn, in a session or in a new one."""
    resume = ("--session", session_id) if session_id else ()
    return [program, "run", "--format", "json", *resume, prompt]

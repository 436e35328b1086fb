"""EDGE: Claude Code's own program, as a dry resume runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sessions_app.agents.dry_resume.scratch import Scratch

PROGRAM: Final = "claude"
_NOT_IN_SLUG: Final = re.compile(r"[^A-Za-z0-9]")


def sessions_directory(scratch: Scratch) -> Path:
    """The directory of the project's sessions."""
    return scratch.home / ".claude" / "projects" / _NOT_IN_SLUG.sub("-", str(scratch.project))


def environment(scratch: Scratch) -> Mapping[str, str]:
    """The environment of the program, without requests beside the conversation."""
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


def command(program: str, prompt: str, session_id: str = "", model: str = "") -> list[str]:
    """One headless turn, in a session or in a new one."""
    resume = ("--resume", session_id) if session_id else ()
    chosen = ("--model", model) if model else ()
    return [program, "-p", "--output-format", "json", *chosen, *resume, "--", prompt]

"""EDGE: the hook by which Claude Code asks for a review before it compacts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sessions_app.agents.base import TEST_VARIABLE
from sessions_app.agents.claude_code.pure.hook import ClaudeCodeHook
from sessions_app.agents.claude_code.pure.records import KEY
from sessions_app.agents.edge.bridges import HookBridge
from sessions_app.agents.edge.dry_resume.model_server import ModelServer
from sessions_app.agents.edge.dry_resume.process import ClientUnusable, new_scratch, run_client
from sessions_app.agents.pure.json_document import JsonDocument

from .client import ClaudeCodeProgram
from .settings import DIRECTORY, config_directory

OFF: Final = "disableAllHooks"


class SettingsBridge(HookBridge):
    """An entry in the settings of the user, or in those of a project that are not shared with others.

    ~/.claude/settings.json; CLAUDE_CONFIG_DIR names another directory
    PROJECT/.claude/settings.local.json
    """

    key = KEY
    label = "Claude Code"
    hook = ClaudeCodeHook()

    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        del in_project
        return ("A running Claude Code asks Redline when it is started again.",)

    def path(self, home: Path, project: Path | None) -> Path:
        if project is not None:
            return project / DIRECTORY / "settings.local.json"
        return config_directory(home) / "settings.json"

    def remarks(self, content: bytes, path: Path) -> Sequence[str]:
        off = JsonDocument(content, str(path)).root.member(OFF)
        if off is None or off.value is not True:
            return super().remarks(content, path)
        return (
            *super().remarks(content, path),
            f"{path} sets {OFF}: Claude Code calls no hook until it is removed.",
        )

    def try_out(self, program: str, home: Path, connection: Path, redline: str) -> str:
        """A session of one message is compacted: it costs no request, because the hook prevents the compaction."""
        with ModelServer() as server:
            scratch = new_scratch(home, server.url)
            client = ClaudeCodeProgram(program)
            path = scratch.home / DIRECTORY / "settings.json"
            path.parent.mkdir()
            path.write_bytes(self.content(None, path, connection, redline))
            environment = {**client.environment(scratch), TEST_VARIABLE: "1"}
            begun = run_client(client.command("Hello"), cwd=scratch.project, environment=environment)
            try:
                session_id = json.loads(begun.output)["session_id"]
            except (ValueError, TypeError, KeyError) as fault:
                raise ClientUnusable(f"it did not begin a session: {begun.last_words}") from fault
            command = [
                program,
                "-p",
                "--output-format",
                "json",
                "--resume",
                str(session_id),
                "--",
                "/compact",
            ]
            ended = run_client(command, cwd=scratch.project, environment=environment)
            return _result(ended.output) or ended.last_words


def _result(output: str) -> str:
    """What the client printed as its answer; empty if it printed none."""
    try:
        return str(json.loads(output)["result"])
    except (ValueError, TypeError, KeyError):
        return ""

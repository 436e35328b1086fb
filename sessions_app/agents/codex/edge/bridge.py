"""EDGE: the hook by which Codex asks for a review before it compacts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sessions_app.agents.base import OUT_OF_REPOSITORY, TEST_VARIABLE
from sessions_app.agents.codex.pure.hook import CodexHook
from sessions_app.agents.codex.pure.records import KEY
from sessions_app.agents.edge.bridges import HookBridge
from sessions_app.agents.edge.dry_resume.model_server import ModelServer, short_answer
from sessions_app.agents.edge.dry_resume.process import ClientUnusable, new_scratch, run_client

from .client import MODEL, CodexProgram, codex_home, configure
from .settings import DIRECTORY, LIMIT, home_directory

FILE: Final = "hooks.json"
TOKENS: Final = 50_000
"""What the model reports as the size of the first turn, so that the next one compacts."""


class HooksBridge(HookBridge):
    """An entry in the file of hooks of the user, or in a project's.

    ~/.codex/hooks.json; CODEX_HOME names another directory
    PROJECT/.codex/hooks.json
    """

    key = KEY
    label = "Codex"
    hook = CodexHook()

    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        where = ", and only in a project that you trust" if in_project else ""
        return (
            *((OUT_OF_REPOSITORY,) if in_project else ()),
            f"Codex calls a hook only after you have trusted it{where}: start codex, and trust Redline's hook when it "
            "asks, or under /hooks. If the command changes, Codex asks again.",
        )

    def path(self, home: Path, project: Path | None) -> Path:
        return (project / DIRECTORY if project is not None else home_directory(home)) / FILE

    def try_out(self, program: str, home: Path, connection: Path, redline: str) -> str:
        """A thread of one message is continued, which is to be compacted first."""
        with ModelServer(lambda request: short_answer(request.path, request.body, TOKENS)) as server:
            scratch = new_scratch(home, server.url)
            client = CodexProgram(program)
            configure(scratch, MODEL)
            path = codex_home(scratch) / "config.toml"
            path.write_text(f"{LIMIT} = {TOKENS // 2}\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
            hooks = codex_home(scratch) / FILE
            hooks.write_bytes(self.content(None, hooks, connection, redline))
            environment = {**client.environment(scratch), TEST_VARIABLE: "1"}
            start = [program, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]
            begun = run_client([*start, "Hello"], cwd=scratch.project, environment=environment)
            thread_id = _thread_id(begun.output)
            if not thread_id:
                raise ClientUnusable(f"it did not begin a thread: {begun.last_words}")
            command = [*start, "resume", thread_id, "Hello"]
            return run_client(command, cwd=scratch.project, environment=environment).last_words


def _thread_id(output: str) -> str:
    """The id of the thread that a run printed; empty if it printed none."""
    for line in output.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("thread_id"), str):
            return str(event["thread_id"])
    return ""

"""A session of Claude Code on disk, and what its writers make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from devtools.bench.written_plans import WrittenPlan, write_plan
from sessions_app.agents.base import Generation
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.session_loader import load_session
from tests.claude_sessions import SESSION_ID, ClaudeSession

from .sent_messages import CURRENT

WRITERS: Final = {writer.name: writer for writer in CURRENT.writers}


def put(session: ClaudeSession, directory: Path) -> Path:
    """The session among the client's own files below a directory."""
    path = directory / ".claude" / "projects" / "-home-dev-project" / f"{SESSION_ID}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(session.content)
    return path


def written(path: Path, writer: str, *targets: Target, generation: Generation = CURRENT) -> WrittenPlan:
    """What a writer makes of a session without these targets: a fork beside it, or the longer session."""
    chosen = next(one for one in generation.writers if one.name == writer)
    return write_plan(load_session(path), generation, chosen, targets, path.parent)


def context_of(path: Path) -> ActiveContext:
    loaded = load_session(path)
    return CURRENT.reader.rebuild(loaded.tree.branch(loaded.leaf_id))


def context_ids(path: Path) -> list[str]:
    return [message.entry.id for message in context_of(path).messages]


def lines_of_file(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]

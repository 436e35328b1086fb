"""EDGE: session files examined for damage and broken pairs."""

from __future__ import annotations

from pathlib import Path

from sessions_app.agents.broken_pairs import broken_pairs
from sessions_app.agents.registry import AGENTS, agent_at
from sessions_app.sessionlog.diagnosis import Diagnosis, diagnosis_of
from sessions_app.sessionlog.lines import split_lines

from .session_loader import Progress, chunks_with_progress


def diagnose(path: Path, progress: Progress | None = None) -> Diagnosis:
    """Everything that is wrong with the session at a real path, in each agent that reads its format.

    Raises BadInput `not_a_session`, `no_such_file`, `not_a_file`, and SystemFailure.
    """
    agent = agent_at(path)
    with agent.store.open(path) as reader:
        lines = split_lines(chunks_with_progress(reader, progress))
        found = agent.format.examine(lines, str(path))
    formats = [other.format for other in AGENTS.values() if other.format.name == agent.format.name]
    generations = [generation for one in formats for generation in one.generations]
    return diagnosis_of([*found.findings, *broken_pairs(found.tree, generations)], found.more)

"""EDGE: the branch of a session file that the lab measures: the one from which its agent continues."""

from __future__ import annotations

from pathlib import Path

from compaction_app.planning.effective_parameters import effective_parameters
from sessions_app.agents.reading import Reading
from sessions_app.sessionlog.context import model_of
from sessions_app.sessionlog.entries import Entry
from sessions_app.storage.session_loader import LoadedSession

from .trials import Branch


def branch_to_measure(loaded: LoadedSession, reading: Reading) -> Branch:
    """The branch of the last entry, with the settings that its project has. Raises what reading texts raises."""
    entries: list[Entry] = list(loaded.tree.branch(loaded.leaf_id)) if loaded.tree.entries else []
    agent_settings = reading.agent.settings(loaded.log.cwd, Path.home(), model_of(entries))
    return Branch(
        loaded.tree,
        entries,
        loaded.texts(entries),
        reading.reader,
        reading.rules() if reading.writers else reading.generation.rules,
        effective_parameters(agent_settings, {}).values,
    )

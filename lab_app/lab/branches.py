"""The branch of a session file that the lab measures: the one from which its agent continues."""

from __future__ import annotations

from pathlib import Path

from compaction_app.planning.effective_parameters import effective_parameters
from lab_app.pure.trials import Branch
from sessions_app.document.document import Document
from sessions_app.sessionlog.context import model_of


def branch_to_measure(document: Document) -> Branch:
    """The branch of the last entry, with the settings of its project. Raises the errors of reading texts."""
    reading, entries = document.reading, document.branch() if document.tree.entries else []
    agent_settings = reading.agent.settings.for_project(document.log.cwd, Path.home(), model_of(entries))
    return Branch(
        document.tree,
        entries,
        document.texts(entries),
        reading.reader,
        reading.rules() if reading.writers else reading.generation.rules,
        effective_parameters(agent_settings, {}).values,
    )

"""The agent Atomic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessions_app.agents.base import Reader, SessionWriter
from sessions_app.agents.pi.agent import PiAgent

from .reader import AtomicReader, VerbatimLinesReader
from .rules import AtomicRules
from .writer import ContextCompactionWriter


class AtomicAgent(PiAgent):
    """Atomic 0.8.26 to 0.9.8."""

    key = "atomic"
    label = "Atomic"
    directory = ".atomic"
    sessions = "~/.atomic/agent/sessions"
    readers: Sequence[Reader] = (
        AtomicReader(),
        VerbatimLinesReader("atomic-0.9", tail_as_text=True),
        VerbatimLinesReader("atomic-0.9.9", tail_as_text=False),
    )
    writers: Sequence[SessionWriter] = (ContextCompactionWriter(),)
    rules = AtomicRules()


ATOMIC: Final = AtomicAgent()

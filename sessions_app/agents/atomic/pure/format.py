"""PURE: pi's format as Atomic uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessions_app.agents.pi.pure.diagnosis import ATOMIC_0_8, ATOMIC_0_9_9, ATOMIC_0_9_11
from sessions_app.agents.pi.pure.format import PiFormat
from sessions_app.agents.pi.pure.reader import ContextRules
from sessions_app.agents.pi.pure.summaries import PiSummaryFormat
from sessions_app.agents.pi.pure.writers import ForkWriter
from sessions_app.agents.pure.format import Generation, Reader, SummaryFormat

from .reader import AtomicReader, AtomicRules, VerbatimLinesReader
from .writer import ContextCompactionWriter

_READER: Final = AtomicReader()
_FORK: Final = ForkWriter(_READER, ends_with_edit=False)


def _later(label: str, reader: Reader, since: tuple[int, ...]) -> Generation:
    """A generation that honours no deletions in place."""
    fork = ForkWriter(reader, ends_with_edit=False)
    return Generation(label, reader, ContextRules(reader), (fork,), since=since)


class AtomicFormat(PiFormat):
    """Atomic from 0.8.26 on. It ignores compactions that are summaries."""

    label = "Atomic"
    summary_format: SummaryFormat | None = PiSummaryFormat(honours_compactions=False)
    generations: Sequence[Generation] = (
        _later(ATOMIC_0_9_11, VerbatimLinesReader("atomic-0.9", tail_as_text=True), (0, 9, 11)),
        _later(ATOMIC_0_9_9, VerbatimLinesReader("atomic-0.9.9", tail_as_text=False), (0, 9, 9)),
        Generation(ATOMIC_0_8, _READER, AtomicRules(), (ContextCompactionWriter(), _FORK)),
    )

"""Notes of the user that replace deleted entries: one line for a span of deleted entries within a turn.

A note is the user's own text, and is marked as such. Only writers that make a new session support notes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from django.http import QueryDict

from compaction_app.core.summary_ranges import turn_numbers
from compaction_app.models import Run
from sessions_app.sessionlog.entries import Entry, Role, Target
from sessions_app.sessionlog.errors import BadInput

NOTE_LENGTH: Final = 500
"""The maximum length of a note, in characters."""
SHOWN: Final = 8
"""The number of spans that are shown initially, the largest first."""
LISTED: Final = 200


@dataclass(frozen=True, slots=True)
class DeletedSpan:
    """Deleted entries of one turn, with no kept entry between them."""

    entry_id: str
    """The first of these entries, under whose id the note is stored."""
    turn: int
    entries: int
    tokens: int
    """The tokens of these entries, as the agent estimates them."""
    what: str
    """These entries in words, such as `read ×3, bash`."""
    note: str = ""


def spans_of(branch: Sequence[Entry], targets: Sequence[Target], notes: Mapping[str, str]) -> list[DeletedSpan]:
    """The spans of a branch that a plan deletes, those with notes and the largest first."""
    gone = {target.entry_id for target in targets if target.block_index is None}
    numbers = turn_numbers(branch)
    messages = (entry for entry in branch if entry.is_message)
    by_span = groupby(messages, key=lambda entry: (entry.id in gone, numbers[entry.id]))
    spans = [_span(list(entries), numbers, notes) for (is_gone, _), entries in by_span if is_gone]
    return sorted(spans, key=lambda span: (not span.note, -span.tokens))[:LISTED]


def _span(entries: Sequence[Entry], numbers: Mapping[str, int], notes: Mapping[str, str]) -> DeletedSpan:
    tools = Counter(entry.tool_name for entry in entries if entry.role == Role.TOOL_RESULT and entry.tool_name)
    named = (f"{tool} ×{count}" if count > 1 else tool for tool, count in tools.most_common())
    first = entries[0].id
    return DeletedSpan(
        first,
        numbers[first],
        len(entries),
        sum(entry.tokens for entry in entries),
        ", ".join(named),
        notes.get(first, ""),
    )


def notes_in(data: QueryDict) -> dict[str, str]:
    """The notes of a form, one field for each span. Raises BadInput `bad_note`."""
    notes: dict[str, str] = {}
    for entry_id, typed in zip(data.getlist("span"), data.getlist("note"), strict=False):
        words = " ".join(typed.split())
        if len(words) > NOTE_LENGTH or not words.isprintable():
            raise BadInput(
                "bad_note",
                f"A note has at most {NOTE_LENGTH} characters, all of them printable. Nothing was written. Shorten it.",
            )
        if words:
            notes[entry_id] = words
    return notes


def save_notes(run: Run, notes: Mapping[str, str]) -> None:
    """Store the notes of a run, replacing its previous ones."""
    run.notes = dict(notes)
    Run.objects.filter(pk=run.pk).update(notes=run.notes)

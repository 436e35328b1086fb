"""The writer for Atomic 0.8.26 to 0.9.8: it appends one `context_compaction`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessions_app.agents.changes import Append, Change, Handed, PlainWriter, WriteFacts
from sessions_app.agents.pi.lines import new_line
from sessions_app.sessionlog.controls import DeletionControl
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.targets import Target

from .filters import effective_filters

ENTRY_TYPE: Final = "context_compaction"
PROMPT_VERSION: Final = 1


class ContextCompactionWriter(PlainWriter):
    """Appends the deletion as a separate entry; its targets stay in the file."""

    name: Final = "context-compaction"
    honours: Final = "deletions"
    appends: Final = True
    effect: Final = "Appends one line to the session; Atomic leaves what it names out from then on."
    undo: Final = "One more line makes Atomic continue before it, as long as nothing was said since."

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Append:
        line = new_line(
            ENTRY_TYPE,
            facts.new_id(),
            branch[-1].id,
            facts.written_at,
            promptVersion=PROMPT_VERSION,
            deletedTargets=[target.to_json() for target in deletion.targets],
            protectedEntryIds=list(deletion.protected_entry_ids),
            stats=deletion.stats.to_json(),
            backupPath=str(facts.backup),
        )
        return Append((line,))

    def hand(self, branch: Sequence[Entry], change: Change) -> Handed:
        """The targets, which Atomic's own airlock judges again."""
        del branch
        lines = change.lines if isinstance(change, Append) else ()
        deletions = [target for line in lines for target in parse(line)["deletedTargets"]]
        return Handed({"deletions": deletions}, change)

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        """The targets that replay safety reverts: see `filters`.

        The airlock accepts them, as the agent's own does; the recorded reduction includes them nevertheless.
        """
        control = DeletionControl(tuple(targets), percent=None, backup="")
        planned = Entry(0, 0, 0, "", None, ENTRY_TYPE, EntryKind.DELETION, control=control)
        applied = effective_filters([*branch, planned])
        return tuple(
            target
            for target in targets
            if (
                target.entry_id not in applied.entries
                if target.block_index is None
                else target.block_index not in applied.blocks.get(target.entry_id, ())
            )
        )

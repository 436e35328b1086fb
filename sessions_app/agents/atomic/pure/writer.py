"""The writer for Atomic 0.8.26 to 0.9.8: it appends one `context_compaction`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessions_app.agents.pi.pure.writers import new_line
from sessions_app.agents.pure.format import Append, Change, Handed, PlainWriter, WriteFacts
from sessions_app.sessionlog.entries import Deletion, DeletionControl, Entry, EntryKind, Target
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse

from .reader import Filters, effective_filters

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
        """Raises BadInput `brings_back`."""
        _require_gone(branch, deletion.targets, facts)
        line = new_line(
            ENTRY_TYPE,
            facts.new_id(),
            branch[-1].id,
            facts.written_at,
            promptVersion=PROMPT_VERSION,
            deletedTargets=[target.to_json() for target in deletion.targets],
            protectedEntryIds=list(deletion.protected_entry_ids),
            stats=deletion.stats.to_json(),
            backupPath=facts.backup,
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
        applied = _filters_with(branch, targets)
        return tuple(target for target in targets if not applied.names(target))


def _filters_with(branch: Sequence[Entry], targets: Sequence[Target]) -> Filters:
    """What would be hidden if these targets were recorded at the end of a branch."""
    control = DeletionControl(tuple(targets), percent=None, backup="")
    planned = Entry(0, 0, 0, "", None, ENTRY_TYPE, EntryKind.DELETION, control=control)
    return effective_filters([*branch, planned])


def _require_gone(branch: Sequence[Entry], targets: Sequence[Target], facts: WriteFacts) -> None:
    """Raise BadInput `brings_back` if replay safety would revert what earlier compactions deleted: an answer with
    thinking, of which they deleted blocks, would be the latest one."""
    after = _filters_with(branch, targets)
    back = next((one for one in effective_filters(branch).targets() if not after.hides(one)), None)
    if back is not None:
        raise BadInput(
            "brings_back",
            f"{facts.session}: without the answers that the plan deletes, the latest one has thinking, and parts of it "
            "were deleted before. Atomic sends the latest thinking with everything beside it, so it would send "
            f"{back} again. Nothing was written. Keep a later answer, or delete that one as a whole.",
        )

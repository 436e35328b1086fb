"""The writer for Atomic 0.8.26 to 0.9.8: it appends one `context_compaction`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC
from typing import Any, Final

from sessions_app.agents.base import Append, WriteFacts
from sessions_app.sessionlog.controls import DeletionControl
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.jsjson import parse, stringify
from sessions_app.sessionlog.targets import Target

from .filters import effective_filters

PROMPT_VERSION: Final = 1


class ContextCompactionWriter:
    """Appends the deletion as a separate entry; its targets stay in the file."""

    name: Final = "context-compaction"
    entry_type: Final = "context_compaction"
    kind: Final = EntryKind.DELETION

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Append:
        written_at = facts.written_at.astimezone(UTC).isoformat(timespec="milliseconds")
        entry = {
            "type": self.entry_type,
            "id": facts.entry_id,
            "parentId": branch[-1].id,
            "timestamp": written_at.replace("+00:00", "Z"),
            "promptVersion": PROMPT_VERSION,
            "deletedTargets": [_recorded(target) for target in deletion.targets],
            "protectedEntryIds": list(deletion.protected_entry_ids),
            "stats": deletion.stats.to_json(),
            "backupPath": str(facts.backup),
        }
        return Append((stringify(entry).encode(),))

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        """The targets that replay safety reverts: see `filters`.

        The airlock accepts them, as the agent's own does; the recorded reduction includes them nevertheless.
        """
        control = DeletionControl(tuple(targets), percent=None, backup="")
        planned = Entry(0, 0, 0, "", None, self.entry_type, self.kind, control=control)
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

    def written_ids(self, lines: Iterable[bytes]) -> Iterator[str]:
        for raw in lines:
            if self.entry_type.encode() not in raw:
                continue
            with suppress(ValueError):  # a damaged line is not an entry
                entry = parse(raw)
                if isinstance(entry, dict) and entry.get("type") == self.entry_type:
                    yield str(entry.get("id"))


def _recorded(target: Target) -> dict[str, Any]:
    if target.block_index is None:
        return {"kind": "entry", "entryId": target.entry_id}
    return {"kind": "content_block", "entryId": target.entry_id, "blockIndex": target.block_index}

"""An undo on its page: the entries that would come back, the way, the required confirmations; and the undos of a
compaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from compaction_app.changes.change import RequiredConfirmation
from compaction_app.changes.compaction_state import texts_with
from compaction_app.changes.undo import UndoPlan, planned, undo_of_run
from compaction_app.core.undo_ways import UndoWay
from compaction_app.entries.words import EntryWords
from compaction_app.models import Compaction, Undo
from sessions_app.cli import shell_quoted
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import NO_TEXTS, Entry, Texts
from sessions_app.sessionlog.targets import Target

SHOWN: Final = 200
"""Deleted entries that the page shows."""


@dataclass(frozen=True, slots=True)
class DeletedEntry:
    """An entry that is deleted, or has lost blocks."""

    said: EntryWords
    """The deleted part."""
    blocks: int
    """The number of its deleted blocks; 0 if all of it is deleted."""
    is_chosen: bool
    comes_back: bool
    is_reachable: bool
    """False if it has been summarised since, so that it cannot be brought back."""


@dataclass(frozen=True, slots=True)
class UndoView:
    """The effect of an undo."""

    plan: UndoPlan
    entries: list[DeletedEntry]
    more: int
    """The number of further entries that are not shown."""
    is_part: bool
    """Whether entries were chosen."""
    partners: int
    """The deletions that are reverted because they belong with the chosen ones, such as a result with its call."""
    confirmations: list[RequiredConfirmation]
    digest: str

    @property
    def removed(self) -> str:
        """The path of the session that would be deleted; empty if none would be."""
        return str(self.plan.state.created) if self.plan.way is UndoWay.REMOVAL else ""

    @property
    def back(self) -> int:
        """The number of entries that come back, in whole or in part."""
        return len({target.entry_id for target in self.plan.back})


@dataclass(frozen=True, slots=True)
class UndoRow:
    """An undo that was made."""

    undo: Undo
    entries: int
    resume: str
    """The command that continues in the new session; empty if none was made, or it no longer exists."""


def view_undo(compaction: Compaction, chosen: Collection[str], now: datetime) -> UndoView:
    """The effect an undo of a compaction, or of chosen entries, would have now. Raises the errors of `plan_undo`."""
    plan = planned(undo_of_run(compaction, chosen), now)
    by_entry: dict[str, list[Target]] = {}
    for target in plan.state.targets:
        by_entry.setdefault(target.entry_id, []).append(target)
    messages = {message.entry.id: message for message in plan.without.messages}
    order = [entry.id for entry in plan.state.branch if entry.id in by_entry]
    # Chosen entries are always shown, so that they can be unchosen.
    shown = [entry_id for place, entry_id in enumerate(order) if place < SHOWN or entry_id in chosen]
    texts = _texts(plan, [messages[entry_id].source for entry_id in shown if entry_id in messages])
    back = {target.entry_id for target in plan.back}
    return UndoView(
        plan=plan,
        entries=[_deleted_entry(by_entry[entry_id], messages.get(entry_id), texts, chosen, back) for entry_id in shown],
        more=len(order) - len(shown),
        is_part=bool(chosen),
        partners=len(plan.back) - len(set(plan.back) & set(plan.wanted)),
        confirmations=plan.confirmations,
        digest=plan.digest(),
    )


def undo_rows(compaction: Compaction) -> list[UndoRow]:
    """The undos of a compaction, the latest first."""
    agent = compaction.session.agent
    return [
        UndoRow(
            undo,
            len({raw["entryId"] for raw in undo.targets}),
            (
                " ".join(map(shell_quoted, agent.client.resume_command(Path(undo.created))))
                if undo.created and Path(undo.created).exists()
                else ""
            ),
        )
        for undo in compaction.undos.select_related("backup").order_by("-pk")
    ]


def _texts(plan: UndoPlan, entries: Sequence[Entry]) -> dict[str, Texts]:
    """The texts of entries that a compaction has deleted, wherever they are now."""
    state = plan.state
    if state.row is None:
        return plan.present.texts(entries)
    return texts_with(state.row, state.targets, plan.present, entries)


def _deleted_entry(
    targets: Iterable[Target],
    message: Message | None,
    texts: dict[str, Texts],
    chosen: Collection[str],
    back: Collection[str],
) -> DeletedEntry:
    indexes = {target.block_index for target in targets}
    entry_id = next(iter(targets)).entry_id
    said, blocks = EntryWords(entry_id, "entry", "", 0), 0
    if message is not None:
        if None not in indexes:
            lost = tuple(block for block in message.blocks or () if block.index in indexes)
            message = msgspec.structs.replace(message, blocks=lost, tokens=sum(block.tokens for block in lost))
            blocks = len(indexes)
        said = EntryWords.of_message(message, texts.get(message.source.id, NO_TEXTS))
    return DeletedEntry(said, blocks, entry_id in chosen, entry_id in back, is_reachable=message is not None)

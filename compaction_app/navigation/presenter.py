"""A move, a label or a fork on its page: its effect and how to undo it, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from compaction_app.changes.change import RequiredConfirmation
from compaction_app.changes.entries import AppendPlan, Destination, any_label, destination_of, move_to, plan_append
from compaction_app.changes.fork import plan_fork
from compaction_app.entries.words import EntryWords
from sessions_app.document.document import Document
from sessions_app.models import Session
from sessions_app.sessionlog.entries import NO_TEXTS, Role
from sessions_app.sessionlog.outline import labels
from sessions_app.storage.session_loader import LoadedSession


@dataclass(frozen=True, slots=True)
class MoveView:
    """The effect of a move."""

    chosen: EntryWords
    plan: AppendPlan
    is_leaf: bool
    destination: Destination
    left: int
    """The number of entries after which the agent continues now, but no longer after the move."""
    messages: int
    """The number of messages of the context there."""
    can_summarise: bool
    """Whether a summary of the left branch is offered."""
    skips_summary: bool
    """Whether it is not, because of the agent's settings."""
    confirmations: list[RequiredConfirmation]
    digest: str


@dataclass(frozen=True, slots=True)
class LabelView:
    """The effect of a label."""

    chosen: EntryWords
    label: str
    """The present label; empty if it has none."""
    confirmations: list[RequiredConfirmation]


@dataclass(frozen=True, slots=True)
class ForkView:
    """The effect of a fork."""

    chosen: EntryWords
    destination: Destination
    entries: int
    """The number of entries of the branch up to there."""
    is_copy: bool
    """Whether the new session has every recorded line of them."""


def view_move(session: Session, entry_id: str, now: datetime, *, is_leaf: bool = False) -> MoveView:
    """The effect a move to an entry would have now; `is_leaf` as in `destination_of`.

    Raises the errors of `plan_append` and `move_to`.
    """
    plan = plan_append(session.real_path(), move_to(entry_id, is_leaf=is_leaf), now)
    tree = plan.present.tree
    destination = destination_of(tree, entry_id, is_leaf=is_leaf)
    branch = tree.branch(destination.leaf_id) if destination.leaf_id is not None else []
    kept = {entry.id for entry in branch}
    left = [entry for entry in tree.branch(plan.present.leaf_id) if entry.id not in kept]
    summaries = plan.present.agent.settings.for_project(plan.present.log.cwd, Path.home()).branch_summary
    skips = summaries is not None and summaries.skips_question
    is_summarised = plan.present.agent.format.summary_format is not None and any(one.is_message for one in left)
    return MoveView(
        chosen=_chosen(plan.present, entry_id),
        plan=plan,
        is_leaf=is_leaf,
        destination=destination,
        left=len(left),
        messages=len(plan.present.reading.reader.rebuild(branch).messages),
        can_summarise=is_summarised and not skips,
        skips_summary=is_summarised and skips,
        confirmations=plan.confirmations,
        digest=plan.digest(),
    )


def view_label(session: Session, entry_id: str, now: datetime) -> LabelView:
    """An entry to be labelled. Raises the errors of `plan_append` and `any_label`."""
    plan = plan_append(session.real_path(), any_label(entry_id), now)
    label = labels(plan.present.tree).get(entry_id, "")
    return LabelView(_chosen(plan.present, entry_id), label, plan.confirmations)


def view_fork(session: Session, entry_id: str, now: datetime) -> ForkView:
    """The effect a fork at an entry would have now. Raises the errors of `plan_fork`."""
    plan = plan_fork(session.real_path(), entry_id, now)
    chosen = _chosen(plan.present, entry_id)
    return ForkView(chosen, plan.destination, len(plan.branch), plan.is_copy)


def words_again(session: Session, entry_id: str) -> str:
    """The text of a user's message before which the agent now continues; empty if it is not a user's.

    Raises BadInput `unknown_entry`, and the errors of reading the session.
    """
    present = Document.of_session(session)
    return text_said(present, entry_id) if present.tree.entry(entry_id).role == Role.USER else ""


def text_said(present: LoadedSession, entry_id: str) -> str:
    """The whole text of a message. Raises BadInput `unknown_entry`."""
    entry = present.tree.entry(entry_id)
    return present.texts([entry]).get(entry_id, NO_TEXTS).joined(entry.blocks)


def _chosen(present: LoadedSession, entry_id: str) -> EntryWords:
    entry = present.tree.entry(entry_id)
    return EntryWords.of_entry(entry, present.texts([entry]).get(entry_id, NO_TEXTS))

"""The loss of a summary, on its page and in its report: bars, lost subjects, and turns beside the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Final

from compaction_app.core.replaced_turns import FileTouch, ReplacedTurn
from compaction_app.core.summary_loss import Replacement, SummaryLoss
from compaction_app.entries.lost_subjects import HeldBar, LostList, bars_of, below_project, lost_lists
from compaction_app.entries.text import ShownText, TextSource, whole
from compaction_app.models import SummaryDraft, written_by_redline
from sessions_app.models import Session
from sessions_app.sessionlog.entries import tokens_of
from sessions_app.sessionlog.jsjson import utf16_length
from sessions_app.sessionlog.measure import ContextSize
from sessions_app.sessionlog.moments import moment_of

from .service import BranchSummary, loss_at, loss_of_draft

TURNS_SHOWN: Final = 200
FILES_SHOWN: Final = 4
SUMMARY_SHOWN: Final = 60_000
"""Characters of the summary that are shown."""


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A replaced turn: the user's text, and the touched files, with paths relative to the project's directory."""

    turn: ReplacedTurn
    tokens: int
    when: datetime | None
    files: str
    more_files: int


@dataclass(frozen=True, slots=True)
class LossView:
    """The data of a summary's page. Token counts are in the measure of `before`."""

    entry_id: str
    leaf_id: str
    before_id: str
    is_of_branch: bool
    by_redline: bool
    """Whether Redline appended it."""
    is_encrypted: bool
    when: datetime | None
    went_on: timedelta | None
    """How long the session continued after it; None if that is not recorded, or it did not."""
    model: str
    window_percent: int | None
    entries: int
    images: int
    """Images among the replaced messages, all of which a summary loses."""
    before: ContextSize
    """The size of the context before."""
    after: ContextSize
    tokens_replaced: int
    bars: Sequence[HeldBar]
    plan_bars: Sequence[HeldBar]
    plan_tokens: int | None
    plan_keep: float
    """The tokens that the plan keeps, in percent of those before."""
    is_plan_larger: bool
    """Whether a plan must keep more than the summary left."""
    paths: LostList
    names: LostList
    errors: LostList
    messages: LostList
    turns: Sequence[TurnRow]
    more_turns: int
    kept: int
    kept_from: str
    """The first message that stayed beside the summary; empty if there is none."""
    text: str
    shown: ShownText
    """The text, rendered."""
    left_out: int
    characters: int
    tokens: int
    earlier: str
    later: str

    @property
    def rows(self) -> list[tuple[HeldBar, HeldBar | None]]:
        """Each measure with that of the plan, if there is one."""
        return list(zip_longest(self.bars, self.plan_bars))

    @property
    def lost(self) -> list[tuple[str, LostList]]:
        return [
            ("Paths", self.paths),
            ("Names", self.names),
            ("Errors", self.errors),
            ("Messages", self.messages),
        ]

    @property
    def is_complete(self) -> bool:
        """Whether no counted subject was lost."""
        return not any((self.paths.total, self.names.total, self.errors.total, self.messages.total))


def view_loss(session: Session, entry_id: str = "") -> LossView:
    """The loss of a summary. Raises the errors of `loss_at`."""
    return _view(session, loss_at(session, entry_id))


def view_draft_loss(draft: SummaryDraft) -> LossView:
    """The loss of a draft. Raises the errors of `loss_of_draft`."""
    return _view(draft.session, loss_of_draft(draft))


def _view(session: Session, found: BranchSummary) -> LossView:
    loss, replacement = found.loss, found.loss.replacement
    plan, summary, before = loss.plan, replacement.summary, found.before
    when, ended = moment_of(summary.entry.timestamp), moment_of(found.last.timestamp)
    text = loss.text[:SUMMARY_SHOWN]
    lost = lost_lists(loss.lost, loss.turn_numbers, session.cwd)
    return LossView(
        entry_id=summary.entry.id,
        leaf_id=found.leaf_id,
        before_id=replacement.before_id,
        is_of_branch=replacement.is_of_branch,
        by_redline=summary.entry.id in written_by_redline(session),
        is_encrypted=loss.is_encrypted,
        when=when,
        went_on=ended - when if when is not None and ended is not None and ended > when else None,
        model=found.model,
        window_percent=round(100 * before.tokens / session.window) if session.window else None,
        entries=replacement.entries,
        images=replacement.images,
        before=before,
        after=before.without(replacement.tokens_before - replacement.tokens_after),
        tokens_replaced=before.of(replacement.tokens_replaced),
        bars=bars_of(loss.subjects, loss.still, loss.in_context),
        plan_bars=bars_of(loss.subjects, plan.still, plan.in_context) if plan is not None else (),
        plan_tokens=before.of(plan.tokens_after) if plan is not None else None,
        plan_keep=_keep(replacement),
        is_plan_larger=plan is not None and plan.tokens_after > 1.05 * replacement.tokens_after,
        paths=lost["paths"],
        names=lost["names"],
        errors=lost["errors"],
        messages=lost["messages"],
        turns=_turn_rows(loss, before, session.cwd)[:TURNS_SHOWN],
        more_turns=max(0, len(loss.turns) - TURNS_SHOWN),
        kept=len(replacement.kept),
        kept_from=replacement.kept[0].entry.id if replacement.kept else "",
        text=text,
        shown=whole(TextSource("text", text)),
        left_out=max(0, len(loss.text) - SUMMARY_SHOWN),
        characters=len(loss.text),
        tokens=before.of(tokens_of(utf16_length(loss.text))),
        earlier=found.earlier,
        later=found.later,
    )


def _keep(replacement: Replacement) -> float:
    share = replacement.tokens_after / max(1, replacement.tokens_before)
    return min(99.9, max(0.1, round(100 * share, 1)))


def _turn_rows(loss: SummaryLoss, before: ContextSize, project: str) -> list[TurnRow]:
    shares = before.shares([turn.tokens for turn in loss.turns])
    return [
        TurnRow(
            turn,
            tokens,
            moment_of(turn.timestamp),
            _files(turn.files[:FILES_SHOWN], project),
            max(0, len(turn.files) - FILES_SHOWN),
        )
        for turn, tokens in zip(loss.turns, shares, strict=True)
    ]


def _files(files: Iterable[FileTouch], project: str) -> str:
    """The files with their changes: `edit src/a.py ×3, src/b.py`."""
    words = []
    tool = ""
    for file in files:
        path = below_project(file.path, project)
        named = path if file.tool == tool else f"{file.tool} {path}"
        words.append(f"{named} ×{file.times}" if file.times > 1 else named)
        tool = file.tool
    return ", ".join(words)

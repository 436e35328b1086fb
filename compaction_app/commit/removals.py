"""The units that a compaction removed, by reason, with their proposers and approvals, and the context before and
after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from compaction_app.core.token_map import TokenMap, draw, pieces_of
from compaction_app.models import Proposal
from compaction_app.review.review_map import StruckMap, struck_map
from sessions_app.sessionlog.targets import Target

from .last_look import LastLook, last_look
from .units import ReviewAccount, ReviewUnit


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """The units with one reason: their proposers, their approvals, and the parts that are kept."""

    title: str
    key: str
    removed: Sequence[ReviewUnit]
    kept: int

    @property
    def tokens(self) -> int:
        return sum(unit.tokens for unit in self.removed)

    @property
    def calls(self) -> tuple[int, int]:
        """The first and the last call of the planner that proposed some of them; 0 if none did."""
        calls = [unit.call for unit in self.removed if unit.call]
        return (min(calls), max(calls)) if calls else (0, 0)

    @property
    def proposer(self) -> str:
        """Their proposer, if it was not a call of the planner."""
        sources = {unit.item.source for unit in self.removed}
        return "a hook" if sources == {Proposal.Source.HOOK} else "you" if self.is_by_hand else "an earlier run"

    @property
    def is_by_hand(self) -> bool:
        return all(unit.item.source == Proposal.Source.HUMAN for unit in self.removed)

    @property
    def singly(self) -> int:
        return sum(not unit.is_bulk for unit in self.removed)

    @property
    def in_bulk(self) -> int:
        return len(self.removed) - self.singly

    @property
    def opened(self) -> int:
        return sum(unit.is_opened for unit in self.removed)


@dataclass(frozen=True, slots=True)
class Removals:
    """All removed units, and the maps of the context, drawn at one scale."""

    look: LastLook
    rows: Sequence[ReasonRow]
    before: StruckMap
    after: TokenMap

    @property
    def account(self) -> ReviewAccount:
        return self.look.account

    @property
    def count(self) -> int:
        return len(self.account.approved)

    @property
    def kept(self) -> int:
        return sum(row.kept for row in self.rows)

    @property
    def tokens(self) -> int:
        return self.account.struck

    @property
    def approved_from(self) -> datetime | None:
        return min(self._times, default=None)

    @property
    def approved_to(self) -> datetime | None:
        return max(self._times, default=None)

    @property
    def _times(self) -> list[datetime]:
        return [unit.approval.at for unit in self.account.approved if unit.approval is not None]


def removals_of(account: ReviewAccount) -> Removals:
    """The removals of an account's approved plan; rows with the largest sum first."""
    removed: dict[str, list[ReviewUnit]] = {}
    kept: dict[str, int] = {}
    for unit in account.units:
        if unit.is_approved:
            removed.setdefault(unit.title, []).append(unit)
        elif unit.is_kept:
            kept[unit.title] = kept.get(unit.title, 0) + 1
    titles = dict.fromkeys((*removed, *kept))
    keys = {unit.title: unit.key for unit in account.units}
    rows = [ReasonRow(title, keys[title], removed.get(title, ()), kept.get(title, 0)) for title in titles]
    rows.sort(key=lambda row: (-row.tokens, row.title))
    return Removals(last_look(account), rows, struck_map(account.transcript, account.review), _map_after(account))


def _map_after(account: ReviewAccount) -> TokenMap:
    """The map of the kept part, at the scale of the whole."""
    goes = account.review.goes
    stays = [
        piece
        for piece, target in pieces_of(account.transcript, goes)
        if target not in goes and Target(target.entry_id) not in goes
    ]
    return draw(stays, account.transcript.tokens)

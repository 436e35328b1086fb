"""The account of a review: each decided unit with its removed tokens, its proposer and reason, its approver and time.

The page before a commit, the result and the exports are made from it, so their numbers are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compaction_app.core.effects import STAYING, PlanPart, full_effect, in_measure, plan_parts, removed_estimate
from compaction_app.core.groups import Grouping, group_key
from compaction_app.core.reasons import ONLY_THERE
from compaction_app.core.review_fold import Approval, Review, Reviewer, ReviewItem, ReviewStatus, approvals
from compaction_app.core.transcript import Transcript
from compaction_app.models import Run
from compaction_app.runs.commands import opened_targets
from compaction_app.runs.reviews import decisions_in_force, reviewed
from sessions_app.sessionlog.context import ContextSize
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import RedlineError

from .grouped_review import GroupTitles
from .lines import UNKNOWN, Outline, ProposalLine, anchor, lines_of, ref_of


@dataclass(frozen=True, slots=True)
class ReviewUnit:
    """The object of one decision: a leading item of the review. Tokens are in the measure of the session's context."""

    item: ReviewItem
    line: ProposalLine
    title: str
    """The reason without its particulars: the title of its group."""
    why: str
    """Its particulars within its group."""
    turn: int
    tokens: int
    """The tokens removed by deciding it, with those deleted with it; for a rejected unit, those it would have
    removed."""
    pair_tokens: int
    """Of these, the tokens of objects merely deleted with it."""
    approval: Approval | None
    is_opened: bool

    @property
    def target(self) -> Target:
        return self.item.target

    @property
    def because(self) -> str:
        """The short reason of the proposal: its particulars, otherwise the title of its group."""
        return self.title if self.why in ("", f"turn {self.turn}") else self.why

    @property
    def key(self) -> str:
        """Identifies its group in addresses."""
        return group_key(self.title)

    @property
    def is_undecided(self) -> bool:
        return self.item.standing is ReviewStatus.UNDECIDED

    @property
    def is_kept(self) -> bool:
        return self.item.standing in STAYING

    @property
    def is_approved(self) -> bool:
        return not (self.is_undecided or self.is_kept)

    @property
    def is_bulk(self) -> bool:
        """Whether it was approved together with others; objects deleted with their pair were not decided alone
        either."""
        return self.is_approved and (self.approval is None or self.approval.is_bulk)

    @property
    def place(self) -> str:
        """The query and the fragment of its place in the review."""
        query = f"?at={ref_of(Target(self.target.entry_id))}"
        return f"{query}#{anchor(self.item.position, self.target)}"

    @property
    def reason(self) -> str:
        return self.item.origin.reason if self.item.origin is not None else ""

    @property
    def has_names_only_there(self) -> bool:
        """Whether its reason states that some names occur in no kept entry."""
        return self.reason.endswith(ONLY_THERE)

    @property
    def call(self) -> int:
        """The number of the planner's call that proposed it; 0 if none did."""
        return self.item.origin.call if self.item.origin is not None else 0


@dataclass(frozen=True, slots=True)
class ReviewAccount:
    """All units of a review, in the order of the plan, and the resulting plan."""

    run: Run
    version: int
    transcript: Transcript
    review: Review
    units: Sequence[ReviewUnit]
    before: ContextSize
    """The size of the planned context."""
    is_unread: bool
    """Whether the session has changed since, so that its texts can no longer be shown."""

    @property
    def after(self) -> ContextSize:
        """The size of the context without the approved deletions."""
        return self.before.without(removed_estimate(self.transcript, self.review.goes))

    @property
    def struck(self) -> int:
        """The tokens that the approved plan removes: the sum of its units."""
        return sum(unit.tokens for unit in self.approved)

    @property
    def approved(self) -> list[ReviewUnit]:
        return [unit for unit in self.units if unit.is_approved]

    @property
    def undecided(self) -> list[ReviewUnit]:
        return [unit for unit in self.units if unit.is_undecided]

    @property
    def kept(self) -> list[ReviewUnit]:
        return [unit for unit in self.units if unit.is_kept]

    @property
    def entries(self) -> int:
        """Entries that the approved plan removes as a whole."""
        return sum(target.block_index is None for target in self.review.goes)

    @property
    def blocks(self) -> int:
        """Blocks that it removes individually."""
        return len(self.review.goes) - self.entries


def account_of(run: Run) -> ReviewAccount:
    """The account of a run's review, even if its session can no longer be read. Raises BadInput `not_prepared`."""
    reviewer, review, version, _, mark = reviewed(run)
    transcript = reviewer.transcript
    parts = _by_leader(plan_parts(transcript, review))
    leads = list(review.leads())
    lines: Mapping[Target, ProposalLine] = {}
    is_unread = False
    try:
        lines = lines_of(run, mark, transcript, leads)
    except RedlineError:
        is_unread = True
    outline = Outline(transcript, review)
    titles = GroupTitles(outline, lines)
    approved, opened = (
        approvals((made.step, made.at) for made in decisions_in_force(run)),
        opened_targets(run),
    )
    size = run.context_size
    estimates = {item.target: _estimate(reviewer, item, parts.get(item.target, ())) for item in leads}
    tokens = in_measure(size, review, {target: whole for target, (whole, _) in estimates.items()})
    units = []
    for item in leads:
        together = [item.target, *review.followers.get(item.target, ())]
        units.append(
            ReviewUnit(
                item=item,
                line=lines.get(item.target, UNKNOWN),
                title=titles.reason(item),
                why=titles.why(item, Grouping.REASON),
                turn=outline.turn_number(item.position),
                tokens=tokens[item.target],
                pair_tokens=size.of(estimates[item.target][1]),
                approval=next((approved[one] for one in together if one in approved), None),
                is_opened=not opened.isdisjoint(together),
            )
        )
    return ReviewAccount(run, version, transcript, review, units, size, is_unread)


def _by_leader(parts: Iterable[PlanPart]) -> dict[Target, list[PlanPart]]:
    found: defaultdict[Target, list[PlanPart]] = defaultdict(list)
    for part in parts:
        found[part.leader].append(part)
    return found


def _estimate(reviewer: Reviewer, item: ReviewItem, parts: Sequence[PlanPart]) -> tuple[int, int]:
    """The estimated tokens that a unit removes, and of these, the tokens merely deleted with it."""
    if not parts and item.standing in STAYING:
        return full_effect(reviewer.transcript, reviewer, item.target), 0
    return sum(part.cell.tokens for part in parts), sum(part.cell.tokens for part in parts if not part.is_own)

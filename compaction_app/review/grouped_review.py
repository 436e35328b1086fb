"""A review grouped by a filter: its proposals, their groups, and their numbers.

rows ──reviews──▶ Review ──effects──▶ tokens by proposal ──filter, titles──▶ groups
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, NamedTuple

from compaction_app.core.consequences import Consequences, DecisionEffect, first_decision
from compaction_app.core.decisions import Kind
from compaction_app.core.effects import PlanPart, UnitSize, full_effect, in_measure, plan_parts, unit_sizes
from compaction_app.core.errors import Refusal
from compaction_app.core.groups import Group, group_key, grouped
from compaction_app.core.patterns import Pattern
from compaction_app.core.review_fold import ACCEPTED, ReviewItem, ReviewStatus
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import TranscriptEntry
from compaction_app.evidence.line_checks import LineChecks
from compaction_app.models import Run
from compaction_app.planning.snapshots import Prepared, read_snapshot_texts, snapshot_of
from compaction_app.runs.reviews import reviewed
from sessions_app.recent import Recent
from sessions_app.sessionlog.entries import Texts
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.measure import ContextSize
from sessions_app.sessionlog.targets import Target

from .filters import ProposalFacts, ReviewFilter
from .lines import UNKNOWN, ProposalLine, lines_of
from .outline import Outline
from .summary import DECIDED
from .titles import GroupTitles

CACHED: Final = 8
"""The number of review versions whose numbers are cached: a decision is compared with the version before it."""
NOTHING: Final = UnitSize()
NO_EFFECT: Final = DecisionEffect()
ReviewKey = tuple[int, int, str, int]
_sizes: Final[Recent[ReviewKey, Mapping[Target, UnitSize]]] = Recent(CACHED)
_effects: Final[Recent[tuple[int, int, str], dict[Target, int]]] = Recent(CACHED)
_planned: Final[Recent[ReviewKey, Mapping[Target, int]]] = Recent(CACHED)
_consequences: Final[Recent[ReviewKey, Consequences]] = Recent(CACHED)


class ReviewGroups(NamedTuple):
    """The groups of a review in the order in which they are shown, and the effect of the first button of each."""

    groups: Sequence[Group]
    effects: Mapping[str, DecisionEffect]


_groups: Final[Recent[tuple[ReviewKey, ReviewFilter], ReviewGroups]] = Recent(CACHED)


class GroupedReview:
    """One run's review at one version (by default the latest), grouped by one filter.

    Raises BadInput `not_prepared`; its methods raise Conflict `session_rewritten` and the errors of reading.
    """

    def __init__(self, run: Run, chosen: ReviewFilter | None = None, version: int | None = None) -> None:
        self.run = run
        self.chosen = chosen or ReviewFilter()
        self._reviewed = reviewed(run, version)
        self.reviewer, self.review, self.version, self.last, self.mark = self._reviewed
        self.outline = Outline(self.transcript, self.review)
        self.leads = list(self.review.leads())
        self._effects = _effects.get((run.pk, run.last_seq, self.mark), dict)

    @property
    def transcript(self) -> Transcript:
        return self.reviewer.transcript

    @cached_property
    def prepared(self) -> Prepared:
        return snapshot_of(self.run, self.mark).prepared

    @cached_property
    def key(self) -> ReviewKey:
        """Identifies the version of the review: its numbers do not change while the key is the same."""
        return self.run.pk, self.run.last_seq, self.mark, self.version

    # ---- numbers ----------------------------------------------------------------------------------------

    @cached_property
    def context(self) -> ContextSize:
        """The size of the planned context, in whose measure all numbers are."""
        return self.run.context_size

    @cached_property
    def _parts(self) -> Sequence[PlanPart]:
        return plan_parts(self.transcript, self.review)

    def removed(self, target: Target) -> int:
        """The estimate of the part of an entry or a block that the plan removes."""
        cells = (part.cell for part in self._parts if part.cell.target.entry_id == target.entry_id)
        return sum(cell.tokens for cell in cells if target.block_index in (None, cell.target.block_index))

    @cached_property
    def sizes(self) -> Mapping[Target, UnitSize]:
        """The tokens that the plan deletes with each proposal and its pair, estimated."""
        return _sizes.get(self.key, lambda: unit_sizes(self._parts))

    @cached_property
    def planned(self) -> Mapping[Target, int]:
        """The same in the measure of the context."""
        return _planned.get(self.key, self._in_measure)

    def _in_measure(self) -> Mapping[Target, int]:
        estimates = {target: size.tokens for target, size in self.sizes.items()}
        return in_measure(self.context, self.review, estimates)

    def size(self, item: ReviewItem) -> int:
        """The size by which a proposal is sorted. No decision changes it, because rows are loaded by their position in
        the order."""
        return self.facts[item.target].size

    def full_effect(self, item: ReviewItem) -> int:
        """The tokens that one proposal alone deletes, regardless of other decisions."""
        found = self._effects.get(item.target)
        if found is None:
            found = self.context.of(full_effect(self.transcript, self.reviewer, item.target))
            self._effects[item.target] = found
        return found

    @property
    def consequences(self) -> Consequences:
        """The possible changes by decisions on this version."""
        return _consequences.get(self.key, lambda: Consequences(self.reviewer, self.review))

    def effect(self, item: ReviewItem) -> DecisionEffect:
        """The effect of the first decision about a proposal that changes something; nothing if none would."""
        kind = first_decision(item)
        return self.consequences.of(kind, [item.target]) if kind is not None else NO_EFFECT

    def group_effect(self, group: Group) -> DecisionEffect:
        """The effect of the first button of a group: it approves undecided proposals, or reopens decided ones."""
        return self._grouped.effects[group.key]

    def _group_effect(self, group: Group) -> DecisionEffect:
        undecided = [item.target for item in group.with_status(ReviewStatus.UNDECIDED)]
        if undecided:
            return self.consequences.of(Kind.APPROVE, undecided)
        return self.consequences.of(Kind.REOPEN, [item.target for item in group.with_status(*DECIDED)])

    def effect_tokens(self, effect: DecisionEffect) -> int:
        """The change of the approved tokens by a decision, in the measure of the context."""
        return self.context.of(abs(effect.tokens))

    def counted(self, items: Iterable[ReviewItem]) -> int:
        """The tokens that the plan deletes with these proposals, as the agent counts them for its target."""
        return sum(self.sizes.get(item.target, NOTHING).counted for item in items)

    def tokens(self, items: Iterable[ReviewItem]) -> int:
        """The tokens that the plan deletes with these proposals, pairs included. The sum over all proposals is the
        plan's total."""
        return sum(self.planned.get(item.target, 0) for item in items)

    def approved_tokens(self, items: Iterable[ReviewItem]) -> int:
        return self.tokens(item for item in items if item.standing in ACCEPTED)

    @cached_property
    def line_checks(self) -> LineChecks:
        """For each proposal, the number of its lines that are still in the kept entries."""
        return LineChecks(self.run, self._reviewed)

    # ---- groups -----------------------------------------------------------------------------------------

    @cached_property
    def lines(self) -> Mapping[Target, ProposalLine]:
        return lines_of(self.run, self.mark, self.transcript, self.leads)

    @cached_property
    def titles(self) -> GroupTitles:
        return GroupTitles(self.outline, self.lines)

    @property
    def groups(self) -> Sequence[Group]:
        """The groups of all proposals that match the filter, decided or not, by the number that they show."""
        return self._grouped.groups

    @cached_property
    def _grouped(self) -> ReviewGroups:
        return _groups.get((self.key, self.chosen), self._in_groups)

    def _in_groups(self) -> ReviewGroups:
        found = grouped(self.found, self.titles.by(self.chosen.by), self.size)
        effects = {group.key: self._group_effect(group) for group in found}
        return ReviewGroups(sorted(found, key=lambda group: -self.effect_tokens(effects[group.key])), effects)

    @cached_property
    def found(self) -> Sequence[ReviewItem]:
        """The proposals that match the filter, decided or not. Raises BadInput if its pattern cannot be used."""
        chosen = replace(self.chosen, undecided=False)
        if not chosen.narrows:
            return self.matching
        return [item for item in self.matching if chosen.leaves(self.facts[item.target])]

    @cached_property
    def matching(self) -> Sequence[ReviewItem]:
        """The proposals with the filter's text or pattern. Raises BadInput if it cannot be used."""
        pattern = self.chosen.pattern()
        if isinstance(pattern, Refusal):
            raise BadInput(pattern.code.value, pattern.message)
        return self._with_text(self.leads, pattern) if pattern is not None else self.leads

    @cached_property
    def facts(self) -> Mapping[Target, ProposalFacts]:
        """The facts about each proposal for filters."""
        found: dict[Target, ProposalFacts] = {}
        for item in self.leads:
            line, reason = self.line(item), group_key(self.titles.reason(item))
            undecided = item.standing is ReviewStatus.UNDECIDED
            found[item.target] = ProposalFacts(undecided, line.tool, line.kind, reason, self.full_effect(item))
        return found

    def listed(self, items: Sequence[ReviewItem]) -> Sequence[ReviewItem]:
        """Those of the proposals matching the filter that are shown: with `undecided`, without those decided by now."""
        if not self.chosen.undecided:
            return items
        return [item for item in items if item.standing is ReviewStatus.UNDECIDED]

    def line(self, item: ReviewItem) -> ProposalLine:
        return self.lines.get(item.target, UNKNOWN)

    def group(self, key: str) -> Group | None:
        return next((group for group in self.groups if group.key == key), None)

    def group_of(self, target: Target) -> Group | None:
        """The group with a proposal, or with the proposal of whose decision it is a part."""
        item = self.review.items.get(target)
        if item is None:
            return None
        wanted = item.leader or target
        return next((group for group in self.groups if any(one.target == wanted for one in group.leads)), None)

    def _with_text(self, items: Sequence[ReviewItem], pattern: Pattern) -> list[ReviewItem]:
        """The proposals whose line, reason or deleted text contains a match."""
        texts = self.texts_of(items)
        return [item for item in items if any(map(pattern.found_in, self._words_of(item, texts)))]

    def _words_of(self, item: ReviewItem, texts: Mapping[str, Texts]) -> Iterator[str]:
        line = self.line(item)
        yield f"{line.tool} {line.words}"
        if item.origin is not None:
            yield item.origin.reason
        found = texts.get(item.target.entry_id)
        if found is not None and item.target.block_index is not None:
            yield found.block(item.target.block_index)
        elif found is not None:
            yield found.joined(self.transcript.entries[item.position].blocks)

    # ---- texts -----------------------------------------------------------------------------------------

    def texts_of(self, items: Iterable[ReviewItem]) -> dict[str, Texts]:
        """The texts of proposals and of the calls that they answer, by entry."""
        entries = self.transcript.entries
        wanted: dict[int, TranscriptEntry] = {}
        for item in items:
            if item.position >= 0:
                wanted[item.position] = entries[item.position]
                call = self.transcript.pairs.answered_by(entries[item.position])
                if call is not None:
                    wanted[call.owner.position] = entries[call.owner.position]
        return self.read(wanted.values())

    def read(self, entries: Iterable[TranscriptEntry]) -> dict[str, Texts]:
        return read_snapshot_texts(self.run.session.real_path(), self.prepared, entries)

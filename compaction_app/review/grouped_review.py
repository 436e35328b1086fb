"""A review grouped by a filter: its proposals, their groups, their numbers, and the effect of a decision in words.

    rows ──reviews──▶ Review ──effects──▶ tokens by proposal ──filter, titles──▶ groups

The filter and the grouping are an address's query, and the same fields of a form.

    by = reason | tool | file | turn | call                 the groups
    undecided = 1, unopened = 1                             only those not decided, not opened
    tool = NAME, kind = KIND, over = TOKENS                 only these proposals
    reason = KEY                                            only those of one group by reason
    names = 1                                               only those with names that no kept entry mentions
    q = TEXT or /PATTERN/                                   only those that contain it, as the planner's search finds it

A decision is reported with the decided objects, the other changes, and the number of tokens:

    Approved: src/parser.py, and 2 in “Belongs to another deletion”: −8,450.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from compaction_app.core.effects import (
    Consequences,
    DecisionEffect,
    PlanPart,
    UnitSize,
    first_decision,
    full_effect,
    in_measure,
    plan_parts,
    removed_estimate,
    unit_sizes,
)
from compaction_app.core.gates import Refusal
from compaction_app.core.groups import (
    Group,
    Grouping,
    group_key,
    grouped,
    only_here,
    reason_title,
    reason_titles,
)
from compaction_app.core.patterns import Pattern, compile_pattern
from compaction_app.core.reasons import has_names_only_there, supersession_in
from compaction_app.core.review_fold import ACCEPTED, Kind, Review, ReviewItem, ReviewStatus, Step
from compaction_app.core.transcript import Transcript, TranscriptEntry
from compaction_app.entries.view import beginning_of
from compaction_app.models import Proposal, Run
from compaction_app.planning.hook_runner import pinned_by_hooks
from compaction_app.planning.snapshots import Prepared, read_snapshot_texts, snapshot_of
from compaction_app.runs.commands import opened_targets
from compaction_app.runs.reviews import reviewed
from sessions_app.recent import Recent
from sessions_app.sessionlog.context import ContextSize, significant
from sessions_app.sessionlog.entries import Target, Texts
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.text import plural
from sessions_app.templatetags.formatting import escape_line, signed

from .lines import KINDS, UNKNOWN, LineChecks, Outline, ProposalLine, line_of, lines_of

BY_HAND: Final = "Added by hand"
BY_PAIR: Final = "Belongs to another deletion"
BY_HOOK: Final = "Proposed by a hook"
KEPT_TITLE: Final = "Kept: pinned, not proposed"
NO_FILE: Final = "No file"
BEFORE: Final = "Before the first message"
_VERBS: Final = {"read": "read again", "edit": "edited", "write": "written"}


class GroupTitles:
    """The title of each proposal's group, for each way to group them."""

    def __init__(self, outline: Outline, lines: Mapping[Target, ProposalLine]) -> None:
        self._outline = outline
        self._lines = lines
        self._reasons = reason_titles(outline.review.leads(), _reason_of)

    def by(self, grouping: Grouping) -> Callable[[ReviewItem], str]:
        return {
            Grouping.REASON: self.reason,
            Grouping.TOOL: lambda item: self._line(item).tool,
            Grouping.FILE: lambda item: self._line(item).path or NO_FILE,
            Grouping.TURN: self.turn,
            Grouping.CALL: _call_of,
        }[grouping]

    @property
    def reasons(self) -> Iterable[str]:
        """The titles of the groups by reason."""
        return dict.fromkeys(self._reasons.values())

    def reason(self, item: ReviewItem) -> str:
        return self._reasons[item.target]

    def turn(self, item: ReviewItem) -> str:
        number = self._number(item)
        if not number:
            return BEFORE
        message = self._outline.transcript.entries[self._outline.turn_starts[number - 1]]
        words = self._lines.get(Target(message.entry_id), UNKNOWN).words
        return f"Turn {number}: {words}" if words else f"Turn {number}"

    def why(self, item: ReviewItem, grouping: Grouping) -> str:
        """The particulars that distinguish a proposal from the others of its group."""
        if grouping is not Grouping.REASON:
            return self.reason(item)
        reason = item.origin.reason if item.origin is not None else ""
        later = supersession_in(reason)
        entry = self._outline.transcript.entry(later.entry_id) if later is not None else None
        if later is not None and entry is not None:
            there = self._outline.turn_number(entry.position)
            where = "in this turn" if there == self._number(item) else f"in turn {there}"
            return f"{_VERBS[later.verb]} {where}"
        names = only_here(reason)
        if names is not None:
            return f"{names[0]} of {names[1]} names only here"
        return f"turn {self._number(item)}" if item.position >= 0 else ""

    def _line(self, item: ReviewItem) -> ProposalLine:
        return self._lines.get(item.target, UNKNOWN)

    def _number(self, item: ReviewItem) -> int:
        return self._outline.turn_number(item.position)


def _reason_of(item: ReviewItem) -> str:
    if item.origin is None:
        return KEPT_TITLE
    if item.added or item.source == Proposal.Source.HUMAN:
        return BY_HAND
    if item.source == Proposal.Source.REPAIR and not item.origin.reason.strip():
        return BY_PAIR
    if item.source == Proposal.Source.HOOK and not item.origin.reason.strip():
        return BY_HOOK
    return reason_title(item.origin.reason)


def _call_of(item: ReviewItem) -> str:
    if item.origin is None:
        return KEPT_TITLE
    if item.added:
        return BY_HAND
    return f"Call {item.origin.call}" if item.origin.call else BY_HOOK


# ---- the filter ------------------------------------------------------------------------------------------

LENGTH: Final = 512
"""The maximum length of a field, in characters."""
FIELDS: Final = ("by", "undecided", "unopened", "tool", "kind", "reason", "names", "over", "q")


class ProposalFacts(msgspec.Struct, frozen=True):
    """The facts about a proposal that a filter compares, besides its texts."""

    is_undecided: bool
    is_opened: bool
    tool: str
    kind: str
    reason: str
    """The key of its group by reason."""
    names: bool
    """Whether its reason states names that no kept entry mentions."""
    size: int


@dataclass(frozen=True, slots=True)
class ReviewFilter:
    """The proposals that are shown, and their groups."""

    by: Grouping = Grouping.REASON
    undecided: bool = False
    unopened: bool = False
    tool: str = ""
    kind: str = ""
    reason: str = ""
    names: bool = False
    over: int = 0
    q: str = ""

    @property
    def narrows(self) -> bool:
        """Whether it hides any proposal."""
        return replace(self, by=Grouping.REASON) != ReviewFilter()

    @property
    def values(self) -> dict[str, str]:
        """The fields that differ from those without a filter."""
        given = {
            "by": "" if self.by is Grouping.REASON else self.by.value,
            "undecided": "1" if self.undecided else "",
            "unopened": "1" if self.unopened else "",
            "tool": self.tool,
            "kind": self.kind,
            "reason": self.reason,
            "names": "1" if self.names else "",
            "over": str(self.over) if self.over else "",
            "q": self.q,
        }
        return {name: value for name, value in given.items() if value}

    def query(self, **changes: Any) -> str:
        """The query of an address with this filter and these changes."""
        return f"?{urlencode(replace(self, **changes).values, errors='replace')}"

    def leaves(self, facts: ProposalFacts) -> bool:
        """Whether it shows a proposal, apart from its text or pattern."""
        return (
            (not self.undecided or facts.is_undecided)
            and (not self.unopened or not facts.is_opened)
            and self.tool in ("", facts.tool)
            and self.kind in ("", facts.kind)
            and self.reason in ("", facts.reason)
            and (not self.names or facts.names)
            and (not self.over or facts.size > self.over)
        )

    @property
    def is_pattern(self) -> bool:
        return len(self.q) > 2 and self.q.startswith("/") and self.q.endswith("/")

    def pattern(self) -> Pattern | Refusal | None:
        """The pattern to search for: a regular expression between slashes, otherwise a text; None if there is none."""
        if not self.q:
            return None
        words = self.q[1:-1] if self.is_pattern else self.q
        return compile_pattern(words, regex=self.is_pattern, case_sensitive=False)


def filter_of(fields: Mapping[str, Any]) -> ReviewFilter:
    """The filter of a query or a form. Fields with values unknown to the page are ignored."""
    given = {name: str(fields.get(name, ""))[:LENGTH].strip() for name in FIELDS}
    over = given["over"]
    return ReviewFilter(
        by=Grouping(given["by"]) if given["by"] in set(Grouping) else Grouping.REASON,
        undecided=given["undecided"] == "1",
        unopened=given["unopened"] == "1",
        tool=given["tool"],
        kind=given["kind"] if given["kind"] in KINDS else "",
        reason=given["reason"],
        names=given["names"] == "1",
        over=int(over) if over.isascii() and over.isdigit() and len(over) < 10 else 0,
        q=given["q"],
    )


KEPT_STATUSES: Final = (ReviewStatus.REJECTED, ReviewStatus.KEPT_WITH_PAIR)
DECIDED: Final = tuple(set(ReviewStatus) - {ReviewStatus.UNDECIDED, ReviewStatus.KEPT_WITH_PAIR})
"""The statuses of proposals that can be reopened."""


# ---- the review ------------------------------------------------------------------------------------------

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
        """The tokens of `sizes` in the measure of the context."""

        def work_out() -> Mapping[Target, int]:
            estimates = {target: size.tokens for target, size in self.sizes.items()}
            return in_measure(self.context, self.review, estimates)

        return _planned.get(self.key, work_out)

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
        """Computes the effects of possible decisions on this version."""
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
    def hooked(self) -> Mapping[Target, str]:
        """The pins of hooks by target, in words; read only if a pinned object is shown."""
        return pinned_by_hooks(self.run)

    @cached_property
    def opened_targets(self) -> frozenset[Target]:
        """The objects that a user opened."""
        return opened_targets(self.run)

    def is_opened(self, item: ReviewItem) -> bool:
        """Whether a user opened a proposal, or an object that is deleted with it."""
        return not self.opened_targets.isdisjoint((item.target, *self.review.followers.get(item.target, ())))

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
        chosen = replace(self.chosen, undecided=False, unopened=False)
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
            names = item.origin is not None and has_names_only_there(item.origin.reason)
            size = self.full_effect(item)
            found[item.target] = ProposalFacts(
                undecided, self.is_opened(item), line.tool, line.kind, reason, names, size
            )
        return found

    def listed(self, items: Sequence[ReviewItem]) -> Sequence[ReviewItem]:
        """Those of the proposals that are shown: with the filters `undecided` and `unopened`, only such ones."""
        if self.chosen.undecided:
            items = [item for item in items if item.standing is ReviewStatus.UNDECIDED]
        if self.chosen.unopened:
            items = [item for item in items if not self.is_opened(item)]
        return items

    def line(self, item: ReviewItem) -> ProposalLine:
        return self.lines.get(item.target, UNKNOWN)

    def group(self, key: str) -> Group | None:
        return next((group for group in self.groups if group.key == key), None)

    def group_of(self, target: Target) -> Group | None:
        """The group of a proposal; for an object that is decided with another one, the group of that proposal."""
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


# ---- a decision in words ---------------------------------------------------------------------------------

GROUPS_NAMED: Final = 2
NAME: Final = 80
"""The maximum length of an object's line, in characters."""
_DONE: Final = {
    Kind.APPROVE: "approved",
    Kind.REJECT: "rejected",
    Kind.REOPEN: "reopened",
    Kind.NARROW: "narrowed",
    Kind.ADD: "added",
    Kind.WITHDRAW: "took back",
}


def step_words(review: GroupedReview, step: Step) -> str:
    """A decision in words: rejected: src/parse.py:59–209; approved 15 of “Empty outputs”; approved 17 proposals.

    Raises the errors of reading.
    """
    if len({target.entry_id for target in step.targets}) > 1:
        return f"{_DONE[step.kind]} {_several(review, step)}"
    return f"{_DONE[step.kind]}: {_name(review, step.targets[0])}"


def _several(review: GroupedReview, step: Step) -> str:
    """The number of objects of a decision, and their group if it is one."""
    found = [item for target in step.targets if (item := review.review.items.get(target)) is not None]
    titles = set(map(review.titles.by(review.chosen.by), found)) if len(found) == len(step.targets) else set()
    if len(titles) == 1 and step.kind is not Kind.ADD:
        return f"{len(found):,} of “{escape_line(titles.pop())}”"
    return plural(len(step.targets), "deletion" if step.kind is Kind.ADD else "proposal")


def decision_report(before: GroupedReview, after: GroupedReview, step: Step, *, is_undo: bool = False) -> str:
    """The changes of a decision between two versions of a review; for an undo, those of reverting the decision."""
    words = step_words(before if is_undo else after, step)
    sentence = f"Undone: {words}" if is_undo else words[:1].upper() + words[1:]
    own = _decided_by(after.review, step)
    was, now = _with(before.review, ACCEPTED), _with(after.review, ACCEPTED)
    sentence += _places(before, after, (was ^ now) - own, "and {}")
    held = {ReviewStatus.KEPT_WITH_PAIR}
    sentence += _places(before, after, _with(after.review, held) - _with(before.review, held) - own, "{} kept with it")
    sentence += _numbers(before, after, step.kind)
    refused = own & _with(after.review, {ReviewStatus.REFUSED})
    if refused and not is_undo:
        sentence += f"; {'it' if len(own) == 1 else f'{len(refused):,} of them'} cannot be deleted, see why"
    return f"{sentence}."


def _numbers(before: GroupedReview, after: GroupedReview, kind: Kind) -> str:
    """The change of the approved tokens; for a rejection that changed none, the tokens kept."""
    tokens = _estimate(after, after.review.goes) - _estimate(before, before.review.goes)
    if tokens:
        return f": {signed(after.context.of(tokens))}"
    kept = _estimate(before, before.review.would_go) - _estimate(after, after.review.would_go)
    return f": {significant(after.context.of(kept)):,} tokens are kept" if kept > 0 and kind is Kind.REJECT else ""


def _estimate(review: GroupedReview, plan: Collection[Target]) -> int:
    return removed_estimate(review.transcript, plan)


def _with(review: Review, statuses: Collection[ReviewStatus]) -> set[Target]:
    return {item.target for item in review.leads() if item.standing in statuses}


def _decided_by(review: Review, step: Step) -> set[Target]:
    """The objects that a step names, and the entry whose blocks it narrowed."""
    items = map(review.items.get, step.targets)
    return {*step.targets, *(item.leader for item in items if item is not None and item.leader is not None)}


def _places(before: GroupedReview, after: GroupedReview, targets: Iterable[Target], words: str) -> str:
    """Proposals by group: “, and 2 in “Contains no names” and 1 in “Empty outputs””."""
    counts: Counter[str] = Counter()
    for target in targets:
        review = after if target in after.review.items else before
        counts[review.titles.by(after.chosen.by)(review.review.items[target])] += 1
    if not counts:
        return ""
    if len(counts) > GROUPS_NAMED:
        where = f"{counts.total():,} in {len(counts):,} groups"
    else:
        named = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        where = " and ".join(f"{count:,} in “{escape_line(title)}”" for title, count in named)
    return f", {words.format(where)}"


def _name(review: GroupedReview, target: Target) -> str:
    """A proposal by the name in its row, any other object by its line. Raises the errors of reading."""
    entry = review.transcript.entry(target.entry_id)
    if entry is None:
        return escape_line(target.entry_id)
    line = review.lines.get(target) or line_of(review.run, review.transcript, entry)
    return escape_line(beginning_of(line.words or line.tool, NAME))

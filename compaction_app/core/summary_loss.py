"""The loss of a summary: the replaced messages, the subjects still mentioned, and those that a verbatim plan of the
same size would have kept.

    branch ─change_at─▶ replaced ─statements─▶ subjects ◀─mentions─ the summary, and the messages beside it
       └─prepare─▶ transcript ─embedded planner─▶ survivors ─mentions─▶ the same figures for a plan of this size

`DraftCheck` judges the draft of a summary in the same way. The subjects and the kept messages are read only once; a
draft is judged again whenever it is edited. `loss_of` also takes a draft, as a `Replacement`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from sessions_app.agents.pure.formats import PlanRules, Reader
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import (
    ENCRYPTED,
    BlockType,
    Entry,
    EntryKind,
    Role,
    Target,
    Texts,
    blocks_by_entry,
    tokens_of,
)
from sessions_app.sessionlog.jsjson import utf16_length
from sessions_app.sessionlog.text import is_noise
from sessions_app.sessionlog.timeline import ContextReader, TimelinePoint, change_at
from sessions_app.sessionlog.tree import SessionTree

from .embedded import EmbeddedPlanner
from .gates import NO_RESTRAINTS, Restraints
from .loop import drive
from .mentions import MEASURES, Mentions, Statement, Subjects, statements_of, subjects_of
from .store import DeletionStore
from .summary_ranges import BranchLeft, ReplacedTurn, SummaryRange, turn_numbers, turns_of
from .tools import Workbench
from .transcript import prepare

SUMMARIES: Final = frozenset({Role.COMPACTION_SUMMARY, Role.BRANCH_SUMMARY})
_LEAST_RATIO: Final = 0.001
_SHARES: Final = (1.0, 0.95, 0.9, 0.85)
"""The shares of the tokens that a plan may leave, tried one after the other: near its target a planner may have to
delete something large, and leave much less."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A summary and the messages that it replaced. Sizes in estimated tokens."""

    summary: Message
    before_id: str
    """The last entry at which the context was still the one before the summary."""
    before: ActiveContext
    replaced: tuple[Message, ...]
    """The original messages, without the agent's additions to every context."""
    kept: tuple[Message, ...]
    """The messages that stayed beside the summary, verbatim."""
    entries: int
    """The number of entries of the branch in the replaced range: the messages, and notes between them."""
    tokens_after: int

    @property
    def tokens_before(self) -> int:
        return self.before.estimate

    @property
    def tokens_replaced(self) -> int:
        return sum(message.tokens for message in self.replaced)

    @property
    def images(self) -> int:
        """The images of the replaced messages, all of which a summary loses."""
        return sum(block.type == BlockType.IMAGE for message in self.replaced for block in message.blocks or ())

    @property
    def is_of_branch(self) -> bool:
        """Whether it summarises a branch that was left, not the beginning of its own."""
        return self.summary.role == Role.BRANCH_SUMMARY

    @property
    def sources(self) -> list[Entry]:
        """The entries whose texts are needed."""
        return [message.source for message in (*self.before.messages, *self.kept, self.summary)]


@dataclass(frozen=True, slots=True)
class JudgedSubjects:
    """The subjects of the replaced messages, and those still mentioned."""

    subjects: Subjects
    still: Subjects
    """The subjects that the summary, or what a plan leaves of the replaced messages, mentions."""
    in_context: Subjects
    """The subjects that it, or the messages kept beside it, mention."""

    @property
    def lost(self) -> Subjects:
        """The subjects no longer mentioned."""
        return without(self.subjects, self.in_context)


@dataclass(frozen=True, slots=True)
class VerbatimPlan(JudgedSubjects):
    """The part of the previous context that the embedded planner would leave, at the size of the summary."""

    tokens_after: int


@dataclass(frozen=True, slots=True)
class SummaryLoss(JudgedSubjects):
    """The loss of a summary."""

    replacement: Replacement
    turn_numbers: Mapping[str, int]
    """The turn number of each entry, by id: see `turn_numbers`."""
    turns: tuple[ReplacedTurn, ...]
    text: str
    plan: VerbatimPlan | None
    """The verbatim plan; None if there was too little to plan."""

    @property
    def is_encrypted(self) -> bool:
        return self.text == ENCRYPTED


def is_summary(entry: Entry) -> bool:
    """Whether an entry is a summary with which an agent replaced something."""
    return not entry.empty and (entry.kind is EntryKind.SUMMARY or entry.role in SUMMARIES)


def summary_of(point: TimelinePoint) -> Message | None:
    """The summary that a change of the context added; None if it added none."""
    return next((message for message in point.added if message.role in SUMMARIES), None)


def summaries_on(branch: Iterable[Entry], reader: ContextReader) -> list[Entry]:
    """The summaries of a branch that its reader does not ignore. A few of them replaced nothing."""
    return [entry for entry in branch if is_summary(entry) and not reader.ignores(entry)]


def replacement_by(tree: SessionTree, branch: Sequence[Entry], entry_id: str, reader: Reader) -> Replacement | None:
    """The messages that a summary on a branch, given root first, replaced; None if the entry is not part of such a
    change."""
    place = next((place for place, entry in enumerate(branch) if entry.id == entry_id), None)
    if place is None:
        return None
    if branch[place].role == Role.BRANCH_SUMMARY and not branch[place].empty:
        return _left_branch(tree, branch[: place + 1], reader)
    change = change_at(branch, entry_id, reader)
    summary = summary_of(change.point) if change is not None else None
    if change is None or summary is None:
        return None
    replaced = said(change.point.removed)
    if not replaced:
        return None
    kept = (*change.kept, *(message for message in change.point.added if message is not summary))
    return Replacement(
        summary,
        change.point.before_id,
        change.before,
        replaced,
        kept,
        entries_among(branch, replaced, kept),
        change.after.estimate,
    )


def loss_of(
    replacement: Replacement,
    before: Sequence[Entry],
    texts: Mapping[str, Texts],
    rules: PlanRules,
    restraints: Restraints = NO_RESTRAINTS,
    project: str = "",
) -> SummaryLoss:
    """The loss of a summary. `before` is the branch of `before_id`, root first; `texts` are those of `sources`."""
    statements = list(statements_of(replacement.replaced, texts, project))
    subjects = subjects_of(statements)
    numbers = turn_numbers(before)
    users = [message for message in replacement.before.messages if message.role == Role.USER]
    summary = replacement.summary
    text = summary.text(texts[summary.source.id])

    def mentioned(messages: Iterable[Message]) -> Subjects:
        return Mentions(statements_of(messages, texts, project)).of(subjects)

    still = mentioned((summary,))
    plan = _plan(replacement, before, texts, rules, restraints)
    return SummaryLoss(
        subjects,
        still,
        either(subjects, still, mentioned(replacement.kept)),
        replacement,
        numbers,
        turns_of(numbers, replacement.replaced, users, statements, texts),
        text,
        None if plan is None else _judged(plan, replacement, subjects, mentioned),
    )


def either(subjects: Subjects, one: Subjects, other: Subjects) -> Subjects:
    """Those of `subjects` that are in `one` or in `other`."""
    both = {name: {*getattr(one, name), *getattr(other, name)} for name in MEASURES}
    return subjects.only(lambda name, subject: subject in both[name])


def without(subjects: Subjects, others: Subjects) -> Subjects:
    """Those of `subjects` that are not in `others`."""
    found = {name: {*getattr(others, name)} for name in MEASURES}
    return subjects.only(lambda name, subject: subject not in found[name])


def said(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages without those that the agent adds to every context."""
    return tuple(message for message in messages if message.role not in (Role.SYSTEM, Role.INJECTED))


def entries_among(branch: Sequence[Entry], replaced: Sequence[Message], kept: Sequence[Message]) -> int:
    """The entries of a branch from the first to the last replaced message, without the kept ones."""
    gone, left = ({message.entry.id for message in one} for one in (replaced, kept))
    places = [place for place, entry in enumerate(branch) if entry.id in gone]
    return sum(entry.id not in left for entry in branch[places[0] : places[-1] + 1]) if places else 0


# ---- the replaced messages -------------------------------------------------------------------------------


def _left_branch(tree: SessionTree, branch: Sequence[Entry], reader: Reader) -> Replacement | None:
    """The branch that a summary at the end of a branch summarises: the one written to before it."""
    summary = branch[-1]
    written = tree.entries[: tree.position(summary.id)]
    last = next((entry for entry in reversed(written) if not entry.is_off_branch), None)
    after = reader.rebuild(branch)
    message = next((message for message in after.messages if message.entry is summary), None)
    if last is None or message is None:
        return None
    here = {entry.id for entry in branch}
    left = tree.branch(last.id)
    before = reader.rebuild(left)
    replaced = said(message for message in before.messages if message.entry.id not in here)
    if not replaced:
        return None
    kept = said(one for one in after.messages if one.entry is not summary)
    return Replacement(message, last.id, before, replaced, kept, entries_among(left, replaced, kept), after.estimate)


# ---- the plan --------------------------------------------------------------------------------------------


def _plan(
    replacement: Replacement,
    before: Sequence[Entry],
    texts: Mapping[str, Texts],
    rules: PlanRules,
    restraints: Restraints,
) -> DeletionStore | None:
    """The plan that leaves as many tokens as the summary did, as far as the rules allow."""
    whole = prepare(before, texts, {}, rules, is_noise, replacement.before)
    if whole is None or not whole.tokens:
        return None
    left = replacement.tokens_after - (replacement.tokens_before - whole.tokens)
    if left >= whole.tokens:
        return DeletionStore(whole, restraints)
    best: DeletionStore | None = None
    for share in _SHARES:
        transcript = whole.with_ratio(max(_LEAST_RATIO, left * share / whole.tokens))
        store = DeletionStore(transcript, restraints)
        deque(drive(EmbeddedPlanner(transcript), Workbench(store)), maxlen=0)
        if best is None or store.stats.tokens_after > best.stats.tokens_after:
            best = store
        if best.stats.tokens_after >= left * _SHARES[-1]:
            break
    return best


def _judged(
    plan: DeletionStore,
    replacement: Replacement,
    subjects: Subjects,
    mentioned: Callable[[Iterable[Message]], Subjects],
) -> VerbatimPlan:
    survivors = _survivors(replacement.before.messages, plan.targets)
    gone = {message.entry.id for message in replacement.replaced}
    still = mentioned(message for message in survivors if message.entry.id in gone)
    elsewhere = mentioned(message for message in survivors if message.entry.id not in gone)
    tokens = replacement.tokens_before - plan.stats.tokens_before + plan.stats.tokens_after
    return VerbatimPlan(subjects, still, either(subjects, still, elsewhere), tokens)


def _survivors(messages: Iterable[Message], targets: Iterable[Target]) -> list[Message]:
    deleted = blocks_by_entry(targets)
    survivors = []
    for message in messages:
        gone = deleted.get(message.entry.id, frozenset())
        if gone:
            blocks = tuple(block for block in message.blocks or () if block.index not in gone)
            survivors.append(msgspec.structs.replace(message, blocks=blocks))
        elif gone is not None:
            survivors.append(message)
    return survivors


DRAFT_ID: Final = "draft"
"""The id of the entry that a draft would be."""


class DraftCheck:
    """Judges drafts of one summary.

    `replaced` are the messages that it would replace, `kept` those that stay; `texts` are by the id of each message's
    source. A relative path is resolved from `project`, the session's directory.
    """

    def __init__(
        self,
        replaced: Iterable[Message],
        kept: Iterable[Message],
        texts: Mapping[str, Texts],
        project: str = "",
    ) -> None:
        self.subjects = subjects_of(statements_of(replaced, texts, project))
        self._beside = Mentions(statements_of(kept, texts, project)).of(self.subjects)

    def judge(self, draft: str) -> JudgedSubjects:
        """The subjects that a draft, with its lists of files, mentions."""
        said = Statement("", Role.COMPACTION_SUMMARY, draft)
        still = Mentions([said]).of(self.subjects)
        return JudgedSubjects(self.subjects, still, either(self.subjects, still, self._beside))


def drafted_compaction(branch: Sequence[Entry], context: ActiveContext, found: SummaryRange, draft: str) -> Replacement:
    """A draft of a compaction as if it were written at the end of a branch, whose context is `context`."""
    gone = {entry.id for entry in found.summarised}
    if found.previous_summary is not None:
        gone.add(found.previous_summary.id)
    conversation = said(context.messages)
    replaced = tuple(message for message in conversation if message.entry.id in gone)
    kept = tuple(message for message in conversation if message.entry.id not in gone)
    summary = _summary(draft, EntryKind.SUMMARY, Role.COMPACTION_SUMMARY, branch[-1].id)
    return _replacement(summary, context, branch, replaced, kept)


def drafted_branch_summary(
    left: BranchLeft, before: ActiveContext, after: ActiveContext, new_leaf_id: str | None, draft: str
) -> Replacement:
    """A draft of the summary of a branch that is left. `before` is the context at the old leaf, `after` the one at the
    new leaf, without the summary."""
    left_ids = {entry.id for entry in left.entries}
    replaced = said(message for message in before.messages if message.entry.id in left_ids)
    kept = said(after.messages)
    summary = _summary(draft, EntryKind.MESSAGE, Role.BRANCH_SUMMARY, new_leaf_id)
    return _replacement(summary, before, left.entries, replaced, kept)


def with_draft(replacement: Replacement, draft: str) -> Replacement:
    """The same replacement with another text of the draft."""
    old = replacement.summary
    tokens = tokens_of(utf16_length(draft))
    entry = msgspec.structs.replace(old.entry, tokens=tokens, empty=not draft)
    summary = msgspec.structs.replace(old, entry=entry, tokens=tokens)
    return replace(replacement, summary=summary, tokens_after=replacement.tokens_after - old.tokens + tokens)


def draft_texts(draft: str) -> dict[str, Texts]:
    """The text of a draft together with those of recorded entries."""
    return {DRAFT_ID: Texts(whole=draft, blocks=())}


def _summary(draft: str, kind: EntryKind, role: str, parent_id: str | None) -> Message:
    tokens = tokens_of(utf16_length(draft))
    entry = Entry(0, 0, 0, DRAFT_ID, parent_id, DRAFT_ID, kind, role=role, tokens=tokens, empty=not draft)
    return Message(entry, role, None, tokens)


def _replacement(
    summary: Message,
    before: ActiveContext,
    branch: Sequence[Entry],
    replaced: tuple[Message, ...],
    kept: tuple[Message, ...],
) -> Replacement:
    after = summary.tokens + sum(message.tokens for message in kept)
    entries = entries_among(branch, replaced, kept)
    return Replacement(summary, branch[-1].id, before, replaced, kept, entries, after)

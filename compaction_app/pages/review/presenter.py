"""A review on its page: proposals in groups, one line each, and the totals as the airlock computes them.

    rows ──reviews──▶ Review ──effects──▶ tokens by proposal ──filter, groups──▶ Page
                                                                  texts, by offset ──▶ unfolded proposals

Nothing is decided here. Texts are read once for the lines, and again for unfolded proposals, each with its texts, its
reason, its pair, and the possible decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from django.urls import reverse

from compaction_app.core.effects import DecisionEffect
from compaction_app.core.gates import Refusal
from compaction_app.core.groups import ONLY_HERE, Bar, Group, bars, group_key
from compaction_app.core.reasons import is_checkable
from compaction_app.core.review_fold import ACCEPTED, Kind, ReviewItem, ReviewStatus
from compaction_app.core.stats import percent, tokens_to_delete
from compaction_app.core.transcript import TranscriptEntry
from compaction_app.entries.links import entry_address
from compaction_app.entries.view import (
    BLOCKS,
    ShownText,
    TextSource,
    author_of,
    beginning,
    kind_of,
    path_read,
    source_of_call,
)
from compaction_app.models import Proposal, Run
from compaction_app.planning.snapshots import moved_in_snapshot
from compaction_app.rendering.code import language_of
from compaction_app.rendering.markup import NO_MARKUP
from compaction_app.review import grouped_review
from compaction_app.review.account import StruckMap, struck_map
from compaction_app.review.lines import KINDS, KeptEntries, anchor, fold_words, reason_words, ref_of
from sessions_app.agents.pure.formats import Moved
from sessions_app.recent import Recent
from sessions_app.sessionlog.context import ContextSize, significant
from sessions_app.sessionlog.entries import Block, BlockType, Role, Target, Texts, call_parts

STRUCK: Final = ("approved", "open")
"""The fates of texts that are struck through."""
PAIRS_SHOWN: Final = 3
PREVIEW: Final = 72
_ACTIONS: Final = {
    ReviewStatus.UNDECIDED: (("approve", "Approve"), ("reject", "Reject")),
    ReviewStatus.APPROVED: (("reject", "Reject"), ("reopen", "Reopen")),
    ReviewStatus.REJECTED: (("approve", "Approve"), ("reopen", "Reopen")),
    ReviewStatus.GOES_WITH_PAIR: (("reject", "Keep it"),),
    ReviewStatus.KEPT_WITH_PAIR: (),
    ReviewStatus.REFUSED: (("reject", "Reject"), ("reopen", "Reopen")),
    ReviewStatus.NARROWED: (("reject", "Reject"), ("reopen", "Reopen")),
}
_KEYS: Final = {"approve": "a", "reject": "x", "withdraw": "x"}
_FULL_STOPS: Final = (".", "!", "?", "…", "。", "！", "？")
_QUOTES: Final = "\"'”’»)"
"""Characters that may follow the full stop of a sentence."""


@dataclass(frozen=True, slots=True)
class ShownPart:
    """One text of a proposal: of a call, a message or an output. `fate`: approved, open, rejected, or kept."""

    kind: str
    """The kind of the text, as in `EntryView`."""
    shown: ShownText
    fate: str
    call: tuple[str, str] | None = None
    """The tool of a call, and its arguments in short."""
    entry_id: str = ""
    """The entry of which the rest of the text can be shown; empty if there is no rest."""
    block: int | None = None

    @property
    def struck(self) -> str:
        """Whether it is struck through; for a call, its line."""
        return (" ".join(self.call or ()) or "yes") if self.fate in STRUCK else ""


@dataclass(frozen=True, slots=True)
class EntryRef:
    """An object to which another one refers: in words, and its address."""

    words: str
    address: str
    after: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Why something may not be deleted, and the object that prevents it."""

    code: str
    message: str
    named: EntryRef | None


Folded = dict[str, Any] | None
"""Kept entries, folded into one line of the page; None if there are none."""


def review_address(run: Run) -> str:
    return reverse("compaction:review", args=[run.pk])


def actions_of(item: ReviewItem) -> Sequence[tuple[str, str]]:
    """The possible decisions about a proposal: the names of their buttons, and their words."""
    if item.added and item.standing in (ReviewStatus.APPROVED, ReviewStatus.REFUSED):
        return (("withdraw", "Take back"),)
    return _ACTIONS[item.standing]


class ArticleMaker:
    """Makes the articles of one review from the texts that were read."""

    def __init__(self, grouped: grouped_review.GroupedReview, texts: Mapping[str, Texts]) -> None:
        self._grouped, self._texts = grouped, texts
        self._reviewer, self._review, self._transcript = grouped.reviewer, grouped.review, grouped.transcript
        session = grouped.run.session
        # Resolved once, because resolving an address is far slower than composing a text.
        self._session = session.get_absolute_url()
        self._review_address = review_address(grouped.run)
        self._project = f"{session.cwd.rstrip('/')}/" if session.cwd else ""

    def open_proposal(self, item: ReviewItem, before: Folded, after: Folded) -> dict[str, Any]:
        """A proposal or an addition with everything that helps to decide about it, for the page.

        `before` and `after` are the kept entries directly around it.
        """
        entry = self._transcript.entries[item.position] if item.position >= 0 else None
        pairs = list(self._pairs(item)) if entry is not None else []
        if item.standing is ReviewStatus.KEPT_WITH_PAIR and item.refusal is not None:
            pairs = [named for named in [self._kept_by(item.refusal)] if named is not None]
        unanswered = self._review.unanswered.get(item.target, ())
        reason = item.origin.reason if item.origin is not None and not item.added else ""
        if not reason and item.source == Proposal.Source.REPAIR:
            reason = grouped_review.BY_PAIR
        still = self._grouped.line_checks.of(item.target)
        return {
            "key": ref_of(item.target),
            "entry_id": item.target.entry_id,
            "block": item.target.block_index,
            "address": self._address(item.target.entry_id),
            "who": self._author(entry, item.target),
            "parts": list(self._parts(item, entry)) if entry is not None else [],
            # The name of each button, its words, its key if it has one, and the change of the approved tokens.
            "actions": [
                (name, words, _KEYS.get(name, ""), self._effect_tokens(Kind(name), item.target))
                for name, words in actions_of(item)
            ],
            "reason": _as_sentence(self._short(reason_words(reason, still, self._grouped.outline))),
            # Whether something can be shown as evidence beside its reason: see `evidence`.
            "is_checkable": still is not None or is_checkable(reason),
            "source": self._source(item),
            "call": item.origin.call if item.origin is not None else 0,
            "pairs": pairs[:PAIRS_SHOWN],
            "more_pairs": max(0, len(pairs) - PAIRS_SHOWN),
            "unanswered": [self._named(self._unanswered(target), target, "") for target in unanswered[:PAIRS_SHOWN]],
            "more_unanswered": max(0, len(unanswered) - PAIRS_SHOWN),
            "refusal": self._refused(item) if item.standing is ReviewStatus.REFUSED else None,
            "choices": self._choices(item, entry),
            "before": before,
            "after": after,
        }

    def staying(self, entry: TranscriptEntry) -> Iterator[dict[str, Any]]:
        """The kept part of an entry, for the page: its first BLOCKS blocks, also those that are deleted while others
        are kept, each with the buttons that add its deletion, if allowed."""
        blocks: list[Block | None] = list(entry.blocks) or [None]
        items, would_go = self._review.items, self._review.would_go
        touched = {target.block_index for target in (*items, *would_go) if target.entry_id == entry.entry_id}
        for number, block in enumerate(blocks[:BLOCKS]):
            whole = block is None or len(blocks) == 1
            target = Target(entry.entry_id, None if block is None or whole else block.index)
            own = Target(entry.entry_id, None if block is None else block.index)
            goes = block is not None and block.index in touched
            additions = []
            if not entry.is_protected and not goes:
                additions.append((target, "Delete" if whole else "Delete block"))
                if not whole and number == 0 and not touched:
                    additions.append((Target(entry.entry_id), "Delete entry"))
            yield {
                "entry_id": entry.entry_id,
                "block": own.block_index,
                "address": self._address(entry.entry_id),
                "who": self._author(entry, own),
                "label": ("proposed" if own in items else "deleted with its pair") if goes else "",
                "part": self._part(entry, block, "open" if goes else "kept"),
                "tokens": entry.tokens if block is None else block.tokens,
                "additions": [(ref_of(one), words, self._effect_tokens(Kind.ADD, one)) for one, words in additions],
                "protection": entry.reason if number == 0 else None,
            }

    def _effect_tokens(self, kind: Kind, target: Target) -> int:
        return self._grouped.context.of(self._grouped.consequences.of(kind, [target]).tokens)

    # ---- texts ------------------------------------------------------------------------------------------

    def _parts(self, item: ReviewItem, entry: TranscriptEntry) -> Iterator[ShownPart]:
        call = self._transcript.pairs.answered_by(entry)
        if call is not None and item.target.block_index is None and call.blocks:
            owner = self._transcript.entries[call.owner.position]
            block = owner.blocks[call.blocks[0].slot]
            yield self._part(owner, block, self._fate(Target(owner.entry_id, block.index), item))
        if item.target.block_index is not None:
            slot = entry.slot(item.target.block_index)
            if slot is not None:
                yield self._part(entry, entry.blocks[slot], self._fate(item.target, item))
        elif call is not None or not entry.blocks:
            if item.standing is not ReviewStatus.NARROWED:
                yield self._part(entry, None, self._fate(item.target, item))
                return
            yield from self._block_parts(item, entry)
        else:
            yield from self._block_parts(item, entry)

    def _block_parts(self, item: ReviewItem, entry: TranscriptEntry) -> Iterator[ShownPart]:
        for block in entry.blocks[:BLOCKS]:
            yield self._part(entry, block, self._fate(Target(entry.entry_id, block.index), item))
        if len(entry.blocks) > BLOCKS:
            left = f"{len(entry.blocks) - BLOCKS:,} more blocks are not shown here"
            yield ShownPart("text", ShownText(left), "kept")

    def _fate(self, target: Target, item: ReviewItem) -> str:
        """The fate of one text of a proposal: its deletion is approved or undecided, or it is kept."""
        whole = Target(target.entry_id)
        if target in self._review.goes or whole in self._review.goes:
            return "approved"
        if target in self._review.would_go or whole in self._review.would_go:
            return "open"
        kept = item.standing in (ReviewStatus.REJECTED, ReviewStatus.KEPT_WITH_PAIR, ReviewStatus.NARROWED)
        return "rejected" if kept else "kept"

    def _part(self, entry: TranscriptEntry, block: Block | None, fate: str) -> ShownPart:
        texts = self._texts.get(entry.entry_id)
        if block is None:
            text = texts.joined(entry.blocks) if texts is not None else ""
        else:
            text = texts.block(block.index) if texts is not None else ""
        index = None if block is None else block.index
        if block is not None and block.type == BlockType.TOOL_CALL:
            source, call = source_of_call(text, block.call_id or "", self._project)
            shown = beginning(source)
            return ShownPart("call", shown, fate, call, entry.entry_id if shown.more else "", index)
        kind = kind_of(entry, block)
        shown = beginning(TextSource(kind, text, language=self._language(entry)))
        if fate in STRUCK and shown.style in ("code", "ansi"):
            # Line by line, without the indent: see `struck`.
            shown = replace(shown, markup=NO_MARKUP)
        return ShownPart(kind, shown, fate, None, entry.entry_id if shown.more else "", index)

    def _language(self, entry: TranscriptEntry) -> str:
        """The language of the file that an output shows, from the call that it answers; empty if it shows none."""
        call = self._transcript.pairs.answered_by(entry)
        if call is None or not call.blocks:
            return ""
        owner = self._transcript.entries[call.owner.position]
        texts, block = self._texts.get(owner.entry_id), owner.blocks[call.blocks[0].slot]
        text = texts.block(block.index) if texts is not None else ""
        return language_of(path_read(*call_parts(text, block.call_id or "")))

    def _author(self, entry: TranscriptEntry | None, target: Target) -> str:
        if entry is None:
            return "unknown"
        blocks = [one for one in entry.blocks if target.block_index in (None, one.index)]
        block_type = blocks[0].type if len(blocks) == 1 else ""
        return author_of(entry.role, entry.tool_name, block_type, otherwise=entry.entry_type)

    def _other_side(self, entry: TranscriptEntry, target: Target) -> str:
        """The objects deleted with an item: a call or a result, or an entry that the agent's rules tie to it."""
        if entry.role == Role.TOOL_RESULT:
            return "Its result"
        if entry.call_ids:
            return "Its call"
        return f"{self._author(entry, target).capitalize()} in {self._grouped.outline.turn_words(entry.entry_id)}"

    # ---- words ------------------------------------------------------------------------------------------

    def _source(self, item: ReviewItem) -> str:
        if item.origin is None:
            return self._grouped.hooked.get(item.target, "") if item.standing is ReviewStatus.REJECTED else ""
        if item.added or item.source == Proposal.Source.HUMAN:
            return "added by you"
        if item.source == Proposal.Source.HOOK:
            return "proposed by a hook"
        return f"{self._grouped.run.planner} planner"

    def _pairs(self, item: ReviewItem) -> Iterator[EntryRef]:
        if item.standing in (ReviewStatus.REFUSED, ReviewStatus.NARROWED):
            return
        kept = item.standing is ReviewStatus.REJECTED
        for target in self._reviewer.goes_with(item.target):
            entry = self._transcript.entry(target.entry_id)
            if entry is None:
                continue
            goes = target in self._review.goes or Target(target.entry_id) in self._review.goes
            if target in self._review.unanswered.get(item.target, ()):
                # Alone, the item would be deleted with it; in this plan another block with the same call id is.
                continue
            if kept:
                after = "is deleted all the same" if goes else "is kept too, so that the pair stays whole"
            else:
                after = f"is deleted with it, −{significant(self._grouped.context.of(self._grouped.removed(target))):,}"
            yield self._named(self._other_side(entry, target), target, after)

    def _unanswered(self, target: Target) -> str:
        """A call that would have no result."""
        return f"a call in {self._grouped.outline.turn_words(target.entry_id) or 'the session'}"

    def _kept_by(self, refusal: Refusal) -> EntryRef | None:
        if refusal.target is None:
            return None
        entry = self._transcript.entry(refusal.target.entry_id)
        words = self._other_side(entry, refusal.target) if entry is not None else "The other half of its pair"
        return self._named(words, refusal.target, "is kept, so it is kept too")

    def _refused(self, item: ReviewItem) -> Refused | None:
        refusal = item.refusal
        if refusal is None:
            return Refused("", "It does not fit into the plan with what else was approved.", None)
        other = refusal.target if refusal.target is not None and refusal.target != item.target else None
        named = self._named("Show what prevents it", other, "") if other is not None else None
        return Refused(refusal.code.value, refusal.message, named)

    def _named(self, words: str, target: Target, after: str) -> EntryRef:
        item = self._review.items.get(target)
        entry = self._transcript.entry(target.entry_id)
        if item is None or entry is None:
            return EntryRef(words, self._address(target.entry_id), after)
        leading = self._review.items.get(item.leader) if item.leader is not None else item
        at = anchor(leading.position, leading.target) if leading is not None else ""
        return EntryRef(words, f"{self._review_address}?at={quote(ref_of(target), safe='')}#{at}", after)

    def _choices(self, item: ReviewItem, entry: TranscriptEntry | None) -> list[tuple[str, str, int, bool]]:
        """The blocks to which the deletion of an entry can be narrowed: each with its reference, its words, its tokens,
        and whether it is chosen."""
        narrowable = (ReviewStatus.UNDECIDED, ReviewStatus.APPROVED, ReviewStatus.NARROWED)
        if entry is None or item.target.block_index is not None or item.standing not in narrowable:
            return []
        if len(entry.blocks) < 2:
            return []
        texts = self._texts.get(entry.entry_id)
        chosen = self._review.followers.get(item.target, ()) if item.standing is ReviewStatus.NARROWED else ()
        return [
            (
                ref_of(Target(entry.entry_id, block.index)),
                f"{_block_name(block)} {' '.join(texts.block(block.index)[:400].split())[:PREVIEW] if texts else ''}",
                block.tokens,
                Target(entry.entry_id, block.index) in chosen,
            )
            for block in entry.blocks[:BLOCKS]
        ]

    def _short(self, words: str) -> str:
        """Paths below the project, relative to it."""
        return words.replace(self._project, "") if self._project else words

    def _address(self, entry_id: str) -> str:
        return entry_address(self._session, entry_id)


def _block_name(block: Block) -> str:
    return {BlockType.TOOL_CALL: "call", BlockType.REDACTED_THINKING: "thinking"}.get(block.type, block.type)


def _as_sentence(words: str) -> str:
    """Words with exactly one full stop at their end; empty if there are none."""
    words = words.rstrip()
    return words if not words or words.rstrip(_QUOTES).endswith(_FULL_STOPS) else f"{words}."


ROWS: Final = 40
"""The number of rows of a group that are shown initially."""
GROUPS: Final = 60
"""The number of groups that are shown initially."""
EXAMPLES: Final = 3
EXAMPLE: Final = 36
STAYS_SHOWN: Final = 60
"""The number of entries that are unfolded in place at a time."""
LARGE: Final = 500
"""The number of tokens above which a proposal counts as large."""
UNKNOWN_REASON: Final = "A reason that no proposal has"
SIGNED: Final = frozenset(
    {ReviewStatus.UNDECIDED, ReviewStatus.APPROVED, ReviewStatus.GOES_WITH_PAIR, ReviewStatus.NARROWED}
)
"""The statuses of proposals that would be deleted."""
_MARKS: Final = {
    ReviewStatus.UNDECIDED: ("open", "open", "undecided"),
    ReviewStatus.APPROVED: ("approved", "ok", "approved"),
    ReviewStatus.REJECTED: ("kept", "stet", "rejected"),
    ReviewStatus.GOES_WITH_PAIR: ("pair", "pair", "with its pair"),
    ReviewStatus.KEPT_WITH_PAIR: ("kept", "stet", "kept with its pair"),
    ReviewStatus.REFUSED: ("refused", "no", "refused"),
    ReviewStatus.NARROWED: ("approved", "ok", "narrowed"),
}


@dataclass(frozen=True, slots=True)
class StatusBadge:
    """The status of a proposal as displayed: a style, an icon, and words."""

    style: str
    icon: str
    words: str


class Others(NamedTuple):
    """Other proposals that a decision includes, and their share of its tokens."""

    proposals: int = 0
    tokens: int = 0


NO_OTHERS: Final = Others()


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in one line; if open, with its rows."""

    key: str
    title: str
    examples: str
    count: int
    tokens: int
    """The change of the approved tokens by its first button."""
    others: Others
    bar: Bar
    approved: int
    rejected: int
    undecided: int
    opened_count: int
    """The number of its proposals that a user opened."""
    risky: bool
    """Whether its proposals contain names that occur nowhere else."""
    opened: dict[str, Any] | None = None
    """See `ReviewDesk.group_rows`."""

    @property
    def decided_words(self) -> str:
        """What is decided in it: 2 approved, 1 rejected."""
        counts = (self.approved, "approved"), (self.rejected, "rejected")
        return ", ".join(f"{count:,} {words}" for count, words in counts if count)

    @property
    def approve_words(self) -> str:
        """The words of its button: how many proposals it approves, and how many others with them."""
        return f"Approve {self.undecided:,}" + (f" + {self.others.proposals:,}" if self.others.proposals else "")


@dataclass(frozen=True, slots=True)
class FoundSum:
    """The totals of a filter: of the proposals that it shows, and of the undecided ones that it hides."""

    count: int
    tokens: int
    """The approved tokens, and those that approving the rest would add."""
    matching: int
    """The number of matching proposals, including decided ones."""
    hidden_undecided: int
    hidden_tokens: int


class PlanTokens(NamedTuple):
    """The deleted part of the context, in its measure."""

    approved: int
    planned: int
    """The tokens deleted if all undecided proposals are approved."""
    goal: int
    """The tokens that the agent's target deletes."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The plan as the airlock computes it. Its totals are also the sums of the proposals' numbers."""

    context: ContextSize
    tokens: PlanTokens
    percent: float
    """The approved share of the target, as the agent counts."""
    met: bool
    total: int
    undecided: int
    accepted: int
    rejected: int
    refused: int
    others: int
    """The number of decided proposals that approving all undecided ones also approves."""
    gauge: Mapping[str, float]
    """The places on the context at which its deleted part begins, in percent: first the undecided part, then the
    approved part, up to its end; and the target."""

    @property
    def after(self) -> int:
        """The size of the context without what is approved."""
        return self.context.tokens - self.tokens.approved

    @property
    def rest_words(self) -> str:
        """The number of the button that approves everything undecided."""
        return f"{self.undecided:,}" + (f" + {self.others:,}" if self.others else "")

    @property
    def sums(self) -> tuple[int, int, int, str]:
        """The values for the sentences and the button below the groups."""
        return self.total, self.tokens.planned, self.rejected, self.rest_words if self.accepted else ""


class Shown(NamedTuple):
    """The part of a review that a browser shows: rows by anchor, unfolded rows, groups by key, open groups."""

    rows: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    open_groups: tuple[str, ...] = ()


class DecisionSum(NamedTuple):
    """The tokens that approving proposals together adds to the approved ones, and the other proposals that it
    approves."""

    tokens: int
    others: Others


_summaries: Final[Recent[grouped_review.ReviewKey, Summary]] = Recent(grouped_review.CACHED)
_maps: Final[Recent[grouped_review.ReviewKey, StruckMap]] = Recent(grouped_review.CACHED)
_moved: Final[Recent[grouped_review.ReviewKey, Sequence[Moved]]] = Recent(grouped_review.CACHED)
ShutKey = tuple[grouped_review.ReviewKey, grouped_review.ReviewFilter, frozenset[Target]]
_shut_groups: Final[Recent[ShutKey, Sequence[GroupRow]]] = Recent(grouped_review.CACHED)


class ReviewDesk(grouped_review.GroupedReview):
    """One run's review at one version, from which pages and fragments are made."""

    @property
    def summary(self) -> Summary:
        return _summaries.get(self.key, self._summary)

    def _summary(self) -> Summary:
        review, size = self.review, self.context.tokens
        tokens = PlanTokens(self.approved_tokens(self.leads), self.tokens(self.leads), self.context.of(self._goal))
        stats, is_met = review.approved_stats, review.tokens_to_go == 0
        share = percent(stats.tokens_before - stats.tokens_after, self._goal)
        places = {
            "undecided": size - tokens.planned,
            "approved": size - tokens.approved,
            "goal": size - tokens.goal,
        }
        return Summary(
            context=self.context,
            tokens=tokens,
            percent=max(100.0, share) if is_met else share,
            met=is_met,
            total=review.total,
            undecided=review.undecided,
            accepted=review.accepted,
            rejected=sum(item.standing in grouped_review.KEPT_STATUSES for item in self.leads),
            refused=review.refused,
            others=sum(self._is_approved_with_the_rest(item) for item in self.leads),
            gauge={name: round(100 * place / max(1, size), 2) for name, place in places.items()},
        )

    def _is_approved_with_the_rest(self, item: ReviewItem) -> bool:
        is_decided = item.standing is not ReviewStatus.UNDECIDED and item.standing not in ACCEPTED
        return is_decided and item.target in self.review.would_go

    @property
    def _goal(self) -> int:
        """The tokens that the target deletes, as the agent counts."""
        return tokens_to_delete(self.transcript.tokens, self.transcript.parameters.compression_ratio)

    @property
    def struck_map(self) -> StruckMap:
        return _maps.get(self.key, lambda: struck_map(self.transcript, self.review, self.summary.tokens.planned))

    @property
    def moved(self) -> Sequence[Moved]:
        """The messages that would be sent before messages that now precede them, if everything is approved."""
        path = self.run.session.real_path
        return _moved.get(self.key, lambda: moved_in_snapshot(path(), self.prepared, self.review.would_go))

    # ---- the page ---------------------------------------------------------------------------------------

    def page(
        self,
        open_groups: Sequence[str] = (),
        shown: ReviewItem | None = None,
        *,
        unfolded: Collection[Target] = (),
        more: bool = False,
    ) -> dict[str, Any]:
        """The groups in one line each, some of them open, and one shown proposal, for the page; some are unfolded."""
        groups = self._shown_groups()
        on_page = groups if more else groups[:GROUPS]
        keys = set(open_groups)
        within = self.group_of(shown.target) if shown is not None else None
        if within is not None:
            keys.add(within.key)
        return {
            "groups": self._groups(on_page, keys, shown, unfolded=unfolded),
            "left": len(groups) - len(on_page),
        }

    def chips(self) -> list[dict[str, Any]]:
        """The chips for the filter, for the page: the usual ones, then one for each other active filter.

        A chip is one of these filters, turned on or off with one press: its words, the number of proposals that it
        shows, and the query of the address that toggles it.
        """
        chosen, reasons = self.chosen, self._reasons
        facts = [self.facts[item.target] for item in self.matching]

        def chip(words: str, **on: Any) -> dict[str, Any]:
            is_on = all(getattr(chosen, name) == value for name, value in on.items())
            off = {name: getattr(grouped_review.ReviewFilter(), name) for name in on}
            count = sum(map(replace(chosen, **on).leaves, facts))
            query = chosen.query(**(off if is_on else on))
            return {"words": words, "count": count, "on": is_on, "address": review_address(self.run) + query}

        chips = [
            chip("Undecided", undecided=True),
            chip("Not opened", unopened=True),
            chip(f"Over {LARGE:,} tokens", over=LARGE),
        ]
        if chosen.names or any(one.names for one in facts):
            chips.append(chip("Names only here", names=True))
        if chosen.over not in (0, LARGE):
            chips.append(chip(f"Over {chosen.over:,} tokens", over=chosen.over))
        if chosen.tool:
            chips.append(chip(chosen.tool, tool=chosen.tool))
        if chosen.kind:
            chips.append(chip(KINDS[chosen.kind].capitalize(), kind=chosen.kind))
        if chosen.reason:
            chips.append(chip(reasons.get(chosen.reason, UNKNOWN_REASON), reason=chosen.reason))
        if chosen.q:
            chips.append(chip(chosen.q if chosen.is_pattern else f"“{chosen.q}”", q=chosen.q))
        return chips

    def choices(self) -> dict[str, list[tuple[str, str]]]:
        """The options of the filter's fields, the most frequent first: values and their words."""
        facts = self.facts.values()
        return {
            "tools": [(tool, tool) for tool in _by_frequency(one.tool for one in facts)],
            "kinds": [(kind, KINDS[kind]) for kind in _by_frequency(one.kind for one in facts)],
            "reasons": [(reason, self._reasons[reason]) for reason in _by_frequency(one.reason for one in facts)],
        }

    @cached_property
    def _reasons(self) -> Mapping[str, str]:
        """The titles of the groups by reason, by their keys."""
        return {group_key(title): title for title in self.titles.reasons}

    def found_sum(self) -> FoundSum:
        shown = self.listed(self.found)
        if not self.chosen.narrows:
            return FoundSum(len(shown), self.summary.tokens.planned, len(shown), 0, 0)
        targets = {item.target for item in shown}
        hidden = [item for item in _undecided(self.leads) if item.target not in targets]
        tokens = self.approved_tokens(shown) + self.sum_of(shown).tokens
        return FoundSum(len(shown), tokens, len(self.found), len(hidden), self.sum_of(hidden).tokens)

    @property
    def opened_count(self) -> int:
        """The number of proposals that a user opened."""
        return sum(map(self.is_opened, self.leads))

    def first_group(self) -> str:
        """The key of the largest group with an undecided proposal; empty if everything is decided."""
        return next((group.key for group in self.groups if group.with_status(ReviewStatus.UNDECIDED)), "")

    def _shown_groups(self) -> Sequence[Group]:
        return [group for group in self.groups if self.listed(group.leads)]

    def group_row(self, group: Group) -> GroupRow:
        """One group as a closed line."""
        return next(row for row in self.shut_groups if row.key == group.key)

    def _groups(
        self,
        groups: Sequence[Group],
        open_keys: Collection[str] = (),
        shown: ReviewItem | None = None,
        *,
        unfolded: Collection[Target] = (),
    ) -> list[GroupRow]:
        effects = [self.group_effect(group) for group in groups]
        parts = [self._bar_parts(group, effect) for group, effect in zip(groups, effects, strict=True)]
        return [
            GroupRow(
                key=group.key,
                title=group.title,
                examples=", ".join(self._examples(group)),
                count=len(self.listed(group.leads)),
                tokens=self.effect_tokens(effect),
                others=self._others(effect, group.leads),
                bar=bar,
                approved=len(group.with_status(*ACCEPTED)),
                rejected=len(group.with_status(*grouped_review.KEPT_STATUSES)),
                undecided=len(group.with_status(ReviewStatus.UNDECIDED)),
                opened_count=sum(map(self.is_opened, self.listed(group.leads))),
                risky=group.title == ONLY_HERE,
                opened=self.group_rows(group, 0, shown, unfolded=unfolded) if group.key in open_keys else None,
            )
            for group, effect, bar in zip(groups, effects, bars(parts), strict=True)
        ]

    def _bar_parts(self, group: Group, effect: DecisionEffect) -> tuple[int, int]:
        """The approved tokens of a group, and those that its button adds."""
        if group.with_status(ReviewStatus.UNDECIDED):
            return self.approved_tokens(group.leads), self.effect_tokens(effect)
        return self.effect_tokens(effect), 0

    def _others(self, effect: DecisionEffect, named: Sequence[ReviewItem]) -> Others:
        """The other proposals that a decision about these proposals includes."""
        if not effect.others:
            return NO_OTHERS
        own = sum(
            self.sizes.get(item.target, grouped_review.NOTHING).tokens for item in named if item.standing in SIGNED
        )
        return Others(len(effect.others), self.context.of(max(0, abs(effect.tokens) - own)))

    def sum_of(self, items: Sequence[ReviewItem]) -> DecisionSum:
        """The tokens that approving all undecided ones of these proposals together would delete."""
        items = _undecided(items)
        effect = self.consequences.of(Kind.APPROVE, [item.target for item in items])
        return DecisionSum(self.effect_tokens(effect), self._others(effect, items))

    @cached_property
    def overlap(self) -> int:
        """The tokens that the buttons of several groups would each delete; they count once in the total.

        With a filter there is no such sum: hidden proposals are among those deleted with others.
        """
        if self.chosen.narrows:
            return 0
        groups = [group for group in self.groups if group.with_status(ReviewStatus.UNDECIDED)]
        items = [item for group in groups for item in group.with_status(ReviewStatus.UNDECIDED)]
        together = sum(self.sizes.get(item.target, grouped_review.NOTHING).tokens for item in items)
        return self.context.of(max(0, sum(self.group_effect(group).tokens for group in groups) - together))

    def group_rows(
        self, group: Group, start: int, shown: ReviewItem | None = None, *, unfolded: Collection[Target] = ()
    ) -> dict[str, Any]:
        """The rows of a group from a position in its order on: the next ROWS, or up to a given one; for the page.

        Positions count the whole group, including rows that the filter no longer lists, so that decisions do not move
        them.
        """
        end = max(self._place_after(group, start), group.leads.index(shown) + 1 if shown in group.leads else 0)
        rows = [item for item in group.leads[start:end] if item is shown or self.listed([item])]
        rest = self.listed(group.leads[end:])
        return {
            "rows": self.proposal_rows(rows, unfolded),
            "end": end,
            "left": len(rest),
            "left_tokens": self.tokens(rest),
        }

    def _place_after(self, group: Group, start: int) -> int:
        """The position after the next ROWS listed rows of a group."""
        places = [place for place in range(start, len(group.leads)) if self.listed([group.leads[place]])]
        return places[ROWS - 1] + 1 if len(places) >= ROWS else len(group.leads)

    def _examples(self, group: Group) -> list[str]:
        found: dict[str, None] = {}
        for item in group.leads:
            line = self.line(item)
            words = line.path.rpartition("/")[2] if line.path else line.words
            if words:
                found[words if len(words) <= EXAMPLE else f"{words[:EXAMPLE]}…"] = None
            if len(found) == EXAMPLES:
                break
        return list(found)

    def proposal_rows(self, items: Sequence[ReviewItem], opened: Collection[Target] = ()) -> list[dict[str, Any]]:
        """Proposals in one line each, for the page; with all details if unfolded."""
        unfolded = [item for item in items if item.target in opened]
        open_ones = {item.target: one for item, one in zip(unfolded, self.opened(unfolded), strict=True)}
        return [self._row(item, open_ones.get(item.target)) for item in items]

    def _row(self, item: ReviewItem, opened: dict[str, Any] | None) -> dict[str, Any]:
        line, effect = self.line(item), self.effect(item)
        entry = self.transcript.entries[item.position] if item.position >= 0 else None
        goes = sum(one in self.review.goes for one in self.review.followers.get(item.target, ()))
        blocks = (goes, len(entry.blocks) if entry is not None else 0)
        return {
            "anchor": anchor(item.position, item.target),
            "key": ref_of(item.target),
            "entry_id": item.target.entry_id,
            "tool": line.tool,
            "words": line.words or item.target.entry_id,
            "why": self.titles.why(item, self.chosen.by),
            # How many of its lines are also in later kept entries; None if it has no lines to compare.
            "still": self.line_checks.of(item.target),
            # The change of the approved tokens by its first decision; if there is none, what it would delete.
            "tokens": self.effect_tokens(effect) or self.full_effect(item),
            "others": self._others(effect, [item]),
            # Whether that is counted: a rejected proposal deletes nothing.
            "signed": item.standing in SIGNED,
            "is_opened": self.is_opened(item),
            "mark": status_badge(item, blocks, item.origin is None and item.target in self.hooked),
            "undecided": item.standing is ReviewStatus.UNDECIDED,
            # The names of the buttons that decide about it.
            "acts": " ".join(name for name, _ in actions_of(item)),
            "opened": opened,
        }

    # ---- changes ----------------------------------------------------------------------------------------

    def changes(self, before: ReviewDesk, shown: Shown) -> dict[str, Any] | None:
        """The changed rows and groups in the part that a browser shows, and whether the sums below the groups have
        changed; None if proposals were added or withdrawn."""
        if [item.target for item in self.leads] != [item.target for item in before.leads]:
            return None
        on_page = [item for item in self.leads if anchor(item.position, item.target) in shown.rows]
        changed = [item for item in on_page if before.signature(item.target) != self.signature(item.target)]
        opened = {item.target for item in changed if ref_of(item.target) in shown.opened}
        was = {group.key: group for group in before.shut_groups}
        groups = [group for group in self.shut_groups if group.key in shown.groups and was.get(group.key) != group]
        sums = (self.summary.sums, self.overlap) != (before.summary.sums, before.overlap)
        return {"rows": self.proposal_rows(changed, opened), "groups": groups, "sums": sums}

    @property
    def shut_groups(self) -> Sequence[GroupRow]:
        """All groups as closed lines, to be compared with the previous ones after a decision."""
        return _shut_groups.get((self.key, self.chosen, self.opened_targets), lambda: self._groups(self.groups))

    def signature(self, target: Target) -> tuple[object, ...]:
        """Everything in a proposal's row, except its texts."""
        items = self.review.items
        followers = self.review.followers.get(target, ())
        unanswered = self.review.unanswered.get(target, ())
        effect = self.effect(items[target]) if target in items else grouped_review.NO_EFFECT
        return (
            items.get(target),
            tuple(map(items.get, followers)),
            unanswered,
            self.line_checks.of(target),
            effect.tokens,
            self._others(effect, [items[target]]) if target in items else NO_OTHERS,
        )

    # ---- folded open ------------------------------------------------------------------------------------

    def opened(self, items: Sequence[ReviewItem]) -> list[dict[str, Any]]:
        """Proposals with their texts, reasons and pairs, and the kept entries around them."""
        maker = ArticleMaker(self, self.texts_of(items))
        return [maker.open_proposal(item, *self._around(item)) for item in items]

    def stays(self, start: int, end: int) -> tuple[list[dict[str, Any]], Folded]:
        """The kept entries between two positions, and the rest that stays folded after the first STAYS_SHOWN."""
        start, end = max(0, start), min(end, len(self.transcript))
        entries = self.outline.stays(start, end).entries
        shown, rest = entries[:STAYS_SHOWN], entries[STAYS_SHOWN:]
        maker = ArticleMaker(self, self.read(shown))
        more = self._fold(KeptEntries(rest[0].position, end, rest)) if rest else None
        return [block for entry in shown for block in maker.staying(entry)], more

    def _around(self, item: ReviewItem) -> tuple[Folded, Folded]:
        if item.position < 0:
            return None, None
        before, after = (self._fold(stay) for stay in self.outline.around(item.position))
        return before, after

    def _fold(self, stay: KeptEntries) -> Folded:
        if not stay.entries:
            return None
        tokens = sum(map(self.outline.tokens_staying, stay.entries))
        return {"words": fold_words(stay.entries), "tokens": tokens, "start": stay.start, "end": stay.end}


def status_badge(item: ReviewItem, blocks: tuple[int, int], hooked: bool) -> StatusBadge:
    """The display of a proposal's status; `blocks` are the number of its entry's deleted blocks, and of all its
    blocks."""
    style, icon, words = _MARKS[item.standing]
    if item.standing is ReviewStatus.APPROVED and item.added:
        words = "added by you"
    if item.standing is ReviewStatus.REJECTED and item.origin is None:
        words = "pinned by a hook" if hooked else "kept by you"
    if item.standing is ReviewStatus.NARROWED:
        words = f"{blocks[0]} of {blocks[1]} blocks"
    return StatusBadge(style, icon, words)


def _undecided(items: Iterable[ReviewItem]) -> list[ReviewItem]:
    return [item for item in items if item.standing is ReviewStatus.UNDECIDED]


def _by_frequency(names: Iterable[str]) -> list[str]:
    return [name for name, _ in Counter(names).most_common()]

"""One unfolded proposal on the review page: its texts, its reason, its pair, and the possible decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from compaction_app.core.consequences import Consequences
from compaction_app.core.decisions import Kind
from compaction_app.core.errors import Refusal
from compaction_app.core.reasons import is_checkable
from compaction_app.core.review_fold import Review, Reviewer, ReviewItem, ReviewStatus
from compaction_app.core.transcript_entries import TranscriptEntry
from compaction_app.entries.links import entry_address, text_address
from compaction_app.entries.text import clamp
from compaction_app.entries.view import BLOCKS
from compaction_app.entries.words import author_of, call_words
from compaction_app.evidence.line_checks import LineChecks, checked_reason
from compaction_app.models import Proposal, Run
from sessions_app.sessionlog.entries import Block, BlockType, Role, Texts
from sessions_app.sessionlog.measure import significant
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.targets import Target

from .target_ref import anchor, ref_of

PROSE: Final = frozenset({Role.ASSISTANT, Role.USER, Role.CUSTOM, Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY})
"""The roles whose texts are prose; the others are output."""
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
class Part:
    """One text of a proposal: of a call, a message or an output. `fate`: approved, open, kept, or stays."""

    shape: str
    name: str
    text: str
    more: str
    address: str
    fate: str

    @property
    def is_struck(self) -> bool:
        return self.fate in ("approved", "open")


@dataclass(frozen=True, slots=True)
class BlockChoice:
    """One block of an entry, when its deletion can be narrowed to some blocks."""

    key: str
    words: str
    tokens: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Named:
    """An object to which another one refers: in words, and its address."""

    words: str
    entry_id: str
    address: str
    after: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Why something may not be deleted, and the object that prevents it."""

    code: str
    message: str
    named: Named | None


@dataclass(frozen=True, slots=True)
class Fold:
    """Kept entries, folded into one line."""

    words: str
    tokens: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Action:
    """A possible decision about a proposal: the name of its button, its words, and its key if it has one."""

    name: str
    words: str
    key: str
    tokens: int
    """The change of the approved tokens; negative if it reduces them."""


@dataclass(frozen=True, slots=True)
class Addition:
    """A button that adds the deletion of a kept object: its name, its words, and what it deletes."""

    key: str
    words: str
    tokens: int


@dataclass(frozen=True, slots=True)
class OpenProposal:
    """One proposal with everything that helps to decide about it."""

    anchor: str
    key: str
    entry_id: str
    block: int | None
    address: str
    who: str
    parts: Sequence[Part]
    actions: Sequence[Action]
    reason: str
    is_checkable: bool
    """Whether something can be shown as evidence beside its reason: see `evidence`."""
    source: str
    call: int
    pairs: Sequence[Named]
    more_pairs: int
    unanswered: Sequence[Named]
    more_unanswered: int
    refusal: Refused | None
    choices: Sequence[BlockChoice]
    before: Fold | None
    """The kept entries directly before it."""
    after: Fold | None


@dataclass(frozen=True, slots=True)
class StayingBlock:
    """A block of a kept entry, or a kept block of an entry whose other blocks are deleted."""

    entry_id: str
    block: int | None
    address: str
    who: str
    label: str
    parts: Sequence[Part]
    tokens: int
    additions: Sequence[Addition]
    protection: Protection | None


def actions_of(item: ReviewItem) -> Sequence[tuple[str, str]]:
    """The possible decisions about a proposal: the names of their buttons, and their words."""
    if item.added and item.standing in (ReviewStatus.APPROVED, ReviewStatus.REFUSED):
        return (("withdraw", "Take back"),)
    return _ACTIONS[item.standing]


class ArticleMaker:
    """Makes the articles of one review from the texts that were read."""

    def __init__(
        self,
        run: Run,
        reviewer: Reviewer,
        review: Review,
        texts: Mapping[str, Texts],
        hooked: Callable[[], Mapping[Target, str]],
        line_checks: LineChecks,
        removed: Callable[[Target], int],
        consequences: Consequences,
    ) -> None:
        """`hooked` is called for pinned objects only: it returns the pins of hooks by target, in words. `removed`
        returns the estimate of the part of an object that the plan removes."""
        self._reviewer = reviewer
        self._review = review
        self._transcript = reviewer.transcript
        self._texts = texts
        session = run.session
        # Resolved once, because resolving an address is far slower than composing a text.
        self._session = session.get_absolute_url()
        self._planner = run.planner
        self._context = run.context_size
        self._hooked = hooked
        self._removed = removed
        self._consequences = consequences
        self._line_checks = line_checks
        self._project = f"{session.cwd.rstrip('/')}/" if session.cwd else ""

    def open_proposal(self, item: ReviewItem, before: Fold | None, after: Fold | None) -> OpenProposal:
        """A proposal or an addition, between the kept entries around it."""
        entry = self._transcript.entries[item.position] if item.position >= 0 else None
        pairs = list(self._pairs(item)) if entry is not None else []
        if item.standing is ReviewStatus.KEPT_WITH_PAIR and item.refusal is not None:
            pairs = [named for named in [self._kept_by(item.refusal)] if named is not None]
        unanswered = self._review.unanswered.get(item.target, ())
        reason = item.origin.reason if item.origin is not None and not item.added else ""
        still = self._line_checks.of(item.target)
        return OpenProposal(
            anchor=anchor(item.position, item.target),
            key=ref_of(item.target),
            entry_id=item.target.entry_id,
            block=item.target.block_index,
            address=self._address(item.target.entry_id),
            who=self._author(entry, item.target),
            parts=list(self._parts(item, entry)) if entry is not None else [],
            actions=[
                Action(name, words, _KEYS.get(name, ""), self._effect_tokens(Kind(name), item.target))
                for name, words in actions_of(item)
            ],
            reason=_as_sentence(self._short(checked_reason(reason, still))),
            is_checkable=still is not None or is_checkable(reason),
            source=self._source(item),
            call=item.origin.call if item.origin is not None else 0,
            pairs=pairs[:PAIRS_SHOWN],
            more_pairs=max(0, len(pairs) - PAIRS_SHOWN),
            unanswered=[self._named("", target, "") for target in unanswered[:PAIRS_SHOWN]],
            more_unanswered=max(0, len(unanswered) - PAIRS_SHOWN),
            refusal=self._refused(item) if item.standing is ReviewStatus.REFUSED else None,
            choices=self._choices(item, entry),
            before=before,
            after=after,
        )

    def staying(self, entry: TranscriptEntry) -> Iterator[StayingBlock]:
        """The kept part of an entry: its first BLOCKS blocks, each with the button that adds its deletion, if
        allowed."""
        blocks: list[Block | None] = list(entry.blocks) or [None]
        items, would_go = self._review.items, self._review.would_go
        touched = {target.block_index for target in (*items, *would_go) if target.entry_id == entry.entry_id}
        for number, block in enumerate(blocks[:BLOCKS]):
            whole = block is None or len(blocks) == 1
            target = Target(entry.entry_id, None if block is None or whole else block.index)
            own = Target(entry.entry_id, None if block is None else block.index)
            goes = block is not None and block.index in touched
            additions: list[Addition] = []
            if not entry.is_protected and not goes:
                additions.append(self._addition(target, "Delete" if whole else "Delete block"))
                if not whole and number == 0 and not touched:
                    additions.append(self._addition(Target(entry.entry_id), "Delete entry"))
            yield StayingBlock(
                entry_id=entry.entry_id,
                block=None if block is None else block.index,
                address=self._address(entry.entry_id),
                who=self._author(entry, own),
                label=("proposed" if own in items else "goes with its pair") if goes else "",
                parts=[self._part(entry, block, "open" if goes else "stays")],
                tokens=entry.tokens if block is None else block.tokens,
                additions=additions,
                protection=entry.reason if number == 0 else None,
            )

    def _addition(self, target: Target, words: str) -> Addition:
        return Addition(ref_of(target), words, self._effect_tokens(Kind.ADD, target))

    def _effect_tokens(self, kind: Kind, target: Target) -> int:
        return self._context.of(self._consequences.of(kind, [target]).tokens)

    # ---- texts ------------------------------------------------------------------------------------------

    def _parts(self, item: ReviewItem, entry: TranscriptEntry) -> Iterator[Part]:
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

    def _block_parts(self, item: ReviewItem, entry: TranscriptEntry) -> Iterator[Part]:
        for block in entry.blocks[:BLOCKS]:
            yield self._part(entry, block, self._fate(Target(entry.entry_id, block.index), item))
        if len(entry.blocks) > BLOCKS:
            left = f"{len(entry.blocks) - BLOCKS:,} more blocks are not shown here"
            yield Part("text", "", left, "", self._address(entry.entry_id), "stays")

    def _fate(self, target: Target, item: ReviewItem) -> str:
        """The fate of one text of a proposal: its deletion is approved or undecided, or it is kept."""
        whole = Target(target.entry_id)
        if target in self._review.goes or whole in self._review.goes:
            return "approved"
        if target in self._review.would_go or whole in self._review.would_go:
            return "open"
        kept = item.standing in (ReviewStatus.REJECTED, ReviewStatus.KEPT_WITH_PAIR, ReviewStatus.NARROWED)
        return "kept" if kept else "stays"

    def _part(self, entry: TranscriptEntry, block: Block | None, fate: str) -> Part:
        texts = self._texts.get(entry.entry_id)
        if block is None:
            text = texts.joined(entry.blocks) if texts is not None else ""
        else:
            text = texts.block(block.index) if texts is not None else ""
        address = text_address(self._session, entry.entry_id, None if block is None else block.index)
        if block is not None and block.type == BlockType.TOOL_CALL:
            name, words = call_words(text, block.call_id or "")
            return Part("call", name, self._short(words), "", address, fate)
        cut, more = clamp(text)
        return Part("text" if entry.role in PROSE else "out", "", cut.strip("\n"), more, address, fate)

    def _author(self, entry: TranscriptEntry | None, target: Target) -> str:
        if entry is None:
            return "unknown"
        blocks = [one for one in entry.blocks if target.block_index in (None, one.index)]
        block_type = blocks[0].type if len(blocks) == 1 else ""
        return author_of(entry.role, entry.tool_name, block_type, otherwise=entry.entry_type)

    def _other_side(self, entry: TranscriptEntry, target: Target) -> str:
        """The objects deleted with an item: a call or a result, or an entry that the agent's rules tie to it."""
        if entry.role == Role.TOOL_RESULT:
            return "its result"
        return "its call" if entry.call_ids else self._author(entry, target)

    # ---- words ------------------------------------------------------------------------------------------

    def _source(self, item: ReviewItem) -> str:
        if item.origin is None:
            return self._hooked().get(item.target, "") if item.standing is ReviewStatus.REJECTED else ""
        if item.added or item.source == Proposal.Source.HUMAN:
            return "added by hand"
        if item.source == Proposal.Source.HOOK:
            return "proposed by a hook"
        if item.source == Proposal.Source.REPAIR:
            return "goes along with another deletion"
        return f"{self._planner} planner"

    def _pairs(self, item: ReviewItem) -> Iterator[Named]:
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
                after = "goes all the same" if goes else "is kept too, so that the pair stays whole"
            else:
                after = f"goes with it, −{significant(self._context.of(self._removed(target))):,}"
            yield self._named(self._other_side(entry, target), target, after)

    def _kept_by(self, refusal: Refusal) -> Named | None:
        if refusal.target is None:
            return None
        return self._named("it stays, because", refusal.target, "stays")

    def _refused(self, item: ReviewItem) -> Refused | None:
        refusal = item.refusal
        if refusal is None:
            return Refused("", "It does not fit into the plan with what else was approved.", None)
        other = refusal.target if refusal.target is not None and refusal.target != item.target else None
        named = self._named("Show", other, "") if other is not None else None
        return Refused(refusal.code.value, refusal.message, named)

    def _named(self, words: str, target: Target, after: str) -> Named:
        shown = target.entry_id + (f"[{target.block_index}]" if target.block_index is not None else "")
        item = self._review.items.get(target)
        entry = self._transcript.entry(target.entry_id)
        if item is None or entry is None:
            return Named(words, shown, self._address(target.entry_id), after)
        leading = self._review.items.get(item.leader) if item.leader is not None else item
        at = anchor(leading.position, leading.target) if leading is not None else ""
        return Named(words, shown, f"?at={quote(ref_of(target), safe='')}#{at}", after)

    def _choices(self, item: ReviewItem, entry: TranscriptEntry | None) -> list[BlockChoice]:
        """The blocks to which the deletion of an entry can be narrowed."""
        narrowable = (ReviewStatus.UNDECIDED, ReviewStatus.APPROVED, ReviewStatus.NARROWED)
        if entry is None or item.target.block_index is not None or item.standing not in narrowable:
            return []
        if len(entry.blocks) < 2:
            return []
        texts = self._texts.get(entry.entry_id)
        chosen = self._review.followers.get(item.target, ()) if item.standing is ReviewStatus.NARROWED else ()
        return [
            BlockChoice(
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

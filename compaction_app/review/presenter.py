"""A review on its page: proposals in place with their texts, and the totals as the airlock computes them.

    rows ──reviews──▶ Review ──Outline──▶ hunks of one page ──texts, by offset──▶ Page

Nothing is decided here. Texts are read for one page only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import quote

from compaction_app.core.review_fold import Review, ReviewItem, ReviewStatus
from compaction_app.core.stats import target_reduction
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import TranscriptEntry
from compaction_app.models import Run
from compaction_app.planning.snapshots import Prepared, read_snapshot_texts, snapshot_of
from compaction_app.runs.reviews import reviewed
from sessions_app.sessionlog.entries import Texts
from sessions_app.sessionlog.targets import Target

from .articles import Article, ArticleMaker, title_of
from .outline import Hunk, Outline, OutlineTurn, Stay
from .review_text import fold_words, step_text

RAIL: Final = 120
"""Turns that the rail lists."""
PARTS_SHOWN: Final = 400
"""Proposals and folds of one hunk that are shown: a hunk holds all blocks of an entry."""
STAYS_SHOWN: Final = 60
"""Entries that are unfolded in place at a time."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Entries that stay, folded into one line."""

    words: str
    tokens: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ShownHunk:
    """One turn, or a piece of one, with its proposals."""

    anchor: str
    head: Head
    whole: bool
    parts: list[Article | Fold]
    left: int
    """Its proposals and folds that are not shown: one entry can have more blocks than anybody reads."""


@dataclass(frozen=True, slots=True)
class Head:
    """A turn in one line: what is deleted of it, and what is undecided."""

    anchor: str
    number: int
    title: str
    cut: int
    tokens: int
    undecided: int
    kept: int
    count: int

    @property
    def done(self) -> bool:
        return not self.undecided


@dataclass(frozen=True, slots=True)
class Summary:
    """The plan as the airlock computes it. Percentages and tokens are of the transcript's own estimate."""

    approved: float
    planned: float
    target: float
    before: int
    after: int
    to_go: int
    planned_to_go: int
    total: int
    undecided: int
    accepted: int
    refused: int
    turns: int
    turns_done: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a review."""

    run: Run
    version: int
    summary: Summary
    hunks: list[ShownHunk]
    unknown: list[Article]
    rail: list[Head]
    rail_start: int
    rail_end: int
    rail_earlier: int | None
    rail_later: int | None
    current: int
    start: int
    end: int
    earlier: str
    later: str
    last: str
    last_at: datetime | None


class ShownRanges(NamedTuple):
    """What a browser shows: ranges of the transcript, by position, and of the rail, by turn; ends excluded."""

    stretches: Sequence[tuple[int, int]]
    rail: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ReviewChanges:
    """What has changed of what a browser shows. `heads` are of hunks, `rail` of the rail."""

    run: Run
    version: int
    summary: Summary
    articles: list[Article]
    hunks: list[ShownHunk]
    heads: list[Head]
    rail: list[Head]


class ReviewDesk:
    """One run's review at one version (by default the latest), from which pages and fragments are made.

    Raises BadInput `not_prepared`; what it makes raises Conflict `session_rewritten` and what reading raises.
    """

    def __init__(self, run: Run, version: int | None = None) -> None:
        self.run = run
        self.reviewer, self.review, self.version, self.last = reviewed(run, version)
        self.outline = Outline(self.reviewer.transcript, self.review)

    @property
    def transcript(self) -> Transcript:
        return self.reviewer.transcript

    @property
    def prepared(self) -> Prepared:
        return snapshot_of(self.run).prepared

    def position(self, entry_id: str) -> int | None:
        entry = self.transcript.entry(entry_id)
        return entry.position if entry is not None else None

    def first_undecided(self) -> int | None:
        """The position of the first undecided proposal."""
        undecided = (item.position for item in self.review.leads() if item.standing is ReviewStatus.UNDECIDED)
        return min(undecided, default=None)

    def page(self, position: int) -> Page:
        """The page that contains a position."""
        outline = self.outline
        number = outline.window_at(position)
        window = outline.windows[number] if outline.windows else []
        rail, earlier, later = self._rail(outline.turn_number(position))
        texts = self._texts([item for hunk in window for item in hunk.leads] + outline.unknown, rail, window)
        maker = self._maker(texts)
        return Page(
            run=self.run,
            version=self.version,
            summary=self.summary(),
            hunks=[self._hunk(hunk, maker, texts) for hunk in window],
            unknown=[maker.article(item) for item in outline.unknown] if number == 0 else [],
            rail=[self._head(turn, texts) for turn in rail],
            rail_start=rail[0].number if rail else 0,
            rail_end=rail[-1].number + 1 if rail else 0,
            rail_earlier=earlier,
            rail_later=later,
            current=outline.turn_number(max(position, window[0].start)) if window else 0,
            start=window[0].start if window else 0,
            end=window[-1].end if window else 0,
            earlier=self._address(outline.windows[number - 1][0]) if number else "",
            later=self._address(outline.windows[number + 1][0]) if number + 1 < len(outline.windows) else "",
            last=step_text(self.last.step) if self.last is not None else "",
            last_at=self.last.at if self.last is not None else None,
        )

    def changes(self, before: ReviewDesk, shown: ShownRanges) -> ReviewChanges | None:
        """What has changed of what a browser shows; None if that is most of it."""
        was, now = before.review, self.review
        if was.items.keys() != now.items.keys() or before.outline.unasked != self.outline.unasked:
            return self._changed_hunks(before, shown)
        changed = [
            item
            for item in now.leads()
            if _holds(shown.stretches, item.position) and _signature(item, was) != _signature(item, now)
        ]
        if len(changed) > 2 * RAIL:
            return None
        turns = self._changed_turns(before, shown)
        texts = self._texts(changed, turns)
        maker = self._maker(texts)
        articles = [maker.article(item) for item in changed]
        return self._changes(shown, articles, [], [(turn, self._head(turn, texts)) for turn in turns])

    def _changed_hunks(self, before: ReviewDesk, shown: ShownRanges) -> ReviewChanges | None:
        """The hunks in which a proposal, or what goes with one, was added or removed."""
        was, now = before.review.items, self.review.items
        positions = [
            item.position for one, other in ((was, now), (now, was)) for item in _only_in(one, other)
        ]
        unasked = before.outline.unasked ^ self.outline.unasked
        positions += [entry.position for entry in self._entries(unasked)]
        numbers = {self.outline.turn_number(position) for position in positions}
        turns = [self.outline.turns[number] for number in numbers & self.outline.turns.keys()]
        known = [turn for turn in turns if turn.number in before.outline.turns]
        hunks = [hunk for window in self.outline.windows for hunk in window if hunk.turn in known]
        if min(positions) < 0 or len(known) != len(numbers) or not all(hunk.is_whole for hunk in hunks):
            return None
        if any(not _holds(shown.stretches, hunk.leads[0].position) for hunk in hunks):
            return None
        turned = self._changed_turns(before, shown)
        texts = self._texts([item for hunk in hunks for item in hunk.leads], turned, hunks)
        maker = self._maker(texts)
        drawn = [self._hunk(hunk, maker, texts) for hunk in hunks]
        return self._changes(shown, [], drawn, [(turn, self._head(turn, texts)) for turn in turned])

    def _changes(
        self,
        shown: ShownRanges,
        articles: list[Article],
        hunks: list[ShownHunk],
        heads: Sequence[tuple[OutlineTurn, Head]],
    ) -> ReviewChanges:
        return ReviewChanges(
            run=self.run,
            version=self.version,
            summary=self.summary(),
            articles=articles,
            hunks=hunks,
            heads=[head for turn, head in heads if _holds(shown.stretches, turn.start)],
            rail=[head for turn, head in heads if _holds(shown.rail, turn.number)],
        )

    def _changed_turns(self, before: ReviewDesk, shown: ShownRanges) -> list[OutlineTurn]:
        """The turns that a browser shows and whose line has changed."""
        was = before.outline.turns
        return [
            turn
            for number, turn in self.outline.turns.items()
            if (_holds(shown.stretches, turn.start) or _holds(shown.rail, number))
            and (number not in was or _line(turn) != _line(was[number]))
        ]

    def summary(self) -> Summary:
        review, turns = self.review, self.outline.turns.values()
        return Summary(
            approved=review.approved_stats.percent_reduction,
            planned=review.planned_stats.percent_reduction,
            target=target_reduction(self.transcript.parameters.compression_ratio),
            before=review.approved_stats.tokens_before,
            after=review.approved_stats.tokens_after,
            to_go=review.tokens_to_go,
            planned_to_go=review.planned_to_go,
            total=review.total,
            undecided=review.undecided,
            accepted=review.accepted,
            refused=review.refused,
            turns=len(turns),
            turns_done=sum(not turn.undecided for turn in turns),
        )

    def stays(self, start: int, end: int) -> tuple[list[Article], Fold | None]:
        """The entries that stay between two positions, and what is left folded after the first STAYS_SHOWN."""
        start, end = max(0, start), min(end, len(self.transcript))
        entries = self.outline.stays(start, end).entries
        shown, rest = entries[:STAYS_SHOWN], entries[STAYS_SHOWN:]
        texts = self._read(shown)
        maker = self._maker(texts)
        more = self._fold(Stay(rest[0].position, end, rest)) if rest else None
        return [article for entry in shown for article in maker.staying(entry)], more

    # ---- pieces -----------------------------------------------------------------------------------------

    def _hunk(self, hunk: Hunk, maker: ArticleMaker, texts: Mapping[str, Texts]) -> ShownHunk:
        found = list(self.outline.parts(hunk))
        parts = [
            self._fold(part) if isinstance(part, Stay) else maker.article(part)
            for part in found[:PARTS_SHOWN]
        ]
        suffix = "" if hunk.start == hunk.turn.start else f"-{hunk.start}"
        return ShownHunk(
            f"turn-{hunk.turn.number}{suffix}",
            self._head(hunk.turn, texts),
            hunk.start == hunk.turn.start,
            parts,
            max(0, len(found) - PARTS_SHOWN),
        )

    def _head(self, turn: OutlineTurn, texts: Mapping[str, Texts]) -> Head:
        return Head(
            anchor=f"turn-{turn.number}",
            number=turn.number,
            title=title_of(self.transcript.entries[turn.start], texts) if turn.number else "",
            cut=turn.cut,
            tokens=turn.tokens,
            undecided=turn.undecided,
            kept=turn.kept,
            count=len(turn.leads),
        )

    def _fold(self, stay: Stay) -> Fold:
        tokens = sum(map(self.outline.tokens_staying, stay.entries))
        return Fold(fold_words(stay.entries), tokens, stay.start, stay.end)

    def _rail(self, current: int) -> tuple[list[OutlineTurn], int | None, int | None]:
        turns = list(self.outline.turns.values())
        at = sum(turn.number < current for turn in turns)
        first = max(0, min(at - RAIL // 3, len(turns) - RAIL))
        last = first + RAIL
        return (
            turns[first:last],
            turns[first - 1].number if first else None,
            turns[last].number if last < len(turns) else None,
        )

    def _entries(self, targets: Iterable[Target]) -> Iterator[TranscriptEntry]:
        found = (self.transcript.entry(target.entry_id) for target in targets)
        return (entry for entry in found if entry is not None)

    def _address(self, hunk: Hunk) -> str:
        return quote(hunk.leads[0].target.entry_id, safe="")

    # ---- texts ------------------------------------------------------------------------------------------

    def _maker(self, texts: Mapping[str, Texts]) -> ArticleMaker:
        return ArticleMaker(self.run, self.reviewer, self.review, texts)

    def _texts(
        self, items: Iterable[ReviewItem], turns: Iterable[OutlineTurn], hunks: Iterable[Hunk] = ()
    ) -> dict[str, Texts]:
        entries = self.transcript.entries
        wanted: dict[int, TranscriptEntry] = {}
        for item in items:
            if item.position >= 0:
                wanted[item.position] = entries[item.position]
                call = self.transcript.pairs.answered_by(entries[item.position])
                if call is not None:
                    wanted[call.owner.position] = entries[call.owner.position]
        for turn in (*turns, *(hunk.turn for hunk in hunks)):
            if turn.number:
                wanted[turn.start] = entries[turn.start]
        return self._read(wanted.values())

    def _read(self, entries: Iterable[TranscriptEntry]) -> dict[str, Texts]:
        return read_snapshot_texts(self.run.session.real_path(), self.prepared, entries)


def _only_in(one: Mapping[Target, ReviewItem], other: Mapping[Target, ReviewItem]) -> list[ReviewItem]:
    return [item for target, item in one.items() if target not in other]


def _holds(stretches: Sequence[tuple[int, int]], at: int) -> bool:
    return any(start <= at < end for start, end in stretches)


def _line(turn: OutlineTurn) -> tuple[int, ...]:
    """Everything on the line of a turn, except its title."""
    return turn.cut, turn.undecided, turn.kept, len(turn.leads)


def _signature(item: ReviewItem, review: Review) -> tuple[object, ...]:
    """Everything in an article, except its texts."""
    own = review.items.get(item.target)
    followers = review.followers.get(item.target, ())
    unanswered = review.unanswered.get(item.target, ())
    return own, tuple(review.items.get(target) for target in followers), unanswered

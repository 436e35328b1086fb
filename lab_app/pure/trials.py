"""PURE: trials: each strategy at each cut of a branch and at each share, and the agent's own summaries as they are.

    Branch ─cuts─▶ prefix ─strategy, share─▶ targets ─needs─▶ Trial
      └─summaries─▶ what a summary and the messages beside it still mention ─▶ Trial

One trial has the deleted tokens, the lost references, and the cost; nothing is written.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from compaction_app.core.airlock import validate
from compaction_app.core.embedded import units_of
from compaction_app.core.gates import Refusal
from compaction_app.core.summary_loss import replacement_by, summaries_on
from compaction_app.core.transcript import WHOLE, Object, Transcript, prepare
from sessions_app.agents.pure.formats import PlanRules, Reader
from sessions_app.sessionlog.entries import Entry, Role, Target, Texts, request_of
from sessions_app.sessionlog.errors import RedlineError, SystemFailure
from sessions_app.sessionlog.text import is_noise
from sessions_app.sessionlog.tree import SessionTree

from .measure import HORIZON, HORIZONS, Lost, NameIndex, Needs, ReplayCut, ReplayMeasure, bound, cut_between, cuts
from .strategies import SUMMARY, Strategy

BOUND: Final = "bound"
"""The key of the bound, used in place of a strategy's: the minimum loss of a plan of this size."""
KEEPS: Final = (0.7, 0.5, 0.3)
"""The default shares of the tokens that are kept."""
LOST_STORED: Final = 25
"""The maximum number of lost references that a trial names."""
SUMMARIES_READ: Final = 5
"""The number of the newest summaries of a branch that are evaluated."""


class Branch(NamedTuple):
    """A branch of a session, as its agent reads it."""

    tree: SessionTree
    entries: Sequence[Entry]
    texts: Mapping[str, Texts]
    reader: Reader
    rules: PlanRules
    settings: Mapping[str, object]
    """Raw compaction settings, as `prepare` takes them."""

    def prepare(self, entries: Sequence[Entry]) -> Transcript | None:
        return prepare(entries, self.texts, self.settings, self.rules, is_noise)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy at one cut. Tokens are estimated as by the agent."""

    strategy: str
    place: str
    """The first entry after the cut, up to which the branch was compacted."""
    keep: float | None
    """The share of the tokens to keep; None if the strategy takes none."""
    tokens_before: int
    tokens_after: int
    rewritten: int = 0
    """The kept tokens after the first deletion: the next request writes them to the provider's cache again."""
    seconds: float = 0.0
    needed: int = 0
    lost: int = 0
    named: tuple[Lost, ...] = ()
    """The first LOST_STORED of the lost references."""
    shares: dict[str, float] = {}
    """The loss by horizon in messages, and by the older measure (`substrings`)."""
    kinds: dict[str, int] = {}
    """The deleted tokens by the kind of their unit (see `embedded.Unit`): block by block, so that their sum may be a
    few tokens more."""
    failure: str = ""
    """Why there is no plan; then nothing is measured."""

    @property
    def share(self) -> float:
        """The share of the needed references that was lost."""
        return self.lost / self.needed

    @property
    def kept(self) -> float:
        """The share of the tokens that was kept."""
        return self.tokens_after / self.tokens_before


def count_trials(strategies: Collection[Strategy], keeps: Collection[float]) -> int:
    """The number of trials at one cut, including those of the bound."""
    shares = sum(one.takes_share for one in strategies)
    return len(keeps) * (shares + 1) + len(strategies) - shares


def trials_of(
    branch: Branch,
    strategies: Sequence[Strategy],
    keeps: Sequence[float] = KEEPS,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Trial]:
    """The trials of a branch; none if it is too short to be measured. Ends early if stopped."""
    planning = [one for one in strategies if one.plan is not None]
    for cut in cuts(branch.entries, branch.prepare):
        scales = _scales(cut)
        if scales is None:
            continue
        for keep in keeps if planning else ():
            if is_stopped():
                return
            yield _bound(cut, scales, keep)
            for strategy in planning:
                if strategy.takes_share and not is_stopped():
                    yield _trial(cut, scales, strategy, keep)
        for strategy in planning:
            if not strategy.takes_share and not is_stopped():
                yield _trial(cut, scales, strategy, None)
    if len(planning) < len(strategies):
        yield from summary_trials(branch, is_stopped)


class _Scales(NamedTuple):
    """The references needed after a cut: by the main measure up to HORIZON, and by the other measures, by name."""

    main: Needs
    others: Mapping[str, Needs]


def _scales(cut: ReplayCut) -> _Scales | None:
    main = cut.needs(ReplayMeasure.COMPONENTS, HORIZON)
    if main is None:
        return None
    found = {str(horizon): cut.needs(ReplayMeasure.COMPONENTS, horizon) for horizon in HORIZONS}
    found[ReplayMeasure.SUBSTRINGS.value] = cut.needs(ReplayMeasure.SUBSTRINGS, HORIZON)
    return _Scales(main, {name: needs for name, needs in found.items() if needs is not None})


def _trial(cut: ReplayCut, scales: _Scales, strategy: Strategy, keep: float | None) -> Trial:
    began = time.perf_counter()
    tokens = cut.prefix.tokens
    targets: tuple[Target, ...] = ()
    failure = ""
    try:
        if strategy.plan is not None:
            targets = strategy.plan(cut.prefix, 0.0 if keep is None else 1 - keep)
    except RedlineError as fault:
        failure = fault.message
    tried = Trial(
        strategy=strategy.key,
        place=cut.next_entry_id,
        keep=keep,
        tokens_before=tokens,
        tokens_after=tokens,
        seconds=time.perf_counter() - began,
        failure=failure,
    )
    if failure:
        return tried
    loss = scales.main.loss(targets)
    after = tokens_after(cut.prefix, targets)
    return msgspec.structs.replace(
        tried,
        tokens_after=after,
        rewritten=_rewritten(cut.prefix, targets, after),
        needed=loss.needed,
        lost=len(loss.lost),
        named=loss.lost[:LOST_STORED],
        shares={name: needs.loss(targets).share for name, needs in scales.others.items()},
        kinds=kinds_of(cut.prefix, targets),
    )


def _bound(cut: ReplayCut, scales: _Scales, keep: float) -> Trial:
    began = time.perf_counter()
    found = bound(scales.main, 1 - keep)
    tokens = cut.prefix.tokens
    return Trial(
        strategy=BOUND,
        place=cut.next_entry_id,
        keep=keep,
        tokens_before=tokens,
        tokens_after=round(tokens * keep),
        seconds=time.perf_counter() - began,
        needed=found.needed,
        lost=len(found.lost),
        shares={str(HORIZON): found.share},
    )


# ---- the agent's own summaries -----------------------------------------------------------------------------


def summary_trials(branch: Branch, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[Trial]:
    """The trials of the newest summaries of a branch: how many of the references needed later are in the summary and
    the messages beside it.
    """
    found = summaries_on(branch.entries, branch.reader)
    summaries = [entry.id for entry in found if entry.role != Role.BRANCH_SUMMARY]
    for summary, end in pairwise([*summaries[-SUMMARIES_READ:], None]):
        if is_stopped() or summary is None:
            return
        trial = _summary_trial(branch, summary, end)
        if trial is not None:
            yield trial


def _summary_trial(branch: Branch, entry_id: str, end: str | None) -> Trial | None:
    places = {entry.id: place for place, entry in enumerate(branch.entries)}
    began = time.perf_counter()
    replacement = replacement_by(branch.tree, branch.entries, entry_id, branch.reader)
    if replacement is None or replacement.is_of_branch or replacement.before_id not in places:
        return None
    prefix = branch.prepare(branch.entries[: places[replacement.before_id] + 1])
    whole = branch.prepare(branch.entries[: places[end]] if end is not None else branch.entries)
    later = [one for one in whole.entries if places[one.entry_id] > places[entry_id]] if whole else []
    if prefix is None or whole is None or not later:
        return None
    needs = cut_between(prefix, whole, later[0].position).needs()
    if needs is None:
        return None
    kept = {message.entry.id for message in replacement.kept}
    text = replacement.summary.text(branch.texts[replacement.summary.source.id])
    said = NameIndex(ReplayMeasure.COMPONENTS, [(0, ReplayMeasure.COMPONENTS.references(text))])
    left = needs.loss_if(lambda found: prefix.entries[found.position].entry_id in kept).lost
    lost = [one for one in left if not said.standing(one.reference)]
    return Trial(
        strategy=SUMMARY,
        place=later[0].entry_id,
        keep=None,
        tokens_before=replacement.tokens_before,
        tokens_after=replacement.tokens_after,
        rewritten=replacement.tokens_after,
        seconds=time.perf_counter() - began,
        needed=len(needs.needs),
        lost=len(lost),
        named=tuple(lost[:LOST_STORED]),
        shares={str(HORIZON): len(lost) / len(needs.needs)},
    )


# ---- the result of a plan -----------------------------------------------------------------------------------


def tokens_after(transcript: Transcript, targets: Sequence[Target]) -> int:
    """The tokens that a plan leaves, as the airlock counts them. Raises SystemFailure `refused_plan`."""
    if not targets:
        return transcript.tokens
    validated = validate(request_of(targets), transcript)
    if isinstance(validated, Refusal):
        raise SystemFailure(
            "refused_plan",
            f"A plan of the benchmark is refused: {validated.message} Nothing was tested. This is a bug in Redline; "
            "please report it.",
        )
    return validated.stats.tokens_after


def kinds_of(transcript: Transcript, targets: Iterable[Target]) -> dict[str, int]:
    """The deleted tokens by the kind of their unit."""
    gone = set()
    for target in targets:
        entry = transcript.entry(target.entry_id)
        slot = None if entry is None or target.block_index is None else entry.slot(target.block_index)
        if entry is not None:
            gone.add(Object(entry.position, WHOLE if slot is None else slot))
    kinds: dict[str, int] = {}
    for unit in units_of(transcript):
        if all(found in gone or Object(found.position) in gone for found in unit.objects):
            kinds[unit.kind] = kinds.get(unit.kind, 0) + unit.tokens
    return kinds


def _rewritten(transcript: Transcript, targets: Iterable[Target], after: int) -> int:
    gone = {target.entry_id for target in targets}
    before = 0
    for entry in transcript.entries:
        if entry.entry_id in gone:
            return max(0, after - before)
        before += entry.tokens
    return 0

"""PURE: the prune planner. It deletes old tool results, as agents with automatic pruning do, and nothing else.

    newest ─▶ oldest:  [ results of SAFE_TOKENS together: safe ][ the others: old ]
    old results with their calls ─▶ one deletion, if the results alone have LEAST_TOKENS or more; else nothing

The result with which the newest ones exceed SAFE_TOKENS is old, as in OpenCode. A result is also kept if it is
protected, if its call has a kept result, if repair would delete a safe result with it, or if the session is damaged so
that a call would lose its answer. Refused results are dropped, and the rest is counted again.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from sessions_app.sessionlog.entries import Role, Target, request_of
from sessions_app.sessionlog.text import plural

from .gates import Code, Refusal
from .loop import Exhausted, PlannerTurn, Report
from .reasons import pruned_words
from .tools import ToolCall
from .transcript import ToolPair, Transcript, TranscriptEntry

SAFE_TOKENS: Final = 40_000
"""The newest tool results up to this total of estimated tokens are kept."""
LEAST_TOKENS: Final = 20_000
"""Fewer estimated tokens of tool results than this are not worth a change of the context."""
DONE: Final = "Nothing else is deleted: the other tool results are among the newest, or have to be kept."


class OldResults(NamedTuple):
    """Results that are deleted together: all those of one call, or one without a call."""

    results: tuple[TranscriptEntry, ...]
    owner: TranscriptEntry | None
    """The entry that makes the call."""

    @property
    def tokens(self) -> int:
        return sum(result.tokens for result in self.results)

    @property
    def entries(self) -> tuple[TranscriptEntry, ...]:
        return self.results if self.owner is None else (*self.results, self.owner)


class PrunePlanner:
    """Deletes the tool results that are older than the newest ones, in one call."""

    name = "prune"

    def __init__(self, transcript: Transcript) -> None:
        self._reached = tokens_up_to_results(transcript)
        self._old = old_results(transcript, self._reached)
        self._is_requested = False

    def next_turn(self, report: Report) -> PlannerTurn:
        """Request all old results, then again without the refused ones. Raises Exhausted with the reason for the
        end."""
        refusals = [result.refusal for result in report.results if result.refusal is not None]
        for refusal in refusals:
            self._give_up(refusal)
        if self._is_requested and not refusals:
            raise Exhausted(DONE)
        tokens = sum(old.tokens for old in self._old)
        if tokens < LEAST_TOKENS:
            raise Exhausted(
                f"Old tool results that could be deleted have about {plural(tokens, 'token')}. The least is "
                f"{LEAST_TOKENS:,}, and the newest {SAFE_TOKENS:,} are safe."
            )
        self._is_requested = True
        found = sorted((one for old in self._old for one in old.results), key=lambda one: one.position)
        reasons = {
            Target(result.entry_id): pruned_words(result.tool_name, SAFE_TOKENS, self._reached[result.position])
            for result in found
        }
        return PlannerTurn([ToolCall("context_delete", request_of(reasons), reasons)])

    def _give_up(self, refusal: Refusal) -> None:
        """Drop the results that a refusal concerns; all of them if it names none of those requested."""
        guarded = refusal.code is Code.THINKING
        named = refusal.target.entry_id if refusal.target is not None else ""

        def is_refused(entry: TranscriptEntry, owner: TranscriptEntry | None) -> bool:
            return entry.entry_id == named or (guarded and entry is owner and entry.bears_thinking)

        kept = [old for old in self._old if not any(is_refused(entry, old.owner) for entry in old.entries)]
        self._old = kept if len(kept) < len(self._old) else []


def tokens_up_to_results(transcript: Transcript) -> dict[int, int]:
    """For each tool result by position: the estimated tokens of it and of all newer ones."""
    reached: dict[int, int] = {}
    tokens = 0
    for entry in reversed(transcript.entries):
        if _is_result(entry):
            tokens += entry.tokens
            reached[entry.position] = tokens
    return reached


def old_results(transcript: Transcript, reached: Mapping[int, int]) -> list[OldResults]:
    """The results that may be deleted, in the order of the transcript: each older than the newest, with its call."""
    free = {
        position
        for position, tokens in reached.items()
        if tokens > SAFE_TOKENS and not transcript.entries[position].is_protected
    }
    found: list[OldResults] = []
    calls: set[int] = set()
    for position in sorted(free):
        call = transcript.pairs.answered_by(transcript.entries[position])
        if call is not None and call.order in calls:
            continue
        if call is not None:
            calls.add(call.order)
        old = _joined(transcript, position, call)
        if old is not None and _takes_no_other(transcript, old, free):
            found.append(old)
    return found


def _joined(transcript: Transcript, position: int, call: ToolPair | None) -> OldResults | None:
    """A result with the others of its call; None if a block would lose its answer, or its call must be kept."""
    entries = transcript.entries
    if call is None:
        return OldResults((entries[position],), None)
    owner = entries[call.owner.position]
    if call.repeats or len(call.blocks) > 1 or owner.is_protected:
        return None
    return OldResults(tuple(entries[result.position] for result in call.results), owner)


def _takes_no_other(transcript: Transcript, old: OldResults, free: set[int]) -> bool:
    """Whether every result deleted with it may also be deleted.

    Companions are followed as if the call's entry were deleted as a whole. Results make calls only in damaged sessions.
    """
    if any(result.position not in free for result in old.results):
        return False
    open_ = [*old.results, *([old.owner] if old.owner is not None and old.owner.companions else [])]
    seen: set[int] = set()
    while open_:
        entry = open_.pop()
        if entry.position in seen:
            continue
        seen.add(entry.position)
        is_result = _is_result(entry)
        if entry.is_protected or (is_result and (entry.position not in free or entry.call_ids)):
            return False
        joined = (*entry.companions, *(() if is_result else _answers(transcript, entry)))
        open_ += (transcript.entries[position] for position in joined)
    return True


def _answers(transcript: Transcript, entry: TranscriptEntry) -> Iterator[int]:
    """The positions of the results of an entry's calls."""
    for call_id in entry.call_ids:
        call = transcript.pairs.call(call_id)
        if call is not None:
            yield from (result.position for result in call.results)


def _is_result(entry: TranscriptEntry) -> bool:
    return entry.role == Role.TOOL_RESULT

"""PURE: the strategies that the benchmark compares: planners and simple rules, which delete through the airlock.

| strategy        | deletes                                                                            | any share |
|-----------------|------------------------------------------------------------------------------------|-----------|
| embedded        | the choice of Redline's own planner                                                | yes       |
| oldest          | the oldest entries                                                                 | yes       |
| largest         | the largest entries                                                                | yes       |
| old_results     | tool results but the last three, as providers edit a context; then the oldest      | yes       |
| keep_recent     | everything before a place at which a turn can begin, as pi and Codex cut           | yes       |
| prune           | the tool results behind the newest 40,000 tokens of them, as OpenCode does         | no        |
| summary         | nothing: the agent's own summaries are evaluated instead (see `trials`)            | no        |

A strategy that takes no share is measured at the share that it deletes. The simple orders delete entry by entry, with
the objects of the same tool calls, until the share is reached; entries that the airlock refuses are kept.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from compaction_app.core.embedded import EmbeddedPlanner
from compaction_app.core.loop import Exhausted, Planner, drive
from compaction_app.core.prune import PrunePlanner
from compaction_app.core.stats import tokens_to_go
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import Workbench
from compaction_app.core.transcript import Object, Transcript, TranscriptEntry
from sessions_app.sessionlog.entries import Role, Target, request_of
from sessions_app.sessionlog.errors import BadInput

Order = Callable[[Transcript, float], tuple[Target, ...]]
"""The targets of a transcript that an order deletes, given the share of its tokens to delete."""

RESULTS_KEPT: Final = 3
"""The number of newest tool results that `old_results` deletes last."""


def oldest(transcript: Transcript, share: float) -> tuple[Target, ...]:
    """The oldest entries first."""
    return _deleted(transcript, share, transcript.entries)


def largest(transcript: Transcript, share: float) -> tuple[Target, ...]:
    """The largest entries first."""
    return _deleted(transcript, share, sorted(transcript.entries, key=_size))


def old_results(transcript: Transcript, share: float) -> tuple[Target, ...]:
    """Tool results except the newest three, the oldest first; then everything else, the oldest first."""
    results = _results(transcript)
    return _deleted(transcript, share, [*results[:-RESULTS_KEPT], *transcript.entries])


def largest_results(transcript: Transcript, share: float) -> tuple[Target, ...]:
    """Tool results except the newest three, the largest first; then everything else, the oldest first."""
    results = _results(transcript)
    return _deleted(transcript, share, [*sorted(results[:-RESULTS_KEPT], key=_size), *transcript.entries])


ORDERS: Final[Mapping[str, Order]] = {
    "oldest": oldest,
    "largest": largest,
    "old_results": old_results,
    "largest_results": largest_results,
}


def _results(transcript: Transcript) -> Sequence[TranscriptEntry]:
    return [entry for entry in transcript.entries if entry.role == Role.TOOL_RESULT]


def _size(entry: TranscriptEntry) -> tuple[int, int]:
    return -entry.tokens, entry.position


def delete_entries(transcript: Transcript, entries: Iterable[TranscriptEntry]) -> tuple[Target, ...]:
    """The targets if these entries are deleted, with the objects of the same calls, where permitted."""
    store = DeletionStore(transcript)
    _delete(store, [Target(entry.entry_id) for entry in entries if not entry.is_protected])
    return store.targets


def _deleted(transcript: Transcript, share: float, entries: Iterable[TranscriptEntry]) -> tuple[Target, ...]:
    """Delete entries in this order, as if one by one: no batch can reach the share before its last entry."""
    transcript = transcript.with_ratio(1 - share)
    store = DeletionStore(transcript)
    waiting = deque(entry for entry in entries if not entry.is_protected)
    while waiting and not store.target_met:
        room = tokens_to_go(store.stats, transcript.parameters.compression_ratio)
        batch: dict[str, None] = {}
        while waiting and room > 0:
            entry = waiting.popleft()
            if Object(entry.position) not in store:
                batch[entry.entry_id] = None
                room -= _most(transcript, entry)
        _delete(store, [Target(entry_id) for entry_id in batch])
    return store.targets


def _delete(store: DeletionStore, targets: Sequence[Target]) -> None:
    """Delete those of these targets that may be deleted: a refused request is repeated in halves."""
    if targets and store.delete(request_of(targets)) is not None and len(targets) > 1:
        middle = len(targets) // 2
        _delete(store, targets[:middle])
        _delete(store, targets[middle:])


def _most(transcript: Transcript, entry: TranscriptEntry) -> int:
    """The tokens of an entry and of everything that may be deleted with it."""
    joined = {entry.position, *entry.companions}
    for call in transcript.pairs.touched_by[entry.position]:
        joined.update(found.position for found in call.objects)
    return sum(transcript.entries[position].tokens for position in joined)


EMBEDDED: Final = "embedded"
SUMMARY: Final = "summary"
_BEGINNINGS: Final = frozenset({Role.USER, Role.ASSISTANT, Role.COMMAND, Role.CUSTOM, Role.BRANCH_SUMMARY})
"""The roles of messages with which the kept part can begin."""


class Strategy(NamedTuple):
    """A way to choose the deletions of a compaction."""

    key: str
    label: str
    what: str
    """The deleted content, in a sentence."""
    plan: Order | None
    """None if it only evaluates the agent's own summaries."""
    takes_share: bool = True
    """Whether it deletes a given share of the tokens."""


def planned_by(planner: Callable[[Transcript], Planner]) -> Order:
    """The plans of a planner."""

    def plan(transcript: Transcript, share: float) -> tuple[Target, ...]:
        wanted = transcript.with_ratio(1 - share)
        workbench = Workbench(DeletionStore(wanted))
        with suppress(Exhausted):
            for _ in drive(planner(wanted), workbench):
                pass
        return workbench.store.targets

    return plan


def keep_recent(transcript: Transcript, share: float) -> tuple[Target, ...]:
    """Everything before the first message at which the kept part can begin: never a tool result."""
    room = transcript.tokens * (1 - share)
    start = len(transcript.entries)
    for entry in reversed(transcript.entries):
        room -= entry.tokens
        if room < 0:
            break
        if entry.role in _BEGINNINGS:
            start = entry.position
    return delete_entries(transcript, transcript.entries[:start])


STRATEGIES: Final[Mapping[str, Strategy]] = {
    one.key: one
    for one in (
        Strategy(
            EMBEDDED,
            "built-in planner",
            "What Redline’s own planner chooses.",
            planned_by(EmbeddedPlanner),
        ),
        Strategy("oldest", "oldest first", "The oldest entries.", oldest),
        Strategy("largest", "largest first", "The largest entries.", largest),
        Strategy(
            "old_results",
            "old tool results",
            "Tool results but the last three, as providers edit a context; then the oldest entries.",
            old_results,
        ),
        Strategy(
            "keep_recent",
            "keep recent",
            "Everything before a place at which a turn can begin, as pi and Codex cut; nothing is summarised.",
            keep_recent,
        ),
        Strategy(
            "prune",
            "old results only, as OpenCode",
            "The tool results behind the newest 40,000 tokens of them, if they are 20,000 tokens or more.",
            planned_by(PrunePlanner),
            takes_share=False,
        ),
    )
}
"""The strategies that plan without a model, by key."""
SUMMARIES: Final = Strategy(
    SUMMARY,
    "the agent’s own summary",
    "Not a plan: what the summaries of the agent still say, where a session has them.",
    plan=None,
    takes_share=False,
)
KEYS: Final = (*STRATEGIES, SUMMARY)


def strategies_named(keys: Iterable[str]) -> list[Strategy]:
    """The strategies with these keys, without repeats. Raises BadInput `unknown_strategy`."""
    known = {**STRATEGIES, SUMMARY: SUMMARIES}
    wanted = list(dict.fromkeys(keys))
    unknown = [key for key in wanted if key not in known]
    if unknown or not wanted:
        raise BadInput(
            "unknown_strategy",
            f"There is no strategy {unknown[0]!r}. Nothing was tested. Choose from {', '.join(KEYS)}."
            if unknown
            else f"No strategy is chosen. Nothing was tested. Choose from {', '.join(KEYS)}.",
        )
    return [known[key] for key in wanted]

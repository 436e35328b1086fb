"""PURE: the strategies that the lab compares: planners and simple rules, which delete through the airlock.

| strategy        | deletes                                                                            | any share |
|-----------------|------------------------------------------------------------------------------------|-----------|
| embedded        | the choice of Redline's own planner                                                | yes       |
| oldest          | the oldest entries                                                                 | yes       |
| largest         | the largest entries                                                                | yes       |
| old_results     | tool results but the last three, as providers edit a context; then the oldest      | yes       |
| keep_recent     | everything before a place at which a turn can begin, as pi and Codex cut            | yes       |
| prune           | the tool results behind the newest 40,000 tokens of them, as OpenCode does          | no        |
| summary         | nothing: the agent's own summaries are evaluated instead (see `summaries`)          | no        |

A strategy that takes no share is measured at the share that it deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from compaction_app.core.embedded import EmbeddedPlanner
from compaction_app.core.loop import Exhausted, Planner, drive
from compaction_app.core.prune import PrunePlanner
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import Workbench
from compaction_app.core.transcript import Transcript
from sessions_app.sessionlog.entries import Role, Target
from sessions_app.sessionlog.errors import BadInput

from .orders import Order, delete_entries, largest, old_results, oldest

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
            "embedded planner",
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
            "OpenCode’s prune",
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
    "A reading, not a plan: what the summaries of the agent still say, where a session has them.",
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
            f"There is no strategy {unknown[0]!r}. Nothing was measured. Choose from {', '.join(KEYS)}."
            if unknown
            else f"No strategy is chosen. Nothing was measured. Choose from {', '.join(KEYS)}.",
        )
    return [known[key] for key in wanted]

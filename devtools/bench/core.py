"""Figures of the pure core: the airlock, the tools, preparation and the planner."""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from compaction_app.core.airlock import validate
from compaction_app.core.embedded import EmbeddedPlanner
from compaction_app.core.gates import Refusal
from compaction_app.core.loop import Ended, Outcome, drive
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from compaction_app.core.transcript import Transcript, prepare
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.pi.pure.parser import describe
from sessions_app.sessionlog.entries import Target, request_of

from .figures import Figure, median_ms
from .sessions import RealBranch, base_branch, parsed, read_branch, real_sessions, repeated

MANY: Final = 3_000


def transcript_of(branch: RealBranch, settings: Mapping[str, object] | None = None) -> Transcript:
    transcript = prepare(branch.entries, branch.texts, settings or {}, ATOMIC.format.generations[-1].rules)
    if transcript is None:
        raise ValueError("the branch is too short to be measured")
    return transcript


def _deletable(transcript: Transcript, count: int) -> list[Target]:
    """Entries, spread over the transcript, that the airlock lets a plan delete together."""
    store = DeletionStore(transcript)
    free = [entry for entry in transcript.entries if not entry.is_protected]
    chosen: list[Target] = []
    taken: set[Target] = set()
    for entry in free[:: max(1, len(free) // (2 * count))] + free:
        target = Target(entry.entry_id)
        if len(chosen) < count and target not in taken and store.delete(request_of([target])) is None:
            chosen.append(target)
            taken.update(store.targets)
    return chosen


def validation() -> Iterator[Figure]:
    """Validate 50 and 1,000 targets on 10,000 entries."""
    transcript = transcript_of(repeated(base_branch(), 10))
    for count, bar in ((50, 2.0), (1_000, 15.0)):
        request = request_of(_deletable(transcript, count))
        judged = validate(request, transcript)
        if isinstance(judged, Refusal):
            raise RuntimeError(f"the measured request must be accepted: {judged.message}")
        yield Figure(f"validate_{count}", median_ms(partial(validate, request, transcript)), "ms", bar)


def grep() -> Iterator[Figure]:
    """Bulk deletions by pattern: one that deletes, and one that exceeds its limit."""
    small = transcript_of(base_branch())
    call = ToolCall("context_grep_delete", {"pattern": "import", "maxMatches": 200})
    yield Figure("grep_import", median_ms(lambda: _call(small, call)), "ms", 15.0)
    large = transcript_of(repeated(base_branch(), 10))
    yield Figure(
        "grep_e",
        median_ms(lambda: _call(large, ToolCall("context_grep_delete", {"pattern": "e"})), 3),
        "ms",
        400.0,
    )


def _call(transcript: Transcript, call: ToolCall) -> None:
    Workbench(DeletionStore(transcript)).call(call)


def extremes() -> Iterator[Figure]:
    """One assistant message with 3,000 calls, and one call with 3,000 results: a deletion and a grep on each."""
    calls = [{"type": "toolCall", "id": f"c{n}", "name": "read", "arguments": {"path": "needle"}} for n in range(MANY)]
    many_calls = transcript_of(
        parsed(_session([{"role": "assistant", "content": calls}, *(_result(f"c{n}") for n in range(MANY))]))
    )
    one_call = {"role": "assistant", "content": calls[:1]}
    many_results = transcript_of(parsed(_session([one_call, *(_result("c0") for _ in range(MANY))])))
    first = {"deletions": [Target(many_calls.entries[1].entry_id).to_json()]}
    delete = ToolCall("context_delete", first)
    grep_call = ToolCall("context_grep_delete", {"pattern": "needle"})
    yield Figure("3000_calls_delete", median_ms(lambda: _call(many_calls, delete), 3), "ms", 100.0)
    yield Figure("3000_calls_grep", median_ms(lambda: _call(many_calls, grep_call), 3), "ms", 100.0)
    yield Figure("3000_results_delete", median_ms(lambda: _call(many_results, delete), 3), "ms", 100.0)
    yield Figure("3000_results_grep", median_ms(lambda: _call(many_results, grep_call), 3), "ms", 100.0)


def _result(call_id: str) -> dict[str, Any]:
    return {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": "read",
        "content": [{"type": "text", "text": "a needle"}],
        "isError": False,
    }


def _session(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "extreme", "cwd": "/"}]
    opening = {"role": "user", "content": "go"}
    closing = [{"role": "assistant", "content": [{"type": "text", "text": "done"}]}] * 2
    for number, message in enumerate([opening, *messages, *closing]):
        parent = f"{number:08x}" if number else None
        recorded.append({"type": "message", "id": f"{number + 1:08x}", "parentId": parent, "message": message})
    return recorded


def preparation() -> Iterator[Figure]:
    """Prepare 10,000 parsed entries, including texts."""
    branch = repeated(base_branch(), 10)

    def work() -> None:
        entries, texts = [], {}
        for entry, data in zip(branch.entries, branch.recorded, strict=True):
            described, text = describe(
                data,
                number=entry.number,
                offset=entry.offset,
                length=entry.length,
                entry_id=entry.id,
                parent_id=entry.parent_id,
            )
            entries.append(described)
            texts[entry.id] = text
        transcript = prepare(entries, texts, {}, ATOMIC.format.generations[-1].rules)
        if transcript is not None:
            for one in transcript.entries:
                transcript.text(one)

    yield Figure("prepare_10000", median_ms(work, 5), "ms", 130.0)


def planner() -> Iterator[Figure]:
    """The embedded planner on every real session: whether it reaches 50%, and the time of the slowest; and on 10,000
    entries."""
    branches = [read_branch(path) for path in real_sessions()] or [base_branch()]
    found = list(map(_planned, branches))
    missed = sum(outcome is not Outcome.TARGET_MET for outcome, _ in found)
    yield Figure("planner_below_50_percent", missed, f"of {len(branches)} sessions", 0)
    yield Figure("planner_slowest", round(max(seconds for _, seconds in found), 3), "s", 0.5)
    yield Figure("planner_10000", round(_planned(repeated(base_branch(), 10))[1], 3), "s", 2.0)


def _planned(branch: RealBranch) -> tuple[Outcome | None, float]:
    """How a run of the embedded planner on a branch ended, and its seconds, with the preparation."""
    started = time.perf_counter()
    transcript = transcript_of(branch, {"compression_ratio": 0.5})
    ended = [
        event.outcome
        for _, event in drive(EmbeddedPlanner(transcript), Workbench(DeletionStore(transcript)))
        if isinstance(event, Ended)
    ]
    return (ended[-1] if ended else None), time.perf_counter() - started

"""PURE: compares Redline's results for a session with one conformance vector.

A vector has the agent's own results for a session: the active context, the compactable transcript, its judgement on
deletion requests, and a scripted run of the five tools. Each section is rebuilt here in the vector's format and
compared; the first difference is reported with its path.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from compaction_app.core.airlock import validate
from compaction_app.core.gates import Refusal
from compaction_app.core.parameters import QUERY_LENGTH
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from compaction_app.core.transcript import Transcript, TranscriptEntry, prepare
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.atomic.pure.format import Filters, effective_filters, recorded_filters
from sessions_app.sessionlog.context import ActiveContext, model_of, thinking_level_of
from sessions_app.sessionlog.entries import Entry, Target
from sessions_app.sessionlog.jsjson import Line, stringify, utf16_slice, well_formed
from sessions_app.sessionlog.session import ParserState
from sessions_app.sessionlog.tree import SessionTree

ABSENT: Final = "(absent)"


@dataclass(frozen=True, slots=True)
class VectorDifference:
    """A difference between a vector and Redline's results: its path, such as `$.a[3].b`, and both values."""

    section: str
    path: str
    expected: object
    found: object

    def __str__(self) -> str:
        return f"{self.section} {self.path}: expected {_brief(self.expected)}, found {_brief(self.found)}"


def case_lines(case: Mapping[str, Any]) -> Iterator[Line]:
    """The lines of a vector that contains its session."""
    offset = 0
    for number, recorded in enumerate([case["header"], *case["entries"]], 1):
        raw = stringify(recorded).encode()
        yield Line(number, offset, raw)
        offset += len(raw) + 1


def differences(case: Mapping[str, Any], lines: Iterable[Line]) -> Iterator[VectorDifference]:
    """The first difference in each section of a vector, for the session in these lines."""
    parser = ATOMIC.format.parser(ParserState(), [])
    recorded = [found for line in lines for found in parser.read(line)]
    texts = {found.entry.id: found.texts for found in recorded}
    branch = SessionTree([found.entry for found in recorded]).branch(case["leafId"])
    yield from compare("context", case["context"], _context(branch, case["context"]))
    transcript = prepare(branch, texts, case["settings"], ATOMIC.format.generations[-1].rules)
    prepared = None if transcript is None else _prepared(transcript)
    yield from compare("prepare", _cut_query(case["prepare"]), _cut_query(prepared))
    if transcript is None:
        return
    for number, judged in enumerate(case.get("validate", ())):
        expected = {key: judged[key] for key in judged if key != "request"}
        yield from compare(f"validate[{number}]", expected, _judged(judged["request"], transcript))
    if "tools" in case:
        yield from compare("tools", _tool_facts(case["tools"]), _run_tools(case["tools"], transcript))


def _context(branch: Sequence[Entry], expected: Mapping[str, Any]) -> dict[str, Any]:
    context: ActiveContext = ATOMIC.format.generations[-1].reader.rebuild(branch)
    model, usage = model_of(branch), context.usage
    found: dict[str, Any] = {
        "rawFilters": _filters(recorded_filters(branch)),
        "effectiveFilters": _filters(effective_filters(branch)),
        "kept": [
            {"entryId": message.entry.id}
            | ({} if message.blocks is None else {"blocks": [block.index for block in message.blocks]})
            for message in context.messages
        ],
        "roles": [message.role for message in context.messages],
        "model": None if model is None else {"provider": model[0], "modelId": model[1]},
        "thinkingLevel": thinking_level_of(branch),
        "usage": {
            "tokens": usage.tokens,
            "usageTokens": usage.usage_tokens,
            "trailingTokens": usage.trailing_tokens,
        },
    }
    if "pathIds" in expected:
        found["pathIds"] = [entry.id for entry in branch]
    return found


def _filters(filters: Filters) -> dict[str, Any]:
    return {
        "entries": sorted(filters.entries),
        "blocks": {entry_id: sorted(indexes) for entry_id, indexes in filters.blocks.items()},
    }


def _prepared(transcript: Transcript) -> dict[str, Any]:
    found = transcript.parameters
    return {
        "parameters": {
            "compression_ratio": found.compression_ratio,
            "preserve_recent": found.preserve_recent,
            "query": found.query,
        },
        "protectedEntryIds": list(transcript.protected_entry_ids),
        "tokensBefore": transcript.tokens,
        "entries": [_entry(transcript, entry) for entry in transcript.entries],
    }


def _entry(transcript: Transcript, entry: TranscriptEntry) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "entryId": entry.entry_id,
        "entryType": entry.entry_type,
        "role": entry.role,
        "tokenEstimate": entry.tokens,
        "protected": entry.is_protected,
        "toolCallIds": list(entry.call_ids),
        "textSha": _digest(transcript.text(entry)),
        "contentBlocks": [],
    }
    if entry.result_for is not None:
        shown["toolResultFor"] = entry.result_for
    for block in entry.blocks:
        recorded: dict[str, Any] = {
            "blockIndex": block.index,
            "type": block.type,
            "tokenEstimate": block.tokens,
            "protected": entry.is_protected,
            "textSha": _digest(transcript.block_text(entry, block)),
        }
        if block.call_id is not None:
            recorded["toolCallId"] = block.call_id
        shown["contentBlocks"].append(recorded)
    return shown


def _digest(text: str) -> str:
    return hashlib.sha256(well_formed(text).encode()).hexdigest()[:16]


def _cut_query(prepared: dict[str, Any] | None) -> dict[str, Any] | None:
    """The query without the note that follows a long one, which the two sides word differently."""
    if prepared is None:
        return None
    parameters = prepared["parameters"]
    query = utf16_slice(parameters["query"], 0, QUERY_LENGTH)
    return {**prepared, "parameters": {**parameters, "query": query}}


def _judged(request: object, transcript: Transcript) -> dict[str, Any]:
    judged = validate(request, transcript)
    if isinstance(judged, Refusal):
        return {"rejected": judged.code.value}
    return {"accepted": {"deletedTargets": _targets(judged.targets), "stats": judged.stats.to_json()}}


def _tool_facts(tools: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "steps": [step["details"] for step in tools["steps"]],
        "finalTargets": tools["finalTargets"],
        "callCount": tools["callCount"],
    }


def _run_tools(tools: Mapping[str, Any], transcript: Transcript) -> dict[str, Any]:
    store = DeletionStore(transcript)
    workbench = Workbench(store, tools.get("contextWindow"))
    steps = []
    for step in tools["steps"]:
        result = workbench.call(ToolCall(step["call"]["name"], step["call"]["arguments"]))
        details = dict(result.details)
        if "stats" in details:
            details["deletedTargets"] = _targets(store.targets)
        steps.append(details)
    return {"steps": steps, "finalTargets": _targets(store.targets), "callCount": workbench.call_count}


def _targets(targets: Iterable[Target]) -> list[dict[str, Any]]:
    return [target.to_json() for target in targets]


def compare(section: str, expected: object, found: object) -> Iterator[VectorDifference]:
    """The first difference between two values of a section, if any."""
    parted = _first_difference(expected, found, "$")
    if parted is not None:
        yield VectorDifference(section, *parted)


def _first_difference(expected: object, found: object, path: str) -> tuple[str, object, object] | None:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            parted = _first_difference(expected.get(key, ABSENT), found.get(key, ABSENT), f"{path}.{key}")
            if parted is not None:
                return parted
        return None
    if isinstance(expected, list) and isinstance(found, list):
        for number, (mine, theirs) in enumerate(zip(expected, found, strict=False)):
            parted = _first_difference(mine, theirs, f"{path}[{number}]")
            if parted is not None:
                return parted
        return None if len(expected) == len(found) else (f"{path}.length", len(expected), len(found))
    return (
        None if expected == found and isinstance(expected, bool) == isinstance(found, bool) else (path, expected, found)
    )


def _brief(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 120 else shown[:119] + "…"

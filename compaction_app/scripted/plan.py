"""The good plan: look at the budget, then delete the heaviest entries of the manifest until the target is met.

The remaining tokens follow from the results: `tokensToDeleteForTarget` and `targetTokensAfter` of the budget, and
`stats.tokensAfter` of each deletion. A refusal names the entry at fault, which is not tried again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .request import EarlierCall, ScriptedRequest
from .response import CallTool, Play, Say

BATCH: Final = 12
"""The maximum number of entries deleted by one call."""
BUDGET: Final = "context_compaction_budget"
DELETE: Final = "context_delete"
CONVERSATION: Final = "<conversation>\n"
"""What the prompt of a summary begins with."""


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """The progress of the plan: tokens still to delete, if known, and the entries that are finished."""

    left: int | None
    dealt_with: frozenset[str]


def progress_of(request: ScriptedRequest) -> PlanProgress:
    """The progress of the plan, computed from the results."""
    left: int | None = None
    target: int | None = None
    dealt_with: set[str] = set()
    for call in request.calls:
        result = call.result_json or {}
        if isinstance(result.get("tokensToDeleteForTarget"), int):
            left, target = result["tokensToDeleteForTarget"], result.get("targetTokensAfter")
        stats = result.get("stats")
        if isinstance(stats, dict) and isinstance(target, int):
            left = max(0, int(stats["tokensAfter"]) - target)
        if call.name == DELETE:
            dealt_with |= _dealt_with(call)
    return PlanProgress(left, frozenset(dealt_with))


def good_plan(request: ScriptedRequest, *, parallel: int = 1, batch: int = BATCH) -> Play:
    """The next answer of the plan: up to `parallel` deletions of up to `batch` entries each."""
    manifest = request.manifest
    if manifest is None:
        return without_manifest(request)
    progress = progress_of(request)
    if progress.left is None:
        if [call.name for call in request.calls[-2:]] == [BUDGET, BUDGET]:
            return Play((Say("The budget cannot be read."),), "end")
        return Play((Say("First, how much has to go."), CallTool(BUDGET)), "calls")
    if progress.left == 0:
        return Play((Say("The target is reached."),), "end")
    chosen = heaviest(manifest, progress, parallel * batch)
    if not chosen:
        return Play((Say("Nothing else can go."),), "end")
    share = -(-len(chosen) // parallel)
    calls = [delete(chosen[start : start + share]) for start in range(0, len(chosen), share)]
    words = f"{progress.left:,} tokens are still to go: the next {len(chosen)} entries, the heaviest first."
    return Play((Say(words), *calls), "calls")


def heaviest(manifest: Mapping[str, Any], progress: PlanProgress, most: int) -> list[str]:
    """Ids of the heaviest entries that are not finished: as many as needed, at most `most`."""
    open_entries = [entry for entry in manifest["entries"] if entry["entryId"] not in progress.dealt_with]
    open_entries.sort(key=lambda entry: -entry["tokens"])
    chosen: list[str] = []
    tokens = 0
    for entry in open_entries[:most]:
        chosen.append(entry["entryId"])
        tokens += entry["tokens"]
        if progress.left is not None and tokens >= progress.left:
            break
    return chosen


def delete(entry_ids: Sequence[str]) -> CallTool:
    """The call that deletes these entries."""
    deletions = [{"kind": "entry", "entryId": entry_id} for entry_id in entry_ids]
    return CallTool(DELETE, json.dumps({"deletions": deletions}, ensure_ascii=False))


def summary_of(prompt: str) -> str:
    """A summary with the headings that the prompt wants, and its number of words."""
    wanted = [line for line in prompt.splitlines() if line.startswith(("## ", "### "))]
    return "\n\n".join(f"{heading}\n{len(prompt.split()):,} words were sent." for heading in wanted)


def without_manifest(request: ScriptedRequest) -> Play:
    """The answer if there is nothing to plan: a summary, if the prompt has a conversation and no tools are offered;
    otherwise one call of the first tool, as a model test requests."""
    if not request.tools and CONVERSATION in request.prompt:
        return Play((Say(summary_of(request.prompt)),), "end")
    if request.calls or not request.tools:
        return Play((Say("There is nothing to plan."),), "end")
    names = [tool.name for tool in request.tools]
    tool = request.tools[names.index(BUDGET) if BUDGET in names else 0]
    return Play((CallTool(tool.name, json.dumps(_example(tool.schema))),), "calls")


def _dealt_with(call: EarlierCall) -> set[str]:
    """Entries that need no further action after this deletion: deleted ones, and those it must not name again."""
    deletions = call.arguments.get("deletions") if isinstance(call.arguments, dict) else None
    if not isinstance(deletions, list):
        return set()
    named = [one["entryId"] for one in deletions if isinstance(one, dict) and "entryId" in one]
    result = call.result_json
    if result is None or "error" not in result:
        return set(named)
    message = str(result.get("message", ""))
    at_fault = {one for one in named if re.search(rf"(?<![\w-]){re.escape(str(one))}(?![\w-])", message)}
    return at_fault or set(named[:1])


def _example(schema: Mapping[str, Any]) -> Any:
    """A value that satisfies a simple JSON schema."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _example(properties[name]) for name in schema.get("required", ())}
    examples: dict[str, Any] = {"string": "ready", "boolean": True, "array": []}
    return examples[kind] if kind in examples else schema.get("minimum", 0)

"""The scripts, by name. A client chooses one by the name of the requested model.

A script determines its next move from the request alone, so that a conversation can be stopped, resumed, retried and
played through a proxy. Scripts that break a connection or an answer do so after one valid deletion, if the prompt has a
manifest to plan for, otherwise immediately.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from .request import (
    Break,
    CallTool,
    Cut,
    EarlierCall,
    Foreign,
    Move,
    Part,
    Play,
    Refuse,
    Say,
    ScriptedRequest,
    Sealed,
    Silence,
    Stop,
    Think,
    checked,
)

BATCH: Final = 12
"""The maximum number of entries deleted by one call."""
BUDGET: Final = "context_compaction_budget"
DELETE: Final = "context_delete"
CONVERSATION: Final = "<conversation>\n"
"""The beginning of a summary's prompt."""
SEARCH: Final = "context_search_transcript"
READ: Final = "context_read_entry"
SLOWLY: Final = 0.05
"""The pause between the calls of `slow-calls`, in seconds."""
MUSING: Final = "What was acted on already can go; what is still open has to stay. "
_COUNTED: Final = re.compile(r"calls-([1-9]\d{0,3})")


@dataclass(frozen=True, slots=True)
class Script:
    """A script: a description of what it plays, and its moves."""

    name: str
    plays: str
    move: Callable[[ScriptedRequest], Move]
    thinks: bool = False
    """Whether its thinking must be returned with every answer that called tools."""


def script_named(name: str) -> Script | None:
    """The script for a model name, including `calls-N`; None if there is none."""
    counted = _COUNTED.fullmatch(name)
    if counted:
        turns, budget = int(counted[1]), (CallTool(BUDGET),)
        return Script(name, f"{turns} budget calls, one per turn, then a good plan", _opening(*[budget] * turns))
    return SCRIPTS.get(name)


# ---- the good plan ------------------------------------------------------------------------------------------
#
# Look at the budget, then delete the heaviest entries of the manifest until the target is met. The remaining tokens
# follow from the results: `tokensToDeleteForTarget` and `targetTokensAfter` of the budget, and `stats.tokensAfter` of
# each deletion. A refusal names the entry at fault, which is not tried again.


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


# ---- openings: something else first, then the good plan ----------------------------------------------------


def _opening(*turns: tuple[Part, ...], stop: Stop = "calls") -> Callable[[ScriptedRequest], Move]:
    def move(request: ScriptedRequest) -> Move:
        return Play(turns[request.turn], stop) if request.turn < len(turns) else good_plan(request)

    return move


def _search(pattern: str, **more: object) -> CallTool:
    return CallTool(SEARCH, json.dumps({"pattern": pattern, **more}, ensure_ascii=False))


def _parallel_calls(request: ScriptedRequest) -> Move:
    if request.is_first:
        entries = (request.manifest or {}).get("entries", ())
        reads = [CallTool(READ, json.dumps({"entryId": entry["entryId"], "maxChars": 500})) for entry in entries[:2]]
        return Play((Say("I look around."), CallTool(BUDGET), _search("error"), *reads), "calls")
    return good_plan(request, parallel=3)


def _slow_calls(request: ScriptedRequest) -> Move:
    if request.is_first:
        return Play((CallTool(BUDGET),) * 100, "calls", gap=SLOWLY)
    return good_plan(request)


def _never_reaches(request: ScriptedRequest) -> Move:
    if request.turn < 2:
        return good_plan(request, batch=1)
    return Play((Say("That is enough, I would say."),), "end")


# ---- transmission ------------------------------------------------------------------------------------------


def _played(**how: Any) -> Callable[[ScriptedRequest], Move]:
    """The good plan, transmitted in another way."""
    return lambda request: replace(good_plan(request), **how)


def _split_bytes(request: ScriptedRequest) -> Move:
    if request.is_first:
        calls = (_search("größer als 大きさ 🔎"), CallTool(BUDGET))
        return Play((Say("Größe, 大きさ, 🔎."), *calls), "calls", fragment=1, pieces=1)
    return replace(good_plan(request), fragment=1, pieces=5)


def _thinking(request: ScriptedRequest, *, is_sealed: bool) -> Play:
    play = good_plan(request)
    thought = Think(checked(f"{MUSING}This is turn {request.turn}: größer → kleiner."))
    unseen = (Sealed(f"unseen thought of turn {request.turn}"),) if is_sealed else ()
    return replace(play, parts=(thought, *unseen, *play.parts), details=is_sealed, priced=is_sealed)


def _long_thinking(request: ScriptedRequest) -> Move:
    play = good_plan(request)
    return replace(play, parts=(Think(checked(MUSING * 11_000)), *play.parts), step=0.02)


def _hostile(request: ScriptedRequest) -> Move:
    if not request.is_first:
        return good_plan(request)
    text = (
        "<script>document.title='owned'</script><img src=x onerror=alert(1)>\n"
        "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe\u202c \u2066x\u2069 </pre>&lt;b&gt;\x00 [link](javascript:alert(1))"
    )
    call = _search(text, target="</script><script>alert(1)</script>")
    return Play((Think(checked(text)), Say(text), call, CallTool(BUDGET)), "calls")


# ---- errors ------------------------------------------------------------------------------------------------


def _always(move: Move) -> Callable[[ScriptedRequest], Move]:
    def always(request: ScriptedRequest) -> Move:
        del request
        return move

    return always


def _refused(times: int, refusal: Refuse | Cut) -> Callable[[ScriptedRequest], Move]:
    """Refused, or cut, this many times in the first turn, then the good plan."""

    def move(request: ScriptedRequest) -> Move:
        if request.is_first and request.tries < times:
            return refusal
        return good_plan(request)

    return move


def _after_a_deletion(wrong: Callable[[ScriptedRequest], Move]) -> Callable[[ScriptedRequest], Move]:
    """The good plan until something is deleted, then the error."""

    def move(request: ScriptedRequest) -> Move:
        has_deleted = any(call.name == DELETE and "error" not in (call.result_json or {}) for call in request.calls)
        if request.manifest is None or has_deleted:
            return wrong(request)
        return good_plan(request, batch=1)

    return move


def _broken(how: Break) -> Callable[[ScriptedRequest], Move]:
    """An answer with two calls that breaks off."""

    def wrong(request: ScriptedRequest) -> Move:
        if request.manifest is None:
            last = without_manifest(request).parts
        else:
            last = (delete(heaviest(request.manifest, progress_of(request), 3) or ["none"]),)
        return Play((Say("I go on."), _search("done"), *last), "calls", breaks=how, fragment=8)

    return wrong


def _error_inside(times: int | None) -> Callable[[ScriptedRequest], Move]:
    def move(request: ScriptedRequest) -> Move:
        play = good_plan(request)
        if times is None or (request.is_first and request.tries < times):
            return replace(play, breaks=Break("error", "start"))
        return play

    return move


def _cut_by_limit(request: ScriptedRequest) -> Move:
    if request.is_first:
        return Play((Say("I delete all of"), CallTool(DELETE, '{"deletions": [{"kind": "entry", "entr')), "length")
    return good_plan(request)


_NONSENSE: Final = (
    (CallTool(DELETE, '{"deletions": [{"kind": "entry", '), CallTool(BUDGET, "no object at all")),
    (
        CallTool(DELETE, '{"deletions": "everything"}'),
        CallTool(READ, '{"entryId": 7, "maxChars": "many"}'),
        CallTool(BUDGET, '["a", "list"]'),
    ),
)
_LONG_WAIT: Final = "3600"


_SCRIPTS: Final = (
    Script("good-plan", "a good plan: budget, then deletions, the heaviest first", good_plan),
    Script("parallel-calls", "several calls in each answer", _parallel_calls),
    Script("split-bytes", "arguments split at every character, the wire at every byte", _split_bytes),
    Script("pings", "keep-alives between all events", _played(pings=True)),
    Script("whole-calls", "calls in one piece, without ids in OpenAI's dialect", _played(whole_calls=True)),
    Script("no-usage", "no tokens are reported", _played(reports_usage=False)),
    Script("no-done", "OpenAI's stream ends without [DONE]", _played(marks_end=False)),
    Script("not-streamed", "one JSON document instead of a stream", _played(streams=False)),
    Script("slow-calls", "100 calls in one answer, one every 50 ms", _slow_calls),
    Script(
        "fifty-searches",
        "50 searches in one answer",
        _opening(tuple(_search(f"line_{number}") for number in range(50))),
    ),
    Script(
        "thinking-signed",
        "signed and sealed thinking that must be returned unchanged",
        lambda request: _thinking(request, is_sealed=True),
        thinks=True,
    ),
    Script(
        "thinking-plain",
        "thinking that must be returned unchanged: signed, or `reasoning_content`",
        lambda request: _thinking(request, is_sealed=False),
        thinks=True,
    ),
    Script("long-thinking", "ten minutes of reasoning before the first call", _long_thinking),
    Script("hostile", "markup, terminal sequences and reversed text everywhere", _hostile),
    Script(
        "stops-early",
        "prose first, and a plan after the nudge",
        lambda request: (
            Play((Say("I would delete the long listings."),), "end") if request.is_first else good_plan(request)
        ),
    ),
    Script("never-reaches", "one small deletion, then only prose", _never_reaches),
    Script("nonsense-arguments", "broken JSON, then wrong types, then a plan", _opening(*_NONSENSE)),
    Script(
        "unknown-tool",
        "a call of an unknown tool",
        _opening((CallTool("context_summarize", '{"entryId": "all"}'), CallTool(BUDGET))),
    ),
    Script("missing-argument", "a call without its required argument", _opening((CallTool(READ), CallTool(BUDGET)))),
    Script("cut-by-limit", "the output limit cuts the first answer inside a call", _cut_by_limit),
    Script(
        "refuses",
        "the model refuses to continue",
        _after_a_deletion(_always(Play((Say("I cannot help with that."),), "refusal"))),
    ),
    Script("overloaded-twice", "overloaded twice, then a good plan", _refused(2, Refuse("overloaded"))),
    Script("overloaded", "overloaded, always", _always(Refuse("overloaded"))),
    Script(
        "rate-limited",
        "a rate limit with Retry-After: 1 once, then a good plan",
        _refused(1, Refuse("limited", headers={"retry-after": "1"})),
    ),
    Script(
        "rate-limited-long",
        "a rate limit with Retry-After: an hour",
        _always(Refuse("limited", headers={"retry-after": _LONG_WAIT})),
    ),
    Script("server-error", "an internal error, always", _always(Refuse("broken"))),
    Script("quota-used", "the quota is exhausted", _always(Refuse("quota"))),
    Script("wrong-key", "the key is refused", _always(Refuse("key"))),
    Script(
        "echoes-key",
        "the key is refused, and the error quotes it completely",
        lambda request: Refuse("key", f"The key {request.key} is not valid (you sent {request.key!r})."),
    ),
    Script("unknown-model", "the model is unknown, as any name without a script", _always(Refuse("model"))),
    Script("overflow", "the conversation is too long, at once", _always(Refuse("overflow"))),
    Script(
        "overflow-later",
        "the conversation is too long after a valid deletion",
        _after_a_deletion(_always(Refuse("overflow"))),
    ),
    Script("too-large", "the request has too many bytes (413)", _always(Refuse("too-large"))),
    Script("error-inside", "an error event inside a 200, before any content", _error_inside(None)),
    Script("error-inside-once", "the same once, then a good plan", _error_inside(1)),
    Script("error-midway", "an error event after a call", _after_a_deletion(_broken(Break("error", "after")))),
    Script("cut-before", "the connection is cut before the first byte once, then a good plan", _refused(1, Cut())),
    Script("cut-always", "the connection is cut before the first byte, always", _always(Cut())),
    Script("cut-inside", "the connection is cut inside a call", _after_a_deletion(_broken(Break("cut", "inside")))),
    Script("cut-after", "the connection is cut after a call", _after_a_deletion(_broken(Break("cut", "after")))),
    Script("stalls", "the stream stalls in a call", _after_a_deletion(_broken(Break("stall", "inside")))),
    Script("stalls-before", "no byte comes", _always(Silence())),
    Script(
        "web-page",
        "a page with status 200, as from a server that is not a provider",
        _always(Foreign(200, "text/html; charset=utf-8", "<!doctype html><title>Welcome</title>\n")),
    ),
    Script(
        "redirects",
        "a redirect to another address",
        _always(Foreign(307, "text/plain", "", {"location": "/elsewhere"})),
    ),
)
SCRIPTS: Final = {script.name: script for script in _SCRIPTS}
"""All scripts with fixed names, without `calls-N`."""

"""One event of a run as a row of its page: the call or event in words, and its effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from compaction_app.core.states import EventKind, RunState
from sessions_app.sessionlog.printable import plural
from sessions_app.sessionlog.targets import Target

ARGUMENT_CHARACTERS: Final = 160
TARGETS_SHOWN: Final = 6
HITS_SHOWN: Final = 5
SNIPPET_CHARACTERS: Final = 400


@dataclass(frozen=True, slots=True)
class Hit:
    """One object that a call found or named."""

    entry_id: str
    block: int | None
    text: str


@dataclass(slots=True)
class EventRow:
    """One event. Tokens and percentages are of the transcript's own estimate."""

    seq: int
    kind: str
    number: int | None
    tool: str
    arguments: list[tuple[str, str]]
    sentence: str
    code: str
    target: Hit | None
    hits: list[Hit]
    more_hits: int
    snippet: str
    gain: int
    before: float
    percent: float
    is_earlier: bool = False
    """Whether it belongs to an attempt before the latest one, which counts its calls from 1 again."""

    @property
    def anchor(self) -> str:
        """Its id on the page: the call's number, if only one row has it."""
        return f"ev-s{self.seq}" if self.number is None or self.is_earlier else f"ev-{self.number}"


def event_row(seq: int, kind: str, data: Mapping[str, Any]) -> EventRow:
    """The row of one event."""
    details = data.get("details", {})
    hits = [_hit(match) for match in details.get("matches", ())] or [
        Hit(raw["entryId"], raw.get("blockIndex"), raw.get("code", "")) for raw in data.get("dropped", ())
    ]
    target = data.get("target")
    return EventRow(
        seq=seq,
        kind=kind,
        number=data.get("call"),
        tool=data.get("tool", ""),
        arguments=list(_arguments(data["arguments"])) if "arguments" in data else [],
        sentence=_sentence(kind, data),
        code=data.get("code", ""),
        target=_hit(target) if target else None,
        hits=hits[:HITS_SHOWN],
        more_hits=max(0, len(hits) - HITS_SHOWN),
        snippet=str(details.get("text", ""))[:SNIPPET_CHARACTERS],
        gain=data.get("gain", 0),
        before=min(100.0, float(data.get("before", 0))),
        percent=min(100.0, float(data.get("percent", 0))),
    )


def _hit(match: Mapping[str, Any]) -> Hit:
    snippet = " ".join(match.get("snippet", "").split())
    return Hit(str(match["entryId"]), match.get("blockIndex"), snippet if snippet.strip("…") else "")


def _sentence(kind: str, data: Mapping[str, Any]) -> str:
    if kind == EventKind.PREPARED:
        return (
            f"{plural(data['entries'], 'entry')} can be planned on, {data['protected']:,} of them protected. Tokens "
            f"are the agent's own count here and below, characters / 4: {data['tokens']:,}."
        )
    if kind == EventKind.CARRIED:
        dropped = len(data["dropped"])
        text = f"{plural(data['kept'], 'earlier deletion')} kept"
        text += f", {plural(data['pinned'], 'object')} pinned" if data["pinned"] else ""
        return text + (f"; {dropped:,} dropped, no longer valid." if dropped else ".")
    if kind in (EventKind.NUDGED, EventKind.HOOKED):
        return str(data["text"])
    if kind == EventKind.RETRIED:
        return f"Retry {data['attempt']}, after {data['seconds']:g} s: {data['why']}"
    if kind == EventKind.TRIMMED:
        return (
            f"{plural(data['results'], 'old result')} of {plural(data['characters'], 'character')} dropped from the "
            "conversation with the model, which can request them again."
        )
    if kind == EventKind.ENDED:
        return f"The run ended: {RunState(data['state']).sentence}. {data.get('message', '')}".strip()
    return str(data.get("message") or data.get("sentence", ""))


def _arguments(arguments: object) -> Iterable[tuple[str, str]]:
    """Arguments by name, each in a few words; something is shown for any value."""
    if not isinstance(arguments, dict):
        yield "arguments", repr(arguments)[:ARGUMENT_CHARACTERS]
        return
    for name, value in arguments.items():
        if name == "deletions" and isinstance(value, list):
            shown = ", ".join(map(_target, value[:TARGETS_SHOWN]))
            more = len(value) - TARGETS_SHOWN
            yield name, f"{len(value)}: {shown}" + (f" and {more} more" if more > 0 else "")
        else:
            text = str(value)
            yield str(name), text[:ARGUMENT_CHARACTERS] + ("…" if len(text) > ARGUMENT_CHARACTERS else "")


def _target(raw: object) -> str:
    if not isinstance(raw, dict) or "entryId" not in raw:
        return repr(raw)[:ARGUMENT_CHARACTERS]
    block = raw.get("blockIndex")
    target = Target(str(raw["entryId"])[:ARGUMENT_CHARACTERS], block if isinstance(block, int) else None)
    return target.entry_id if target.block_index is None else f"{target.entry_id}[{target.block_index}]"

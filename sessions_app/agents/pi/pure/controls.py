"""The control entries of pi and Atomic: compactions, edits, labels, names, models and thinking levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeGuard

from sessions_app.sessionlog.controls import (
    DeletionControl,
    EditControl,
    LabelControl,
    ModelControl,
    NameControl,
    SummaryControl,
    ThinkingLevelControl,
)
from sessions_app.sessionlog.targets import Target

VERBATIM_LINES: Final = "verbatim-lines"


def deletion_control(data: Mapping[str, Any]) -> DeletionControl:
    stats = data.get("stats")
    percent = stats.get("percentReduction") if isinstance(stats, Mapping) else None
    return DeletionControl(
        targets=tuple(_targets(data.get("deletedTargets"))),
        percent=percent if _is_number(percent) and 0 <= percent <= 100 else None,
        backup=_text(data.get("backupPath")) or "",
    )


def _targets(recorded: object) -> Iterator[Target]:
    """The deletions in a list of targets. Invalid ones are skipped."""
    for target in recorded if isinstance(recorded, list) else ():
        if not isinstance(target, dict) or not isinstance(entry_id := target.get("entryId"), str):
            continue
        index = target.get("blockIndex")
        if target.get("kind") == "entry":
            yield Target(entry_id)
        elif target.get("kind") == "content_block" and isinstance(index, int) and not isinstance(index, bool):
            yield Target(entry_id, index)


def summary_control(data: Mapping[str, Any], system_tokens: int | None) -> SummaryControl:
    details = data.get("details")
    is_verbatim = isinstance(details, Mapping) and details.get("strategy") == VERBATIM_LINES
    return SummaryControl(_text(data.get("firstKeptEntryId")), is_verbatim, system_tokens)


def edit_control(data: Mapping[str, Any]) -> EditControl:
    target_id = _text(data.get("targetId"))
    if "replacement" not in data:
        return EditControl(target_id, "undefined")
    if data["replacement"] is None:
        return EditControl(target_id, "removes")
    return EditControl(target_id, "replaces", is_text=isinstance(new_content(data), str))


def new_content(data: Mapping[str, Any]) -> object:
    """The content by which a `context_edit` replaces another; None if it has none."""
    replacement = data.get("replacement")
    return replacement.get("content") if isinstance(replacement, Mapping) else None


def label_control(data: Mapping[str, Any]) -> LabelControl:
    return LabelControl(_text(data.get("targetId")), _text(data.get("label")) or "")


def model_control(data: Mapping[str, Any]) -> ModelControl:
    return ModelControl(_text(data.get("provider")) or "", _text(data.get("modelId")) or "")


def name_control(data: Mapping[str, Any]) -> NameControl:
    return NameControl(_text(data.get("name")))


def thinking_level_control(data: Mapping[str, Any]) -> ThinkingLevelControl:
    return ThinkingLevelControl(_text(data.get("thinkingLevel")))


def _text(value: object) -> str | None:
    """The value if it is a text, otherwise None."""
    return value if isinstance(value, str) else None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)

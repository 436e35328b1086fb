"""The control entries of pi and Atomic: compactions, edits, labels, names, models and thinking levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sessions_app.agents.pure import fields
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
    percent = fields.number(fields.mapping(data, "stats"), "percentReduction")
    return DeletionControl(
        targets=tuple(_targets(data)),
        percent=percent if percent is not None and 0 <= percent <= 100 else None,
        backup=fields.text(data, "backupPath"),
    )


def _targets(data: Mapping[str, Any]) -> Iterator[Target]:
    """The recorded deletions. Invalid ones are skipped."""
    for target in fields.objects(data, "deletedTargets"):
        entry_id, index = fields.text_or_none(target, "entryId"), fields.integer(target, "blockIndex")
        if entry_id is not None and target.get("kind") == "entry":
            yield Target(entry_id)
        elif entry_id is not None and target.get("kind") == "content_block" and index is not None:
            yield Target(entry_id, index)


def summary_control(data: Mapping[str, Any], system_tokens: int | None) -> SummaryControl:
    is_verbatim = fields.mapping(data, "details").get("strategy") == VERBATIM_LINES
    return SummaryControl(fields.text_or_none(data, "firstKeptEntryId"), is_verbatim, system_tokens)


def edit_control(data: Mapping[str, Any]) -> EditControl:
    target_id = fields.text_or_none(data, "targetId")
    if "replacement" not in data:
        return EditControl(target_id, "undefined")
    if data["replacement"] is None:
        return EditControl(target_id, "removes")
    return EditControl(target_id, "replaces", is_text=isinstance(new_content(data), str))


def new_content(data: Mapping[str, Any]) -> object:
    """The content by which a `context_edit` replaces another; None if it has none."""
    return fields.mapping(data, "replacement").get("content")


def label_control(data: Mapping[str, Any]) -> LabelControl:
    return LabelControl(fields.text_or_none(data, "targetId"), fields.text(data, "label"))


def model_control(data: Mapping[str, Any]) -> ModelControl:
    return ModelControl(fields.text(data, "provider"), fields.text(data, "modelId"))


def name_control(data: Mapping[str, Any]) -> NameControl:
    return NameControl(fields.text_or_none(data, "name"))


def thinking_level_control(data: Mapping[str, Any]) -> ThinkingLevelControl:
    return ThinkingLevelControl(fields.text_or_none(data, "thinkingLevel"))

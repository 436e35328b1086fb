"""Refusals of deletions. A refusal is a value, never an exception: a refused step changes nothing."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from sessions_app.sessionlog.targets import Target


class Code(StrEnum):
    """Refusal codes, in the order of evaluation. Programs compare them; people read the message."""

    REQUEST_SHAPE = "request_shape"
    UNSUPPORTED_KIND = "unsupported_kind"
    NOT_ID_ONLY = "not_id_only"
    INVALID_ENTRY_ID = "invalid_entry_id"
    UNKNOWN_ENTRY = "unknown_entry"
    INVALID_BLOCK_INDEX = "invalid_block_index"
    RECENT_CONTEXT = "recent_context"
    THINKING = "thinking"
    NOT_EDITABLE = "not_editable"
    PROTECTED = "protected"
    UNKNOWN_BLOCK = "unknown_block"
    ONLY_BLOCK = "only_block"
    DUPLICATE_TARGET = "duplicate_target"
    PROTECTED_PAIR = "protected_pair"
    LATEST_THINKING = "latest_thinking"
    OVERLAPPING_TARGET = "overlapping_target"
    EVERY_BLOCK = "every_block"
    ORPHANED_RESULT = "orphaned_result"
    DANGLING_CALL = "dangling_call"
    NO_CONTEXT_LEFT = "no_context_left"
    NO_TASK_LEFT = "no_task_left"
    PATTERN_TOO_LONG = "pattern_too_long"
    INVALID_PATTERN = "invalid_pattern"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_TOOL = "unknown_tool"


class Refusal(msgspec.Struct, frozen=True):
    """The refused object, the rule, and what to do instead."""

    code: Code
    message: str
    target: Target | None = None

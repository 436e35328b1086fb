"""Values from a provider, converted to the expected types: no value is trusted to be valid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from .error_mapping import ProviderFault, Reported, Unreadable, fault_in

MOST_TOKENS: Final = 2**53
DEPTH: Final = 50
"""Levels of nesting in the part of an answer that is kept to be sent back."""


def event_object(event: str, data: str) -> Mapping[str, Any]:
    """The object in an event of a stream. Raises Reported if it is an error, Unreadable if it is not an object."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    fault = fault_in(found)
    if fault is not None or event == "error":
        raise Reported(fault or ProviderFault(0, "", data))
    if not isinstance(found, dict):
        raise Unreadable("one of its events is not a JSON object")
    return found


def mapping_of(value: object) -> Mapping[str, Any]:
    """The value, if it is an object; otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """The value, if it is a list; otherwise an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """The value, if it is a string; otherwise an empty one."""
    return value if isinstance(value, str) else ""


def count_of(value: object) -> int:
    """The value, if it is a number of tokens; otherwise 0."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return int(value) if is_count and isinstance(value, int) else 0


def printed(value: object) -> str:
    """The value as JSON. Raises Unreadable if it is nested so deeply that it could not be sent back."""
    if not _is_shallow(value, DEPTH):
        raise Unreadable("it is nested too deeply")
    return json.dumps(value, ensure_ascii=False)


def _is_shallow(value: object, levels: int) -> bool:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in below)

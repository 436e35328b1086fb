"""What a tool call changes in files, as the lines of a diff: edits, new files and patches of every agent.

Agents give the same arguments different names; a call is recognised by its arguments, and a new file by its tool too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from compaction_app.rendering.diffs import DiffLine, TextChange, diff_of, diff_of_patch

from .tool_call_text import ARGUMENTS_READ, PATHS

_OLD: Final = ("old_string", "oldString", "oldText", "old_text")
_NEW: Final = ("new_string", "newString", "newText", "new_text", "new_source")
_EDITS: Final = "edits"
_CONTENT: Final = "content"
_WRITES: Final = frozenset({"write"})
_PATCH: Final = re.compile(r"^\*\*\* Begin Patch\n(.*?)(?:^\*\*\* End Patch|\Z)", re.DOTALL | re.MULTILINE)


def changes_of(tool: str, arguments: str) -> list[DiffLine]:
    """The lines that a call of a tool changes, given its arguments as recorded; empty if it changes none."""
    if len(arguments) > ARGUMENTS_READ:
        return []
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        # Codex records a patch as it is.
        return _patched([arguments])
    if not isinstance(values, Mapping):
        return []
    changes = list(_changes(tool, values)) if not PATHS.isdisjoint(values) else []
    return list(diff_of(changes)) if changes else _patched(_texts(values))


def _changes(tool: str, values: Mapping[str, Any]) -> Iterator[TextChange]:
    edits = values.get(_EDITS)
    for edit in edits if isinstance(edits, list) else [values]:
        if not isinstance(edit, Mapping):
            continue
        old = _first(edit, _OLD)
        new = _first(edit, _NEW)
        if old is not None or new is not None:
            yield TextChange(old or "", new or "")
    content = values.get(_CONTENT)
    if tool.lower() in _WRITES and isinstance(content, str):
        yield TextChange("", content)


def _first(values: Mapping[str, Any], names: Sequence[str]) -> str | None:
    found = (values.get(name) for name in names)
    return next((value for value in found if isinstance(value, str)), None)


def _texts(values: Mapping[str, Any]) -> Iterator[str]:
    """The texts among the arguments, and in a command that is given as words."""
    for value in values.values():
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str))


def _patched(texts: Sequence[str] | Iterator[str]) -> list[DiffLine]:
    patches = (found[1] for text in texts for found in _PATCH.finditer(text))
    return [line for patch in patches for line in diff_of_patch(patch.removesuffix("\n").split("\n"))]

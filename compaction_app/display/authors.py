"""Who an entry comes from, in words: the same on every page."""

from __future__ import annotations

from typing import Final

from sessions_app.sessionlog.entries import THINKING_TYPES, BlockType, Role

CHARACTERS: Final = 120
"""Characters of a recorded name that are shown."""
_NAMES: Final = {
    Role.COMMAND: "your bash",
    Role.CUSTOM: "added context",
    Role.INJECTED: "added context",
    Role.BRANCH_SUMMARY: "branch summary",
    Role.COMPACTION_SUMMARY: "summary",
}


def author_of(role: str, tool_name: str = "", block_type: str = "", otherwise: str = "") -> str:
    """The author of an entry, or of one of its blocks; `otherwise` if it has no role."""
    if role == Role.TOOL_RESULT:
        return (tool_name or "result")[:CHARACTERS]
    if role == Role.ASSISTANT and block_type in THINKING_TYPES:
        return "thinking"
    if role == Role.ASSISTANT and block_type == BlockType.TOOL_CALL:
        return "call"
    return _NAMES.get(role, role or otherwise)[:CHARACTERS]

"""The five tools as described to a model: the purpose of each, and a JSON schema of its arguments.

The schemas are strict: they name every argument, its limits and its default, and allow no other. A test compares them
with the arguments that `tools` parses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .patterns import PATTERN_LENGTH
from .tools import (
    CONTEXT_CHARS,
    CONTEXT_CHARS_LIMIT,
    GREP_MATCHES,
    GREP_MATCHES_LIMIT,
    READ_CHARS,
    READ_CHARS_LIMIT,
    SEARCH_MATCHES,
    SEARCH_MATCHES_LIMIT,
    TOOLS,
)


class ToolSchema(NamedTuple):
    """One tool as described to a model; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def _object(properties: Mapping[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "default": False, "description": description}


def _number(description: str, least: int, most: int | None = None, default: int | None = None) -> dict[str, Any]:
    limits = {"minimum": least} | ({} if most is None else {"maximum": most})
    return {"type": "integer", "description": description} | limits | ({} if default is None else {"default": default})


_PATTERN: Final = {
    "pattern": _text(
        f"What to look for: plain text, or a regular expression in RE2's syntax (no look-around, no back-references) "
        f"where regex is true. At most {PATTERN_LENGTH} characters; ^ and $ mean the whole text."
    )
    | {"minLength": 1, "maxLength": PATTERN_LENGTH},
    "regex": _flag("Whether the pattern is a regular expression."),
    "caseSensitive": _flag("Whether upper and lower case differ."),
    "target": {
        "type": "string",
        "enum": ["entry", "content_block"],
        "default": "entry",
        "description": "What is looked through and found: whole entries, or their content blocks one by one.",
    },
}

_DELETION: Final = _object(
    {
        "kind": {
            "type": "string",
            "enum": ["entry", "content_block"],
            "description": "What goes: an entry as a whole, or one of its content blocks.",
        },
        "entryId": _text("The id of the entry, or of the entry that the block belongs to."),
        "blockIndex": _number(
            "For a content_block, and only then: the block's index as it was recorded, from 0. An entry's only block "
            "cannot go by itself: delete the entry.",
            0,
        ),
    },
    ("kind", "entryId"),
)

_PARAMETERS: Final[Mapping[str, dict[str, Any]]] = {
    "context_search_transcript": _object(
        {
            **_PATTERN,
            "maxMatches": _number("Matches at most.", 1, SEARCH_MATCHES_LIMIT, SEARCH_MATCHES),
            "contextChars": _number(
                "Characters shown before and after where a match begins.",
                0,
                CONTEXT_CHARS_LIMIT,
                CONTEXT_CHARS,
            ),
        },
        ("pattern",),
    ),
    "context_read_entry": _object(
        {
            "entryId": _text("The id of the entry."),
            "blockIndex": _number("One content block of it alone; else all of them, joined.", 0),
            "offset": _number("Characters to pass over first.", 0, default=0),
            "maxChars": _number("Characters to read at most.", 1, READ_CHARS_LIMIT, READ_CHARS),
        },
        ("entryId",),
    ),
    "context_compaction_budget": _object({}),
    "context_delete": _object(
        {
            "deletions": {
                "type": "array",
                "minItems": 1,
                "items": _DELETION,
                "description": "What goes. All of it is deleted, or, if one target may not go, none of it.",
            }
        },
        ("deletions",),
    ),
    "context_grep_delete": _object(
        {
            **_PATTERN,
            "maxMatches": _number(
                "With more matches than this nothing is deleted.", 1, GREP_MATCHES_LIMIT, GREP_MATCHES
            ),
            "expectedMatchCount": _number(
                "How many matches there should be; with another number nothing is deleted.", 0
            ),
        },
        ("pattern",),
    ),
}

_MORE: Final[Mapping[str, str]] = {
    "context_search_transcript": "Looks through everything, deleted and protected objects too: each match says "
    "whether it is protected. One match per object, its first.",
    "context_read_entry": "`truncatedAfter` says whether there is more: go on with a larger offset.",
    "context_compaction_budget": "`tokensToDeleteForTarget` is what is still to go; at 0 the run is over.",
    "context_delete": "The user's messages, errors, the last entries and what a human pinned may not go. A refusal "
    "names the target at fault: leave it out, and ask for the rest again.",
    "context_grep_delete": "The answer lists what was deleted as matches, and what was passed over as skipped, with "
    "the reason.",
}

TOOL_SCHEMAS: Final[tuple[ToolSchema, ...]] = tuple(
    ToolSchema(name, f"{tool.description} {_MORE[name]}", _PARAMETERS[name]) for name, tool in TOOLS.items()
)
"""All tools, in their order."""

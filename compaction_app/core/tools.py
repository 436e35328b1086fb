"""The five tools through which a planner works, and their descriptions for a model. It cannot act in any other way.

| tool                        | does                                                          |
|-----------------------------|---------------------------------------------------------------|
| `context_search_transcript` | finds a pattern and shows a little around it                  |
| `context_read_entry`        | reads a slice of an entry or a block                          |
| `context_compaction_budget` | reports how much still has to go                              |
| `context_delete`            | deletes entries and blocks by their ids                       |
| `context_grep_delete`       | deletes what a pattern finds, within a limit                  |

A call never raises and never ends the planner's loop: its errors are returned as its result. Numbers beyond a limit are
clamped if the tool only reads, and refused if it deletes.

TOOL_SCHEMAS describe the purpose of each tool, and its arguments as a JSON schema. The schemas are strict: they name
every argument, its limits and its default, and allow no other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import pydantic
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.jsjson import utf16_length, utf16_slice
from sessions_app.sessionlog.text import plural

from .gates import Code, Refusal
from .patterns import PATTERN_LENGTH, Pattern, compile_pattern
from .stats import Budget
from .store import DeletionStore
from .transcript import Object, TranscriptEntry

SEARCH_MATCHES, SEARCH_MATCHES_LIMIT = 20, 100
CONTEXT_CHARS, CONTEXT_CHARS_LIMIT = 160, 500
READ_CHARS, READ_CHARS_LIMIT = 4_000, 12_000
GREP_MATCHES, GREP_MATCHES_LIMIT = 50, 200

Kind = Literal["entry", "content_block"]


def _argument(default: Any, schema: dict[str, Any], **limits: Any) -> Any:
    """One argument, with its JSON schema; `limits` are those beyond which a call is refused."""
    return Field(default, json_schema_extra=schema, **limits)


def _flag(description: str) -> Any:
    return _argument(False, {"type": "boolean", "default": False, "description": description})


def _number(
    description: str, least: int, most: int | None = None, default: int | None = None, *, is_checked: bool = False
) -> Any:
    """A number. A call with one beyond the limits is refused if they are checked; otherwise the tool clamps it."""
    schema = {"type": "integer", "description": description, "minimum": least, "maximum": most, "default": default}
    limits = {"ge": least, "le": most} if is_checked else {}
    return _argument(default, {name: value for name, value in schema.items() if value is not None}, **limits)


class Arguments(BaseModel):
    """The arguments of a tool, each declared once: as it is parsed, and as a model sees it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=to_camel)

    @classmethod
    def schema_of_all(cls, *required: str) -> dict[str, Any]:
        """The JSON schema of the arguments, of which these are required."""
        properties = {field.alias: field.json_schema_extra for field in cls.model_fields.values()}
        return _object(properties, required)


def _object(properties: Mapping[Any, Any], required: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


class _PatternArguments(Arguments):
    pattern: str = _argument(
        ...,
        {
            "type": "string",
            "description": "What to look for: plain text, or a regular expression in RE2's syntax (no look-around, no "
            f"back-references) where regex is true. At most {PATTERN_LENGTH} characters; ^ and $ mean the whole text.",
            "minLength": 1,
            "maxLength": PATTERN_LENGTH,
        },
    )
    regex: bool = _flag("Whether the pattern is a regular expression.")
    case_sensitive: bool = _flag("Whether upper and lower case differ.")
    target: Kind = _argument(
        "entry",
        {
            "type": "string",
            "enum": ["entry", "content_block"],
            "default": "entry",
            "description": "What is looked through and found: whole entries, or their content blocks one by one.",
        },
    )


class SearchArguments(_PatternArguments):
    """Arguments of `context_search_transcript`."""

    max_matches: int = _number("Matches at most.", 1, SEARCH_MATCHES_LIMIT, SEARCH_MATCHES)
    context_chars: int = _number(
        "Characters shown before and after where a match begins.", 0, CONTEXT_CHARS_LIMIT, CONTEXT_CHARS
    )


class ReadArguments(Arguments):
    """Arguments of `context_read_entry`. Offsets and lengths count UTF-16 code units."""

    entry_id: str = _argument(..., {"type": "string", "description": "The id of the entry."})
    block_index: int | None = _number("One content block of it alone; else all of them, joined.", 0)
    offset: int = _number("Characters to pass over first.", 0, default=0)
    max_chars: int = _number("Characters to read at most.", 1, READ_CHARS_LIMIT, READ_CHARS)


class BudgetArguments(Arguments):
    """`context_compaction_budget` takes no arguments."""


_DELETION: Final = _object(
    {
        "kind": {
            "type": "string",
            "enum": ["entry", "content_block"],
            "description": "What goes: an entry as a whole, or one of its content blocks.",
        },
        "entryId": {
            "type": "string",
            "description": "The id of the entry, or of the entry that the block belongs to.",
        },
        "blockIndex": {
            "type": "integer",
            "description": "For a content_block, and only then: the block's index as it was recorded, from 0. An "
            "entry's only block cannot go by itself: delete the entry.",
            "minimum": 0,
        },
    },
    ("kind", "entryId"),
)


class DeleteArguments(Arguments):
    """Arguments of `context_delete`. The airlock judges the content of the list."""

    deletions: Any = _argument(
        None,
        {
            "type": "array",
            "minItems": 1,
            "items": _DELETION,
            "description": "What goes. All of it is deleted, or, if one target may not go, none of it.",
        },
    )


class GrepDeleteArguments(_PatternArguments):
    """Arguments of `context_grep_delete`."""

    max_matches: int = _number(
        "With more matches than this nothing is deleted.", 1, GREP_MATCHES_LIMIT, GREP_MATCHES, is_checked=True
    )
    expected_match_count: int | None = _number(
        "How many matches there should be; with another number nothing is deleted.", 0, is_checked=True
    )


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a planner. `arguments` is the value parsed from its JSON, of any type."""

    name: str
    arguments: Any
    reasons: Mapping[Target, str] = field(default_factory=dict)
    """The planner's reasons for the deletions that it requests, if any."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: details, a sentence for the planner, and the refusal if there was one."""

    name: str
    details: Mapping[str, Any]
    sentence: str
    refusal: Refusal | None = None


class Match(NamedTuple):
    """One object in which a pattern was found."""

    entry: TranscriptEntry
    found: Object
    block_index: int | None
    text: str

    def to_json(self) -> dict[str, Any]:
        if self.block_index is None:
            return {"entryId": self.entry.entry_id, "target": "entry"}
        return {"entryId": self.entry.entry_id, "target": "content_block", "blockIndex": self.block_index}


class Workbench:
    """The tools on one store. `context_window` is the model's, in tokens, if known."""

    def __init__(self, store: DeletionStore, context_window: int | None = None) -> None:
        self.store = store
        self.context_window = context_window
        self.call_count = 0
        self._transcript = store.transcript

    def call(self, call: ToolCall) -> ToolResult:
        """Run one call. Every call counts, even one that fails."""
        self.call_count += 1
        tool = TOOLS.get(call.name)
        if tool is None:
            known = ", ".join(TOOLS)
            refusal = Refusal(Code.UNKNOWN_TOOL, f"There is no tool of this name. Nothing was done. Use {known}.")
            return self._refused(call.name, {}, refusal)
        if not isinstance(call.arguments, dict):
            refusal = Refusal(
                Code.INVALID_ARGUMENTS,
                f"{call.name} takes its arguments as a JSON object; these are not one. Nothing was done. Make the "
                "call again.",
            )
            return self._refused(call.name, {}, refusal)
        try:
            arguments = tool.arguments.model_validate(call.arguments)
        except pydantic.ValidationError as fault:
            return self._refused(call.name, {}, _invalid_arguments(call.name, fault))
        return tool.run(self, arguments)

    @property
    def budget(self) -> Budget:
        return Budget(self._transcript.parameters.compression_ratio, self.store.stats, self.context_window)

    # ---- looking ------------------------------------------------------------------------------------------

    def search(self, arguments: SearchArguments) -> ToolResult:
        """One match for each object, its first occurrence; deleted and protected objects are also searched."""
        name = "context_search_transcript"
        details: dict[str, Any] = {**_pattern_facts(arguments), "matches": [], "truncated": False}
        pattern = _compile(arguments)
        if isinstance(pattern, Refusal):
            return self._refused(name, details, pattern)
        limit = _clamp(arguments.max_matches, 1, SEARCH_MATCHES_LIMIT)
        around = _clamp(arguments.context_chars, 0, CONTEXT_CHARS_LIMIT)
        for match in self._objects(arguments.target):
            index = pattern.index_in(match.text)
            if index is None:
                continue
            if len(details["matches"]) == limit:
                details["truncated"] = True
                break
            details["matches"].append(
                {
                    **match.to_json(),
                    "matchIndex": index,
                    "snippet": _snippet(match.text, index, around),
                    "protected": match.entry.is_protected,
                }
            )
        more = " There are more: narrow the pattern." if details["truncated"] else ""
        return self._answer(name, details, f"{plural(len(details['matches']), 'match')}.{more}")

    def read(self, arguments: ReadArguments) -> ToolResult:
        """A slice of the text of an entry or a block; an offset past the end reads nothing."""
        name = "context_read_entry"
        offset = max(0, arguments.offset)
        length = _clamp(arguments.max_chars, 1, READ_CHARS_LIMIT)
        details: dict[str, Any] = {"entryId": arguments.entry_id, "offset": offset, "maxChars": length}
        if arguments.block_index is not None:
            details["blockIndex"] = arguments.block_index
        text = self._text(arguments)
        if isinstance(text, Refusal):
            details |= {"totalChars": 0, "text": "", "truncatedBefore": False, "truncatedAfter": False}
            return self._refused(name, details, text)
        total = utf16_length(text)
        details |= {
            "totalChars": total,
            "text": utf16_slice(text, offset, offset + length),
            "truncatedBefore": offset > 0,
            "truncatedAfter": offset + length < total,
        }
        return self._answer(name, details, f"{utf16_length(details['text'])} of {total} characters.")

    def show_budget(self, arguments: BudgetArguments) -> ToolResult:
        """Tokens before and after, and the tokens still to delete."""
        del arguments
        budget = self.budget
        left = budget.tokens_to_go
        sentence = f"{left:,} tokens are still to go." if left else "The target is reached."
        return self._answer("context_compaction_budget", budget.to_json(), sentence)

    # ---- deleting -----------------------------------------------------------------------------------------

    def delete(self, arguments: DeleteArguments) -> ToolResult:
        """Delete by ids, together with the objects that belong to them."""
        refusal = self.store.delete({"deletions": arguments.deletions})
        return self._changed("context_delete", {}, refusal)

    def grep_delete(self, arguments: GrepDeleteArguments) -> ToolResult:
        """Delete the matches of a pattern. Matches that may not be deleted are skipped, reported and not counted."""
        name = "context_grep_delete"
        skipped: list[dict[str, Any]] = []
        details: dict[str, Any] = {**_pattern_facts(arguments), "matches": [], "skipped": skipped}
        pattern = _compile(arguments)
        if isinstance(pattern, Refusal):
            return self._changed(name, details, pattern)
        candidates: dict[Object, Match] = {}
        for match in self._bulk_objects(arguments.target):
            if pattern.found_in(match.text):
                reason = self._reason_to_skip(match)
                if reason is None:
                    candidates[match.found] = match
                else:
                    skipped.append({**match.to_json(), "reason": reason})
        kept, passed_over = self.store.deletable(list(candidates))
        for found in passed_over:
            match = candidates[found]
            reason = "protected_entry" if match.block_index is None else "protected_block"
            skipped.append({**match.to_json(), "reason": reason})
        details["matches"] = [candidates[found].to_json() for found in kept]
        mismatch = _count_mismatch(arguments, len(kept))
        if mismatch is not None:
            skipped.append({"reason": mismatch})
            return self._changed(name, details, None, f"Nothing was deleted: {plural(len(kept), 'match')}, {mismatch}.")
        return self._changed(name, details, self.store.delete_objects(kept) if kept else None)

    def _reason_to_skip(self, match: Match) -> str | None:
        if match.found in self.store:
            return "already_deleted"
        if match.entry.recent or self.store.airlock.is_kept(match.entry):
            return "protected_entry"
        return None

    # ---- the searched objects -----------------------------------------------------------------------------

    def _objects(self, target: Kind) -> Iterator[Match]:
        for entry in self._transcript.entries:
            if target == "entry":
                yield Match(entry, Object(entry.position), None, self._transcript.text(entry))
                continue
            for slot, block in enumerate(entry.blocks):
                text = self._transcript.block_text(entry, block)
                yield Match(entry, Object(entry.position, slot), block.index, text)

    def _bulk_objects(self, target: Kind) -> Iterator[Match]:
        """Like `_objects`, but the only block of an entry is replaced by the entry, which can be deleted."""
        for match in self._objects(target):
            entry = match.entry
            stays_a_block = self.store.airlock.is_kept(entry) and not entry.recent
            if match.block_index is not None and len(entry.blocks) == 1 and not stays_a_block:
                yield match._replace(found=Object(entry.position), block_index=None)
            else:
                yield match

    def _text(self, arguments: ReadArguments) -> str | Refusal:
        entry = self._transcript.entry(arguments.entry_id)
        index = arguments.block_index
        if index is None:
            if entry is not None:
                return self._transcript.text(entry)
            return Refusal(Code.UNKNOWN_ENTRY, "The transcript has no entry with this id. Use one that was returned.")
        slot = entry.slot(index) if entry is not None and index >= 0 else None
        if entry is None or slot is None:
            return Refusal(Code.UNKNOWN_BLOCK, "The transcript has no such block. Read the entry without blockIndex.")
        return self._transcript.block_text(entry, entry.blocks[slot])

    # ---- results ------------------------------------------------------------------------------------------

    def _changed(self, name: str, details: dict[str, Any], refusal: Refusal | None, sentence: str = "") -> ToolResult:
        details["stats"] = self.store.stats.to_json()
        if refusal is not None:
            return self._refused(name, details, refusal)
        return self._answer(name, details, sentence or self._progress())

    def _progress(self) -> str:
        budget = self.budget
        left = budget.tokens_to_go
        goal = f"{left:,} tokens are still to go." if left else "The target is reached."
        return f"{budget.deleted_tokens:,} tokens ({budget.stats.percent_reduction}%) are deleted. {goal}"

    def _answer(self, name: str, details: dict[str, Any], sentence: str) -> ToolResult:
        return ToolResult(name, {**details, "callCount": self.call_count}, sentence)

    def _refused(self, name: str, details: dict[str, Any], refusal: Refusal) -> ToolResult:
        details = {**details, "callCount": self.call_count, "error": refusal.code.value}
        return ToolResult(name, details, refusal.message, refusal)


class Tool(NamedTuple):
    """A tool: its purpose, its arguments, those that a model must give, and what runs it."""

    description: str
    arguments: type[Arguments]
    required: tuple[str, ...]
    run: Callable[[Workbench, Any], ToolResult]


TOOLS: Final[Mapping[str, Tool]] = {
    "context_search_transcript": Tool(
        f"Find a pattern in the transcript. Gives ids, where it was found and a snippet; at most "
        f"{SEARCH_MATCHES_LIMIT} matches, one per object. "
        "Looks through everything, deleted and protected objects too: each match says "
        "whether it is protected. One match per object, its first.",
        SearchArguments,
        ("pattern",),
        Workbench.search,
    ),
    "context_read_entry": Tool(
        f"Read up to {READ_CHARS_LIMIT} characters of an entry, or of one content block of it, from an offset on. "
        "`truncatedAfter` says whether there is more: go on with a larger offset.",
        ReadArguments,
        ("entryId",),
        Workbench.read,
    ),
    "context_compaction_budget": Tool(
        "Tell how many tokens there are, how many are deleted, and how many are still to go. "
        "`tokensToDeleteForTarget` is what is still to go; at 0 the run is over.",
        BudgetArguments,
        (),
        Workbench.show_budget,
    ),
    "context_delete": Tool(
        "Delete entries or content blocks by their ids. What belongs to the same tool call goes with them. "
        "The user's messages, errors, the last entries and what a human pinned may not go. A refusal "
        "names the target at fault: leave it out, and ask for the rest again.",
        DeleteArguments,
        ("deletions",),
        Workbench.delete,
    ),
    "context_grep_delete": Tool(
        f"Delete every entry or content block that a pattern is found in, at most {GREP_MATCHES_LIMIT} at once. "
        "Protected matches are passed over. State expectedMatchCount to be sure of the extent. "
        "The answer lists what was deleted as matches, and what was passed over as skipped, with "
        "the reason.",
        GrepDeleteArguments,
        ("pattern",),
        Workbench.grep_delete,
    ),
}


DELETING_TOOLS: Final = frozenset({"context_delete", "context_grep_delete"})
"""The tools that delete. A refusal by another tool does not concern deletion."""


def _compile(arguments: _PatternArguments) -> Pattern | Refusal:
    return compile_pattern(arguments.pattern, regex=arguments.regex, case_sensitive=arguments.case_sensitive)


def _pattern_facts(arguments: _PatternArguments) -> dict[str, Any]:
    return arguments.model_dump(by_alias=True, include=set(_PatternArguments.model_fields))


def _count_mismatch(arguments: GrepDeleteArguments, count: int) -> str | None:
    if arguments.expected_match_count is not None and count != arguments.expected_match_count:
        return "expected_match_count_mismatch"
    return "max_matches_exceeded" if count > arguments.max_matches else None


def _snippet(text: str, index: int, around: int) -> str:
    """The text around a match's start, with an ellipsis if it was cut. Lengths in UTF-16 code units."""
    start, end = max(0, index - around), index + around
    before = "…" if start > 0 else ""
    after = "…" if end < utf16_length(text) else ""
    return f"{before}{utf16_slice(text, start, end)}{after}"


def _invalid_arguments(name: str, fault: pydantic.ValidationError) -> Refusal:
    faults = "; ".join(
        f"{'.'.join(map(str, error['loc'])) or 'arguments'}: {error['msg']}"
        for error in fault.errors(include_url=False, include_context=False, include_input=False)
    )
    return Refusal(Code.INVALID_ARGUMENTS, f"{name} cannot take these arguments: {faults}. Nothing was done.")


def _clamp(value: int, least: int, most: int) -> int:
    return min(max(value, least), most)


class ToolSchema(NamedTuple):
    """One tool as described to a model; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


TOOL_SCHEMAS: Final[tuple[ToolSchema, ...]] = tuple(
    ToolSchema(name, tool.description, tool.arguments.schema_of_all(*tool.required)) for name, tool in TOOLS.items()
)
"""All tools, in their order."""

"""Parses the lines of a Codex rollout: header, entries and damage.

The lines of a thread with a `history_base` are those of its base files, then its own (see `RolloutReader`): the header
is that of the thread itself. An entry's id is its ordinal; in legacy files, which have none, the number of its line. If
it is not higher than those before it (an open client repeats an ordinal), the number of the line is added: `46-49`.

A `compacted` line is a boundary. Its items that equal earlier ones stand for these, in order; every other one is an
entry on the same line, named after its place: `46.3`. So is a summary without items. Rolled back turns are a boundary
that keeps what is before them, as older versions count turns; what goes with them depends on the version, and is left
to the reader.

The answer with a summary may be recorded before the boundary, as any other: newer versions do. It is recognised by its
text, with which the boundary's message ends.

A line that cannot be used is skipped, as Codex skips it, but it is counted and shown: also one with bytes that are not
UTF-8, or with a lone surrogate.

    line ──parse──▶ object ──describe_line──▶ (Entry, Texts)
    item of a compacted line ──describe_item──▶ (Entry, Texts)

Every object becomes an entry, whatever its fields contain. Only the items of ITEMS that have the fields that Codex
requires make the conversation: it skips a line with any other item, and never sends a ghost snapshot.

`ItemHistory` has the items of a thread as its lines are read: which are in the conversation now, and which of them an
item repeats. Everything is kept as JSON values in the dictionary of a `ParserState`, so that reading continues where it
ended. Items are named by their places in the order of recording.
"""

from __future__ import annotations

import itertools
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from sessions_app.agents.pure import fields
from sessions_app.sessionlog import jsjson
from sessions_app.sessionlog.entries import (
    ENCRYPTED,
    NO_TEXTS,
    Block,
    BlockType,
    BoundaryControl,
    Entry,
    EntryKind,
    ModelControl,
    Role,
    Texts,
    tokens_of,
)
from sessions_app.sessionlog.opaque import Opaque
from sessions_app.sessionlog.session import DamageKind, Header, LineParser, Recorded, released_version
from sessions_app.sessionlog.tree import SessionTree

KEY: Final = "codex"
SUMMARY_OPENING: Final = (400, "a6684d9425a97ca71def32dc")
"""The length and digest of the introduction of Codex's summaries, by which Codex recognises them."""
REASONING: Final = "reasoning"
COMPACTED: Final = "compacted"
"""The type of the line that a compaction writes, and of its summary if the line has no items."""
SPAWN: Final = "spawn_agent"
"""The tool that starts a subagent."""
PASSTHROUGH: Final = "internal_chat_message_metadata_passthrough"
METADATA: Final = frozenset({PASSTHROUGH, "metadata"})
"""The metadata fields of an item."""
INJECTED_KIND: Final = "environments."
INJECTED_TEXTS: Final = (
    "# AGENTS.md instructions",
    "<environment_context>",
    "<skill>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_instructions>",
    "<user_shell_command>",
)
"""How texts begin that Codex adds in the role of the user, ignoring case and leading blanks. They are not prompts:
rollbacks do not count them, and summaries without items do not keep them."""
_INJECTED_TEXTS: Final = tuple(map(str.lower, INJECTED_TEXTS))
_LONGEST_OPENING: Final = max(map(len, INJECTED_TEXTS))
_TEXTS: Final = frozenset({"input_text", "output_text", "summary_text", "reasoning_text", "text"})


class ItemKind(NamedTuple):
    """A kind of conversation item: how it is described, and its required fields, without which Codex skips it."""

    describe: Callable[[Mapping[str, Any]], _Content]
    required: Mapping[str, type | tuple[type, ...]]


_Content = tuple[Mapping[str, Any], Texts]
"""The contribution of an item to the conversation: fields of its entry, and its texts."""


def _content(role: str, blocks: tuple[Block, ...] | None, texts: Texts, units: int, **more: str) -> _Content:
    return {"role": role, "blocks": blocks, "tokens": tokens_of(units), **more}, texts


def describe_line(data: Mapping[str, Any], common: Mapping[str, Any], provider: str) -> tuple[Entry, Texts]:
    """The entry of a whole line. `common` has its position and ids; `provider` is that of the session's models."""
    recorded_type, content = fields.word(data, "type"), fields.mapping(data, "payload")
    common = {**common, "timestamp": fields.stored_text(data, "timestamp")}
    if recorded_type == "response_item":
        return describe_item(content, common)
    if recorded_type == "event_msg":
        recorded_type = fields.word(content, "type") or recorded_type
    if recorded_type == "turn_context" and (model := fields.model(provider, content.get("model"))) is not None:
        control = ModelControl("", model[1])
        entry = Entry(**common, type=recorded_type, kind=EntryKind.MODEL, model=model, control=control)
        return entry, NO_TEXTS
    kind = LINE_KINDS.get(recorded_type, EntryKind.OFF_BRANCH)
    if kind is EntryKind.OFF_BRANCH:
        common["parent_id"] = None
    return Entry(**common, type=recorded_type, kind=kind), NO_TEXTS


LINE_KINDS: Final = {
    "session_meta": EntryKind.OTHER,
    "world_state": EntryKind.OTHER,
    "turn_context": EntryKind.OTHER,
    "compacted": EntryKind.BOUNDARY,
    "thread_rolled_back": EntryKind.BOUNDARY,
}
"""Kinds of lines that belong to the conversation but are not items. No other lines are part of it."""
KNOWN_TYPES: Final = frozenset({"session_meta", "response_item", "compacted", "turn_context", "event_msg"})
"""The types of lines that show that a file is a rollout."""


def describe_item(item: Mapping[str, Any], common: Mapping[str, Any]) -> tuple[Entry, Texts]:
    """The entry of a Responses item."""
    recorded_type = fields.word(item, "type")
    known = ITEMS.get(recorded_type)
    if known is None or not all(isinstance(item.get(name), kind) for name, kind in known.required.items()):
        entry = Entry(**common, type=recorded_type or "response_item", kind=EntryKind.OTHER)
        return entry, NO_TEXTS
    content, texts = known.describe(item)
    return Entry(**common, type=recorded_type, kind=EntryKind.MESSAGE, **content), texts


def describe_summary(text: str, common: Mapping[str, Any]) -> tuple[Entry, Texts]:
    """The summary of a compacted line that has no items."""
    tokens = tokens_of(jsjson.utf16_length(text))
    entry = Entry(**common, type=COMPACTED, kind=EntryKind.MESSAGE, role=Role.COMPACTION_SUMMARY, tokens=tokens)
    return entry, Texts(whole=text, blocks=())


def digest_of_text(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def summary_item(text: str) -> dict[str, Any]:
    """The item that Codex makes of the summary of a compacted line without items."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def without_metadata(item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an item that the model receives."""
    return {name: value for name, value in item.items() if name not in METADATA}


# ---- items -----------------------------------------------------------------------------------------------


def _message(item: Mapping[str, Any]) -> _Content:
    role = fields.word(item, "role")
    is_injected = role == "developer" or (role == "user" and _is_injected(item))
    return _content(Role.INJECTED if is_injected else role, *_describe_content(item["content"]))


def _is_injected(item: Mapping[str, Any]) -> bool:
    """Whether Codex itself added a message in the role of the user."""
    kinds = fields.texts(fields.mapping(item, PASSTHROUGH), "content_item_kinds")
    if any(kind.startswith(INJECTED_KIND) for kind in kinds):
        return True
    text = fields.text(fields.as_mapping(item["content"][0]), "text") if item["content"] else ""
    return text.lstrip()[:_LONGEST_OPENING].lower().startswith(_INJECTED_TEXTS)


def _reasoning(item: Mapping[str, Any]) -> _Content:
    """The reasoning as one block: its text and summary, or encrypted data."""
    text = "\n\n".join([*_texts_in(item, "content"), *_texts_in(item, "summary")])
    encrypted = fields.text_or_none(item, "encrypted_content")
    opaque = () if text or encrypted is None else (Opaque.encrypted(encrypted, 0),)
    units = opaque[0].units if opaque else jsjson.utf16_length(text)
    block = Block.of(0, BlockType.THINKING if text else BlockType.REDACTED_THINKING, units)
    return _content(Role.ASSISTANT, (block,), Texts(None, (text,), opaque), units)


def _call(item: Mapping[str, Any], name: str, arguments: str) -> _Content:
    call_id = fields.stored_text(item, "call_id") or None
    block, text = Block.of_call(0, call_id, name, arguments, shown_id=f"{call_id}")
    tool_name = sys.intern(jsjson.well_formed(name))
    return _content(Role.ASSISTANT, (block,), Texts(whole=None, blocks=(text,)), block.units, tool_name=tool_name)


def _output(item: Mapping[str, Any]) -> _Content:
    output = item.get("output", item.get("tools"))
    if isinstance(output, list):
        blocks, texts, units = _describe_content(output)
    else:
        text = output if isinstance(output, str) else jsjson.stringify(output)
        blocks, texts, units = None, Texts(whole=text, blocks=()), jsjson.utf16_length(text)
    return _content(Role.TOOL_RESULT, blocks, texts, units, result_for=fields.stored_text(item, "call_id"))


def _step(item: Mapping[str, Any]) -> _Content:
    """An action of the model without a separate result: a web search, an image."""
    text = jsjson.stringify({name: value for name, value in without_metadata(item).items() if name != "result"})
    image = (Opaque.image(item["result"], 0, text),) if "result" in item else ()
    units = image[0].units if image else jsjson.utf16_length(text)
    block = Block.of(0, fields.word(item, "type"), units)
    return _content(Role.ASSISTANT, (block,), Texts(None, (text,), image), units)


def _compaction(item: Mapping[str, Any]) -> _Content:
    """A compaction that only its provider can read."""
    opaque = Opaque.encrypted(item["encrypted_content"], label=ENCRYPTED)
    return _content(Role.COMPACTION_SUMMARY, None, Texts(ENCRYPTED, (), (opaque,)), opaque.units)


def _tools(item: Mapping[str, Any]) -> _Content:
    text = jsjson.stringify(item["tools"])
    return _content(Role.INJECTED, None, Texts(whole=text, blocks=()), jsjson.utf16_length(text))


ITEMS: Final[Mapping[str, ItemKind]] = {
    "message": ItemKind(_message, {"role": str, "content": list}),
    "reasoning": ItemKind(_reasoning, {"summary": list}),
    "function_call": ItemKind(
        lambda item: _call(item, item["name"], item["arguments"]), {"name": str, "arguments": str, "call_id": str}
    ),
    "function_call_output": ItemKind(_output, {"call_id": str, "output": (str, list, dict)}),
    "custom_tool_call": ItemKind(
        lambda item: _call(item, item["name"], item["input"]), {"name": str, "input": str, "call_id": str}
    ),
    "custom_tool_call_output": ItemKind(_output, {"call_id": str, "output": (str, list, dict)}),
    "local_shell_call": ItemKind(
        lambda item: _call(item, "local_shell", jsjson.stringify(item["action"])), {"action": dict}
    ),
    "tool_search_call": ItemKind(
        lambda item: _call(item, "tool_search", jsjson.stringify(item.get("arguments"))), {"execution": str}
    ),
    "tool_search_output": ItemKind(_output, {"call_id": str, "tools": list}),
    "web_search_call": ItemKind(_step, {}),
    "image_generation_call": ItemKind(_step, {"result": str}),
    "compaction": ItemKind(_compaction, {"encrypted_content": str}),
    "compaction_summary": ItemKind(_compaction, {"encrypted_content": str}),
    "context_compaction": ItemKind(_compaction, {"encrypted_content": str}),
    "agent_message": ItemKind(
        lambda item: _content(Role.CUSTOM, *_describe_content(item["content"])), {"content": list}
    ),
    "additional_tools": ItemKind(_tools, {"tools": list}),
}
"""The kinds of items that Codex sends, by type."""
CONTENT_IN: Final = {
    "message": "content",
    "agent_message": "content",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
    "tool_search_output": "tools",
}
"""The field whose array is divided into blocks, by type of item."""


def _describe_content(content: list[Any]) -> tuple[tuple[Block, ...], Texts, int]:
    """The blocks of an array, their texts, and its total of UTF-16 units."""
    described = [_describe_block(part, index) for index, part in enumerate(content)]
    blocks = tuple(block for block, _, _ in described)
    texts = tuple(text for _, text, _ in described)
    opaque = tuple(found for _, _, found in described if found is not None)
    return blocks, Texts(None, texts, opaque), sum(block.units for block in blocks)


def _describe_block(part: object, index: int) -> tuple[Block, str, Opaque | None]:
    """A part of a content as a block, its text, and what of it is not text."""
    found_part = fields.as_mapping(part)
    kind = fields.word(found_part, "type")
    if kind in _TEXTS and (text := fields.text_or_none(found_part, "text")) is not None:
        return Block.of(index, BlockType.TEXT, jsjson.utf16_length(text)), text, None
    if kind in ("input_image", "encrypted_content"):
        # An image, or what one agent sent to another and only the provider can read.
        if kind == "input_image":
            block_type, found = BlockType.IMAGE, Opaque.image(fields.text(found_part, "image_url"), index)
        else:
            block_type, found = kind, Opaque.encrypted(fields.text(found_part, kind), index, ENCRYPTED)
        return Block.of(index, block_type, found.units), found.label, found
    text = jsjson.stringify(part)
    return Block.of(index, kind or BlockType.UNKNOWN, jsjson.utf16_length(text)), text, None


def _texts_in(item: Mapping[str, Any], name: str) -> Iterator[str]:
    return filter(None, (fields.text(part, "text") for part in fields.objects(item, name)))


_DIGEST_BYTES: Final = 12
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def digest_of(item: Mapping[str, Any]) -> str:
    """A digest of an item without its metadata."""
    content = without_metadata(item)
    try:
        encoded = _encode(content)
    except (UnicodeEncodeError, OverflowError):
        # Lone surrogates and huge numbers.
        encoded = jsjson.canonical(content).encode("utf-8", "surrogatepass")
    return blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()


class _EqualItems:
    """The places of equal items, in the order of recording; each place can be taken once."""

    def __init__(self, places: Sequence[int]) -> None:
        self._places = places
        self._taken: set[int] = set()
        self._first = 0
        """All before this one are taken."""

    def take(self, place: int) -> int | None:
        """Take this place if it is one of them and free; otherwise None."""
        at = bisect_left(self._places, place)
        is_free = self._places[at : at + 1] == [place] and place not in self._taken
        return self._took(place) if is_free else None

    def take_after(self, last: int) -> int | None:
        """Take the first free place after another one, or else the first free place."""
        while self._first < len(self._places) and self._places[self._first] in self._taken:
            self._first += 1
        start = max(self._first, bisect_right(self._places, last))
        places = map(self._places.__getitem__, range(start, len(self._places)))
        free = next((place for place in places if place not in self._taken), None)
        if free is None and self._first < len(self._places):
            free = self._places[self._first]
        return self._took(free) if free is not None else None

    def _took(self, place: int) -> int:
        self._taken.add(place)
        return place


def _own(extra: dict[str, Any], name: str, empty: Any) -> Any:
    """A value of the state of a parser, copied: its previous holder may read on from it."""
    extra[name] = type(empty)(extra.get(name, empty))
    return extra[name]


class ItemHistory:
    """The items of a thread so far."""

    def __init__(self, extra: dict[str, Any]) -> None:
        self._ids: list[str] = _own(extra, "ids", [])
        self._by_digest: dict[str, list[int]] = _own(extra, "by_digest", {})
        for digest, places in self._by_digest.items():
            self._by_digest[digest] = list(places)
        self._prompts: list[int] = _own(extra, "prompts", [])
        self._summaries: list[int] = _own(extra, "summaries", [])
        """Prompts that are Codex's own summaries. Its next summary leaves them out."""
        self._now: list[int] = _own(extra, "now", [])

    def add(self, entry: Entry, item: Mapping[str, Any]) -> None:
        """Record the next item, at the end of the conversation."""
        self._now.append(self._record(entry, digest_of(item)))

    def replace(self, kept: Iterable[tuple[Entry, str] | int]) -> None:
        """Make these items the conversation: earlier ones by their places, new ones with their digests."""
        self._now[:] = [one if isinstance(one, int) else self._record(*one) for one in kept]

    def places_of(self, digests: Sequence[str], names: Sequence[object] = ()) -> list[int | None]:
        """For each digest, the place of the earlier item that it repeats; None if there is none.

        Of several equal items the one with the id in `names` is taken, otherwise the next one in the order of
        recording; each only once.
        """
        known = {entry_id: place for place, entry_id in enumerate(self._ids)} if names else {}
        equal = {digest: _EqualItems(self._by_digest.get(digest, [])) for digest in digests}
        found: list[int | None] = []
        last = -1
        for digest, name in itertools.zip_longest(digests, names[: len(digests)]):
            named = known.get(name) if isinstance(name, str) else None
            # If the named item has another digest, this one is what remains of it.
            place = equal[digest].take(named) if named is not None else equal[digest].take_after(last)
            found.append(place)
            last = last if place is None else place
        return found

    def leave_out_of_summaries(self) -> None:
        """Mark the last item as a summary in Codex's own words, which Codex recognises."""
        self._summaries.append(self._now[-1])

    def id_of(self, place: int) -> str:
        return self._ids[place]

    def roll_back(self, turns: int) -> list[str]:
        """Cut the conversation before the last `turns` prompts; returns the ids of the remaining items."""
        prompts = set(self._prompts)
        starts = [at for at, place in enumerate(self._now) if place in prompts]
        if turns > 0 and starts:
            del self._now[starts[max(0, len(starts) - turns)] :]
        return [self._ids[place] for place in self._now]

    def prompts(self) -> list[int]:
        """The prompts in the conversation, without Codex's own summaries."""
        prompts = set(self._prompts) - set(self._summaries)
        return [place for place in self._now if place in prompts]

    def _record(self, entry: Entry, digest: str) -> int:
        place = len(self._ids)
        self._ids.append(entry.id)
        self._by_digest.setdefault(digest, []).append(place)
        # A summary of a line without items is a message of the user for Codex.
        if entry.role == Role.USER or entry.type == COMPACTED:
            self._prompts.append(place)
        return place


VERSION: Final = 1
"""The format version; Codex does not number its format."""
WINDOW_LIMIT: Final = 1 << 31
ROLLED_BACK: Final = "thread_rolled_back"
SUMMARISED: Final = "compacted without items"
"""The trigger of boundaries whose content the reader determines."""
HISTORY_FIELD: Final = "replacement_history"
IS_NUMBERED: Final = "is_numbered"
"""The key in `ParserState.extra` for whether the last line has an ordinal."""
IS_PAGINATED: Final = "is_paginated"
"""The key in `ParserState.extra` for whether every line must have an ordinal."""
CLIENT: Final = "client"
"""The key in `ParserState.extra` for the version of the client that began the file; an empty one is unreadable."""
PROVENANCE: Final = "redline"
"""The key under which Redline adds data to a payload; Codex ignores it."""


@dataclass(slots=True)
class RolloutParser(LineParser):
    """Parses the lines of a rollout; a compacted line also has an entry for each new item in it."""

    blanks: ClassVar[bytes] = b" \t\r\n"

    _history: ItemHistory = field(init=False)
    _open_calls: dict[str, str] = field(init=False)
    """The names of the tools of calls without an output, by the id of the call."""
    _started_agents: dict[str, str] = field(init=False)
    """The threads of the subagents that such calls started, by the id of the call."""

    def __post_init__(self) -> None:
        self.state.extra = dict(self.state.extra)
        self._history = ItemHistory(self.state.extra)
        self._open_calls = _own(self.state.extra, "open_calls", {})
        self._started_agents = _own(self.state.extra, "started_agents", {})

    @staticmethod
    def decode(raw: bytes) -> Any:
        return jsjson.parse_well_formed(raw)

    def read_object(self, data: dict[str, Any], line: jsjson.Line) -> tuple[Recorded, ...]:
        state = self.state
        state.version = VERSION
        recorded_type = fields.word(data, "type")
        state.recognised = state.recognised or (recorded_type in KNOWN_TYPES and isinstance(data.get("payload"), dict))
        payload = fields.mapping(data, "payload")
        if recorded_type == "session_meta":
            self._read_header(payload, line)
        common = {
            "number": line.number,
            "offset": line.offset,
            "length": len(line.raw),
            "id": self._next_id(data, line),
            "parent_id": state.previous_id,
        }
        entry, texts = describe_line(data, common, state.extra.get("provider", ""))
        if entry.is_off_branch:
            info = payload.get("info")
            window = fields.whole_number(info if isinstance(info, dict) else payload, "model_context_window") or 0
            state.window = window if 0 < window < WINDOW_LIMIT else state.window
            # The call that started a subagent: in newer versions, its output does not name the thread.
            item = fields.mapping(payload, "item")
            call_id, thread_id = fields.text_or_none(item, "id"), fields.text_or_none(item, "agent_thread_id")
            if item.get("kind") == "started" and call_id is not None and thread_id is not None:
                self._started_agents[call_id] = thread_id
            usage = self._new_report(entry.type, payload)
            if usage is not None:
                entry = msgspec.structs.replace(entry, usage=usage)
            return (Recorded(entry, texts, data),)
        state.previous_id = entry.id
        if entry.is_message:
            entry = self._named(entry)
            if entry.tool_name == SPAWN and entry.result_for is not None:
                output = fields.object_in((texts.whole or "").encode("utf-8", "replace")) or {}
                subagent = fields.stored_text(output, "agent_id") or entry.subagent
                entry = msgspec.structs.replace(entry, subagent=subagent)
            self._history.add(entry, payload)
            self.state.extra["answer"] = _answer(entry, texts, self.state.extra.get("answer"))
        elif entry.kind is EntryKind.BOUNDARY:
            return self._read_boundary(entry, data, line)
        return (Recorded(entry, texts, data),)

    @staticmethod
    def reparse(raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        """The entry at a position that is read again; None if there is none. `place` has the position, and the data
        that comes from other lines.
        """
        try:
            data = jsjson.parse(raw)
        except ValueError:
            return None
        common = place.position()
        if is_part(place.id):
            common["timestamp"] = place.timestamp
            if isinstance(data, str):
                return describe_summary(data, common)
        if not isinstance(data, dict):
            return None
        entry, texts = describe_item(data, common) if is_part(place.id) else describe_line(data, common, "")
        role = place.role if place.role == Role.COMPACTION_SUMMARY else entry.role
        return msgspec.structs.replace(entry, tool_name=place.tool_name, subagent=place.subagent, role=role), texts

    def _named(self, entry: Entry) -> Entry:
        """An output entry, with the name of the called tool and the thread of the subagent that it started."""
        open_calls = self._open_calls
        if entry.result_for is not None:
            return msgspec.structs.replace(
                entry,
                tool_name=open_calls.pop(entry.result_for, ""),
                subagent=self._started_agents.pop(entry.result_for, ""),
            )
        for call_id in entry.call_ids():
            open_calls[call_id] = entry.tool_name
        return entry

    def _next_id(self, data: Mapping[str, Any], line: jsjson.Line) -> str:
        extra = self.state.extra
        ordinal = fields.whole_number(data, "ordinal")
        extra[IS_NUMBERED] = ordinal is not None
        if ordinal is not None:
            extra["ordinal"] = ordinal
        place = line.number if ordinal is None else ordinal
        if place <= extra.get("last", -1):
            return f"{place}-{line.number}"
        extra["last"] = place
        return str(place)

    def _read_header(self, meta: Mapping[str, Any], line: jsjson.Line) -> None:
        if self.state.header is not None and not isinstance(meta.get("history_base"), dict):
            return  # that of the thread of which an old client copied the lines
        if line.offset == 0 and isinstance(meta.get("history_base"), dict):
            self.report(
                DamageKind.MISSING_PARENT, line, "the thread that it is based on is missing, or shorter than it was"
            )
        extra = self.state.extra
        extra["own_offset"] = line.offset
        extra[IS_PAGINATED] = meta.get("history_mode") == "paginated"
        extra["provider"] = fields.word(meta, "model_provider")
        extra[CLIENT] = list(released_version(fields.stored_text(meta, "cli_version")))
        self.state.header = header_of(meta)

    def _new_report(self, recorded_type: str, payload: Mapping[str, Any]) -> int | None:
        """The token usage of the last request and its answer, if the line is the first to report it."""
        if recorded_type == "token_usage_record":
            tokens, so_far = _total(payload, "usage"), _total(payload, "thread_token_usage")
        elif recorded_type == "token_count" and isinstance(info := payload.get("info"), dict):
            tokens, so_far = _total(info, "last_token_usage"), _total(info, "total_token_usage")
        else:
            return None
        if so_far is not None and so_far == self.state.extra.get("reported"):
            return None
        self.state.extra["reported"] = so_far
        return tokens

    def _read_boundary(self, entry: Entry, data: dict[str, Any], line: jsjson.Line) -> tuple[Recorded, ...]:
        payload = fields.mapping(data, "payload")
        answer = self.state.extra.pop("answer", None)
        if entry.type == ROLLED_BACK:
            turns = fields.whole_number(payload, "num_turns") or 0
            kept = tuple(self._history.roll_back(turns))
            control = BoundaryControl(kept, trigger=ROLLED_BACK, turns=turns)
            return (Recorded(msgspec.structs.replace(entry, control=control), NO_TEXTS, data),)
        began_id = _began_id(answer, payload.get("message"))
        read_as = self._read_items if isinstance(payload.get(HISTORY_FIELD), list) else self._read_summary
        return read_as(entry, data, line, began_id)

    def _read_items(
        self, entry: Entry, data: dict[str, Any], line: jsjson.Line, began_id: str | None
    ) -> tuple[Recorded, ...]:
        payload = fields.mapping(data, "payload")
        objects = [one if isinstance(one, dict) else {} for one in payload[HISTORY_FIELD]]
        digests = list(map(digest_of, objects))
        places = self._history.places_of(digests, names_of(payload))
        spans: list[jsjson.Span] = []
        if None in places:
            at = jsjson.members(line.raw)["payload"].start
            spans = jsjson.items(line.raw, jsjson.members(line.raw, at)[HISTORY_FIELD].start)
        parts: list[Recorded] = []
        kept: list[tuple[Entry, str] | int] = []
        ids: list[str] = []
        for index, (item, digest, place) in enumerate(zip(objects, digests, places, strict=True)):
            if place is not None:
                kept.append(place)
                ids.append(self._history.id_of(place))
                continue
            part, texts = describe_item(item, self._part(entry, index + 1, spans[index]))
            part = self._named(_as_summary(part, texts, payload.get("message")))
            parts.append(Recorded(part, texts, item))
            if part.is_message:
                kept.append((part, digest))
                ids.append(part.id)
        self._history.replace(kept)
        boundary = _with_control(entry, ids, entry.type, began_id)
        return (Recorded(boundary, NO_TEXTS, data), *parts)

    def _read_summary(
        self, entry: Entry, data: dict[str, Any], line: jsjson.Line, began_id: str | None
    ) -> tuple[Recorded, ...]:
        prompts = self._history.prompts()
        ids = [self._history.id_of(place) for place in prompts]
        message = fields.text_or_none(fields.mapping(data, "payload"), "message")
        if message is None:
            return (Recorded(msgspec.structs.replace(entry, kind=EntryKind.OTHER), NO_TEXTS, data),)
        payload = jsjson.members(line.raw)["payload"]
        part, texts = describe_summary(
            message, self._part(entry, 1, jsjson.members(line.raw, payload.start)["message"])
        )
        self._history.replace([*prompts, (part, digest_of(summary_item(message)))])
        length, digest = SUMMARY_OPENING
        if digest_of_text(message[:length]) == digest:
            self._history.leave_out_of_summaries()
        boundary = _with_control(entry, [*ids, part.id], SUMMARISED, began_id)
        return Recorded(boundary, NO_TEXTS, data), Recorded(part, texts, summary_item(message))

    def _part(self, boundary: Entry, place: int, span: jsjson.Span) -> dict[str, Any]:
        """The common fields of an entry that is a part of a line."""
        part_id = f"{boundary.id}.{place}"
        parent_id, self.state.previous_id = self.state.previous_id, part_id
        return {
            "number": boundary.number,
            "offset": boundary.offset + span.start,
            "length": span.end - span.start,
            "id": part_id,
            "parent_id": parent_id,
            "timestamp": boundary.timestamp,
        }


def header_of(meta: Mapping[str, Any]) -> Header:
    """The header in a payload. Its parent is the thread that it continues, or that started it, by its id."""
    own_id = fields.stored_text(meta, "id")
    parent = (
        fields.stored_text(meta, "forked_from_id")
        or fields.stored_text(fields.mapping(meta, "history_base"), "thread_id")
        or fields.stored_text(meta, "parent_thread_id")
    )
    return Header(
        id=own_id,
        version=VERSION,
        cwd=fields.stored_text(meta, "cwd"),
        timestamp=fields.stored_text(meta, "timestamp"),
        parent_session=parent if parent != own_id else "",
        is_subagent="subagent" in fields.mapping(meta, "source"),
    )


def names_of(payload: Mapping[str, Any]) -> list[object]:
    """The ids of the entries for which the items of a compacted line stand, as recorded by Redline."""
    return fields.items(fields.mapping(payload, PROVENANCE), "items")


def is_part(entry_id: str) -> bool:
    """Whether an entry is a part of its line."""
    return "." in entry_id


def _as_summary(part: Entry, texts: Texts, message: object) -> Entry:
    """The entry with the role of a summary, if its text is the summary of Codex's own compaction."""
    if not message or part.role != Role.USER or texts.joined(part.blocks) != message:
        return part
    return msgspec.structs.replace(part, role=Role.COMPACTION_SUMMARY)


def _answer(entry: Entry, texts: Texts, before: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The state kept for the latest answer, given the previous one: its first item, which may be reasoning, and the
    length and digest of its text. None if the entry is not part of an answer.
    """
    if entry.role != Role.ASSISTANT or entry.type not in (REASONING, "message"):
        return None
    first = before["id"] if before is not None and not before["length"] else entry.id
    text = texts.joined(entry.blocks) if entry.type == "message" else ""
    return {"id": first, "length": len(text), "digest": digest_of_text(text)}


def _began_id(answer: Mapping[str, Any] | None, message: object) -> str | None:
    """The id of the first item of the latest answer, if a boundary's message ends with the text of the answer."""
    if answer is None or not answer["length"] or not isinstance(message, str):
        return None
    first: str = answer["id"]
    return first if digest_of_text(message[-answer["length"] :]) == answer["digest"] else None


def _with_control(entry: Entry, kept: list[str], trigger: str, began_id: str | None) -> Entry:
    control = BoundaryControl(tuple(kept), trigger=trigger, began_id=began_id)
    return msgspec.structs.replace(entry, control=control)


def _total(payload: Mapping[str, Any], name: str) -> int | None:
    """The tokens in a report of usage."""
    return fields.whole_number(fields.mapping(payload, name), "total_tokens")


def thread_tree(entries: Sequence[Entry]) -> SessionTree:
    """The tree of a thread. Each usage report is assigned to the answer before it."""
    reported = list(entries)
    answer = None
    for place, entry in enumerate(entries):
        if entry.is_off_branch:
            if entry.usage and answer is not None:
                reported[answer] = msgspec.structs.replace(reported[answer], usage=entry.usage)
                answer = None
        elif entry.is_message and entry.role == Role.ASSISTANT:
            answer = place
    return SessionTree(reported)

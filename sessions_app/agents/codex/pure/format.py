"""PURE: the format of Codex, and what Codex's model sees of a thread: rules 1 to 10, measured with 0.104 and 0.169.

 1  a line that does not parse is skipped                                        `parser`
 2  the lines of a `history_base` come first, up to its end                      `RolloutReader`
 3  the items of the newest `compacted` line, then every later item              `CodexReader`
 4  a `compacted` line without items: the text of the user's messages so far,    `CodexReader`
    the newest 20,000 tokens of them, then its message; no earlier summary of Codex's
 5  a rollback cuts before the n-th last message of the user; 0.169 also drops   `CodexReader`
    the context that was added directly before it; for 0.104 a summary of
    rule 4 is such a message
 6  an output without a call is left out; a call without an output is answered   `sent_items`
    directly after it
 7  an item is sent without its metadata; its id is sent by 0.169 only           `item_json`
 8  the base instructions come first; they are not in the conversation           not read
 9  context that Codex adds itself comes last, unless a `turn_context` and a     not read; `compacted` keeps
    full `world_state` follow the newest `compacted` line                        what decides this
10  what a failed or interrupted turn recorded counts                            no rule is needed

Worked example: items 1 to 6, then a line 7 whose items are 1, 4 and a new one, then item 8. The parser has made the
boundary 7 with `kept` = 1, 4, 7.3 and the entry 7.3. The context is 1, 4, 7.3, 8.

What a plan may delete: providers may refuse a conversation in which reasoning has lost the item that follows it, or
that item its reasoning. So

    reasoning             is deleted only with everything up to the next message of the user
    what follows it       is deleted only with the reasoning

Example: user, reasoning 1, message, call, output, reasoning 2, answer. The call and its output may be deleted. The
answer takes reasoning 2 with it; the message takes reasoning 1, and so everything after it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from sessions_app.agents.pure import fields
from sessions_app.agents.pure.formats import Format, Generation, PlanRules, Reader
from sessions_app.sessionlog.context import ActiveContext, Message, Sending, newest_of
from sessions_app.sessionlog.diagnosis import Severity
from sessions_app.sessionlog.entries import BlockType, BoundaryControl, Entry, EntryKind, Protection, Role, tokens_of
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.session import Damage, DamageKind, ParserState, RecordedVersion
from sessions_app.sessionlog.tree import SessionTree

from .parser import (
    CLIENT,
    COMPACTED,
    CONTENT_IN,
    IS_NUMBERED,
    IS_PAGINATED,
    KEY,
    REASONING,
    ROLLED_BACK,
    SUMMARISED,
    RolloutParser,
    is_part,
    summary_item,
    thread_tree,
    without_metadata,
)
from .writers import CompactedWriter, FullerList, ThreadForkWriter

SENDING: Final = Sending(fills_unanswered_calls=True, drops_stray_results=True, pairs_anywhere=True)
PROMPT_TOKENS: Final = 20_000
"""The maximum tokens of user messages that remain after a summary without items (rule 4)."""


class CodexReader(Reader):
    """Reads the contexts of Codex 0.169 and older versions. At a rollback, older ones keep the added context, and count
    a summary without items as a message of the user.
    """

    honours = frozenset({EntryKind.BOUNDARY})

    def __init__(self, name: str, *, is_older: bool) -> None:
        self.name = name
        self._is_older = is_older

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        history: list[Message] = []
        by_id = {entry.id: entry for entry in branch if entry.is_message}
        for entry in branch:
            if isinstance(entry.control, BoundaryControl):
                history = self._after(entry.control, history, by_id)
            elif entry.is_message and not is_part(entry.id):
                history.append(Message.of(entry))
        return ActiveContext(self.name, tuple(history), newest_of(branch, self.honours), sending=SENDING)

    def _after(self, control: BoundaryControl, history: Sequence[Message], by_id: dict[str, Entry]) -> list[Message]:
        """The conversation after a boundary."""
        if control.trigger == ROLLED_BACK:
            return self._rolled_back(control, history)
        kept = [Message.of(by_id[entry_id]) for entry_id in control.kept if entry_id in by_id]
        return _prompts_within_budget(kept) if control.trigger == SUMMARISED else kept

    def _rolled_back(self, control: BoundaryControl, history: Sequence[Message]) -> list[Message]:
        starts = [
            place
            for place, message in enumerate(history)
            if message.role == Role.USER or (self._is_older and message.entry.type == COMPACTED)
        ]
        if not (control.turns and starts):
            return list(history)
        left = list(history[: starts[max(0, len(starts) - control.turns)]])
        while not self._is_older and left and left[-1].role == Role.INJECTED:
            left.pop()
        return left


def _prompts_within_budget(kept: Sequence[Message]) -> list[Message]:
    """The newest of the user's messages, without images, then the summary. Codex truncates the first message that does
    not fit; here it is included in full.
    """
    *prompts, summary = map(_text_of, kept)
    budget = PROMPT_TOKENS
    left = []
    for message in reversed(prompts):
        if budget <= 0:
            break
        left.append(message)
        budget -= message.tokens
    return [*reversed(left), summary]


def _text_of(message: Message) -> Message:
    if message.blocks is None:
        return message
    blocks = tuple(block for block in message.blocks if block.type == BlockType.TEXT)
    return msgspec.structs.replace(message, blocks=blocks, tokens=tokens_of(sum(block.units for block in blocks)))


class CodexRules(PlanRules):
    """Only content that the model sees can be deleted; for reasoning see above. No provider compares reasoning: it is
    encrypted as a whole.
    """

    protected_roles: ClassVar = {**PlanRules.protected_roles, Role.INJECTED: Protection.INJECTED}

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        """For each reasoning: the items up to the next one, and that one. For the item after a reasoning: the
        reasoning.
        """
        found: dict[str, tuple[str, ...]] = {}
        stretch: list[str] = []
        for message in messages:
            entry = message.entry
            if entry.role == Role.USER:
                _join(found, stretch)
                stretch = []
                continue
            if entry.type == REASONING:
                _join(found, [*stretch, entry.id])
                stretch = [entry.id]
            elif stretch and entry.role != Role.INJECTED:
                stretch.append(entry.id)
        _join(found, stretch)
        return found


def _join(found: dict[str, tuple[str, ...]], stretch: Sequence[str]) -> None:
    """Join the reasoning at the start of a stretch with all of it, and the item after it with the reasoning."""
    if len(stretch) < 2:
        return
    reasoning, follower, *_ = stretch
    found[reasoning] = (*stretch[1:], *found.get(reasoning, ()))
    found[follower] = (*found.get(follower, ()), reasoning)


_ANSWERS: Final = {
    "function_call": "function_call_output",
    "local_shell_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
"""The type of the output that Codex makes for a call without one."""
UNANSWERED: Final = "aborted"


def item_json(message: Message, raw: bytes) -> dict[str, Any]:
    """A message of a context as an item, given the recorded bytes of its entry: without its metadata, and with only
    its remaining blocks."""
    data = parse(raw)
    if isinstance(data, str):
        return summary_item(data)
    recorded = data if is_part(message.entry.id) else fields.mapping(data, "payload")
    item = without_metadata(recorded)
    field = CONTENT_IN.get(message.entry.type, "")
    if message.blocks is not None and isinstance(item.get(field), list):
        item[field] = [item[field][block.index] for block in message.blocks]
    return item


def sent_items(
    context: ActiveContext, line: Callable[[Entry], bytes], *, with_ids: bool = True
) -> Iterator[Mapping[str, Any]]:
    """The items of the conversation in a request; `line` reads the recorded bytes of an entry."""
    calls = {call_id for message in context.messages for call_id in message.entry.call_ids()}
    answered = {message.entry.result_for for message in context.messages if message.role == Role.TOOL_RESULT}
    for message in context.messages:
        if message.role == Role.TOOL_RESULT and message.entry.result_for not in calls:
            continue
        item = item_json(message, line(message.entry))
        if not with_ids:
            item.pop("id", None)
        yield item
        for call_id in message.entry.call_ids():
            if call_id not in answered and item["type"] in _ANSWERS:
                yield {"type": _ANSWERS[item["type"]], "call_id": call_id, "output": UNANSWERED}


READER: Final = CodexReader("codex", is_older=False)
OLDER_READER: Final = CodexReader("codex-0.104", is_older=True)


class CodexFormat(Format):
    """Codex CLI."""

    name = KEY
    label = "Codex"
    parser = RolloutParser
    generations: Sequence[Generation] = (
        Generation(
            "Codex 0.169 and newer",
            READER,
            CodexRules(READER),
            (CompactedWriter(READER), ThreadForkWriter(READER)),
            restore_lines=FullerList(READER),
            can_move_leaf=False,
            since=(0, 169),
        ),
        Generation(
            "Codex before 0.169",
            OLDER_READER,
            CodexRules(OLDER_READER),
            (CompactedWriter(OLDER_READER), ThreadForkWriter(OLDER_READER, knows_bases=False)),
            restore_lines=FullerList(OLDER_READER),
            can_move_leaf=False,
        ),
    )

    def tree(self, entries: Sequence[Entry]) -> SessionTree:
        return thread_tree(entries)

    def obstacles(self, state: ParserState) -> Iterator[Damage]:
        yield from super().obstacles(state)
        if state.extra.get(IS_PAGINATED) and not state.extra.get(IS_NUMBERED, True):
            number, offset = state.next_number - 1, state.next_offset
            yield Damage(DamageKind.NO_ORDINAL, number, offset, 0, "the last line has no ordinal, as this thread needs")

    def consequence(self, kind: DamageKind, generation: Generation) -> tuple[Severity, str]:
        if kind is DamageKind.NO_ORDINAL and not generation.since:
            return Severity.NONE, "needs no ordinals"
        if kind in (DamageKind.NO_ORDINAL, DamageKind.NO_HEADER):
            return Severity.FATAL, "refuses to resume the thread"
        return super().consequence(kind, generation)

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        return item_json(message, line)

    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterable[Mapping[str, Any]]:
        return sent_items(context, line, with_ids=context.reader == READER.name)

    def recorded_version(self, state: ParserState) -> RecordedVersion | None:
        """The version of the client that began the file, because later lines record none; None if it is unknown."""
        numbers = tuple(state.extra.get(CLIENT, ()))
        if not any(numbers):  # a client that was built from source calls itself 0.0.0
            return None
        return RecordedVersion(numbers, f"{self.label} {'.'.join(map(str, numbers))} began it")

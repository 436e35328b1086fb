"""PURE: the format of pi, and everything in it that Atomic shares.

pi's model sees the latest `compaction`'s summary, what it kept, and later entries; `context_edit`s are applied to them.

    (Message, line, edit's line) ──message_json──▶ {"role": …, "content": …} ──message_hash──▶ "0f3c…"

A rebuilt message is reduced to the fields that decide what the model receives. Two readers agree on a context if the
hashes of all its messages are equal.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sessions_app.agents.pure import fields
from sessions_app.agents.pure.formats import Format, Generation, PlanRules, Reader, SummaryFormat, recorded_summary
from sessions_app.sessionlog.context import ActiveContext, Message, Sending, UnreadableEntry, newest_of
from sessions_app.sessionlog.entries import EditControl, Entry, EntryKind, Role, SummaryControl, tokens_of
from sessions_app.sessionlog.jsjson import canonical

from .diagnosis import EDITABLE, PI_0_87, PI_BEFORE_0_87, examine
from .parser import (
    CURRENT_VERSION,
    KEY,
    MOVE,
    UNDO,
    SessionParser,
    new_content,
    parse_line,
    recorded_prices,
    text_block,
    weighed,
)
from .repair import migrate, repair
from .writers import ContextEditWriter, ForkWriter, branch_copy, new_line, restore_lines

SENT: Final = EDITABLE | {Role.SYSTEM, Role.COMMAND, Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY}
"""The roles of messages that pi sends; it does not know others."""
_ALWAYS_BLOCKS: Final = frozenset({Role.ASSISTANT, Role.TOOL_RESULT})
"""The roles for which pi makes one block of a new content that is a text."""
SENDING: Final = Sending(
    unsent_stop_reasons=frozenset({"error", "aborted"}), fills_unanswered_calls=True, drops_empty_messages=True
)
"""The changes of pi to a context before it sends the messages. Results are never left out."""


class _Edit(NamedTuple):
    entry: Entry
    control: EditControl


class PiReader(Reader):
    """Reads the contexts of pi 0.87 and newer."""

    name = "pi"
    honours = frozenset({EntryKind.SUMMARY, EntryKind.EDIT})

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        selected = select(branch)
        # The latest edit of a target wins; edits that were not selected do not count.
        edits = {
            entry.control.target_id: _Edit(entry, entry.control)
            for entry in (selected if EntryKind.EDIT in self.honours else ())
            if isinstance(entry.control, EditControl) and entry.control.target_id is not None
        }
        messages = [message for entry in selected for message in _messages(entry, edits.get(entry.id))]
        refused = (_refused(entry, edits[entry.id]) for entry in selected if entry.id in edits)
        here = {entry.id for entry in branch}
        return ActiveContext(
            self.name,
            tuple(messages),
            newest_of(branch, self.honours),
            open_ended=any(target not in here for target in edits),
            sending=SENDING,
            refused=next(filter(None, refused), None),
            removed=frozenset(entry.id for entry in selected if _is_removed(entry, edits.get(entry.id))),
        )


class OlderPiReader(PiReader):
    """Reads the contexts of pi before 0.87, which ignores `context_edit`."""

    name = "pi-0.86"
    honours = frozenset({EntryKind.SUMMARY})


def select(branch: Sequence[Entry]) -> list[Entry]:
    """The entries of a branch that remain after its latest compaction, which comes first; all if there is none."""
    for at in range(len(branch) - 1, -1, -1):
        control = branch[at].control
        if isinstance(control, SummaryControl):
            break
    else:
        return list(branch)
    start = next((i for i in range(at) if branch[i].id == control.first_kept_id), at)
    kept = [entry for entry in branch[start:at] if entry.kind is not EntryKind.SUMMARY and entry.role != Role.SYSTEM]
    return [branch[at], *kept, *branch[at + 1 :]]


def _is_removed(entry: Entry, edit: _Edit | None) -> bool:
    return edit is not None and edit.control.effect == "removes" and entry.has_text


def _messages(entry: Entry, edit: _Edit | None) -> Iterator[Message]:
    """The messages of a selected entry, if any: two for a compaction that repeats the system message."""
    if _is_removed(entry, edit):
        return
    if isinstance(entry.control, SummaryControl):
        if entry.control.system_tokens is not None:
            yield Message(entry, Role.SYSTEM, None, entry.control.system_tokens)
        yield Message(entry, entry.role, None, entry.tokens)
    elif entry.is_message and not entry.empty:
        if edit is not None and edit.control.effect == "replaces" and entry.role in EDITABLE:
            blocks = weighed(edit.entry.blocks or (), entry.role)
            tokens = tokens_of(sum(block.units for block in blocks))
            is_whole = edit.entry.blocks is None or (edit.control.is_text and entry.role not in _ALWAYS_BLOCKS)
            yield Message(entry, entry.role, None if is_whole else blocks, tokens, edit=edit.entry)
        else:
            # Of what is excluded, pi holds back only commands.
            sent = entry.role in SENT and (not entry.excluded or entry.role != Role.COMMAND)
            yield Message(entry, entry.role, entry.blocks, entry.tokens, sent=sent)


def _refused(entry: Entry, edit: _Edit) -> UnreadableEntry | None:
    if edit.control.effect != "undefined" or not entry.is_message or entry.role not in EDITABLE:
        return None
    return UnreadableEntry(
        edit.entry, f"pi cannot open this branch: entry {edit.entry.id} edits entry {entry.id} but has no replacement."
    )


class ContextRules(PlanRules):
    """Only content that the model sees can be deleted, except system messages: the agent would declare them again."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._sending = reader.rebuild([]).sending

    def compactable(self, branch: Sequence[Entry], context: ActiveContext | None = None) -> list[Message]:
        return [message for message in super().compactable(branch, context) if message.role != Role.SYSTEM]

    def replays(self, entry: Entry) -> bool:
        """True only for sent assistant messages: providers compare the latest one that they receive."""
        return entry.role == Role.ASSISTANT and entry.stop_reason not in self._sending.unsent_stop_reasons


MESSAGE_FIELDS: Final = (
    *("role", "content", "summary", "command", "output", "exitCode"),
    *("toolCallId", "toolName", "isError", "customType", "stopReason"),
)
HASH_DIGITS: Final = 16
_WITHOUT_CONTENT: Final[Mapping[str, Any]] = {Role.SYSTEM: "", Role.USER: [], Role.ASSISTANT: [], Role.TOOL_RESULT: []}
"""The substitute for content that is missing or null; a system message that a compaction repeats has none."""


def message_json(
    message: Message, line: Mapping[str, Any], edit_line: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A message of the active context as the agent rebuilds it, reduced to MESSAGE_FIELDS.

    `line` is the recorded object of the message's entry, `edit_line` that of the `context_edit` that replaces its
    content. Both are of version 3.
    """
    recorded = _recorded_message(message, line)
    content = recorded.get("content")
    if content is None and message.entry.kind is EntryKind.MESSAGE:
        content = _WITHOUT_CONTENT.get(message.role)
    if edit_line is not None:
        content = new_content(edit_line)
        content = text_block(content) if message.role in _ALWAYS_BLOCKS else content
    if isinstance(content, list) and message.blocks is not None:
        content = [content[block.index] for block in message.blocks]
    return fields_of({**recorded, "content": content})


def fields_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """The MESSAGE_FIELDS of a message that are not null."""
    return {name: message[name] for name in MESSAGE_FIELDS if message.get(name) is not None}


def message_hash(message: Mapping[str, Any]) -> str:
    """The first HASH_DIGITS hexadecimal digits of the SHA-256 of a message's fields as canonical JSON."""
    return hashlib.sha256(canonical(message).encode()).hexdigest()[:HASH_DIGITS]


def _recorded_message(message: Message, line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message that a line contains, in the form that all kinds of lines share."""
    if message.entry.kind is EntryKind.SUMMARY and message.role == Role.SYSTEM:
        return fields.mapping(line, "systemMessage")
    if message.entry.type == "message":
        return {**fields.mapping(line, "message"), "role": message.role}
    if message.role == Role.CUSTOM:
        content = line.get("content")
        return {
            "role": message.role,
            "customType": line.get("customType"),
            "content": [] if content is None else content,
        }
    return {"role": message.role, "summary": line.get("summary")}


_READER: Final = PiReader()
_OLDER_READER: Final = OlderPiReader()


class PiFormat(Format):
    """pi, and everything that Atomic shares with it."""

    name = KEY
    label = "pi"
    parser = SessionParser
    branch_copy = staticmethod(branch_copy)
    examine = staticmethod(examine)
    migrate = staticmethod(migrate)
    repair = staticmethod(repair)
    recorded_prices = staticmethod(recorded_prices)
    recorded_summary = staticmethod(recorded_summary)
    current_version = CURRENT_VERSION
    summary_format: SummaryFormat | None = SummaryFormat(new_line, honours_compactions=True)
    generations: Sequence[Generation] = (
        Generation(
            PI_0_87,
            _READER,
            ContextRules(_READER),
            (ContextEditWriter(_READER), ForkWriter(_READER, ends_with_edit=True)),
            restore_lines=restore_lines,
            since=(0, 87),
        ),
        Generation(
            PI_BEFORE_0_87,
            _OLDER_READER,
            ContextRules(_OLDER_READER),
            (ForkWriter(_OLDER_READER, ends_with_edit=False),),
        ),
    )

    def message_json(self, message: Message, line: bytes, edit_line: bytes | None) -> Mapping[str, Any]:
        return message_json(message, parse_line(line), parse_line(edit_line) if edit_line is not None else None)

    def sent_messages(self, context: ActiveContext, line: Callable[[Entry], bytes]) -> Iterator[Mapping[str, Any]]:
        for message in context.messages:
            if message.sent:
                edit_line = line(message.edit) if message.edit is not None else None
                yield self.message_json(message, line(message.entry), edit_line)

    def leaf_line(self, entry_id: str, parent_id: str | None, moment: datetime, *, undoes: bool = False) -> bytes:
        return new_line("custom", entry_id, parent_id, moment, customType=UNDO if undoes else MOVE)

    def label_line(self, entry_id: str, parent_id: str, moment: datetime, target_id: str, label: str) -> bytes:
        """A label entry; pi omits the key `label` to remove a label."""
        text = {"label": label} if label else {}
        return new_line("label", entry_id, parent_id, moment, targetId=target_id, **text)

    @property
    def missing_forms(self) -> Mapping[str, str]:
        return {}

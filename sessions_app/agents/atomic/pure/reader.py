"""What Atomic's model sees of a branch.

Atomic 0.8.26 to 0.9.8 omits what `context_compaction` entries hide. Atomic since 0.9.9 starts at the latest compaction
that consists of lines of the conversation. Each ignores the other's compactions, and those of pi.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from sessions_app.agents.pi.pure.reader import SENDING as PI_SENDING
from sessions_app.sessionlog.context import ActiveContext, Message, keep, newest_of
from sessions_app.sessionlog.controls import SummaryControl
from sessions_app.sessionlog.entries import Entry, EntryKind, Role, tokens_of

from .filters import effective_filters

SENT: Final = frozenset({Role.USER, Role.ASSISTANT, Role.TOOL_RESULT, Role.COMMAND, Role.CUSTOM, Role.BRANCH_SUMMARY})
"""The roles of messages that Atomic sends. It knows neither system messages nor the summaries of older versions."""
PREFACE_UNITS: Final = 143
"""The UTF-16 units of the sentence that Atomic sends before the lines of a compaction."""
SENDING_0_8: Final = PI_SENDING
"""What Atomic 0.8 changes in a context before it sends the messages. From 0.9.3 on, Atomic drops stray results as well;
a session does not show that it was continued with 0.8."""
SENDING_0_9: Final = replace(PI_SENDING, drops_stray_results=True)


class AtomicReader:
    """Atomic 0.8.26 to 0.9.8."""

    name: Final = "atomic-0.8"
    honours: Final = frozenset({EntryKind.DELETION})

    def ignores(self, entry: Entry) -> bool:
        return entry.rebuilds and entry.kind is not EntryKind.DELETION

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        filters = effective_filters(branch)
        messages, removed = [], set(filters.entries)
        for entry in branch:
            if not entry.is_message or entry.empty or entry.id in filters.entries:
                continue
            message = keep(entry, filters.blocks.get(entry.id))
            if message is not None:
                messages.append(_as_sent(message))
            else:
                removed.add(entry.id)
        newest = newest_of(branch, self.honours)
        # A later assistant message can restore deleted results: see `filters`.
        return ActiveContext(
            self.name, tuple(messages), newest, newest is not None, SENDING_0_8, removed=frozenset(removed)
        )


@dataclass(frozen=True, slots=True)
class VerbatimLinesReader:
    """Atomic since 0.9.9: the lines of the latest compaction, the tail that it kept, then later entries.

    Until 0.9.10 the tail is sent as messages. From 0.9.11 on it is part of the text of the lines; there, a result that
    does not follow its call directly vanishes.
    """

    name: str
    tail_as_text: bool
    honours: frozenset[EntryKind] = frozenset({EntryKind.SUMMARY})

    def ignores(self, entry: Entry) -> bool:
        return entry.rebuilds and not _is_boundary(entry)

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        at = next((i for i in range(len(branch) - 1, -1, -1) if _is_boundary(branch[i])), None)
        if at is None:
            messages = [message for entry in branch for message in _messages(entry)]
            return ActiveContext(self.name, tuple(messages), None, sending=SENDING_0_9)
        boundary = branch[at]
        tail = _tail(boundary, branch[:at])
        kept = _as_text(tail) if self.tail_as_text else tail
        later = [message for entry in branch[at + 1 :] for message in _messages(entry)]
        messages = [_lines(boundary), *kept, *later]
        return ActiveContext(self.name, tuple(messages), boundary, sending=SENDING_0_9)


def _as_sent(message: Message) -> Message:
    return message if message.role in SENT else replace(message, sent=False)


def _is_boundary(entry: Entry) -> bool:
    return isinstance(entry.control, SummaryControl) and entry.control.is_verbatim


def _lines(boundary: Entry) -> Message:
    return Message(boundary, boundary.role, None, boundary.tokens + tokens_of(PREFACE_UNITS))


def _tail(boundary: Entry, before: Sequence[Entry]) -> list[Message]:
    """The messages before a boundary that it keeps."""
    control = boundary.control
    first_kept = control.first_kept_id if isinstance(control, SummaryControl) else None
    start = next((i for i, entry in enumerate(before) if entry.id == first_kept), len(before))
    return [message for entry in before[start:] for message in _messages(entry)]


def _messages(entry: Entry) -> Iterator[Message]:
    message = keep(entry) if entry.is_message and not entry.empty else None
    if message is not None:
        yield _as_sent(message)


def _as_text(tail: Sequence[Message]) -> Iterator[Message]:
    """The messages of a tail that become text: sent ones, and of results the first that directly follows its call."""
    unanswered: set[str] = set()
    for message in tail:
        if not message.sent:
            continue
        if message.role == Role.TOOL_RESULT:
            call_id = message.entry.result_for
            if call_id not in unanswered:
                continue
            unanswered.remove(call_id)
        else:
            unanswered = set(message.entry.call_ids()) if message.role == Role.ASSISTANT else set()
        yield replace(message, as_text=True)

"""What OpenCode's model sees of a branch, rule by rule, as measured with the real client.

| #   | rule                                                                          | where                        |
|-----|-------------------------------------------------------------------------------|------------------------------|
| 1   | the system message is the client's own, and in front; rows are read every time | not part of a session        |
| 2   | reverted messages are deleted with the next prompt                            | `parser`: another branch     |
| 3   | the newest compaction: its question, its summary, the tail, what followed      | `select`                     |
| 4   | of users: texts, files, the question of a compaction, subtasks                | `parts.user_content`         |
| 5   | a failed reply is left out; an aborted one only if it is nothing but thinking  | `parser`, `_is_left_out`     |
| 6   | of assistants: texts, reasoning, tools; `ignored` does not count               | `parts.assistant_content`    |
| 7   | a cleared result is a placeholder; an error, its text; an open call, a note    | `parts.output_of`            |
| 8   | the reasoning of another model is a text                                      | `sent`                       |
| 9   | a message without parts is skipped; media of tools follow as a user's message  | `sent`                       |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sessions_app.sessionlog.context import ActiveContext, Message, newest_of
from sessions_app.sessionlog.controls import BoundaryControl
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.sending import Sending

from .lines import MESSAGE
from .parser import ABORTED

SENDING: Final = Sending(drops_empty_messages=True)
"""OpenCode joins the texts of a message, so that an empty one adds nothing. Calls and results are one part."""


class OpenCodeReader:
    """OpenCode since 1.1."""

    name: Final = "opencode"
    honours: Final = frozenset({EntryKind.BOUNDARY})

    def ignores(self, entry: Entry) -> bool:
        return entry.rebuilds and entry.kind not in self.honours

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        spoken = [message for message in select(branch) if not _is_left_out(message)]
        return ActiveContext(
            self.name,
            tuple(
                Message(entry, entry.role, entry.blocks, entry.tokens, sent=not entry.excluded)
                for message in spoken
                for entry in message
                if entry.is_message
            ),
            newest_of(branch, self.honours),
            sending=SENDING,
        )


def select(branch: Sequence[Entry]) -> list[list[Entry]]:
    """The messages that are sent, in this order: each as its own entry and those of its parts.

    The newest compaction that was completed ends the past: with its question, or with the start of its tail. Of the
    compactions left with a tail, the newest is sent before its tail, up to its first summary, also if that failed. A
    tail whose start is gone changes nothing.
    """
    messages = list(_messages(branch))
    completed = [message for message in messages if _boundary(message) and not message[0].failed]
    messages = messages[_start(messages, _boundary(completed[-1])) :] if completed else messages
    with_tail = [control for message in messages if (control := _boundary(message)) and control.segment]
    return _tail_after_summary(messages, with_tail[-1]) if with_tail else messages


def _start(messages: Sequence[Sequence[Entry]], control: BoundaryControl | None) -> int:
    """The place of the first message that a completed compaction leaves."""
    places = _places(messages)
    asked = places.get(control.anchor_id or "") if control is not None else None
    if control is None or asked is None:
        return 0
    if control.segment is None:
        return asked
    tail = places.get(control.segment[0], len(messages))
    return tail if tail <= asked else 0


def _tail_after_summary(messages: list[list[Entry]], control: BoundaryControl) -> list[list[Entry]]:
    places = _places(messages)
    asked = places.get(control.anchor_id or "")
    tail = places.get(control.segment[0]) if control.segment is not None else None
    if asked is None or tail is None or tail >= asked:
        return messages
    answers = (
        at
        for at in range(asked + 1, len(messages))
        if (one := _boundary(messages[at])) and one.anchor_id == control.anchor_id
    )
    after = next(answers) + 1
    return [*messages[asked:after], *messages[tail:asked], *messages[after:]]


def _places(messages: Sequence[Sequence[Entry]]) -> dict[str, int]:
    return {message[0].id: place for place, message in enumerate(messages)}


def _messages(branch: Sequence[Entry]) -> Iterator[list[Entry]]:
    message: list[Entry] = []
    for entry in branch:
        if entry.type == MESSAGE and message:
            yield message
            message = []
        message.append(entry)
    if message:
        yield message


def _boundary(message: Sequence[Entry]) -> BoundaryControl | None:
    control = message[0].control
    return control if isinstance(control, BoundaryControl) else None


def _is_left_out(message: Sequence[Entry]) -> bool:
    """Whether it was aborted before it said or did anything."""
    spoken = [entry for entry in message if entry.is_message]
    return all(entry.stop_reason == ABORTED and entry.bears_thinking for entry in spoken) and bool(spoken)

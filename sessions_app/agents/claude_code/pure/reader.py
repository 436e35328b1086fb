"""What Claude Code's model sees of a branch: what follows the latest boundary, and what that keeps.

| rule | what the client does                                                                     | here          |
|------|------------------------------------------------------------------------------------------|---------------|
| 2    | the kept entries follow the anchor of the boundary; versions before 2.1.143 know only    | `_select`     |
|      | the segment of a boundary, not its list                                                  |               |
| 5    | nothing before the latest boundary is sent                                               | `_select`     |
| 6    | but for the earlier lines of a reply that continues after it, and the results of their   | `_returning`  |
|      | calls, if the boundary keeps nothing                                                     |               |

The tree has found the branch (rules 1, 3, 4 and 6); `sent` makes the messages of it (rules 7 to 11).

What a plan may delete depends on the entry alone. The client leaves out a reply of which only thinking is left. So
thinking is deleted with the last other line of its reply, even if an earlier one is kept: what belongs together does
not depend on what else a plan deletes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from sessions_app.agents.pure.format import PlanRules, Reader
from sessions_app.sessionlog.context import ActiveContext, Message, Sending, newest_of
from sessions_app.sessionlog.entries import THINKING_TYPES, BoundaryControl, Entry, EntryKind, Protection, Role

from .parser import shares_line
from .tree import ADDED, SPEECH, kept_entries, segment_entries

SENDING: Final = Sending(
    fills_unanswered_calls=True, drops_empty_messages=True, drops_stray_results=True, drops_repeated_calls=True
)
"""What Claude Code changes in a context before it sends the messages (rules 8 and 9 of `sent`)."""


class ClaudeCodeReader(Reader):
    """Claude Code 2.1.143 and newer."""

    name = "claude-code"
    honours = frozenset({EntryKind.BOUNDARY})

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        at = _last_boundary(branch)
        selected = branch if at is None else self._select(branch, at)
        removed: frozenset[str] = frozenset()
        if at is not None and _only_deletes(branch[at]):
            left = {entry.id for entry in selected}
            before = _last_boundary(branch[:at])
            earlier = branch[:at] if before is None else self._select(branch[:at], before)
            removed = frozenset(entry.id for entry in earlier if entry.is_message and entry.id not in left)
        return ActiveContext(
            self.name,
            tuple(self._messages(selected)),
            newest_of(branch, self.honours),
            sending=SENDING,
            removed=removed,
            open_ended=_ends_beside(branch),
        )

    def _select(self, branch: Sequence[Entry], at: int) -> list[Entry]:
        """The entries that the boundary at this index leaves."""
        entries = {entry.id: entry for entry in branch}
        kept = self._kept(branch[at], entries)
        ids = {entry.id for entry in kept}
        after = [entry for entry in branch[at + 1 :] if entry.id not in ids]
        if not kept:
            return list(_returning(branch[:at], after))
        control = branch[at].control
        anchor = control.anchor_id if isinstance(control, BoundaryControl) else None
        if anchor is None:
            return [*kept, *after]
        place = next((index for index, entry in enumerate(after, 1) if entry.id == anchor), None)
        return after if place is None else [*after[:place], *kept, *after[place:]]

    def _kept(self, boundary: Entry, entries: dict[str, Entry]) -> list[Entry]:
        return kept_entries(boundary, entries.get)

    def arranged(self, messages: Iterable[Message], *, is_new: bool) -> list[Message]:
        """The messages of a context without some others, in the order in which it is rebuilt. In a new session no text
        stands between a call and its result."""
        return list(_in_file_order(messages, is_new=is_new))

    def _messages(self, selected: Sequence[Entry]) -> Iterator[Message]:
        return _in_file_order(_message(entry) for entry in selected if entry.is_message)


class OlderClaudeCodeReader(ClaudeCodeReader):
    """Claude Code before 2.1.143: it knows only segments, and continues from the last thing that was said."""

    name = "claude-code-2.1.142"

    def _kept(self, boundary: Entry, entries: dict[str, Entry]) -> list[Entry]:
        return segment_entries(boundary, entries.get)

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        at = _last_boundary(branch)
        if at is None or self._kept(branch[at], {entry.id: entry for entry in branch}):
            return super().rebuild(branch)
        # Only the last boundary of a session keeps anything; without effect, it is not the end of the branch either.
        left = branch[: _end_of_speech(branch)]
        return super().rebuild([*map(_without_kept, left)])

    def arranged(self, messages: Iterable[Message], *, is_new: bool) -> list[Message]:
        del is_new
        return list(messages)

    def _messages(self, selected: Sequence[Entry]) -> Iterator[Message]:
        return (_message(entry) for entry in selected[: _end_of_speech(selected)] if entry.is_message)


def _without_kept(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, control=None) if entry.kind is EntryKind.BOUNDARY else entry


def _end_of_speech(entries: Sequence[Entry]) -> int:
    """The number of entries up to the last thing that was said."""
    return next((at for at in range(len(entries), 0, -1) if entries[at - 1].role in SPEECH), 0)


def _last_boundary(branch: Sequence[Entry]) -> int | None:
    indexes = range(len(branch) - 1, -1, -1)
    return next((at for at in indexes if branch[at].kind is EntryKind.BOUNDARY), None)


def _only_deletes(boundary: Entry) -> bool:
    """Whether a boundary has no summary: what it keeps follows the boundary itself."""
    control = boundary.control
    return isinstance(control, BoundaryControl) and bool(control.kept) and control.anchor_id is None


def _returning(before: Sequence[Entry], after: Sequence[Entry]) -> Iterator[Entry]:
    """What follows a boundary; behind the first line of a reply there, the lines of it that stand before the boundary,
    with the results of their calls."""
    first: dict[str, int] = {}
    for index, entry in enumerate(after):
        if entry.reply:
            first.setdefault(entry.reply, index)
    earlier: dict[str, list[Entry]] = {}
    callers: dict[str, str] = {}
    for entry in before if first else ():
        reply = entry.reply or callers.get(entry.result_for or "", "")
        if reply in first:
            earlier.setdefault(reply, []).append(entry)
            callers |= {block.call_id: reply for block in entry.blocks or () if block.call_id is not None}
    for index, entry in enumerate(after):
        yield entry
        if entry.reply and first[entry.reply] == index:
            yield from earlier.get(entry.reply, ())


def _ends_beside(branch: Sequence[Entry]) -> bool:
    """Whether a branch ends with notes that do not all follow one another: what is said next leaves out some."""
    for before, entry in zip(reversed(branch[:-1]), reversed(branch), strict=False):
        if entry.role in SPEECH:
            return False
        if entry.parent_id not in (None, before.id):
            return True
    return False


def _message(entry: Entry) -> Message:
    return Message(entry, entry.role, entry.blocks, entry.tokens, sent=not entry.excluded)


def _in_file_order(messages: Iterable[Message], *, is_new: bool = False) -> Iterator[Message]:
    """Messages in the order of the context; results, and what was noted down after them, in the order of the file."""
    for is_led_to, group in itertools.groupby(messages, _is_led_to):
        found = list(group)
        has_results = is_led_to and any(message.role == Role.TOOL_RESULT for message in found)
        yield from _sorted(found, is_new=is_new) if has_results else found


def _is_led_to(message: Message) -> bool:
    return message.entry.role in ADDED or shares_line(message.entry)


def _sorted(led_to: Sequence[Message], *, is_new: bool) -> Iterator[Message]:
    """What a reply leads to, in order. A text whose results are gone stands on a line of its own; in a new session,
    behind the results of others."""
    answering = {message.entry.number for message in led_to if message.role == Role.TOOL_RESULT}
    last = max(answering)

    def is_alone(message: Message) -> bool:
        return message.role not in ADDED and message.entry.number not in answering

    def place(message: Message) -> tuple[int, bool]:
        is_moved = is_new and is_alone(message) and message.entry.number < last
        return last if is_moved else message.entry.number, is_moved

    in_order = sorted(led_to, key=place)
    for is_text, group in itertools.groupby(in_order, is_alone):
        found = list(group)
        yield from found if is_text else sorted(found, key=_place_after_reply)


def _place_after_reply(message: Message) -> tuple[bool, int]:
    """In the order of the file, but for what the user said on a line with results: the client sends that last."""
    return shares_line(message.entry), message.entry.number


class ClaudeCodeRules(PlanRules):
    """Only what the model sees can be deleted; the client adds attachments afresh that it does not find."""

    protected_roles: ClassVar = {
        Role.USER: Protection.USER,
        Role.CUSTOM: Protection.CUSTOM,
        Role.COMPACTION_SUMMARY: Protection.SUMMARY,
    }
    protected_failures: ClassVar = {Role.ASSISTANT: Protection.ASSISTANT_ERROR, Role.TOOL_RESULT: Protection.TOOL_ERROR}

    def replays(self, entry: Entry) -> bool:
        """Only messages that are sent: providers compare the latest one that they see."""
        return entry.role == Role.ASSISTANT and not entry.excluded

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        """For the last line of a reply that is not just thinking: the lines that are."""
        thoughts: dict[str, list[str]] = {}
        others: dict[str, str] = {}
        for message in messages:
            entry = message.entry
            if entry.reply and _only_thinks(entry):
                thoughts.setdefault(entry.reply, []).append(entry.id)
            elif entry.reply:
                others[entry.reply] = entry.id
        return {others[reply]: tuple(found) for reply, found in thoughts.items() if reply in others}


def _only_thinks(entry: Entry) -> bool:
    return bool(entry.blocks) and THINKING_TYPES.issuperset([block.type for block in entry.blocks or ()])

"""The tree of a Claude Code session as the client finds it when it resumes, and what its model sees of a branch.

| rule | what the client does                                                                      | here            |
|------|-------------------------------------------------------------------------------------------|-----------------|
| 1    | of lines with one id the last one counts; a subagent's lines are no leaf                  | `_leaf`         |
| 2    | if a boundary keeps entries, the last boundary drops every other earlier entry, and what  | `_hang_on_kept` |
|      | followed a dropped entry follows the kept ones                                            |                 |
| 3    | the last thing said is the nearest one at or above the last entry in the file that        | `_find_leaf`    |
|      | nothing follows, or what the last `last-prompt` line behind the last boundary names,      | `_named`        |
|      | unless the latter is on the branch of the former; versions before 2.1.143 do not know it  |                 |
|      | everything that the client noted down below it belongs to the branch                      | `_end_of_notes` |
| 4    | an entry without its parent follows the latest one that is at most 5 seconds older, and   | `_bridge`       |
|      | so does the first entry of a cycle                                                        |                 |
| 6    | all lines of a reply, and the results of its calls, are part of a branch with one of them | `_join_added`,  |
|      | and so is what the client noted down after them, if the reply calls and the note leads to | `_with_replies` |
|      | nothing that was said                                                                     |                 |

A branch is the full history of its leaf: a boundary follows the line that was the last one before it. The reader
selects what the model sees of a branch; `sent` makes the messages of it (rules 7 to 11):

| rule | what the client does                                                                     | here          |
|------|------------------------------------------------------------------------------------------|---------------|
| 2    | the kept entries follow the anchor of the boundary; versions before 2.1.143 know only    | `_select`     |
|      | the segment of a boundary, not its list                                                  |               |
| 5    | nothing before the latest boundary is sent                                               | `_select`     |
| 6    | but for the earlier lines of a reply that continues after it, and the results of their   | `_returning`  |
|      | calls, if the boundary keeps nothing                                                     |               |

What a plan may delete depends on the entry alone. The client leaves out a reply of which only thinking is left. So
thinking is deleted with the last other line of its reply, even if an earlier one is kept: what belongs together does
not depend on what else a plan deletes.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from functools import cached_property
from typing import Final

import msgspec

from sessions_app.agents.pure.formats import PlanRules, Reader
from sessions_app.sessionlog.context import ActiveContext, Message, Sending, newest_of
from sessions_app.sessionlog.entries import THINKING_TYPES, BoundaryControl, Entry, EntryKind, Role
from sessions_app.sessionlog.session import DAMAGE_KEPT
from sessions_app.sessionlog.tree import NO_PARENT, SessionTree, no_entries

from .parser import LAST_PROMPT, SIDECHAIN, is_passed, shares_line

EntryLookup = Callable[[str], Entry | None]


def kept_entries(boundary: Entry, lookup: EntryLookup) -> list[Entry]:
    """The entries that a boundary lists, in its order; without a list, those of its segment.

    Nothing if one of them does not exist: the client then ignores the whole list.
    """
    control = boundary.control
    if not isinstance(control, BoundaryControl):
        return []
    if not control.kept:
        return segment_entries(boundary, lookup)
    found: list[Entry] = []
    for entry_id in dict.fromkeys(control.kept):
        entry = lookup(entry_id)
        if entry is None:
            return []
        found += _line_of(entry, lookup)
    return found


def segment_entries(boundary: Entry, lookup: EntryLookup) -> list[Entry]:
    """The entries of a boundary's segment: from the last one up to the first; nothing if that is not above it."""
    control = boundary.control
    if not isinstance(control, BoundaryControl) or control.segment is None:
        return []
    head, tail = control.segment
    walk: dict[str, Entry] = {}
    entry = lookup(tail)
    while entry is not None and entry.id not in walk:
        walk[entry.id] = entry
        if entry.id == head:
            return [*_line_of(entry, lookup)[:-1], *reversed(walk.values())]
        is_end = entry.kind is EntryKind.BOUNDARY or entry.parent_id is None
        entry = None if is_end else lookup(entry.parent_id or "")
    return []


def _line_of(entry: Entry, lookup: EntryLookup) -> list[Entry]:
    """All entries of the line that ends with an entry."""
    line = {entry.id: entry}
    above = lookup(entry.parent_id or "")
    while above is not None and above.number == entry.number and above.id not in line:
        line[above.id] = above
        above = lookup(above.parent_id or "")
    return [*reversed(line.values())]


BRIDGED_SECONDS: Final = 5.0
SPEECH: Final = frozenset({Role.USER, Role.ASSISTANT, Role.TOOL_RESULT, Role.COMPACTION_SUMMARY})
"""The roles of the messages of the user, the model and tools."""
ADDED: Final = frozenset({Role.TOOL_RESULT, Role.CUSTOM})
"""The roles of entries that a reply adds without the user."""
NO_REPLY: Final = -1


class ClaudeCodeTree(SessionTree):
    """The tree of a session. Entries of one line follow one another, and so do the tool results of one reply."""

    def __init__(self, entries: Sequence[Entry], damage_kept: int = DAMAGE_KEPT) -> None:
        # The last entry of a line that has several is the whole line: it ends last.
        super().__init__(sorted(entries, key=lambda entry: entry.offset + entry.length), damage_kept)
        self._current = [
            position
            for position, entry in enumerate(self.entries)
            if self._position[entry.id] == position and not entry.is_off_branch
        ]
        """The positions of the entries that are part of the tree."""
        self._passed = bytearray(map(is_passed, self.entries))
        """For each entry, whether the client passes over it."""
        self._is_added = bytearray(
            passed or entry.role in ADDED or shares_line(entry)
            for passed, entry in zip(self._passed, self.entries, strict=True)
        )
        """For each entry, whether it is a result, or something that the client noted down after one."""
        self._dropped_before = 0
        """The position before which nothing is left but what the last boundary keeps."""
        self._boundaries: list[int] = []
        """The positions of all boundaries, if one of them keeps entries."""
        self._kept_count: dict[int, int] = {}
        """How many of the kept entries precede an entry that follows one of them, if it is not the last."""
        self._hang_on_kept()
        self._reply_of = self._reply_numbers()
        """For each entry, the number of the reply that it is a part of, or NO_REPLY."""
        self._replies: dict[int, list[int]] = {}
        """The positions of the entries of each reply."""
        self._calling: set[int] = set()
        """The numbers of the replies that call."""
        self._added: dict[int, list[int]] = {}
        """The positions of the results of each reply, and of what the client added to them, in the order of time."""
        self._find_replies()
        self._leaf = self._find_leaf()
        self._leads_on = self._followed_by_speech()
        last_said, notes = self._speech_at(self._leaf), self._notes()
        self._join_added()
        said = self._named()
        if said == NO_PARENT:
            said = last_said
        if said != NO_PARENT:
            self._leaf = self._end_of_notes(said, notes)

    # ---- rule 4 ----------------------------------------------------------------------------------------

    def _parent_of(self, entry: Entry) -> int:
        if entry.is_off_branch:
            return NO_PARENT
        if entry.kind is EntryKind.BOUNDARY:
            return self._position.get(entry.parent_id or "", NO_PARENT)
        parent = super()._parent_of(entry)
        is_lost = parent == NO_PARENT and entry.parent_id is not None
        return self._bridge(entry) if is_lost else parent

    def _bridge(self, entry: Entry, since: int = 0) -> int:
        """The position of the latest entry that is at most BRIDGED_SECONDS older; of several, the first in the file."""
        times, positions = self._clock
        time = _seconds(entry.timestamp)
        own = self._position[entry.id]
        end = bisect_right(times, time) if time is not None else 0
        while end and time is not None and time - times[end - 1] <= BRIDGED_SECONDS:
            start = bisect_left(times, times[end - 1])
            for position in positions[start:end]:
                if position != own and position >= since:
                    return position
            end = start
        return NO_PARENT

    @cached_property
    def _clock(self) -> tuple[list[float], list[int]]:
        """The times of all entries that others can follow, in order, and the positions of these entries."""
        dated = []
        for position, entry in enumerate(self.entries):
            time = _seconds(entry.timestamp)
            is_last = self._position[entry.id] == position and not entry.is_off_branch
            if time is not None and is_last and entry.type != SIDECHAIN:
                dated.append((time, position))
        dated.sort()
        return [time for time, _ in dated], [position for _, position in dated]

    def _cut(self, walk: dict[int, None], met_again: int) -> None:
        super()._cut(walk, met_again)
        path = list(walk)
        first = min(path[path.index(met_again) :])
        above = self._bridge(self.entries[first])
        passed = {first}
        while above not in passed and above != NO_PARENT:
            passed.add(above)
            above = self.parents[above]
        if above == NO_PARENT:
            self.parents[first] = self._bridge(self.entries[first])

    # ---- rule 2 ----------------------------------------------------------------------------------------

    def _hang_on_kept(self) -> None:
        """Attach the children of dropped entries to the anchor of the kept ones."""
        boundaries = [at for at in self._current if self.entries[at].kind is EntryKind.BOUNDARY]
        if not any(kept_entries(self.entries[at], self._lookup) for at in boundaries):
            return
        self._boundaries = boundaries
        last = self._dropped_before = boundaries[-1]
        self._hang_on_earlier(last)
        kept = kept_entries(self.entries[last], self._lookup)
        anchor = self._anchor_of(last)
        places = {self._position[entry.id]: count for count, entry in enumerate(kept, 1)}
        if anchor < last:
            places.clear()
        for position in self._current:
            if position <= last or not NO_PARENT < self.parents[position] < last:
                continue
            count = places.get(self.parents[position], len(kept))
            if count < len(kept):
                self._kept_count[position] = count
            self.parents[position] = anchor if places else self._bridge(self.entries[position], since=last)
        self._cut_cycles()

    def _hang_on_earlier(self, last: int) -> None:
        """Let what followed the kept entries of an earlier boundary follow its anchor, as it did then: the client
        records the last kept entry as the parent, which would leave that boundary out of the history."""
        end = anchor = NO_PARENT
        for position in self._current:
            if position >= last:
                break
            if self.entries[position].kind is EntryKind.BOUNDARY:
                kept = kept_entries(self.entries[position], self._lookup)
                end = self._position[kept[-1].id] if kept else NO_PARENT
                anchor = self._anchor_of(position)
            elif end != NO_PARENT and self.parents[position] == end < anchor < position:
                self.parents[position] = anchor

    def _anchor_of(self, boundary: int) -> int:
        """The position of the entry that the kept entries of a boundary follow."""
        control = self.entries[boundary].control
        if isinstance(control, BoundaryControl) and control.anchor_id is not None:
            return self._position.get(control.anchor_id, NO_PARENT)
        return boundary

    def _lookup(self, entry_id: str) -> Entry | None:
        position = self._position.get(entry_id)
        return self.entries[position] if position is not None else None

    # ---- rules 1 and 3 ---------------------------------------------------------------------------------

    @property
    def leaf(self) -> Entry:
        """The entry from which the client continues. Raises BadInput `no_entries` if there is none."""
        if self._leaf == NO_PARENT:
            raise no_entries()
        return self.entries[self._leaf]

    def _named(self) -> int:
        """The position of the last message as named by a `last-prompt` line; NO_PARENT if none names one."""
        ends = (
            one for one in reversed(self.entries) if _is_boundary(one) or (one.type == LAST_PROMPT and one.parent_id)
        )
        last = next(ends, None)
        if last is None or _is_boundary(last):
            return NO_PARENT
        end = self._position.get(last.parent_id or "", NO_PARENT)
        named = self._speech_at(end)
        if named < max(self._dropped_before, 0) or self.entries[named].type == SIDECHAIN:
            return NO_PARENT
        position = self._leaf
        while position not in (NO_PARENT, end):
            position = self._above(position)
        return NO_PARENT if position == end else named

    def _speech_at(self, position: int) -> int:
        """The position of the nearest entry of SPEECH at an entry or above it; NO_PARENT if there is none."""
        while position != NO_PARENT and self.entries[position].role not in SPEECH:
            position = self._above(position)
        return position

    def _above(self, position: int) -> int:
        """The position of an entry's parent; NO_PARENT at a boundary, which has none for the client."""
        return NO_PARENT if _is_boundary(self.entries[position]) else self.parents[position]

    def _notes(self) -> dict[int, list[int]]:
        """The positions of what the client noted down below each entry."""
        below: dict[int, list[int]] = {}
        for position in self._current:
            entry = self.entries[position]
            if entry.role not in SPEECH and not _is_boundary(entry) and entry.type != SIDECHAIN:
                below.setdefault(self.parents[position], []).append(position)
        return below

    def _end_of_notes(self, said: int, below: dict[int, list[int]]) -> int:
        """The position of the last entry of a branch that ends with this thing said: behind it, each note follows the
        one before it, as the client goes through them: first what hangs on a note, then what hangs beside it."""
        joins = self._reply_of[said] not in self._calling and self.entries[said].role != Role.TOOL_RESULT
        end, left = said, below.get(said, [])[::-1]
        while left:
            note = left.pop()
            left += below.get(note, [])[::-1]
            if joins:
                self.parents[note] = end
            end = note
        return end

    def _find_leaf(self) -> int:
        """The position of the leaf; if nothing was said, of the last entry; NO_PARENT if there is none."""
        followed = set()
        for position in self._current:
            entry = self.entries[position]
            if not self._passed[position] and entry.kind is not EntryKind.BOUNDARY and entry.type != SIDECHAIN:
                parent = self.parents[position]
                while parent != NO_PARENT and self._passed[parent]:
                    parent = self.parents[parent]
                followed.add(parent)
        silent: set[int] = set()
        left = [position for position in reversed(self._current) if position >= self._dropped_before]
        for position in left:
            if position in followed or self._passed[position] or self.entries[position].type == SIDECHAIN:
                continue
            if self._follows_speech(position, silent):
                return position
        return next(iter(left), NO_PARENT)

    def _follows_speech(self, position: int, silent: set[int]) -> bool:
        """Whether something was said at an entry or before it; for those in `silent`, it is known that nothing was."""
        while position != NO_PARENT and position not in silent:
            entry = self.entries[position]
            if entry.role in SPEECH:
                return True
            silent.add(position)
            if entry.kind is EntryKind.BOUNDARY:
                return position == self._dropped_before and bool(kept_entries(entry, self._lookup))
            position = self.parents[position]
        return False

    # ---- rule 6 ----------------------------------------------------------------------------------------

    def _reply_numbers(self) -> list[int]:
        """For each entry the number of its reply, or NO_REPLY. Entries before a boundary are never part of a reply
        after it, even if the id is the same.
        """
        numbers: dict[tuple[str, int], int] = {}
        return [
            numbers.setdefault((entry.reply, bisect_right(self._boundaries, position)), len(numbers))
            if entry.reply
            else NO_REPLY
            for position, entry in enumerate(self.entries)
        ]

    def _find_replies(self) -> None:
        for position in self._current:
            if (reply := self._reply_of[position]) != NO_REPLY:
                self._replies.setdefault(reply, []).append(position)
        self._calling = {reply for reply, positions in self._replies.items() if any(map(self._calls, positions))}
        callers: dict[int, int] = {}
        for position in self._current:
            if self._is_added[position]:
                caller = self._caller(position, callers)
                if caller != NO_PARENT and (reply := self._reply_of[caller]) in self._calling:
                    self._added.setdefault(reply, []).append(position)
        for added in self._added.values():
            if len(added) > 1:
                added.sort(key=lambda position: (_seconds(self.entries[position].timestamp) or 0, position))

    def _calls(self, position: int) -> bool:
        return any(block.call_id is not None for block in self.entries[position].blocks or ())

    def _caller(self, position: int, callers: dict[int, int]) -> int:
        """The position of the line that an added entry follows: one of a reply, or a prompt."""
        walk = []
        while position != NO_PARENT and position not in callers and self._is_added[position]:
            walk.append(position)
            position = self.parents[position]
        caller = callers.get(position, position)
        callers.update(dict.fromkeys(walk, caller))
        return caller

    def _join_added(self) -> None:
        """Let what was added to a reply follow its last entry: first what leads nowhere, as do most results of parallel
        calls, then what leads on."""
        followed = self._leads_on
        lasts = {self._replies[reply][-1]: reply for reply in self._added if reply in self._replies}
        children: dict[int, list[int]] = {}
        for position in self._current:
            if self.parents[position] in lasts:
                children.setdefault(self.parents[position], []).append(position)
        for end, reply in lasts.items():
            added = self._added[reply]
            below = children.get(end, ())
            loose = [position for position in added if position not in followed]
            onward = [position for position in below if position not in loose]
            if between := [position for position in added if position in followed and position not in below]:
                walk = self._walk_up(end, reply)
                onward += [position for position in between if self.parents[position] in walk and position not in walk]
            for position in loose:
                self.parents[position] = end
                end = position
            for position in onward:
                self.parents[position] = end

    def _walk_up(self, position: int, reply: int) -> Set[int]:
        """The positions of the entries of a reply before its last one, and of what was added between them."""
        walk: set[int] = set()
        while position != NO_PARENT and position not in walk:
            if self._reply_of[position] != reply and not self._is_added[position]:
                break
            walk.add(position)
            position = self.parents[position]
        return walk

    def _followed_by_speech(self) -> set[int]:
        """The positions of entries that something said follows, on another line."""
        followed: set[int] = set()
        for position in self._current:
            entry = self.entries[position]
            if entry.role not in SPEECH:
                continue
            at = self.parents[position]
            while at != NO_PARENT and at not in followed:
                if self.entries[at].number != entry.number:
                    followed.add(at)
                at = self.parents[at]
        return followed

    def branch(self, leaf_id: str) -> list[Entry]:
        return self._with_kept(self._with_replies(super().branch(leaf_id)))

    def _with_replies(self, path: list[Entry]) -> list[Entry]:
        """A branch with the entries of its replies, and the results of these, that are on other branches: each behind
        the last entry of the reply that stands before it in the file; if none does, behind the first."""
        positions = [self._position[entry.id] for entry in path]
        here = set(positions)
        if here.issuperset(self._current):
            return path
        places: dict[int, list[int]] = {}
        for index, position in enumerate(positions):
            places.setdefault(self._reply_of[position], []).append(index)
        places.pop(NO_REPLY, None)
        added: dict[int, list[Entry]] = {}
        for reply, indexes in places.items():
            standing = [positions[index] for index in indexes]
            for position in (*self._replies.get(reply, ()), *self._added.get(reply, ())):
                # A note on the way to what was said on another branch is part of that one.
                is_elsewhere = self.entries[position].role == Role.CUSTOM and position in self._leads_on
                if position not in here and not is_elsewhere:
                    place = max(bisect_left(standing, position) - 1, 0)
                    added.setdefault(indexes[place], []).append(self.entries[position])
        if not added:
            return path
        return [one for index, entry in enumerate(path) for one in (entry, *added.get(index, ()))]

    def _with_kept(self, path: list[Entry]) -> list[Entry]:
        """A branch with the entries of other branches that its last boundary keeps, and without those that its leaf
        does not follow.
        """
        at = _last_boundary(path)
        if at is None:
            return path
        boundary, before, after = path[at], path[:at], path[at + 1 :]
        counts = (self._kept_count.get(self._position[entry.id]) for entry in after)
        count = next((count for count in counts if count is not None), None)
        kept = kept_entries(boundary, self._lookup)
        if count is not None and isinstance(boundary.control, BoundaryControl):
            ids = tuple(entry.id for entry in kept[:count])
            boundary = msgspec.structs.replace(boundary, control=msgspec.structs.replace(boundary.control, kept=ids))
        here = {entry.id for entry in path}
        return [*before, *(entry for entry in kept if entry.id not in here), boundary, *after]


def _names_end(entry: Entry) -> bool:
    return entry.type == LAST_PROMPT and entry.parent_id is not None


def _is_boundary(entry: Entry) -> bool:
    return entry.kind is EntryKind.BOUNDARY


def _seconds(timestamp: str) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


SENDING: Final = Sending(
    fills_unanswered_calls=True, drops_empty_messages=True, drops_stray_results=True, drops_repeated_calls=True
)
"""The changes of Claude Code to a context before it sends the messages (rules 8 and 9 of `sent`)."""


class ClaudeCodeReader(Reader):
    """Reads the contexts of Claude Code 2.1.143 and newer."""

    name = "claude-code"
    honours = frozenset({EntryKind.BOUNDARY})

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        at = _last_boundary(branch)
        selected = branch if at is None else self._select(branch, at)
        removed: frozenset[str] = frozenset()
        control = branch[at].control if at is not None else None
        # Without a summary: what a boundary keeps follows the boundary itself.
        if at is not None and isinstance(control, BoundaryControl) and control.kept and control.anchor_id is None:
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
        """The remaining messages of a context, in the order in which the client rebuilds it. In a new session no text
        stands between a call and its result.
        """
        return list(_in_file_order(messages, is_new=is_new))

    def _messages(self, selected: Sequence[Entry]) -> Iterator[Message]:
        return _in_file_order(Message.of(entry) for entry in selected if entry.is_message)


class OlderClaudeCodeReader(ClaudeCodeReader):
    """Reads the contexts of Claude Code before 2.1.143, which knows only segments, and continues from the last
    message.
    """

    name = "claude-code-2.1.142"

    def _kept(self, boundary: Entry, entries: dict[str, Entry]) -> list[Entry]:
        return segment_entries(boundary, entries.get)

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        at = _last_boundary(branch)
        if at is None or self._kept(branch[at], {entry.id: entry for entry in branch}):
            return super().rebuild(branch)
        # Only the last boundary of a session keeps anything; without effect, it is not the end of the branch either.
        left = branch[: _end_of_speech(branch)]
        return super().rebuild(
            [msgspec.structs.replace(one, control=None) if _is_boundary(one) else one for one in left]
        )

    def arranged(self, messages: Iterable[Message], *, is_new: bool) -> list[Message]:
        return list(messages)

    def _messages(self, selected: Sequence[Entry]) -> Iterator[Message]:
        return (Message.of(entry) for entry in selected[: _end_of_speech(selected)] if entry.is_message)


def _end_of_speech(entries: Sequence[Entry]) -> int:
    """The number of entries up to the last thing that was said."""
    return next((at for at in range(len(entries), 0, -1) if entries[at - 1].role in SPEECH), 0)


def _last_boundary(branch: Sequence[Entry]) -> int | None:
    return next((at for at in range(len(branch) - 1, -1, -1) if _is_boundary(branch[at])), None)


def _returning(before: Sequence[Entry], after: Sequence[Entry]) -> Iterator[Entry]:
    """The entries after a boundary. Behind the first line of each reply come its lines from before the boundary, with
    the results of their calls.
    """
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
    """Whether a branch ends with notes on more than one path, some of which the next message leaves out."""
    for before, entry in zip(reversed(branch[:-1]), reversed(branch), strict=False):
        if entry.role in SPEECH:
            return False
        if entry.parent_id not in (None, before.id):
            return True
    return False


def _in_file_order(messages: Iterable[Message], *, is_new: bool = False) -> Iterator[Message]:
    """Messages in the order of the context; results, and what was noted down after them, in the order of the file."""
    for is_led_to, group in itertools.groupby(messages, lambda one: one.entry.role in ADDED or shares_line(one.entry)):
        found = list(group)
        has_results = is_led_to and any(message.role == Role.TOOL_RESULT for message in found)
        yield from _sorted(found, is_new=is_new) if has_results else found


def _sorted(led_to: Sequence[Message], *, is_new: bool) -> Iterator[Message]:
    """What a reply leads to, in order. A text whose results are gone stands on its own line; in a new session,
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
        # In the order of the file, but for what the user said on a line with results: the client sends that last.
        yield from found if is_text else sorted(found, key=lambda one: (shares_line(one.entry), one.entry.number))


class ClaudeCodeRules(PlanRules):
    """Only content that the model sees can be deleted; deleted attachments may be added again by the client."""

    def replays(self, entry: Entry) -> bool:
        """True only for sent assistant messages: providers compare the latest one that they receive."""
        return entry.role == Role.ASSISTANT and not entry.excluded

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        """For the last line of a reply that is not only thinking: the reply's lines of only thinking."""
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

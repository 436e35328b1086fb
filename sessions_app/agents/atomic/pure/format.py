"""PURE: pi's format as Atomic uses it: what the model sees, what a plan may delete, and the writer for Atomic 0.8.

| Atomic          | the context                                                                                   |
|-----------------|-----------------------------------------------------------------------------------------------|
| 0.8.26 to 0.9.8 | without what `context_compaction` entries hide; the writer appends one                        |
| since 0.9.9     | from the latest compaction that consists of lines of the conversation                         |

Each ignores the other's compactions, and those of pi. All deletions on a branch add up (`Filters`). Then replay safety
applies: providers reject a latest assistant message whose thinking was changed, so deletions that would change it are
not applied, and the results of its calls are restored with them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from sessions_app.agents.pi.pure.diagnosis import ATOMIC_0_8, ATOMIC_0_9_9, ATOMIC_0_9_11
from sessions_app.agents.pi.pure.format import SENDING as PI_SENDING, ContextRules, PiFormat
from sessions_app.agents.pi.pure.writers import ForkWriter, new_line
from sessions_app.agents.pure import formats
from sessions_app.sessionlog.context import ActiveContext, Message, keep, newest_of
from sessions_app.sessionlog.entries import (
    Deletion,
    DeletionControl,
    Entry,
    EntryKind,
    Role,
    SummaryControl,
    Target,
    tokens_of,
)
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse


@dataclass(frozen=True, slots=True)
class Filters:
    """Hidden entries, and hidden blocks by entry: indexes into the recorded content array."""

    entries: frozenset[str] = frozenset()
    blocks: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def targets(self) -> Iterator[Target]:
        """All targets: the entries, then the blocks."""
        yield from map(Target, sorted(self.entries))
        for entry_id, indexes in self.blocks.items():
            yield from (Target(entry_id, index) for index in sorted(indexes))

    def names(self, target: Target) -> bool:
        if target.block_index is None:
            return target.entry_id in self.entries
        return target.block_index in self.blocks.get(target.entry_id, ())

    def hides(self, target: Target) -> bool:
        """Whether a target or its entry is hidden."""
        return self.names(target) or target.entry_id in self.entries


def recorded_filters(branch: Sequence[Entry]) -> Filters:
    """All deletions on the branch, as recorded."""
    return _collect(target for targets in _deletions(branch) for target in targets)


def effective_filters(branch: Sequence[Entry]) -> Filters:
    """The effective deletions: as recorded, except those that replay safety reverts."""
    recorded = recorded_filters(branch)
    answers = (entry for entry in reversed(branch) if entry.is_message and entry.role == Role.ASSISTANT)
    latest = next((entry for entry in answers if entry.id not in recorded.entries), None)
    if latest is None or not latest.bears_thinking or latest.id not in recorded.blocks:
        return recorded
    calls = set(latest.call_ids())
    results = {entry.id for entry in branch if entry.result_for is not None and entry.result_for in calls}
    kept: list[Target] = []
    for targets in _deletions(branch):
        names_latest = any(_is_block_of(target, latest) for target in targets)
        for target in targets:
            if _is_block_of(target, latest):
                continue
            if target.entry_id in results and (names_latest or target.block_index is None):
                continue
            kept.append(target)
    return _collect(kept)


def _is_block_of(target: Target, entry: Entry) -> bool:
    return target.block_index is not None and target.entry_id == entry.id


def _deletions(branch: Sequence[Entry]) -> Iterator[Sequence[Target]]:
    """The targets of each `context_compaction` on the branch."""
    for entry in branch:
        if isinstance(entry.control, DeletionControl):
            yield entry.control.targets


def _collect(targets: Iterable[Target]) -> Filters:
    entries = set()
    blocks: dict[str, set[int]] = {}
    for target in targets:
        if target.block_index is None:
            entries.add(target.entry_id)
        else:
            blocks.setdefault(target.entry_id, set()).add(target.block_index)
    return Filters(frozenset(entries), {entry_id: frozenset(indexes) for entry_id, indexes in blocks.items()})


SENT: Final = frozenset({Role.USER, Role.ASSISTANT, Role.TOOL_RESULT, Role.COMMAND, Role.CUSTOM, Role.BRANCH_SUMMARY})
"""The roles of messages that Atomic sends. It knows neither system messages nor the summaries of older versions."""
PREFACE_UNITS: Final = 143
"""The UTF-16 units of the sentence that Atomic sends before the lines of a compaction."""
SENDING_0_8: Final = PI_SENDING
"""The changes of Atomic 0.8 to a context before it sends the messages. From 0.9.3 on, Atomic drops stray results as
well; a session does not show that it was continued with 0.8."""
SENDING_0_9: Final = replace(PI_SENDING, drops_stray_results=True)


class AtomicReader(formats.Reader):
    """Reads the contexts of Atomic 0.8.26 to 0.9.8."""

    name = "atomic-0.8"
    honours = frozenset({EntryKind.DELETION})

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
        # A later assistant message can restore deleted results: see `effective_filters`.
        return ActiveContext(
            self.name, tuple(messages), newest, newest is not None, SENDING_0_8, removed=frozenset(removed)
        )


@dataclass(frozen=True, slots=True)
class VerbatimLinesReader(formats.Reader):
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
        first_kept = boundary.control.first_kept_id if isinstance(boundary.control, SummaryControl) else None
        start = next((i for i in range(at) if branch[i].id == first_kept), at)
        tail = [message for entry in branch[start:at] for message in _messages(entry)]
        kept = _as_text(tail) if self.tail_as_text else tail
        later = [message for entry in branch[at + 1 :] for message in _messages(entry)]
        lines = Message(boundary, boundary.role, None, boundary.tokens + tokens_of(PREFACE_UNITS))
        messages = [lines, *kept, *later]
        return ActiveContext(self.name, tuple(messages), boundary, sending=SENDING_0_9)


def _as_sent(message: Message) -> Message:
    return message if message.role in SENT else replace(message, sent=False)


def _is_boundary(entry: Entry) -> bool:
    return isinstance(entry.control, SummaryControl) and entry.control.is_verbatim


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


class AtomicRules(ContextRules):
    """The deletable entries: those that can be in the context, except content hidden by earlier compactions, content
    that is not sent, and system messages, which pi would declare again.
    """

    def compactable(self, branch: Sequence[Entry], context: ActiveContext | None = None) -> list[Message]:
        filters = effective_filters(branch)
        messages = []
        for entry in branch:
            if not entry.is_message or entry.excluded or entry.id in filters.entries or entry.role == Role.SYSTEM:
                continue
            message = keep(entry, filters.blocks.get(entry.id))
            if message is not None:
                messages.append(message)
        return messages

    def replays(self, entry: Entry) -> bool:
        """Always False: Atomic itself does not apply deletions that change the latest thinking. See
        `effective_filters`.
        """
        return False


ENTRY_TYPE: Final = "context_compaction"
PROMPT_VERSION: Final = 1


class ContextCompactionWriter(formats.SessionWriter):
    """Appends the deletion as a separate entry; its targets stay in the file."""

    name = "context-compaction"
    honours: Final = "deletions"
    appends = True
    effect = "Appends one line to the session; Atomic no longer sends what the line names."
    undo = "Taken back by one more line, as long as nothing was said since."

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: formats.WriteFacts) -> formats.Append:
        """Append the compaction entry. Raises BadInput `brings_back`."""
        _require_gone(branch, deletion.targets, facts)
        line = new_line(
            ENTRY_TYPE,
            facts.new_id(),
            branch[-1].id,
            facts.written_at,
            promptVersion=PROMPT_VERSION,
            deletedTargets=[target.to_json() for target in deletion.targets],
            protectedEntryIds=list(deletion.protected_entry_ids),
            stats=deletion.stats.to_json(),
            backupPath=facts.backup,
        )
        return formats.Append((line,))

    def hand(self, branch: Sequence[Entry], change: formats.Change) -> formats.Handed:
        """The targets, which Atomic's own airlock judges again."""
        lines = change.lines if isinstance(change, formats.Append) else ()
        deletions = [target for line in lines for target in parse(line)["deletedTargets"]]
        return formats.Handed({"deletions": deletions}, change)

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        """The targets that replay safety reverts: see `effective_filters`.

        The airlock accepts them, as the agent's own does; the recorded reduction includes them nevertheless.
        """
        applied = _filters_with(branch, targets)
        return tuple(target for target in targets if not applied.names(target))


def _filters_with(branch: Sequence[Entry], targets: Sequence[Target]) -> Filters:
    """The filters if these targets were recorded at the end of a branch."""
    control = DeletionControl(tuple(targets), percent=None, backup="")
    planned = Entry(0, 0, 0, "", None, ENTRY_TYPE, EntryKind.DELETION, control=control)
    return effective_filters([*branch, planned])


def _require_gone(branch: Sequence[Entry], targets: Sequence[Target], facts: formats.WriteFacts) -> None:
    """Raise BadInput `brings_back` if replay safety would revert earlier deletions: if the latest answer would be one
    with thinking from which blocks were deleted.
    """
    after = _filters_with(branch, targets)
    back = next((one for one in effective_filters(branch).targets() if not after.hides(one)), None)
    if back is not None:
        raise BadInput(
            "brings_back",
            f"{facts.session}: without the answers that the plan deletes, the latest one has thinking, and parts of it "
            "were deleted before. Atomic sends the latest thinking with everything beside it, so it would send "
            f"{back} again. Nothing was written. Keep a later answer, or delete that one as a whole.",
        )


_READER: Final = AtomicReader()
_FORK: Final = ForkWriter(_READER, ends_with_edit=False)


def _later(label: str, reader: formats.Reader, since: tuple[int, ...]) -> formats.Generation:
    """A generation that ignores recorded deletions, so that only the fork writer is possible."""
    fork = ForkWriter(reader, ends_with_edit=False)
    return formats.Generation(label, reader, ContextRules(reader), (fork,), since=since)


class AtomicFormat(PiFormat):
    """Atomic from 0.8.26 on. It ignores compactions that are summaries."""

    label = "Atomic"
    summary_format: formats.SummaryFormat | None = formats.SummaryFormat(new_line, honours_compactions=False)
    generations: Sequence[formats.Generation] = (
        _later(ATOMIC_0_9_11, VerbatimLinesReader("atomic-0.9", tail_as_text=True), (0, 9, 11)),
        _later(ATOMIC_0_9_9, VerbatimLinesReader("atomic-0.9.9", tail_as_text=False), (0, 9, 9)),
        formats.Generation(ATOMIC_0_8, _READER, AtomicRules(_READER), (ContextCompactionWriter(), _FORK)),
    )

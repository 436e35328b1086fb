"""PURE: the range of a summary: the branch that a move leaves behind, or the beginning of a context.

A branch that is left. A is the deepest entry on both root paths:

    root ─ … ─ A ─ … ─ old leaf        left: the entries after A up to the old leaf
               └ … ─ new leaf

A compaction. The range starts at the first entry that the previous compaction kept (or after that compaction) and ends
at the leaf; the cut is the beginning of the kept part, at about `keep_recent_tokens` before the leaf:

    │ replaced │ prefix │ kept │       prefix: the beginning of the turn in which the cut is, if it does not start one

A cut is never at a tool result, which would lose its call. The rules are those of pi's `prepareCompaction`, with one
difference: if the kept part begins with an entry that is not a message, pi takes the whole turn before it for a split
one.

`turns_of` describes replaced messages turn by turn: the user's text, and the changes of files after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sessions_app.sessionlog.context import ActiveContext, Message, keep
from sessions_app.sessionlog.entries import Entry, EntryKind, Role, SummaryControl, Texts
from sessions_app.sessionlog.text import title_of
from sessions_app.sessionlog.tree import SessionTree

from .mentions import Statement

UNKNOWN_WINDOW: Final = 128_000
"""The assumed window of a model whose window is unknown, in tokens."""
RESERVE: Final = 16_384
KEEP_RECENT: Final = 20_000
BRANCH_OUTPUT: Final = 2_048
"""The maximum length of a branch's summary, in tokens."""
NEARLY_FULL: Final = 0.9
"""A summary that exceeds the rest of a budget is still included while less than this share of the budget is used."""
TURN_STARTS: Final = frozenset({Role.USER, Role.COMMAND, Role.CUSTOM, Role.BRANCH_SUMMARY})
CUT_POINTS: Final = TURN_STARTS | {Role.ASSISTANT}
_SUMMARIES: Final = frozenset({Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY})
_SET_UP: Final = frozenset({Role.SYSTEM, Role.INJECTED})
"""The roles of messages that are not part of the conversation."""


class BranchLeft(NamedTuple):
    """The branch that a move of the leaf leaves behind."""

    ancestor_id: str | None
    """The deepest entry on both branches; None if they have different roots."""
    entries: tuple[Entry, ...]
    """The entries after the ancestor up to the old leaf, oldest first."""


class WithinBudget(NamedTuple):
    """The newest entries whose messages fit into a budget, oldest first."""

    entries: tuple[Entry, ...]
    tokens: int
    left_out: int
    """The number of older messages that did not fit; tool results do not count."""


@dataclass(frozen=True, slots=True)
class SummaryRange:
    """The range of a branch that a compaction covers: `replaced`, `prefix` and `kept` together, in this order.

    The previous compaction is not in it, although it may be recorded within it.
    """

    replaced: tuple[Entry, ...]
    prefix: tuple[Entry, ...]
    """The beginning of a split turn; empty if there is none."""
    kept: tuple[Entry, ...]
    previous_summary: Entry | None
    """The compaction that this one follows: its summary is updated."""

    @property
    def first_kept_id(self) -> str:
        return self.kept[0].id

    def from_entry(self, entry_id: str) -> SummaryRange:
        """The same range with another first kept entry; then no turn counts as split."""
        entries = (*self.replaced, *self.prefix, *self.kept)
        first = next(at for at, entry in enumerate(entries) if entry.id == entry_id)
        return SummaryRange(entries[:first], (), entries[first:], self.previous_summary)

    @property
    def summarised(self) -> tuple[Entry, ...]:
        """The entries that will no longer be sent."""
        return self.replaced + self.prefix


def branch_left(tree: SessionTree, old_leaf_id: str, new_leaf_id: str | None) -> BranchLeft:
    """The branch that a move from one leaf to another leaves behind; None is the position before every entry.

    Raises BadInput `unknown_entry`.
    """
    old = tree.branch(old_leaf_id)
    new = {entry.id for entry in tree.branch(new_leaf_id)} if new_leaf_id is not None else frozenset[str]()
    shared = next((at for at in range(len(old) - 1, -1, -1) if old[at].id in new), None)
    if shared is None:
        return BranchLeft(None, tuple(old))
    return BranchLeft(old[shared].id, tuple(old[shared + 1 :]))


def branch_budget(window: int | None, reserve: int = RESERVE) -> int:
    """The tokens of a left branch from which its summary is made; `window` is that of the model that writes it."""
    return max(0, (window or UNKNOWN_WINDOW) - reserve)


def within_budget(entries: Sequence[Entry], budget: int, removed: Collection[str] = ()) -> WithinBudget:
    """The newest of these entries, given oldest first, that fit into a budget in estimated tokens.

    Tool results are omitted. `removed` are ids of messages that are no longer part of the context.
    """
    shown = [entry for entry in entries if _is_summarised(entry) and entry.id not in removed]
    taken: list[Entry] = []
    tokens = 0
    for entry in reversed(shown):
        fits = tokens + entry.tokens <= budget
        if fits or (entry.role in _SUMMARIES and tokens < NEARLY_FULL * budget):
            taken.append(entry)
            tokens += entry.tokens
        if not fits:
            break
    return WithinBudget(tuple(reversed(taken)), tokens, len(shown) - len(taken))


def compaction_range(
    branch: Sequence[Entry], keep_recent_tokens: int = KEEP_RECENT, context: ActiveContext | None = None
) -> SummaryRange | None:
    """The range that a compaction of a branch, given root first, would replace; None if there is nothing to replace.

    `context` is what the reader rebuilds from the branch: with it, removed content is not counted, and edited content
    is counted in its present form. Without it, entries count as recorded.
    """
    if not branch or branch[-1].kind is EntryKind.SUMMARY:
        return None
    previous, entries = _range(branch)
    tokens = (
        {entry.id: entry.tokens for entry in entries if entry.is_message and not entry.empty}
        if context is None
        else context_tokens(context)
    )
    cut = _cut(entries, tokens, keep_recent_tokens)
    if cut is None:
        return None
    first_kept = cut
    # The kept part also has what precedes its first message, up to another message or summary.
    while first_kept and not (
        entries[first_kept - 1].id in tokens or entries[first_kept - 1].kind is EntryKind.SUMMARY
    ):
        first_kept -= 1
    turn = next((at for at in range(cut, -1, -1) if _is_at(entries[at], tokens, TURN_STARTS)), None)
    end = min(first_kept, turn) if turn is not None else first_kept
    found = SummaryRange(tuple(entries[:end]), tuple(entries[end:first_kept]), tuple(entries[first_kept:]), previous)
    said = (entry for entry in found.summarised if entry.id in tokens and entry.role not in _SET_UP)
    return found if any(said) else None


def history_output(reserve: int = RESERVE) -> int:
    """The maximum length of a compaction's summary, in tokens: 0.8 of the reserve."""
    return reserve * 4 // 5


def prefix_output(reserve: int = RESERVE) -> int:
    """The maximum length of the summary of a turn's beginning, in tokens: 0.5 of the reserve."""
    return reserve // 2


def messages_of(entries: Iterable[Entry], context: ActiveContext | None = None) -> list[Message]:
    """The messages that a model is sent for these entries: those of the context if it is given, otherwise as recorded.

    Compactions among recorded entries are also messages; instructions and messages that are not sent are omitted.
    """
    if context is None:
        shown = (
            entry for entry in entries if not entry.empty and (entry.is_message or entry.kind is EntryKind.SUMMARY)
        )
        found = [message for message in map(keep, shown) if message is not None]
    else:
        here = {entry.id for entry in entries}
        found = [message for message in context.messages if message.entry.id in here]
    return [message for message in found if message.sent and message.role not in _SET_UP]


def messages_left(entries: Iterable[Entry], context: ActiveContext) -> list[Message]:
    """The messages that a model is sent for entries of a branch that is left; `context` is that of the old leaf.

    Edited content has its present form, and removed content is omitted. Content that a compaction replaced is not in
    the context: it is used as recorded.
    """
    found: dict[str, list[Message]] = {}
    for message in context.messages:
        found.setdefault(message.entry.id, []).append(message)
    shown: list[Message] = []
    for entry in entries:
        if entry.id in found:
            shown += (one for one in found[entry.id] if one.sent and one.role not in _SET_UP)
        elif entry.id not in context.removed:
            shown += messages_of([entry])
    return shown


def context_tokens(context: ActiveContext) -> dict[str, int]:
    """The estimated tokens of each entry that has messages in a context, without those of compactions."""
    found: dict[str, int] = {}
    for message in context.messages:
        if message.entry.kind is not EntryKind.SUMMARY:
            found[message.entry.id] = found.get(message.entry.id, 0) + message.tokens
    return found


def tokens_before(context: ActiveContext) -> int:
    """The size of a context as its agent records it with a compaction: a report is used if nothing was edited or
    compacted after it; otherwise everything is estimated."""
    usage, newest = context.usage, context.newest_compaction
    reporter = usage.reported_by
    if reporter is None or (newest is not None and newest.number > reporter.number):
        return context.estimate
    return usage.tokens


# ---- the branch that is left -----------------------------------------------------------------------------


def _is_summarised(entry: Entry) -> bool:
    """Whether the summary of a branch is made from an entry."""
    if entry.empty or entry.excluded or entry.role in (Role.TOOL_RESULT, Role.SYSTEM):
        return False
    return entry.is_message or entry.kind is EntryKind.SUMMARY


# ---- the cut of a compaction -----------------------------------------------------------------------------


def _range(branch: Sequence[Entry]) -> tuple[Entry | None, list[Entry]]:
    """The newest compaction of a branch, and the entries since the first one that it kept, without itself."""
    for at in range(len(branch) - 1, -1, -1):
        control = branch[at].control
        if isinstance(control, SummaryControl):
            first = next((i for i in range(at) if branch[i].id == control.first_kept_id), at)
            return branch[at], [*branch[first:at], *branch[at + 1 :]]
    return None, list(branch)


def _cut(entries: Sequence[Entry], tokens: Mapping[str, int], keep_recent_tokens: int) -> int | None:
    """The position of the first kept message; None if no message can be the first."""
    points = [at for at, entry in enumerate(entries) if _is_at(entry, tokens, CUT_POINTS)]
    if not points:
        return None
    counted = 0
    for at in range(len(entries) - 1, -1, -1):
        weight = tokens.get(entries[at].id, 0)
        counted += weight
        if weight and counted >= keep_recent_tokens:
            # Results at the end may exceed the limit alone: then their call is kept with them.
            return next((point for point in points if point >= at), points[-1])
    return points[0]


def _is_at(entry: Entry, tokens: Mapping[str, int], roles: Collection[str]) -> bool:
    return entry.id in tokens and entry.role in roles


PROMPT_CHARS: Final = 160
"""The number of characters of a user message that are kept."""


class FileTouch(NamedTuple):
    """The effect of a tool's calls on a file, and their number."""

    tool: str
    path: str
    times: int


@dataclass(frozen=True, slots=True)
class ReplacedTurn:
    """The replaced messages of one turn. `number` counts the user's messages of the branch; 0 is before the first."""

    number: int
    entry_id: str
    """The first of these messages."""
    timestamp: str
    words: str
    messages: int
    tokens: int
    files: tuple[FileTouch, ...]


def turn_numbers(branch: Iterable[Entry]) -> dict[str, int]:
    """The turn number of each entry of a branch, given root first."""
    numbers: dict[str, int] = {}
    number = 0
    for entry in branch:
        number += entry.role == Role.USER
        numbers[entry.id] = number
    return numbers


def turns_of(
    numbers: Mapping[str, int],
    messages: Sequence[Message],
    users: Iterable[Message],
    statements: Iterable[Statement],
    texts: Mapping[str, Texts],
) -> tuple[ReplacedTurn, ...]:
    """The turns of replaced messages, in order.

    `users` are the user's messages, including those that were not replaced; `statements` are those of the replaced
    messages, and `texts` are by the ids of the messages' sources.
    """
    grouped: dict[int, list[Message]] = {}
    for message in messages:
        grouped.setdefault(numbers.get(message.entry.id, 0), []).append(message)
    asked = {numbers.get(user.entry.id, 0): user for user in users}
    files: dict[int, Counter[tuple[str, str]]] = {number: Counter() for number in grouped}
    for statement in statements:
        touched = files[numbers.get(statement.entry_id, 0)]
        touched.update((statement.tool, path) for path in statement.paths)
    return tuple(
        ReplacedTurn(
            number,
            found[0].entry.id,
            found[0].entry.timestamp,
            _words(asked[number], texts) if number in asked else "",
            len(found),
            sum(message.tokens for message in found),
            tuple(FileTouch(tool, path, times) for (tool, path), times in files[number].most_common()),
        )
        for number, found in sorted(grouped.items())
    )


def _words(user: Message, texts: Mapping[str, Texts]) -> str:
    text = user.text(texts[user.source.id])
    words = title_of(text, PROMPT_CHARS + 1)
    return words if len(words) <= PROMPT_CHARS else f"{words[:PROMPT_CHARS]}…"

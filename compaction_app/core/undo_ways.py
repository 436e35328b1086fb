"""The way to undo a compaction, or a part of it: it depends on the written lines and on those that followed.

written as                      all of it                       some of its entries
lines, no message since         LEAF: the leaf moves back       SMALLER: fewer deletions, from before the lines
lines, the session continued    FORK: a new session             FORK
  with pi 0.87 and newer        EDITS: later edits              EDITS, also if no message followed
a new session                   REMOVAL: of the new file        FORK: of the original session
rows of a database              ROWS: restored                  ROWS; not of a new session
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Role, Target

from .states import WordedEnum


class UndoWay(WordedEnum):
    """A way to undo a compaction; its sentence states the effect on the file, and how the agent sees it."""

    LEAF = (
        "leaf",
        "Nothing was said since. One line is appended to the session; the agent continues from it, on a branch without "
        "what the plan wrote.",
    )
    SMALLER = (
        "smaller",
        "Nothing was said since. One line is appended to the session: it deletes less, and replaces what the plan "
        "wrote.",
    )
    EDITS = (
        "edits",
        "One or more lines are appended to the session; with them the model sees these entries again, in their place. "
        "What was said since is kept.",
    )
    FORK = (
        "fork",
        "A new session is written beside this one: the same conversation with these entries back. This session is not "
        "changed.",
    )
    REMOVAL = (
        "removal",
        "The plan was saved as a new session, and nothing was written to it since. That file is deleted; the original "
        "session was never changed.",
    )
    ROWS = (
        "rows",
        "The rows of the agent's database become what they were, if nothing has changed them since. "
        "What was said since is kept.",
    )

    @property
    def appends(self) -> bool:
        """Whether it appends to the session."""
        return self in (UndoWay.LEAF, UndoWay.SMALLER, UndoWay.EDITS)


NO_COMPANIONS: Final[Mapping[str, tuple[str, ...]]] = {}


def choose_way(
    *, made_session: bool, is_last: bool, is_whole: bool, can_move: bool, can_edit: bool, can_plan: bool
) -> UndoWay:
    """The way to undo a compaction, or to bring back some of its entries if not `is_whole`.

    `made_session`: it was written as a new session. `is_last`: no message followed. `can_move`: an appended line can
    make the agent continue after an earlier entry. `can_edit`: the agent honours later lines that bring entries back.
    `can_plan`: a smaller plan can be validated, because its parameters are known.
    """
    if made_session:
        return UndoWay.REMOVAL if is_whole else UndoWay.FORK
    if is_last and is_whole and can_move:
        return UndoWay.LEAF
    if can_edit:
        return UndoWay.EDITS
    return UndoWay.SMALLER if is_last and can_plan else UndoWay.FORK


def with_pairs(
    wanted: Collection[Target],
    deleted: Iterable[Target],
    messages: Mapping[str, Message],
    companions: Mapping[str, tuple[str, ...]] = NO_COMPANIONS,
) -> tuple[Target, ...]:
    """The deleted targets that come back with the wanted ones, in the order of `deleted`: calls with their results, and
    entries that must not be deleted without one that comes back.

    `messages` are those of the context with everything back, by entry id; `companions` as in `PlanRules.companions`.
    """
    deleted = tuple(deleted)
    calls = {target: frozenset(_calls_of(target, messages.get(target.entry_id))) for target in deleted}
    by_call: dict[str, list[Target]] = {}
    for target, call_ids in calls.items():
        for call_id in call_ids:
            by_call.setdefault(call_id, []).append(target)
    whole = {target.entry_id: target for target in deleted if target.block_index is None}
    joined: dict[str, list[Target]] = {}
    for entry_id in whole.keys() & companions.keys():
        for companion in companions[entry_id]:
            joined.setdefault(companion, []).append(whole[entry_id])
    back: set[Target] = set()
    waiting = [target for target in deleted if target in wanted]
    while waiting:
        target = waiting.pop()
        if target not in back:
            back.add(target)
            waiting += (partner for call_id in calls[target] for partner in by_call[call_id])
            waiting += joined.get(target.entry_id, ()) if target.block_index is None else ()
    return tuple(target for target in deleted if target in back)


def _calls_of(target: Target, message: Message | None) -> Iterator[str]:
    """The calls that a target makes or answers. Without one of its blocks, a result is still an answer."""
    if message is None:
        return
    if message.role == Role.TOOL_RESULT:
        if target.block_index is None and message.entry.result_for is not None:
            yield message.entry.result_for
        return
    for block in message.blocks or ():
        if block.call_id is not None and target.block_index in (None, block.index):
            yield block.call_id

"""The facts about a branch that need no texts: computed once, and cached with the document.

    entries of the index ─tree─▶ branch ─reader─▶ what the model sees ─┬─▶ token map
                                        └─prepare─▶ protections ───────┘

All branches of one state of a file share its entries. A branch has three VIEWS:

    sees      the active context, with the remaining blocks
    all       every entry, as recorded
    removed   the entries that are not completely in the context, with the missing blocks
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from compaction_app.core.summary_loss import summaries_on
from compaction_app.core.token_map import TokenMap, draw, kind_of_piece
from compaction_app.core.transcript import prepare
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import fitting_reader
from sessions_app.document.document import Document
from sessions_app.models import Session
from sessions_app.sessionlog.context import ActiveContext, Basis, ContextSize, Message
from sessions_app.sessionlog.diagnosis import Breakage, SentConversation
from sessions_app.sessionlog.entries import Block, DeletionControl, EditControl, Entry, Protection, Role, Texts
from sessions_app.sessionlog.tree import NO_PARENT, SessionTree, labels
from sessions_app.sessionlog.tree_rows import TreeRows
from sessions_app.storage.session_loader import read_place, tally_of

VIEWS: Final = {"sees": "What the model sees", "all": "Everything", "removed": "Deleted"}
"""The views, with their names."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Another branch that leaves this one: its leaf, and the number of entries and messages only in it."""

    leaf_id: str
    entries: int
    messages: int


@dataclass(frozen=True, slots=True)
class EntryRemoval:
    """The part of an entry that a deletion removes: the blocks with these indexes, or all of it."""

    compaction_id: str
    blocks: frozenset[int] | None


@dataclass(frozen=True)
class BranchState:
    """The facts about a branch that need no texts."""

    tree: SessionTree
    leaf_id: str
    branch: list[Entry]
    reading: Reading
    context: ActiveContext
    kept: dict[str, Message]
    """The messages that the model sees, by entry."""
    places: dict[str, int]
    """The position of each entry in the context."""
    listed: Mapping[str, list[Entry]]
    """The entries of each of VIEWS."""
    removals: dict[str, EntryRemoval]
    """The entries that the branch's deletions name, whether or not this reader applies them."""
    edits: dict[str, Entry]
    """The latest edit of each edited entry."""
    protections: dict[str, Protection]
    makers: dict[str, list[Entry]]
    """For each tool call id: the entries that make it."""
    answers: dict[str, list[Entry]]
    """For each tool call id: the results that answer it."""
    labels: Mapping[str, str]
    """The latest label of each labelled entry."""
    broken: Breakage | None
    """Why no provider would accept the context; None if one would."""
    size: ContextSize
    """The size of the context."""
    token_map: TokenMap
    tokens_before: Sequence[int]
    """The sum of the map's tokens before each entry of the context, and the total at the end."""
    turns: list[tuple[int, Entry]]
    """The user's messages, by position in the branch."""
    forks: Mapping[int, list[Fork]]
    """The other branches that leave this one, by position in the branch."""
    last_summary: str
    """The last summary with which the agent replaced something; empty if there is none."""
    titles: dict[str, str] = field(default_factory=dict)
    """The first words of user messages, cached once a page has shown them."""
    commands: dict[str, str] = field(default_factory=dict)
    """What those of these messages are about that only have commands of the agent: see `text.command_words`."""

    @cached_property
    def fitting_reader(self) -> str:
        """The reader that the last report probably used, if the context of the present reader is far too large for
        it."""
        if self.size.basis is Basis.REPORTED:
            return ""
        return fitting_reader(self.reading.agent, self.branch, self.reading.reader)

    @cached_property
    def rows(self) -> TreeRows:
        """The whole tree as rows."""
        return TreeRows(self.tree)


def branch_state(session: Session, leaf_id: str = "") -> BranchState:
    """The state of a branch, from the index; an empty `leaf_id` means the file's last entry.

    Raises BadInput `unknown_entry` and `no_entries`, and the errors of `Document.of_index`.
    """
    document = Document.of_index(session)
    leaf = leaf_id or document.leaf_id
    return document.derived(
        ("branch", leaf), lambda: _work_out(session, document, leaf), lambda state: len(state.branch)
    )


# ---- the views -------------------------------------------------------------------------------------------


def is_removed(entry: Entry, message: Message | None) -> bool:
    """Whether a recorded message, or a part of it, is missing from the context: `message` is its remaining part."""
    if message is None:
        return entry.is_message and not entry.empty
    return message.blocks is not entry.blocks and (
        message.edit is not None or len(message.blocks or ()) < len(entry.blocks or ())
    )


def messages_in(view: str, branch: Sequence[Entry], context: ActiveContext) -> list[Message]:
    """The messages of one of VIEWS, in order."""
    if view == "all":
        return [Message(entry, entry.role, entry.blocks, entry.tokens) for entry in branch]
    kept = {message.entry.id: message for message in context.messages}
    if view == "sees":
        return list(kept.values())
    removed = [entry for entry in branch if is_removed(entry, kept.get(entry.id))]
    return [Message(entry, entry.role, _removed_blocks(entry, kept.get(entry.id)), entry.tokens) for entry in removed]


def _removed_blocks(entry: Entry, message: Message | None) -> tuple[Block, ...] | None:
    """The recorded blocks that the model does not see: all of them, if an edit replaced the content."""
    if entry.blocks is None or message is None or message.edit is not None:
        return entry.blocks
    left = {block.index for block in message.blocks or ()}
    return tuple(block for block in entry.blocks if block.index not in left)


# ---- the computation -------------------------------------------------------------------------------------


def _size(
    session: Session, leaf: str, branch: Sequence[Entry], context: ActiveContext, reading: Reading
) -> ContextSize:
    """The size of a context: that of the session, unless the branch or the reader is another one."""
    known = session.context_size
    if known is not None and (leaf, reading.reader.name) == (session.leaf_id, session.read_as):
        return known
    with session.agent.store.open(session.real_path()) as reader:

        def read(entry: Entry) -> Texts:
            return read_place(session.agent, reader, entry, session.version)[1]

        return tally_of(context, branch, reading.reader.rebuild, session.inherited_measure, read).size


def _work_out(session: Session, document: Document, leaf: str) -> BranchState:
    tree, reading, branch = document.tree, document.reading, document.branch(leaf)
    context = reading.reader.rebuild(branch)
    kept = {message.entry.id: message for message in context.messages}
    # The query is not shown here, so no text has to be read for it.
    transcript = prepare(branch, {}, {"query": "-"}, reading.rules(), context=context)
    protections = {
        entry.entry_id: entry.reason
        for entry in (transcript.entries if transcript is not None else ())
        if entry.reason is not None
    }
    makers, answers = _calls(branch, context)
    size = _size(session, leaf, branch, context, reading)
    pieces, before = _pieces(context.messages, protections)
    return BranchState(
        tree=tree,
        leaf_id=leaf,
        branch=branch,
        reading=reading,
        context=context,
        kept=kept,
        places={entry_id: place for place, entry_id in enumerate(kept)},
        listed={
            "sees": [message.entry for message in kept.values()],
            "all": branch,
            "removed": [entry for entry in branch if is_removed(entry, kept.get(entry.id))],
        },
        removals=_removals(branch),
        edits=_edits(branch),
        protections=protections,
        makers=makers,
        answers=answers,
        labels=labels(tree),
        broken=_breakage(session, leaf, reading, context),
        size=size,
        token_map=draw(pieces),
        tokens_before=before,
        turns=[(position, entry) for position, entry in enumerate(branch) if entry.role == Role.USER],
        forks=_forks(tree, branch),
        last_summary=next((entry.id for entry in reversed(summaries_on(branch, reading.reader))), ""),
    )


def _breakage(session: Session, leaf_id: str, reading: Reading, context: ActiveContext) -> Breakage | None:
    """Why the branch cannot be continued; already known for the branch that the index has counted."""
    if (leaf_id, reading.reader.name) != (session.leaf_id, session.read_as):
        return SentConversation.of(context).broken
    return Breakage(session.broken_at, session.broken) if session.broken else None


def _removals(branch: Sequence[Entry]) -> dict[str, EntryRemoval]:
    removals: dict[str, EntryRemoval] = {}
    for entry in branch:
        if not isinstance(entry.control, DeletionControl):
            continue
        blocks: dict[str, set[int]] = {}
        for target in entry.control.targets:
            if target.block_index is None:
                if target.entry_id not in removals or removals[target.entry_id].blocks is not None:
                    removals[target.entry_id] = EntryRemoval(entry.id, None)
            else:
                blocks.setdefault(target.entry_id, set()).add(target.block_index)
        for entry_id, indexes in blocks.items():
            earlier = removals.get(entry_id)
            if earlier is None or earlier.blocks is not None:
                before = earlier.blocks if earlier is not None and earlier.blocks is not None else frozenset()
                removals[entry_id] = EntryRemoval(entry.id, before | indexes)
    return removals


def _edits(branch: Sequence[Entry]) -> dict[str, Entry]:
    return {
        entry.control.target_id: entry
        for entry in branch
        if isinstance(entry.control, EditControl) and entry.control.target_id is not None
    }


def _calls(branch: Sequence[Entry], context: ActiveContext) -> tuple[dict[str, list[Entry]], dict[str, list[Entry]]]:
    makers: dict[str, list[Entry]] = {}
    answers: dict[str, list[Entry]] = {}
    for entry in branch:
        if entry.result_for is not None:
            answers.setdefault(entry.result_for, []).append(entry)
        for call_id in entry.call_ids() if entry.is_message else ():
            makers.setdefault(call_id, []).append(entry)
    for message in context.messages if context.newest_compaction is not None else ():
        for block in (message.blocks or ()) if message.edit is not None else ():
            if block.call_id is not None:
                makers.setdefault(block.call_id, []).append(message.entry)
    return makers, answers


def _pieces(
    messages: Sequence[Message], protections: Mapping[str, Protection]
) -> tuple[list[tuple[str, int, bool]], Sequence[int]]:
    """The pieces of the map, and the tokens before each entry."""
    pieces: list[tuple[str, int, bool]] = []
    before = array("Q")
    total = 0
    previous = None
    for message in messages:
        entry, blocks = message.entry, message.blocks
        protected = entry.id in protections
        if entry is not previous:
            before.append(total)
        previous = entry
        if blocks and entry.role == Role.ASSISTANT:
            for block in blocks:
                pieces.append((kind_of_piece(entry.role, "", block.type), block.tokens, protected))
                total += block.tokens
            continue
        tokens = sum([block.tokens for block in blocks]) if blocks else message.tokens
        pieces.append((kind_of_piece(entry.role, entry.tool_name), tokens, protected))
        total += tokens
    before.append(total)
    return pieces, before


def _forks(tree: SessionTree, branch: Sequence[Entry]) -> dict[int, list[Fork]]:
    """The points at which other branches with messages leave this one. A branch with every entry has none."""
    here = {entry.id for entry in branch}
    if all(entry.is_off_branch or entry.id in here for entry in tree.entries):
        return {}
    found: dict[int, list[Fork]] = {}
    on_branch = {tree.position(entry.id) for entry in branch}
    places = [NO_PARENT, *(tree.position(entry.id) for entry in branch)]
    for position, place in enumerate(places):
        for child in tree.children.get(place, ()):
            if child not in on_branch:
                fork = _fork(tree, child)
                if fork.messages:
                    found.setdefault(max(0, position - 1), []).append(fork)
    return found


def _fork(tree: SessionTree, start: int) -> Fork:
    """The branch that begins at an entry: its leaf is the descendant that was written last."""
    count, messages, last, pending = 0, 0, start, [start]
    while pending:
        position = pending.pop()
        count += 1
        messages += tree.entries[position].is_message
        last = max(last, position)
        pending.extend(tree.children.get(position, ()))
    return Fork(tree.entries[last].id, count, messages)


def map_place(
    drawn: TokenMap,
    before: Sequence[int],
    number: int,
    total: int,
    turn: int,
    beginning: Callable[[int, int], int],
) -> dict[str, Any]:
    """The place of an entry on a token map, by its number from 1, for a page and its script.

    `before` are the amounts drawn before each entry, `turn` is the entry's, and `beginning` gives the number of the
    entry that begins a turn, or a default. The numbers that begin this turn (or the previous one) and the next one are
    the targets of the page keys.
    """
    top, height = drawn.frame(before[number - 1], before[number] - before[number - 1])
    begun = beginning(turn, 1)
    return {
        "number": number,
        "total": total,
        "top": top,
        "height": height,
        "previous_turn": begun if begun < number else beginning(turn - 1, 1),
        "next_turn": beginning(turn + 1, total),
    }


def find_leaf(session: Session, entry_id: str) -> str:
    """The leaf of a branch with that entry: the active one if possible. Raises BadInput `unknown_entry`."""
    state = branch_state(session)
    if state.tree.descends(state.leaf_id, entry_id):
        return ""
    return _fork(state.tree, state.tree.position(entry_id)).leaf_id

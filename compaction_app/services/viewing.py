"""A session's branch as a page shows it: its turns, a window of its entries, and what is said of each.

What is decided about a branch (context, protection, pairs) is worked out once and kept for the last few
branches, known again by the state of the file; the texts of a window are read from the file by offset.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from django.conf import settings

from sessions_app.files import FileState, Fingerprint, SessionReader, file_state
from sessions_app.loading import read_texts
from sessions_app.models import Session
from sessions_app.services.indexing import read_entries
from sessions_app.services.reading import reading_of
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Block, Entry, Texts
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.filters import RecordedTarget, recorded_targets
from sessions_app.sessionlog.outline import COMPACTIONS
from sessions_app.sessionlog.readers import Reading
from sessions_app.sessionlog.tree import NO_PARENT, SessionTree

from ..deletion.objects import Protection, TranscriptEntry
from ..deletion.transcript import Transcript, prepare
from ..tokenmap import Piece, TokenMap, draw

WINDOW: Final = 40
"""Entries on one page of a branch."""
TURNS_SHOWN: Final = 60
CLAMP_LINES: Final = 5
CLAMP_CHARACTERS: Final = 900
WHOLE_CHARACTERS: Final = 400_000
"""What is shown of one text at most; the rest is said to be there."""
CACHED: Final = 3
VIEWS: Final = ("sees", "all", "removed")
RESULT_KINDS: Final = frozenset({"read", "bash", "edit", "write"})


@dataclass(frozen=True, slots=True)
class Fork:
    """Another branch that leaves this one: its leaf, and how many entries are only in it."""

    leaf_id: str
    entries: int


@dataclass(frozen=True, slots=True)
class BranchState:
    """All that is known of a branch without its texts."""

    tree: SessionTree
    leaf_id: str
    branch: list[Entry]
    reading: Reading
    context: ActiveContext
    transcript: Transcript | None
    kept: dict[str, Message]
    removed_by: dict[str, tuple[str, frozenset[int] | None]]
    """For each entry that a compaction took: the compaction, and the blocks where it was not the whole."""
    token_map: TokenMap
    turns: list[tuple[int, Entry]]
    """The user's messages, by position in the branch."""
    forks: list[tuple[int, Fork]]
    """Where other branches leave this one, by position in the branch."""
    titles: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """What follows one of the user's messages, up to the next."""

    number: int
    entry_id: str
    title: str
    tokens: int
    current: bool
    troubled: bool
    compacted: bool
    forks: list[Fork]


@dataclass(frozen=True, slots=True)
class Item:
    """One block, or one entry without blocks, as the page shows it."""

    kind: str
    who: str
    entry_id: str
    block: int | None
    first: bool
    """Whether it is the first of its entry that is shown."""
    text: str
    more: str
    tokens: int
    protection: Protection | None
    tie: str
    marks: list[str]
    call: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class SessionView:
    """One window of a branch and what stands around it."""

    state: BranchState
    view: str
    items: list[Item]
    turns: list[Turn]
    turn: int
    earlier: str
    later: str
    selected: str
    counts: dict[str, int]


_cache: OrderedDict[tuple[object, ...], BranchState] = OrderedDict()
_lock = threading.Lock()


def session_path(session: Session) -> Path:
    return Path(session.root.path) / session.relative_path


def branch_state(session: Session, leaf_id: str = "") -> BranchState:
    """The state of a branch, from the index; kept while the file stays as it is.

    Raises BadInput `unknown_entry`, `not_indexed`, and what reading the file raises.
    """
    path = session_path(session)
    found = file_state(path)
    if session.fingerprint is None or session.state is None or found is None:
        raise BadInput("not_indexed", f"{path} is not in the index, or not there. {session.fault}".strip())
    key = (session.pk, found, leaf_id, session.reader, session.indexed_at)
    with _lock:
        state = _cache.get(key)
        if state is not None:
            _cache.move_to_end(key)
            return state
    state = _work_out(session, path, leaf_id)
    with _lock:
        _cache[key] = state
        while len(_cache) > CACHED:
            _cache.popitem(last=False)
    return state


def _work_out(session: Session, path: Path, leaf_id: str) -> BranchState:
    with SessionReader(path) as reader:
        entries = list(read_entries(session, path, reader, session.version))
    tree = SessionTree(entries)
    leaf = leaf_id or tree.leaf.id
    branch = tree.branch(leaf)
    reading = reading_of(path, entries, session.reader)
    context = reading.reader.rebuild(branch)
    # The query is not shown here, so that no text has to be read for it.
    transcript = prepare(branch, {}, {"query": "-"})
    return BranchState(
        tree=tree,
        leaf_id=leaf,
        branch=branch,
        reading=reading,
        context=context,
        transcript=transcript,
        kept={message.entry.id: message for message in context.messages},
        removed_by=_removed_by(branch),
        token_map=draw(_pieces(context.messages, transcript)),
        turns=[(position, entry) for position, entry in enumerate(branch) if entry.role == "user"],
        forks=list(_forks(tree, branch)),
    )


def _forks(tree: SessionTree, branch: Sequence[Entry]) -> Iterator[tuple[int, Fork]]:
    on_branch = {entry.number for entry in branch}
    places = [NO_PARENT, *(tree.position(entry.id) for entry in branch)]
    for position, place in enumerate(places):
        for child in tree.children.get(place, ()):
            if tree.entries[child].number not in on_branch:
                yield max(0, position - 1), _fork(tree, child)


def _fork(tree: SessionTree, start: int) -> Fork:
    """The branch that begins at an entry: its leaf is the entry below it that was written last."""
    count, last, pending = 0, start, [start]
    while pending:
        position = pending.pop()
        count += 1
        last = max(last, position)
        pending.extend(tree.children.get(position, ()))
    return Fork(tree.entries[last].id, count)


def _removed_by(branch: Sequence[Entry]) -> dict[str, tuple[str, frozenset[int] | None]]:
    removed: dict[str, tuple[str, frozenset[int] | None]] = {}
    for entry in branch:
        if entry.type != "context_compaction":
            continue
        for target in recorded_targets(entry):
            _remove(removed, target, entry.id)
    return removed


def _remove(
    removed: dict[str, tuple[str, frozenset[int] | None]], target: RecordedTarget, compaction: str
) -> None:
    if target.block_index is None:
        removed.setdefault(target.entry_id, (compaction, None))
        return
    by, blocks = removed.get(target.entry_id, (compaction, frozenset()))
    if blocks is not None:
        removed[target.entry_id] = (by, blocks | {target.block_index})


def _pieces(messages: Iterable[Message], transcript: Transcript | None) -> Iterable[Piece]:
    for message in messages:
        known = transcript.entry(message.entry.id) if transcript is not None else None
        protected = known is not None and known.is_protected
        if not message.blocks:
            yield Piece(_kind(message.entry, None), message.tokens, protected)
        for block in message.blocks or ():
            yield Piece(_kind(message.entry, block), block.tokens, protected)


def _kind(entry: Entry, block: Block | None) -> str:
    if entry.role in ("user", "custom"):
        return entry.role
    if entry.role == "toolResult":
        return entry.tool_name if entry.tool_name in RESULT_KINDS else "other"
    if entry.role == "bashExecution":
        return "bash"
    if block is None or entry.role != "assistant":
        return "custom" if entry.role != "assistant" else "text"
    if block.is_thinking:
        return "thinking"
    return "call" if block.type == "toolCall" else "text"


def leaf_below(session: Session, entry_id: str) -> str:
    """The leaf of a branch that an entry is on: the active one if it can be. Raises BadInput `unknown_entry`."""
    state = branch_state(session)
    if state.tree.descends(state.leaf_id, entry_id):
        return ""
    return _fork(state.tree, state.tree.position(entry_id)).leaf_id


# ---- one window ------------------------------------------------------------------------------------------


def view_session(session: Session, *, leaf_id: str = "", view: str = "sees", at: str = "") -> SessionView:
    """The window of a view that begins at an entry (or holds the branch's end, without one)."""
    state = branch_state(session, leaf_id)
    listed = _listed(state, view)
    start = _start(listed, at)
    shown = listed[start : start + WINDOW]
    texts = _texts(session, shown)
    position = state.branch.index(shown[0]) if shown else 0
    turn = sum(1 for begin, _ in state.turns if begin <= position)
    return SessionView(
        state=state,
        view=view,
        items=[item for entry in shown for item in _items(state, entry, texts[entry.id], view)],
        turns=_turns(session, state, turn),
        turn=turn,
        earlier=listed[max(0, start - WINDOW)].id if start else "",
        later=listed[start + WINDOW].id if start + WINDOW < len(listed) else "",
        selected=at,
        counts={name: len(_listed(state, name)) for name in VIEWS},
    )


def _listed(state: BranchState, view: str) -> list[Entry]:
    if view == "sees":
        return [message.entry for message in state.context.messages]
    if view == "removed":
        return [entry for entry in state.branch if entry.id in state.removed_by]
    return state.branch


def _start(listed: Sequence[Entry], at: str) -> int:
    for position, entry in enumerate(listed):
        if entry.id == at:
            return position
    return 0


def _texts(session: Session, shown: Iterable[Entry]) -> dict[str, Texts]:
    fingerprint = msgspec.convert(session.fingerprint, Fingerprint)
    found = read_texts(session_path(session), fingerprint, shown)
    empty = Texts(whole="", blocks=())
    return {entry.id: found.get(entry.id, empty) for entry in shown}


def _turns(session: Session, state: BranchState, current: int) -> list[Turn]:
    first = max(0, min(current - TURNS_SHOWN // 3, len(state.turns) - TURNS_SHOWN))
    shown = state.turns[first : first + TURNS_SHOWN]
    unknown = [entry for _, entry in shown if entry.id not in state.titles]
    for entry_id, text in _texts(session, unknown).items():
        entry = state.tree.entry(entry_id)
        state.titles[entry_id] = " ".join(text.joined(entry.blocks)[:200].split())[:80]
    turns = []
    for number, (begin, entry) in enumerate(shown, first + 1):
        end = state.turns[number][0] if number < len(state.turns) else len(state.branch)
        within = state.branch[begin:end]
        turns.append(
            Turn(
                number=number,
                entry_id=entry.id,
                title=state.titles[entry.id],
                tokens=sum(one.tokens for one in within if one.id in state.kept),
                current=number == current,
                troubled=any(
                    one.role == "assistant" and one.stop_reason in ("error", "aborted") for one in within
                ),
                compacted=any(one.type in COMPACTIONS for one in within),
                forks=[fork for place, fork in state.forks if begin <= place < end],
            )
        )
    return turns


def _items(state: BranchState, entry: Entry, texts: Texts, view: str) -> Iterable[Item]:
    known = state.transcript.entry(entry.id) if state.transcript is not None else None
    message = state.kept.get(entry.id)
    marks = _marks(state, entry, message)
    blocks = entry.blocks if view != "sees" or message is None else message.blocks
    if not blocks:
        if not entry.is_message:
            yield _note(state, entry, marks)
            return
        text, more = clamp(texts.whole or "")
        yield Item(
            kind="user" if entry.role == "user" else "out",
            who=_who(entry),
            entry_id=entry.id,
            block=None,
            first=True,
            text=text,
            more=more,
            tokens=entry.tokens,
            protection=_protection(known),
            tie="",
            marks=marks,
        )
        return
    gone = state.removed_by.get(entry.id, ("", frozenset()))[1]
    for number, block in enumerate(blocks):
        text, more = clamp(texts.block(block.index))
        own = list(marks) if number == 0 else []
        if gone is not None and block.index in gone and view != "sees":
            own.append("block removed")
        yield Item(
            kind=_item_kind(entry, block),
            who=_who(entry, block),
            entry_id=entry.id,
            block=block.index,
            first=number == 0,
            text=text,
            more=more,
            tokens=block.tokens,
            protection=_protection(known) if number == 0 else None,
            tie=_tie(state, entry, block),
            marks=own,
            call=_call(texts.block(block.index)) if block.type == "toolCall" else None,
        )


def _note(state: BranchState, entry: Entry, marks: list[str]) -> Item:
    said = {
        "context_compaction": "compaction: some of what is above was deleted",
        "compaction": "compaction: what is above was summarised",
        "model_change": "the model changed",
        "thinking_level_change": "the thinking level changed",
        "label": "a label",
        "session_info": "the session was named",
    }.get(entry.type, entry.type)
    if entry.type in COMPACTIONS and state.context.newest_compaction is None:
        said += ", ignored by this reading"
    return Item("note", entry.type, entry.id, None, True, said, "", 0, None, "", marks)


def _marks(state: BranchState, entry: Entry, message: Message | None) -> list[str]:
    marks = []
    if message is not None and not message.sent:
        marks.append("recorded, not sent")
    if message is not None and message.replaced:
        marks.append("replaced by an edit")
    removed = state.removed_by.get(entry.id)
    if message is None and entry.is_message:
        marks.append(f"removed by {removed[0]}" if removed is not None else "not seen by the model")
    pairs = state.transcript.pairs if state.transcript is not None else None
    if entry.result_for is not None and pairs is not None and pairs.call(entry.result_for) is None:
        marks.append("no call: the provider may refuse this")
    if pairs is not None:
        for call_id in entry.call_ids():
            call = pairs.call(call_id)
            if call is not None and not call.results and message is not None:
                marks.append("no result: the provider may refuse this")
                break
    return marks


def _protection(known: TranscriptEntry | None) -> Protection | None:
    return known.reason if known is not None else None


def _item_kind(entry: Entry, block: Block) -> str:
    if entry.role == "assistant":
        if block.is_thinking:
            return "thinking"
        return "call" if block.type == "toolCall" else "text"
    return "user" if entry.role == "user" else "out"


def _who(entry: Entry, block: Block | None = None) -> str:
    if entry.role == "assistant" and block is not None:
        if block.is_thinking:
            return "thinking"
        return "call" if block.type == "toolCall" else "assistant"
    names = {
        "toolResult": entry.tool_name or "result",
        "bashExecution": "your bash",
        "branchSummary": "summary",
    }
    return names.get(entry.role, entry.role or entry.type)


def _tie(state: BranchState, entry: Entry, block: Block) -> str:
    """How the bracket from a call to its results passes this block."""
    pairs = state.transcript.pairs if state.transcript is not None else None
    if pairs is None:
        return ""
    if block.call_id is not None:
        call = pairs.call(block.call_id)
        return "first" if call is not None and call.results else "none"
    if entry.result_for is not None:
        call = pairs.call(entry.result_for)
        if call is None or not call.results:
            return "none"
        last = state.transcript.entries[call.results[-1].position] if state.transcript is not None else None
        is_last = last is not None and last.entry_id == entry.id and entry.blocks is not None
        return "last" if is_last and entry.blocks and block is entry.blocks[-1] else "mid"
    return ""


def _call(text: str) -> tuple[str, str]:
    """The tool's name and its arguments, from a call block's text."""
    _, _, rest = text.partition(" ")
    _, _, rest = rest.partition(" ")
    name, _, arguments = rest.partition(" ")
    return name, arguments[:CLAMP_CHARACTERS]


def clamp(text: str) -> tuple[str, str]:
    """The beginning of a text, and what a link to the rest says; empty where nothing was cut."""
    lines = text.count("\n") + 1
    if lines <= CLAMP_LINES and len(text) <= CLAMP_CHARACTERS:
        return text, ""
    cut = "\n".join(text[:CLAMP_CHARACTERS].split("\n")[:CLAMP_LINES])
    if lines > CLAMP_LINES:
        return cut, f"Show all {lines:,} lines"
    return cut, f"Show all {len(text):,} characters"


@dataclass(frozen=True, slots=True)
class WholeText:
    """One block's text in full, up to WHOLE_CHARACTERS."""

    entry_id: str
    block: int | None
    text: str
    left_out: int


def whole_text(session: Session, entry_id: str, block: int | None) -> WholeText:
    """The text of an entry or a block. Raises BadInput `unknown_entry` and `unknown_block`."""
    entry = branch_state(session).tree.entry(entry_id)
    texts = _texts(session, [entry])[entry_id]
    if block is not None and block >= len(texts.blocks):
        raise BadInput("unknown_block", f"Entry {entry_id} has no block {block}.")
    text = texts.joined(entry.blocks) if block is None else texts.block(block)
    return WholeText(entry_id, block, text[:WHOLE_CHARACTERS], max(0, len(text) - WHOLE_CHARACTERS))


def is_live(session: Session, now_ns: int) -> bool:
    """Whether an agent wrote to the session in the last minutes."""
    state: FileState | None = file_state(session_path(session))
    if state is None or state.mtime_ns == session.own_write_ns:
        return False
    return now_ns - state.mtime_ns < settings.REDLINE.live_minutes * 60e9

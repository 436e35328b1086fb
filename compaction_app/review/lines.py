"""Each proposal in one line: the tool, its arguments or the beginning of the text, and its file.

Lines are made of texts, which never change while a run's preparation is the same: those of the last few runs are
cached, so that a page reads only the texts of the objects that it unfolds. An `Outline` has the turns of a review and
the kept entries between its proposals.

`LineChecks` has the number of lines of each proposal that are also in kept entries. Only calls on files have lines to
compare. Their hashes are cached for the last few preparations, and the counts for the last few plans: reloading a page
reads nothing, and approving undecided proposals changes no count.
"""

import re
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final
from urllib.parse import quote, unquote
from zlib import crc32

from compaction_app.core.file_touches import FileHistory, Standing, StandingLater, file_calls
from compaction_app.core.reasons import shown_reason, supersession_in
from compaction_app.core.review_fold import Review, Reviewer, ReviewItem
from compaction_app.core.transcript import WHOLE, Object, ToolPair, Transcript, TranscriptEntry
from compaction_app.entries.view import ARGUMENT_CHARACTERS, author_of, call_path, call_words
from compaction_app.models import Run
from compaction_app.planning.snapshots import open_snapshot_texts, read_snapshot_texts, snapshot_of
from compaction_app.runs.reviews import Reviewed
from sessions_app.recent import Recent
from sessions_app.sessionlog.entries import Block, BlockType, Role, Target, Texts
from sessions_app.sessionlog.text import plural, spoken

CACHED: Final = 4
"""The number of runs whose lines are cached."""
TARGET_CHARACTERS: Final = 160
BEGINNING: Final = 1_000
"""The number of characters of a text from which its line is made."""


@dataclass(frozen=True, slots=True)
class ProposalLine:
    """The line for one proposal."""

    tool: str
    """The tool that was called, or the kind of the proposal: thinking, assistant."""
    kind: str
    """One of KINDS."""
    words: str
    path: str
    """The file that its call names; empty if it names none."""


KINDS: Final = {"output": "outputs", "call": "calls", "thinking": "thinking", "message": "messages"}
UNKNOWN: Final = ProposalLine("unknown", "message", "", "")
_cache: Final[Recent[tuple[int, str], dict[Target, ProposalLine]]] = Recent(CACHED)
_lock = threading.Lock()


def lines_of(run: Run, mark: str, transcript: Transcript, items: Iterable[ReviewItem]) -> Mapping[Target, ProposalLine]:
    """The lines of proposals by target, and of the users' messages that begin turns. Raises the errors of reading.

    `mark` identifies the preparation of the run.
    """
    known = _cache.get((run.pk, mark), dict)
    # Even if no lines are missing: reading finds out whether the file is still the one that was prepared.
    found = _made(run, mark, transcript, [item for item in items if item.target not in known], first=not known)
    with _lock:
        known.update(found)
    return known


def line_of(run: Run, transcript: Transcript, entry: TranscriptEntry) -> ProposalLine:
    """The line of an entry, whether it is proposed or kept. Raises the errors of reading."""
    source, block = _source(transcript, entry)
    path = run.session.real_path()
    return _line(source, block, read_snapshot_texts(path, snapshot_of(run).prepared, [source]), run.session.cwd)


def target_words(transcript: Transcript, target: Target, texts: Mapping[str, Texts], project: str) -> str:
    """A target in one line: for a result, its call. An entry with several blocks is described by all of its text."""
    entry = transcript.entry(target.entry_id)
    if entry is None:
        return ""
    source, block = _source(transcript, entry, target.block_index)
    if source is entry and target.block_index is None and len(entry.blocks) > 1:
        block = None
    line = _line(source, block, texts, project)
    return (f"{line.tool} {line.words}" if line.kind == "call" else line.words)[:TARGET_CHARACTERS]


def _made(
    run: Run, mark: str, transcript: Transcript, items: Sequence[ReviewItem], *, first: bool
) -> dict[Target, ProposalLine]:
    sources = {
        item.target: _source(transcript, transcript.entries[item.position], item.target.block_index)
        for item in items
        if item.position >= 0
    }
    entries = {entry.position: entry for entry, _ in sources.values()}
    messages = [entry for entry in transcript.entries if first and entry.role == Role.USER]
    entries |= {entry.position: entry for entry in messages}
    session = run.session
    texts = read_snapshot_texts(session.real_path(), snapshot_of(run, mark).prepared, entries.values())
    lines = {Target(entry.entry_id): _line(entry, None, texts, session.cwd) for entry in messages}
    for item in items:
        if item.position < 0:
            lines[item.target] = UNKNOWN
            continue
        line = _line(*sources[item.target], texts, session.cwd)
        is_output = transcript.entries[item.position].role == Role.TOOL_RESULT
        lines[item.target] = replace(line, kind="output") if is_output else line
    return lines


def _source(
    transcript: Transcript, entry: TranscriptEntry, block_index: int | None = None
) -> tuple[TranscriptEntry, Block | None]:
    """The entry, or its block, that best describes the deletion of an entry or a block: for a result, its call."""
    if block_index is not None:
        slot = entry.slot(block_index)
        return entry, entry.blocks[slot] if slot is not None else None
    call = transcript.pairs.answered_by(entry)
    if call is not None and call.blocks:
        owner = transcript.entries[call.owner.position]
        return owner, owner.blocks[call.blocks[0].slot]
    calls = [block for block in entry.blocks if block.type == BlockType.TOOL_CALL]
    return entry, calls[0] if len(calls) == 1 else None


def _line(entry: TranscriptEntry, block: Block | None, texts: Mapping[str, Texts], project: str) -> ProposalLine:
    found = texts[entry.entry_id]
    if block is not None and block.type == BlockType.TOOL_CALL:
        text = found.block(block.index)
        tool, words = call_words(text, block.call_id or "", project)
        return ProposalLine(tool, "call", words, call_path(text, block.call_id or "", project))
    text = found.joined(entry.blocks) if block is None else found.block(block.index)
    words = " ".join(spoken(text[:BEGINNING], entry.role).split())[:ARGUMENT_CHARACTERS]
    author = author_of(entry.role, entry.tool_name, block.type if block is not None else "", entry.entry_type)
    return ProposalLine(author, "thinking" if block is not None and block.is_thinking else "message", words, "")


def ref_of(target: Target) -> str:
    """A target in an address or a form: the entry's id, quoted, and the block after a colon."""
    name = quote(target.entry_id, safe="")
    return name if target.block_index is None else f"{name}:{target.block_index}"


def target_of(text: str) -> Target | None:
    """The target of a reference; None if it is not one."""
    name, colon, index = text.partition(":")
    if not name or (colon and not (index.isascii() and index.isdigit() and len(index) < 10)):
        return None
    return Target(unquote(name), int(index) if colon else None)


def anchor(position: int, target: Target) -> str:
    """The id of an article on its page: by position, because an entry's id may contain anything."""
    if position < 0:
        checksum = crc32(str(target).encode("utf-8", "surrogatepass"))
        return f"p-x{checksum:08x}"
    return f"p-{position}" if target.block_index is None else f"p-{position}-{target.block_index}"


AROUND: Final = 6
"""The number of kept entries unfolded before and after a proposal, up to the next deletion."""


@dataclass(frozen=True, slots=True)
class KeptEntries:
    """Entries between proposals that are kept at least in part: positions, the end excluded, without deleted
    entries."""

    start: int
    end: int
    entries: Sequence[TranscriptEntry]


class Outline:
    """The turns of a review, and the kept entries between its proposals."""

    def __init__(self, transcript: Transcript, review: Review) -> None:
        self.transcript = transcript
        self.review = review

    @cached_property
    def turn_starts(self) -> Sequence[int]:
        """The positions of the user's messages."""
        return [entry.position for entry in self.transcript.entries if entry.role == Role.USER]

    @cached_property
    def _covered(self) -> set[int]:
        return set(self._covered_positions({*self.review.items, *self.review.would_go}))

    def turn_number(self, position: int) -> int:
        """The number of an entry's turn, from 1; 0 before the user's first message."""
        return bisect_right(self.turn_starts, position)

    def turn_words(self, entry_id: str) -> str:
        """The turn of an entry in words; empty if the transcript has no such entry."""
        entry = self.transcript.entry(entry_id)
        number = self.turn_number(entry.position) if entry is not None else 0
        return "" if entry is None else f"turn {number:,}" if number else "the part before turn 1"

    def around(self, position: int) -> tuple[KeptEntries, KeptEntries]:
        """The kept entries directly before an entry, and directly after it."""
        start, end = position, position + 1
        while start > max(0, position - AROUND) and start - 1 not in self._covered:
            start -= 1
        while end < min(len(self.transcript), position + 1 + AROUND) and end not in self._covered:
            end += 1
        return self.stays(start, position), self.stays(position + 1, end)

    def stays(self, start: int, end: int) -> KeptEntries:
        """The entries between two positions that are kept, at least in part."""
        entries = self.transcript.entries[start:end]
        return KeptEntries(start, end, [entry for entry in entries if entry.position not in self._covered])

    def tokens_staying(self, entry: TranscriptEntry) -> int:
        """The tokens of an entry, or of those of its blocks that are neither proposed nor deleted."""
        blocks = [block for block in entry.blocks if not self._is_touched(Target(entry.entry_id, block.index))]
        return entry.tokens if len(blocks) == len(entry.blocks) else sum(block.tokens for block in blocks)

    def _is_touched(self, target: Target) -> bool:
        return target in self.review.items or target in self.review.would_go

    def _covered_positions(self, targets: Iterable[Target]) -> Iterator[int]:
        """The entries that are completely covered: they, or each of their blocks, are proposed or deleted."""
        blocks: dict[str, int] = {}
        for target in targets:
            entry = self.transcript.entry(target.entry_id)
            if entry is None:
                continue
            if target.block_index is None:
                yield entry.position
            elif entry.slot(target.block_index) is not None:
                blocks[target.entry_id] = blocks.get(target.entry_id, 0) + 1
                if blocks[target.entry_id] == len(entry.blocks):
                    yield entry.position


def fold_words(entries: Sequence[TranscriptEntry]) -> str:
    """Entries in words: 6 entries are kept (2 writes, 1 bash)."""
    counts: dict[str, int] = {}
    for entry in entries:
        name = {Role.COMMAND: "bash", Role.TOOL_RESULT: entry.tool_name}.get(entry.role, "")
        if name:
            counts[name] = counts.get(name, 0) + 1
    among = sorted(counts.items(), key=lambda pair: -pair[1])[:4]
    words = ", ".join(f"{count:,} {_plural(name[:40], count)}" for name, count in among)
    entry_words = f"{plural(len(entries), 'entry')} {'is' if len(entries) == 1 else 'are'} kept"
    return f"{entry_words} ({words})" if words else entry_words


def _plural(name: str, count: int) -> str:
    if count == 1 or not (name.isascii() and name.isalpha() and name.islower()):
        return name
    return f"{name}es" if name.endswith(("s", "x", "ch", "sh")) else f"{name}s"


# ---- lines that are also in kept entries -------------------------------------------------------------------

_histories: Final[Recent[tuple[int, str], FileHistory]] = Recent(CACHED)
_standing: Final[Recent[tuple[int, str, frozenset[Target]], Mapping[int, StandingLater]]] = Recent(CACHED)


class LineChecks:
    """The number of lines of each proposal that are also in later kept calls on the same file.

    Creating it raises the errors of `open_snapshot_texts`.
    """

    def __init__(self, run: Run, reviewed: Reviewed) -> None:
        self._transcript = reviewed.reviewer.transcript
        self._standing = standing_later(run, reviewed)

    def of(self, target: Target) -> Standing | None:
        """The result for one proposal; None if it has no lines to compare."""
        call = call_of(self._transcript, target)
        later = self._standing.get(call.order) if call is not None else None
        return later.standing if later is not None and later.standing.total else None


def checked_reason(reason: str, standing: Standing | None) -> str:
    """A planner's reason, which claims no more than the lines show in the present review."""
    superseded = supersession_in(reason) if standing is not None else None
    return superseded.words(standing) if superseded is not None and standing is not None else reason


_WORD: Final = re.compile(r"[\w-]+")


def reason_words(reason: str, standing: Standing | None, outline: Outline) -> str:
    """A planner's reason in the words of a page, which names turns instead of the ids of entries."""
    words = shown_reason(checked_reason(reason, standing))
    return _WORD.sub(lambda found: found[0] if found[0].isdigit() else outline.turn_words(found[0]) or found[0], words)


def standing_later(run: Run, reviewed: Reviewed) -> Mapping[int, StandingLater]:
    """For each call on a file, by the order of its pair: the lines that stand later, and the last later kept call."""

    def work_out() -> Mapping[int, StandingLater]:
        return file_history(run, reviewed.mark).standing(lambda one: stays(reviewed.reviewer, reviewed.review, one))

    return _standing.get((run.pk, reviewed.mark, reviewed.review.would_go), work_out)


def file_history(run: Run, mark: str) -> FileHistory:
    """The calls on files of a run's transcript. Raises the errors of `open_snapshot_texts`."""

    def work_out() -> FileHistory:
        prepared = snapshot_of(run, mark).prepared
        with open_snapshot_texts(run.session.real_path(), prepared) as texts:
            return FileHistory(file_calls(prepared.transcript(texts)))

    return _histories.get((run.pk, mark), work_out)


def call_of(transcript: Transcript, target: Target) -> ToolPair | None:
    """The tool call that a target deletes: the one that it answers, makes, or consists of."""
    entry = transcript.entry(target.entry_id)
    if entry is None:
        return None
    if target.block_index is not None:
        slot = entry.slot(target.block_index)
        return transcript.pairs.made_in(entry, slot) if slot is not None else None
    if entry.result_for is not None:
        return transcript.pairs.answered_by(entry)
    return transcript.pairs.made_in(entry, 0) if len(entry.blocks) == 1 else None


def stays(reviewer: Reviewer, review: Review, found: Object) -> bool:
    """Whether an object is kept if everything undecided is approved."""
    entry = reviewer.transcript.entries[found.position]
    if Target(entry.entry_id) in review.would_go:
        return False
    return found.slot == WHOLE or Target(entry.entry_id, entry.blocks[found.slot].index) not in review.would_go

"""Each proposal in one line: the tool, its arguments or the beginning of the text, and its file.

Lines are made of texts, which never change while a run's preparation is the same: those of the last few runs are
cached, so that a page reads only the texts of the objects that it unfolds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compaction_app.core.review_fold import ReviewItem
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import TranscriptEntry
from compaction_app.entries.words import ARGUMENT_CHARACTERS, author_of, call_path, call_words
from compaction_app.models import Run
from compaction_app.planning.snapshots import read_snapshot_texts, snapshot_of
from sessions_app.sessionlog.entries import Block, BlockType, Role, Texts
from sessions_app.sessionlog.noise import spoken
from sessions_app.sessionlog.targets import Target

CACHED: Final = 4
"""The number of runs whose lines are cached."""
BEGINNING: Final = 1_000
"""Characters of a text from which its line is made."""


@dataclass(frozen=True, slots=True)
class ProposalLine:
    """One proposal in a line."""

    tool: str
    """The tool that was called, or the kind of the proposal: thinking, assistant."""
    kind: str
    """One of KINDS."""
    words: str
    path: str
    """The file that its call names; empty if it names none."""


KINDS: Final = {"output": "outputs", "call": "calls", "thinking": "thinking", "message": "messages"}
UNKNOWN: Final = ProposalLine("unknown", "message", "", "")
_cache: OrderedDict[tuple[int, str], dict[Target, ProposalLine]] = OrderedDict()
_lock = threading.Lock()


def lines_of(run: Run, mark: str, transcript: Transcript, items: Iterable[ReviewItem]) -> Mapping[Target, ProposalLine]:
    """The lines of proposals by target, and of the users' messages that begin turns. Raises the errors of reading.

    `mark` identifies the preparation of the run.
    """
    key = run.pk, mark
    with _lock:
        known = _cache.setdefault(key, {})
        _cache.move_to_end(key)
        while len(_cache) > CACHED:
            _cache.popitem(last=False)
    # Even if no lines are missing: reading finds out whether the file is still the one that was prepared.
    found = _made(run, mark, transcript, [item for item in items if item.target not in known], first=not known)
    with _lock:
        known.update(found)
    return known


def line_of(run: Run, transcript: Transcript, entry: TranscriptEntry) -> ProposalLine:
    """The line of an entry, whether it is proposed or kept. Raises the errors of reading."""
    source, block = _source_of(transcript, entry)
    path = run.session.real_path()
    return _line(source, block, read_snapshot_texts(path, snapshot_of(run).prepared, [source]), run.session.cwd)


def _made(
    run: Run, mark: str, transcript: Transcript, items: Sequence[ReviewItem], *, first: bool
) -> dict[Target, ProposalLine]:
    sources = {item.target: _source(transcript, item) for item in items if item.position >= 0}
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


def _source(transcript: Transcript, item: ReviewItem) -> tuple[TranscriptEntry, Block | None]:
    """The entry, or its block, that best describes the deletion: for a result, its call."""
    entry = transcript.entries[item.position]
    if item.target.block_index is not None:
        slot = entry.slot(item.target.block_index)
        return entry, entry.blocks[slot] if slot is not None else None
    return _source_of(transcript, entry)


def _source_of(transcript: Transcript, entry: TranscriptEntry) -> tuple[TranscriptEntry, Block | None]:
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

"""EDGE: whole sessions read from their files, without the index: loaded, examined for damage, and measured.

A branch without a usable report is measured by a tokenizer in its beginning (`tally_of`). The tokenizer is o200k_base
as bpe-openai contains it, so that nothing is downloaded. Content that is not text counts with its estimate, and an
image with what the model's provider counts for its size, if that is known.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Final, NamedTuple

from sessions_app.agents.base import Agent
from sessions_app.agents.registry import AGENTS, agent_at, broken_pairs
from sessions_app.disk.files import FileState, Fingerprint, GrowthKind, SessionReader, last_line_start, real_path
from sessions_app.sessionlog.context import SAMPLE, ActiveContext, InheritedMeasure, Measured, Rebuild, Tally, model_of
from sessions_app.sessionlog.diagnosis import Diagnosis, diagnosis_of
from sessions_app.sessionlog.entries import Entry, Texts, tokens_of
from sessions_app.sessionlog.errors import Conflict
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.opaque import Opaque, image_tokens
from sessions_app.sessionlog.session import ParserState, SessionLog, is_complete_line, log_of, read_session
from sessions_app.sessionlog.text import plural
from sessions_app.sessionlog.tree import SessionTree

Progress = Callable[[int], object]
"""Called with the number of bytes read so far."""


@dataclass(frozen=True, slots=True)
class LoadedSession:
    """The digests of a file's entries, its tree, and its fingerprint."""

    path: Path
    log: SessionLog
    tree: SessionTree
    fingerprint: Fingerprint
    """The fingerprint of the complete lines."""
    state: FileState

    @property
    def leaf_id(self) -> str:
        """The id of the last entry, from which the agent continues. Raises BadInput `no_entries`."""
        return self.tree.leaf.id

    @property
    def agent(self) -> Agent:
        """The agent in whose format it is."""
        return agent_at(self.path)

    def texts(self, branch: Iterable[Entry]) -> dict[str, Texts]:
        """The texts of a branch's messages, read from the file by offset.

        Raises Conflict `session_rewritten` if the file is no longer the one that was loaded.
        """
        return read_texts(self.path, self.fingerprint, branch)


def load_session(path: Path, progress: Progress | None = None) -> LoadedSession:
    """Read a whole session; links in `path` are resolved once.

    Raises BadInput `not_a_session`, `no_such_file`, `not_a_file`, and SystemFailure.
    """
    path = real_path(path)
    agent = agent_at(path)
    with agent.store.open(path) as reader:
        return load_opened(agent, reader, progress)


def load_opened(agent: Agent, reader: SessionReader, progress: Progress | None = None) -> LoadedSession:
    """The whole session that a reader has opened."""
    chunks = chunks_with_progress(reader, progress)
    lines = split_lines(chunks)
    log = read_session(agent.format.parser(ParserState(), []), lines, str(reader.path), reader.head)
    fingerprint = reader.fingerprint(log.state.next_offset, None)
    return LoadedSession(reader.path, log, agent.format.tree(log.entries), fingerprint, reader.state())


def continue_loading(loaded: LoadedSession) -> LoadedSession:
    """The session as it is now; only the added part is read.

    Raises Conflict `session_rewritten` if the loaded part has changed.
    """
    log = loaded.log
    start = log.state.next_offset
    whole = [fault for fault in log.damage if fault.offset < start]
    agent = loaded.agent
    parser = agent.format.parser(copy.deepcopy(log.state), whole)
    entries = [entry for entry in log.entries if entry.offset < start]
    with agent.store.open(loaded.path) as reader:
        growth = reader.growth(loaded.fingerprint)
        if growth.kind is GrowthKind.REWRITTEN:
            raise _changed(loaded.path, growth.reason)
        lines = split_lines(reader.chunks(start), offset=start, number=log.state.next_number)
        entries += [recorded.entry for line in lines for recorded in parser.read(line)]
        fingerprint = reader.fingerprint(parser.state.next_offset, loaded.fingerprint)
        state = reader.state()
    return LoadedSession(loaded.path, log_of(parser, entries), agent.format.tree(entries), fingerprint, state)


class TornLine(NamedTuple):
    """A last line that was interrupted, or is still being written. Offset and length are in bytes."""

    offset: int
    length: int

    def __str__(self) -> str:
        return f"a torn line of {plural(self.length, 'byte')}, from byte {self.offset:,} on"


def find_torn_line(agent: Agent, path: Path) -> TornLine | None:
    """The last line of an agent's session, if it has no newline and is not a complete object. Reads the end of the file
    only."""
    with agent.store.open(path) as reader:
        size, first = reader.state().size, reader.own_offset

        def read(offset: int, length: int) -> bytes:
            return reader.read_at(first + offset, length)

        start = last_line_start(read, size)
        if start == size or is_complete_line(read(start, size - start)):
            return None
        return TornLine(start, size - start)


def read_texts(path: Path, fingerprint: Fingerprint, entries: Iterable[Entry]) -> dict[str, Texts]:
    """The texts of entries by id, read from the file by offset."""
    agent = agent_at(path)
    texts: dict[str, Texts] = {}
    with agent.store.open(path) as reader:
        growth = reader.growth(fingerprint)
        if growth.kind is GrowthKind.REWRITTEN:
            raise _changed(path, growth.reason)
        for entry in entries:
            if entry.has_text:
                texts[entry.id] = reparse_entry(agent, reader, entry)[1]
    return texts


def reparse_entry(agent: Agent, reader: SessionReader, entry: Entry, version: int = 0) -> tuple[Entry, Texts]:
    """An entry of a file of this version and its texts, read again from its position in the file.

    Raises Conflict `session_rewritten` if that entry is no longer there.
    """
    again, texts = read_place(agent, reader, entry, version)
    if again.blocks != entry.blocks or again.tokens != entry.tokens or again.role != entry.role:
        raise _changed(reader.path, f"line {entry.number} has changed")
    return again, texts


def read_place(agent: Agent, reader: SessionReader, place: Entry, version: int = 0) -> tuple[Entry, Texts]:
    """The entry now at the position of another. Raises Conflict `session_rewritten` if there is none."""
    found = agent.format.reparse_entry(reader.read_at(place.offset, place.length), place, version)
    if found is None:
        raise _changed(reader.path, f"line {place.number} has changed")
    return found


def line_reader(reader: SessionReader) -> Callable[[Entry], bytes]:
    """A function that reads the recorded lines of entries from an opened session."""
    return lambda entry: reader.read_at(entry.offset, entry.length)


def chunks_with_progress(reader: SessionReader, progress: Progress | None) -> Iterable[bytes]:
    """The bytes of a session, with a call of `progress` for each chunk."""
    for chunk in reader.chunks(0):
        if progress is not None:
            progress(reader.bytes_read)
        yield chunk


def _changed(path: Path, reason: str) -> Conflict:
    return Conflict("session_rewritten", f"{path}: {reason}. The data read so far is invalid. Read it again.")


def diagnose(path: Path, progress: Progress | None = None) -> Diagnosis:
    """Everything that is wrong with the session at a real path, in each agent that reads its format.

    Raises BadInput `not_a_session`, `no_such_file`, `not_a_file`, and SystemFailure.
    """
    agent = agent_at(path)
    with agent.store.open(path) as reader:
        lines = split_lines(chunks_with_progress(reader, progress))
        found = agent.format.examine(lines, str(path))
    formats = [other.format for other in AGENTS.values() if other.format.name == agent.format.name]
    generations = [generation for one in formats for generation in one.generations]
    return diagnosis_of([*found.findings, *broken_pairs(found.tree, generations)], found.more)


CLAUDE: Final = 1.25
"""Claude's tokens per token of o200k_base: 1.21 to 1.25 in sessions that have all texts that Claude received."""


def tally_of(
    context: ActiveContext,
    branch: Sequence[Entry],
    rebuild: Rebuild,
    inherited: InheritedMeasure | None,
    read: Callable[[Entry], Texts],
) -> Tally:
    """The totals of a context, as from `Tally.of`; without a usable report, the measure is counted by the tokenizer.

    `read` gives the texts of an entry.
    """
    tally = Tally.of(context, branch, rebuild, inherited)
    if tally.wants_sample:
        tally.take_sample(branch_sample(branch, read))
    return tally


def branch_sample(branch: Sequence[Entry], read: Callable[[Entry], Texts]) -> Measured:
    """The tokens counted in the first messages of a branch, up to an estimate of about SAMPLE tokens."""
    model = model_of(branch)
    counted = without_text = estimate = 0
    for entry in branch:
        if entry.is_message and not entry.empty:
            text, opaque = _content(entry, read(entry))
            counted += _count(text)
            without_text += sum(_tokens(one, model) for one in opaque)
            estimate += entry.tokens
        if estimate >= SAMPLE:
            break
    return Measured(round(token_factor(model) * counted) + without_text, estimate)


def token_factor(model: tuple[str, str] | None) -> float:
    """A model's tokens per token of the tokenizer. A model is a provider and an id; None if it is unknown."""
    return CLAUDE if model is not None and "claude" in model[1].lower() else 1.0


def _content(entry: Entry, texts: Texts) -> tuple[str, Sequence[Opaque]]:
    """The text of an entry, and separately its content that is not text."""
    blocks = entry.blocks
    if not texts.opaque:
        return texts.joined(blocks), ()
    if blocks is None or texts.whole is not None:
        return _without_labels(texts.whole or "", texts.opaque), texts.opaque
    by_block: dict[int | None, list[Opaque]] = {}
    for one in texts.opaque:
        by_block.setdefault(one.block, []).append(one)
    own = [by_block.get(block.index, []) for block in blocks]
    said = (_without_labels(texts.block(block.index), found) for block, found in zip(blocks, own, strict=True))
    return "\n".join(filter(None, said)), [one for found in own for one in found]


def _without_labels(text: str, opaque: Sequence[Opaque]) -> str:
    for one in filter(None, (one.label for one in opaque)):
        text = text.replace(f"\n{one}" if f"\n{one}" in text else one, "", 1)
    return text


def _tokens(opaque: Opaque, model: tuple[str, str] | None) -> int:
    by_provider = image_tokens(model[1], opaque.size) if model is not None and opaque.size is not None else None
    return tokens_of(opaque.units) if by_provider is None else by_provider


def _count(text: str) -> int:
    # Halves of surrogate pairs, as in a text that was cut, are not UTF-8.
    return _counter()(text.encode("utf-8", "replace").decode())


@cache
def _counter() -> Callable[[str], int]:
    # The package decodes all its vocabularies when it is imported, for a second; its compiled part has its own.
    package = find_spec("bpe_openai")
    found = PathFinder.find_spec("_bindings", package.submodule_search_locations if package is not None else ())
    if found is None or found.loader is None:
        raise ModuleNotFoundError("bpe_openai is not installed.")
    compiled = module_from_spec(found)
    found.loader.exec_module(compiled)
    count: Callable[[str], int] = compiled.tokenizer_for_encoding("o200k_base").count
    return count

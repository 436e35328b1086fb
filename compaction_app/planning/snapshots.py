"""The basis on which a run is planned, reviewed and committed: the prepared transcript without its texts, unchanged.

Every later step therefore judges the same transcript. Texts are read from the file by offset, when they are needed; a
file that was rewritten in the meantime is a conflict, never a different text.
"""

import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from compaction_app.core.parameters import Parameters
from compaction_app.core.transcript import Transcript, TranscriptEntry, moved, prepare, texts_of_edit
from compaction_app.models import Run, Snapshot
from sessions_app.agents.base import Agent
from sessions_app.agents.pure.formats import Moved
from sessions_app.agents.registry import GENERATIONS, agent_at
from sessions_app.disk.files import FileState, Fingerprint, GrowthKind, SessionReader
from sessions_app.document.document import Document
from sessions_app.index.index_store import read_entries
from sessions_app.index.session_reading import reading_of_session
from sessions_app.models import Session
from sessions_app.recent import Recent
from sessions_app.sessionlog.context import UNKNOWN_SIZE, ContextSize
from sessions_app.sessionlog.entries import Entry, EntryKind, Target, Texts
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.session import ParserState, SessionLog
from sessions_app.sessionlog.text import is_noise
from sessions_app.storage.session_loader import TornLine, find_torn_line, read_place, tally_of

CACHED_ENTRIES: Final = 60_000
"""Transcripts are cached up to this many entries in total; the last one is always cached."""
FAST: Final = 1


class Prepared(msgspec.Struct, frozen=True):
    """A transcript, with the position of each entry in its file."""

    leaf_id: str
    """The leaf of the branch that was prepared."""
    file_leaf_id: str
    """The leaf of the file when the branch was prepared."""
    last_number: int
    """The number of the last line that contained an entry at that time."""
    entries: tuple[TranscriptEntry, ...]
    places: tuple[tuple[int, int, int], ...]
    """For each entry, the line that has its content: number, offset and length in bytes."""
    parameters: Parameters
    fingerprint: Fingerprint
    file: FileState
    parser: ParserState
    reader: str
    window: int | None = None
    writer: str = ""
    """The writer for which it was prepared; empty for the best one."""
    context_size: ContextSize = UNKNOWN_SIZE
    """The size of the whole branch's context."""

    def place_of(self, entry_id: str) -> tuple[int, int, int] | None:
        """The place of an entry; None if the transcript does not have it."""
        places = (place for entry, place in zip(self.entries, self.places, strict=True) if entry.entry_id == entry_id)
        return next(places, None)

    def transcript(self, texts: Mapping[str, Texts] | None = None) -> Transcript:
        """The transcript; without texts unless they are needed."""
        return Transcript(self.entries, texts if texts is not None else {}, self.parameters)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Prepared).decode


def known_torn_line(session: Session) -> TornLine | None:
    """The last line of a session, if it is torn; also None if the file cannot be read, which is reported elsewhere."""
    try:
        return find_torn_line(session.agent, session.real_path())
    except RedlineError:
        return None


def prepare_snapshot(
    session: Session,
    leaf_id: str,
    settings: Mapping[str, object],
    window: int | None = None,
    writer: str = "",
) -> Prepared:
    """Prepare a branch of an indexed session; an empty `leaf_id` means the file's last entry.

    Raises BadInput `unknown_entry`, `no_entries`, `unknown_writer`, `refused_writer` and `nothing_to_compact`, and the
    errors of reading the file.
    """
    path = session.real_path()
    with session.agent.store.open(path) as reader:
        fingerprint = known_fingerprint(session, reader)
        entries = list(read_entries(session, reader, session.version))
        if len(entries) != session.entry_count:
            raise Conflict(
                "being_indexed",
                f"{path} is being indexed again. Nothing was planned. Start again in a moment.",
            )
        tree = session.agent.format.tree(entries)
        leaf = leaf_id or tree.leaf.id
        branch = tree.branch(leaf)
        texts = _TextsOnDemand(session.agent, reader, {entry.id: entry for entry in branch if entry.has_text})
        reading = reading_of_session(session, path, entries, session.parser_state)
        rebuild = reading.reader.rebuild
        context = rebuild(branch)
        transcript = prepare(branch, texts, settings, reading.rules(writer), is_noise, context)
        tally = tally_of(context, branch, rebuild, session.inherited_measure, lambda entry: texts[entry.id])
        state = reader.state()
    if transcript is None:
        raise BadInput(
            "nothing_to_compact",
            f"The branch of {leaf} in {path} has fewer than two entries that could be compacted. Nothing was planned.",
        )
    sources = {message.entry.id: message.source for message in reading.rules(writer).compactable(branch)}
    places = {key: (source.number, source.offset, source.length) for key, source in sources.items()}
    return Prepared(
        leaf_id=leaf,
        file_leaf_id=tree.leaf.id,
        last_number=entries[-1].number,
        entries=transcript.entries,
        places=tuple(places[entry.entry_id] for entry in transcript.entries),
        # The last message may contain a lone surrogate, which cannot be encoded as UTF-8.
        parameters=msgspec.structs.replace(transcript.parameters, query=well_formed(transcript.parameters.query)),
        fingerprint=fingerprint,
        file=state,
        parser=msgspec.convert(session.state["parser"], ParserState),
        reader=reading.reader.name,
        window=window,
        writer=writer,
        context_size=tally.size,
    )


def known_fingerprint(session: Session, reader: SessionReader) -> Fingerprint:
    """The fingerprint of the indexed bytes. Raises Conflict if the file has changed since it was indexed."""
    if session.fingerprint is None or session.state is None:
        raise BadInput(
            "not_indexed", f"{reader.path} is not in the index. Nothing was planned. {session.fault}".strip()
        )
    fingerprint = msgspec.convert(session.fingerprint, Fingerprint)
    _require_same(reader, fingerprint)
    return fingerprint


def _require_same(reader: SessionReader, fingerprint: Fingerprint) -> None:
    growth = reader.growth(fingerprint)
    if growth.kind is GrowthKind.REWRITTEN:
        raise Conflict(
            "session_rewritten",
            f"{reader.path}: {growth.reason}. Nothing was written. Plan again: decisions that are still valid "
            "are kept.",
        )


class _TextsOnDemand(dict[str, Texts]):
    """The texts of messages, each read when it is needed."""

    def __init__(self, agent: Agent, reader: SessionReader, entries: Mapping[str, Entry]) -> None:
        super().__init__()
        self._agent, self._reader, self._entries = agent, reader, entries

    def __missing__(self, entry_id: str) -> Texts:
        self[entry_id] = read_place(self._agent, self._reader, self._entries[entry_id])[1]
        return self[entry_id]


class SnapshotTexts(Mapping[str, Texts]):
    """The texts of a snapshot's entries by id, each read from the file by offset when it is needed.

    Only the last one is kept, so that a caller can read a session of any size. Raises Conflict `session_rewritten` if a
    line is no longer the one that was prepared.
    """

    def __init__(self, agent: Agent, reader: SessionReader, prepared: Prepared) -> None:
        self._agent, self._reader, self._prepared = agent, reader, prepared
        self._last: tuple[str, Texts] | None = None

    @cached_property
    def _entries(self) -> Mapping[str, TranscriptEntry]:
        return {entry.entry_id: entry for entry in self._prepared.entries}

    def __getitem__(self, entry_id: str) -> Texts:
        if self._last is None or self._last[0] != entry_id:
            self._last = entry_id, self._read(self._entries[entry_id])
        return self._last[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def line(self, entry_id: str) -> bytes:
        """The recorded line of an entry."""
        _, offset, length = self._prepared.places[self._entries[entry_id].position]
        return self._reader.read_at(offset, length)

    def _read(self, entry: TranscriptEntry) -> Texts:
        number, offset, length = self._prepared.places[entry.position]
        place = Entry(
            *(number, offset, length, entry.entry_id, None, entry.entry_type),
            role=entry.role,
            result_for=entry.result_for,
        )
        again, found = read_place(self._agent, self._reader, place)
        # The blocks of an edit are those of a message with an unknown role.
        is_edit = again.kind is EntryKind.EDIT
        is_same = entry.role == again.role and frozenset(again.blocks or ()).issuperset(entry.blocks)
        if not is_edit and not is_same:
            raise Conflict(
                "session_rewritten",
                f"{self._reader.path}: line {number} has changed. Nothing was written. Plan again: decisions that are "
                "still valid are kept.",
            )
        return texts_of_edit(found) if is_edit else found


@contextmanager
def open_snapshot_texts(path: Path, prepared: Prepared) -> Iterator[SnapshotTexts]:
    """The texts of a snapshot while its file is open.

    Raises Conflict `session_rewritten` if the file is no longer the one that was prepared.
    """
    agent = agent_at(path)
    with agent.store.open(path) as reader:
        _require_same(reader, prepared.fingerprint)
        yield SnapshotTexts(agent, reader, prepared)


def read_snapshot_texts(
    path: Path, prepared: Prepared, entries: Iterable[TranscriptEntry] | None = None
) -> dict[str, Texts]:
    """The texts of entries of a snapshot by id; of all entries if none are named.

    Raises the errors of `open_snapshot_texts` and `SnapshotTexts`.
    """
    wanted = prepared.entries if entries is None else entries
    with open_snapshot_texts(path, prepared) as texts:
        return {entry.entry_id: texts[entry.entry_id] for entry in wanted}


def moved_in_snapshot(path: Path, prepared: Prepared, plan: Iterable[Target]) -> Sequence[Moved]:
    """The remaining messages that a plan moves: each would be sent before a message that now precedes it.

    Raises the errors of `open_snapshot_texts`.
    """

    def line(entry_id: str) -> bytes:
        with open_snapshot_texts(path, prepared) as texts:
            return texts.line(entry_id)

    return moved(prepared.entries, plan, GENERATIONS[prepared.reader][1].turns, line)


def is_unchanged(target: Target, before: Prepared, after: Prepared) -> bool:
    """Whether a target names the same content in two snapshots: an edit may have replaced the blocks of its entry."""
    return target.block_index is None or before.place_of(target.entry_id) == after.place_of(target.entry_id)


# ---- stored -----------------------------------------------------------------------------------------------


def save_snapshot(run: Run, prepared: Prepared) -> None:
    """Store the snapshot on which a run is planned, replacing that of an interrupted attempt."""
    packed = zlib.compress(_encode(prepared), FAST)
    Snapshot.objects.update_or_create(run=run, defaults={"packed": packed, "mark": secrets.token_hex(8)})


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """A snapshot with its transcript, without texts."""

    prepared: Prepared
    transcript: Transcript


_cache = Recent[tuple[int, str], LoadedSnapshot](CACHED_ENTRIES, lambda kept: len(kept.transcript))


def is_prepared(run: Run) -> bool:
    """Whether a run has a snapshot, so that it can be reviewed."""
    return Snapshot.objects.filter(run=run).exists()


def mark_of(run: Run) -> str:
    """Identifies the preparation of a run. Raises BadInput `not_prepared`."""
    mark = Snapshot.objects.filter(run=run).values_list("mark", flat=True).first()
    if mark is None:
        raise not_prepared(run)
    return mark


def not_prepared(run: Run) -> BadInput:
    return BadInput("not_prepared", f"Plan {run.pk} was never prepared, so there is nothing to review.")


def snapshot_of(run: Run, mark: str = "") -> LoadedSnapshot:
    """The snapshot of a run, whose mark the caller may know; the last few are cached.

    Raises BadInput `not_prepared`.
    """

    def load() -> LoadedSnapshot:
        packed = Snapshot.objects.filter(run=run).values_list("packed", flat=True).get()
        prepared = _decode(zlib.decompress(packed))
        return LoadedSnapshot(prepared, prepared.transcript())

    return _cache.get((run.pk, mark or mark_of(run)), load)


def session_as_prepared(session: Session, prepared: Prepared) -> Document:
    """The session as prepared, from the index: the basis of a commit.

    Raises Conflict `session_rewritten` if the index no longer has those entries.
    """
    path = session.real_path()
    with session.agent.store.open(path) as reader:
        _require_same(reader, prepared.fingerprint)
        known = read_entries(session, reader, prepared.parser.version)
        entries = [entry for entry in known if entry.number <= prepared.last_number]
    if not entries or entries[-1].number != prepared.last_number:
        raise Conflict(
            "session_rewritten",
            f"The index of {path} no longer contains the planned entries. Nothing was written. Plan again.",
        )
    log = SessionLog(
        version=prepared.parser.version,
        header=prepared.parser.header,
        entries=entries,
        damage=[],
        damaged=prepared.parser.damaged,
        state=prepared.parser,
    )
    return Document(path, log, session.agent.format.tree(entries), prepared.fingerprint, prepared.file, session)

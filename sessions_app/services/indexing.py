"""Bringing the index up to date: a grown file is read from where it ended, a rewritten one from its start.

The index of a session is valid up to the last complete line that was read; rows beyond it, left by a
reading that was cut short or by a last line without newline, are removed before the next one. Writing goes
in small batches, so that no other writer waits long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from ..agents import agent_of
from ..discovery import Discovery, RefusedPath, discover
from ..files import MAX_SEGMENTS, Fingerprint, GrowthKind, SessionReader, real_path, reported
from ..loading import describe_again, read_again
from ..models import Entry as EntryRow
from ..models import Session
from ..sessionlog.context import Tally, model_of
from ..sessionlog.entries import CONTROL_TYPES, Entry
from ..sessionlog.errors import RedlineError
from ..sessionlog.jsjson import well_formed
from ..sessionlog.lines import split_lines
from ..sessionlog.packing import SCHEMA, pack, unpack
from ..sessionlog.readers import choose_reader
from ..sessionlog.session import (
    TITLE_LENGTH,
    Damage,
    Recorded,
    SessionParser,
    State,
    as_version_3,
    require_session,
)
from ..sessionlog.tree import SessionTree
from .roots import configured_roots as configured_roots
from .roots import root_for
from .rows import BATCH as BATCH
from .rows import demand_name as demand_name
from .rows import (
    find_row,
    insert_entries,
    keep_fault,
    known_paths,
    lost_below,
    mark_missing,
    only_indexer,
    remove_entries,
    settle,
)
from .rows import remember_own_write as remember_own_write
from .rows import session_row as session_row
from .surroundings import Surroundings

COMPACTION_TYPES: Final = frozenset({"compaction", "context_compaction"})


class ReadSoFar(NamedTuple):
    """How far the reading of one file has come, in bytes."""

    path: Path
    bytes: int

    def __str__(self) -> str:
        return f"{self.path.name}: {self.bytes >> 20} MB"


Report = Callable[[ReadSoFar], object]


@dataclass(slots=True)
class Indexed:
    """Sums over one indexing. `bytes` is what the files hold, `bytes_read` what had to be read of them."""

    files: int = 0
    entries: int = 0
    bytes: int = 0
    bytes_read: int = 0
    damaged: int = 0
    faults: list[RefusedPath] = field(default_factory=list)
    surroundings: Surroundings = field(default_factory=Surroundings)


def index_roots(*, rebuild: bool = False, report: Report = str) -> Indexed:
    """Index every configured root that is there."""
    total = Indexed()
    for root in configured_roots():
        path = Path(root.path)
        try:
            if _is_directory(path):
                _index_directory(path, total, rebuild, report)
            else:
                mark_missing(lost_below(path, known_paths(), set()))
        except RedlineError as fault:
            total.faults.append(RefusedPath(path, fault.message))
    return total


def index_paths(paths: Iterable[Path], *, rebuild: bool = False, report: Report = str) -> Indexed:
    """Index files and directories that were named. Raises BadInput for a path that is neither."""
    configured_roots()
    total = Indexed()
    for path in map(real_path, paths):
        if _is_directory(path):
            root_for(path)
            _index_directory(path, total, rebuild, report)
        else:
            index_file(path, total, rebuild=rebuild, report=report)
    return total


def _is_directory(path: Path) -> bool:
    with reported(path, "It was not indexed."):
        return path.is_dir()


def index_file(
    path: Path, total: Indexed | None = None, *, rebuild: bool = False, report: Report = str
) -> Session:
    """Index the file at a real path and give its row.

    Raises what reading it raises; a file that was not known stays unknown.
    """
    total = total if total is not None else Indexed()
    with only_indexer(path):
        session, created = find_row(path)
        try:
            _index_session(session, path, total, rebuild, report)
        except RedlineError as fault:
            if created:
                session.delete()
            else:
                keep_fault(session, fault)
            raise
    return session


def index_listed(path: Path, total: Indexed, *, rebuild: bool = False, report: Report = str) -> int | None:
    """Index a file that a root lists, by its real path, and give its row's key; None where it can have none.

    One unreadable file must not hide the others: the reason is kept with the session, and in `total`.
    """
    session = None
    try:
        with only_indexer(path):
            session = session_row(path)
            try:
                _index_session(session, path, total, rebuild, report)
            except RedlineError as fault:
                keep_fault(session, fault)
                raise
    except RedlineError as fault:
        total.faults.append(RefusedPath(path, fault.message))
    return session.pk if session is not None else None


def _index_directory(directory: Path, total: Indexed, rebuild: bool, report: Report) -> None:
    known = known_paths()
    found: Discovery = discover(directory)
    total.faults.extend(found.refused)
    listed = [index_listed(path, total, rebuild=rebuild, report=report) for path in found.paths]
    seen = {key for key in listed if key is not None}
    mark_missing(lost_below(directory, known, seen, [refused.path for refused in found.refused]))


# ---- one session --------------------------------------------------------------------------------------------


def _index_session(session: Session, path: Path, total: Indexed, rebuild: bool, report: Report) -> None:
    with SessionReader(path) as reader:
        try:
            indexing = _Indexing(session, path, reader, rebuild, total.surroundings)
            indexing.run(report)
        finally:
            total.bytes_read += reader.bytes_read
    total.files += 1
    total.entries += session.entry_count
    total.bytes += session.size
    total.damaged += session.damage_count


class _Indexing:
    """One reading of one file: from where the last one ended, or from the start.

    As long as each entry just follows the one before it, the context is summed up on the way and no entry is
    held in memory. Where one does not, the sums are taken from the index once all entries are in it.
    """

    def __init__(
        self, session: Session, path: Path, reader: SessionReader, rebuild: bool, surroundings: Surroundings
    ) -> None:
        self.session = session
        self.surroundings = surroundings
        self.path = path
        self.reader = reader
        self.found = reader.stat()
        """As it was before it was read: the index never claims more of a file than it has seen."""
        self.previous = None if rebuild else self._known()
        kept: dict[str, Any] = session.state if self.previous is not None else {}
        self.parser = SessionParser(
            state=msgspec.convert(kept["parser"], State) if kept else State(),
            damage=msgspec.convert(kept["damage"], list[Damage]) if kept else [],
        )
        self.tree_damage: list[Any] = kept["tree_damage"] if kept else []
        self.tree_damaged: int = kept["tree_damaged"] if kept else 0
        self.tally = msgspec.convert(kept["tally"], Tally | None) if kept else Tally()
        self.complete: int = kept["entries"] if kept else 0
        """Entries on lines that end with a newline."""
        self.count = self.complete
        self.compactions: int = kept["compactions"] if kept else 0
        self.torn_compactions = 0
        self.seen: set[str] = set()
        self.titles: list[str] | None = None
        """First user message and name, where a line without newline may have changed them."""
        if kept:
            session.first_user_message, session.name = kept["titles"]

    def _known(self) -> Fingerprint | None:
        session = self.session
        if session.schema != SCHEMA or session.fingerprint is None or session.state is None:
            return None
        fingerprint = msgspec.convert(session.fingerprint, Fingerprint)
        if len(fingerprint.segments) >= MAX_SEGMENTS:
            return None
        growth = self.reader.growth(fingerprint)
        return None if growth.kind is GrowthKind.REWRITTEN else fingerprint

    def run(self, report: Report) -> None:
        session, state = self.session, self.parser.state
        # Another reader was chosen, or a choice was taken back: then it is not known which one counted.
        if not session.read_as or self._chosen_reader not in ("", session.read_as):
            self.tally = None
        unchanged = self.previous is not None and self.found.st_size == session.size == self.previous.size
        if self.previous is not None and unchanged and self.tally is not None:
            self._settle(self.previous)
            return
        if self.previous is None:
            # Until the first batch is in, the index claims nothing about this file.
            Session.objects.filter(pk=session.pk).update(state=None, fingerprint=None)
            session.first_user_message = session.name = ""
            self._forget_branch()
        remove_entries(session, state.next_number)
        start = state.next_offset
        rows = []
        for line in split_lines(self.reader.chunks(start), offset=start, number=state.next_number):
            if not line.complete:
                self.titles = [session.first_user_message, session.name]
            recorded = self.parser.read(line)
            if recorded is None:
                continue
            rows.append(self._row(recorded))
            self._carry(recorded.entry)
            self.complete += line.complete
            is_compaction = recorded.entry.type in COMPACTION_TYPES
            self.compactions += is_compaction and line.complete
            self.torn_compactions += is_compaction and not line.complete
            if len(rows) >= BATCH:
                self._write(rows)
                report(ReadSoFar(self.path, line.offset))
        self._write(rows)
        require_session(state, str(self.path))
        fingerprint = self.reader.fingerprint(state.next_offset, self.previous)
        if not self.count:
            self._forget_branch()
        elif self.tally is None:
            self._recount()
        self._settle(fingerprint)

    def _row(self, recorded: Recorded) -> tuple[Any, ...]:
        entry, session = recorded.entry, self.session
        if not session.first_user_message and entry.role == "user":
            session.first_user_message = title_of(recorded.texts.joined(entry.blocks))
        if entry.type == "session_info" and entry.control is not None:
            named = entry.control.get("name")
            session.name = title_of(named) if isinstance(named, str) else session.name
        return (session.pk, entry.number, entry.offset, entry.length, entry.id, entry.parent_id, pack(entry))

    def _carry(self, entry: Entry) -> None:
        """Count an entry that just follows the one before it; else give the sums up."""
        self.count += 1
        if self.tally is None:
            return
        if not self.tally.carries(entry) or entry.id in self.seen:
            self.tally = None
            self.seen.clear()
            return
        self.seen.add(entry.id)
        self.tally.add(entry)
        if entry.model is not None:
            self.session.provider, self.session.model = entry.model

    def _write(self, rows: list[tuple[Any, ...]]) -> None:
        if not rows:
            return
        require_session(self.parser.state, str(self.path))
        if self.previous is not None and self.tally is not None:
            # An id that is in the index already, or was missed there as a parent, makes another tree.
            ids = [entry_id for _, _, _, _, entry_id, _, _ in rows]
            known = EntryRow.objects.filter(session=self.session)
            repeated = known.filter(entry_id__in=ids).exists()
            if repeated or (self.tree_damaged and known.filter(parent_id__in=ids).exists()):
                self.tally = None
        insert_entries(rows)
        rows.clear()

    def _forget_branch(self) -> None:
        session = self.session
        session.leaf_id = session.provider = session.model = session.read_as = session.context_source = ""
        session.context_tokens = session.overflow = None
        self.tally = Tally()
        self.tree_damage, self.tree_damaged = [], 0

    def _recount(self) -> None:
        """The sums of the leaf's branch, from all entries in the index."""
        session = self.session
        tree = SessionTree(list(read_entries(session, self.path, self.reader, self.parser.state.version)))
        branch = tree.branch(tree.leaf.id)
        reading = choose_reader(tree.entries, chosen=self._chosen_reader, agent=self._agent)
        self.tree_damage, self.tree_damaged = msgspec.to_builtins(tree.damage), tree.damaged
        session.read_as = reading.reader.name
        session.provider, session.model = model_of(branch) or ("", "")
        self.tally = Tally.of(reading.reader.rebuild(branch), tree.leaf.id, branch)

    @property
    def _chosen_reader(self) -> str:
        return self.session.reader_choice or self.session.root.reader

    @property
    def _agent(self) -> str:
        return self.session.root.agent or agent_of(self.path)

    def _settle(self, fingerprint: Fingerprint) -> None:
        session, parser = self.session, self.parser
        header = parser.state.header
        tally = self.tally
        if tally is not None and tally.leaf_id is not None:
            session.leaf_id = tally.leaf_id
            session.context_tokens, session.context_source = tally.gauge.tokens, tally.gauge.source
            session.overflow = tally.overflow
        if not session.read_as:
            session.read_as = choose_reader((), chosen=self._chosen_reader, agent=self._agent).reader.name
        session.entry_count = self.count
        session.header_id = header.id if header is not None else ""
        session.cwd = header.cwd if header is not None else ""
        session.version = parser.state.version
        session.size = self.found.st_size
        session.title = session.name or session.first_user_message
        session.compaction_count = self.compactions + self.torn_compactions
        session.last_used = datetime.fromtimestamp(self.found.st_mtime, UTC)
        session.mtime_ns = self.found.st_mtime_ns
        session.indexed_at = datetime.now(UTC)
        window = self.surroundings.window(session.model)
        session.window, session.window_source = (
            (window.tokens, window.source) if window is not None else (None, "")
        )
        session.reserve_tokens = self.surroundings.reserve(session.cwd)
        session.missing = False
        session.fault = ""
        session.damage_count = parser.damaged + self.tree_damaged
        session.damage = [*msgspec.to_builtins(parser.damage), *self.tree_damage]
        session.schema = SCHEMA
        session.fingerprint = msgspec.to_builtins(fingerprint)
        end = parser.state.next_offset
        session.state = {
            "parser": msgspec.to_builtins(parser.state),
            "damage": msgspec.to_builtins([fault for fault in parser.damage if fault.offset < end]),
            "tree_damage": self.tree_damage,
            "tree_damaged": self.tree_damaged,
            # What a line without newline adds is not carried on: it is read again, and may then be another.
            "tally": msgspec.to_builtins(tally) if self.complete == self.count else None,
            "entries": self.complete,
            "compactions": self.compactions,
            "titles": self.titles or [session.first_user_message, session.name],
        }
        settle(session)


def read_entries(session: Session, path: Path, reader: SessionReader, version: int) -> Iterator[Entry]:
    """The indexed entries of a session in file order; what steers a branch is read from the file again."""
    rows = EntryRow.objects.filter(session=session).order_by("number")
    columns = rows.values_list("number", "offset", "length", "entry_id", "parent_id", "digest")
    for number, offset, length, entry_id, parent_id, packed in columns.iterator(chunk_size=5_000):
        entry = unpack(number, offset, length, entry_id, parent_id, packed)
        if entry.type not in CONTROL_TYPES:
            yield entry
            continue
        data = read_again(reader, entry)
        describe_again(data, entry, path)
        yield msgspec.structs.replace(entry, control=as_version_3(data, version))


def title_of(text: str) -> str:
    """The beginning of a text, on one line, at most TITLE_LENGTH characters."""
    return well_formed(" ".join(text[: 4 * TITLE_LENGTH].split())[:TITLE_LENGTH]).replace("\0", "")

"""Updates the index: a file that has grown is read from where it ended, a rewritten one from its start.

Files are indexed in batches: one query finds their rows, and one transaction writes the results. Transactions are
short, so that other writers do not wait long, and a killed process loses one batch at most.

The index of a session is valid up to the last complete line that was read. Rows beyond it, from an interrupted scan or
from a last line without a newline, are removed before the next scan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from django.db import connections

from sessions_app.agents import registry
from sessions_app.agents.edge.installed_version import Version
from sessions_app.agents.pure.formats import Reader
from sessions_app.agents.reading import Reading
from sessions_app.disk.discovery import RefusedPath
from sessions_app.disk.files import MAX_SEGMENTS, Fingerprint, GrowthKind, SessionReader, real_path, reported
from sessions_app.models import Session
from sessions_app.server.children import in_two_processes, may_fork
from sessions_app.sessionlog.context import ActiveContext, Measured, Tally, model_of
from sessions_app.sessionlog.diagnosis import SentConversation
from sessions_app.sessionlog.entries import Entry, NameControl, Role, Texts, moment_of
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.jsjson import Line, split_lines
from sessions_app.sessionlog.session import SCHEMA, Damage, ParserState, Recorded, require_session
from sessions_app.sessionlog.text import is_noise, title_of, title_of_prompt
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.session_loader import branch_sample, read_place

from . import index_store
from .context_window_lookup import ContextWindowLookup, refresh_windows
from .progress import ReadSoFar, Report
from .roots import configured_roots, discover_in, record_unread, root_for

FILES_AT_ONCE: Final = 32
BYTES_AT_ONCE: Final = 8_000_000
"""The limits of a batch: number of files, and their total size; a larger file is a batch on its own."""
BYTES_FOR_TWO: Final = 16_000_000
"""The total size from which two processes index faster than one."""
ENTRIES_AT_ONCE: Final = 4_000
"""The maximum number of unwritten entries: some 20 ms of a transaction."""


@dataclass(slots=True)
class IndexTotals:
    """Totals of one indexing run. `bytes` is the size of the files, `bytes_read` the part that had to be read."""

    files: int = 0
    entries: int = 0
    bytes: int = 0
    bytes_read: int = 0
    damaged: int = 0
    faults: list[RefusedPath] = field(default_factory=list)
    unlisted: list[RefusedPath] = field(default_factory=list)
    """Directories that could not be listed: their sessions are unknown."""
    unread: list[RefusedPath] = field(default_factory=list)
    """Directories with sessions that Redline cannot read yet, with a sentence about these."""
    lookup: ContextWindowLookup = field(default_factory=ContextWindowLookup)

    def count(self, entries: int, size: int, damaged: int) -> None:
        """Count one session."""
        self.files += 1
        self.entries += entries
        self.bytes += size
        self.damaged += damaged

    def add(self, other: IndexTotals) -> None:
        """Add what another process has indexed."""
        self.files += other.files
        self.entries += other.entries
        self.bytes += other.bytes
        self.bytes_read += other.bytes_read
        self.damaged += other.damaged
        self.faults += other.faults


class IndexResult(NamedTuple):
    """The result for one file in a root. `key` is None if it cannot have a row."""

    path: Path
    key: int | None
    fault: str = ""


class RebuiltSession(NamedTuple):
    """The tree of a session, the branch of its leaf, and the context that was rebuilt from it."""

    tree: SessionTree
    branch: Sequence[Entry]
    context: ActiveContext


class ReadTexts(Protocol):
    """Receives the texts of one session while it is read from its start."""

    def take(self, entry: Entry, texts: Texts) -> None:
        """Receive the next entry of the session."""

    def stored(self, first_key: int, entries: int) -> None:
        """Called when the last `entries` entries have rows, with consecutive keys from `first_key` on."""

    def complete(self, rebuilt: RebuiltSession | None) -> None:
        """Called when all entries and the session's row are stored. `rebuilt` is None if every entry is in the active
        context.
        """


TextSink = Callable[[Session], ReadTexts]
"""Gives the receiver of the texts of a session that is read from its start."""
OpenTexts = Callable[[], AbstractContextManager[TextSink | None]]
"""Opens a sink; each process that indexes opens its own."""


class ReadOptions(NamedTuple):
    """How files are read: whether always from their start, and the receivers of the progress and the texts."""

    rebuild: bool = False
    report: Report = str
    texts: TextSink | None = None


def index_roots(*, rebuild: bool = False, report: Report = str, texts: OpenTexts = nullcontext) -> IndexTotals:
    """Index every configured root that exists. Files with the size and the time of the index are not opened."""
    total = IndexTotals()
    refresh_windows(total.lookup)
    known = {} if rebuild else index_store.known_files()
    for root in configured_roots():
        path = Path(root.path)
        try:
            if _is_directory(path):
                _index_directory(path, total, ReadOptions(rebuild, report), texts, known)
            else:
                index_store.mark_missing_below(path, index_store.known_paths(), set())
        except RedlineError as fault:
            total.faults.append(RefusedPath(path, fault.message))
            total.unlisted.append(total.faults[-1])
    return total


def index_paths(
    paths: Iterable[Path], *, rebuild: bool = False, report: Report = str, texts: OpenTexts = nullcontext
) -> IndexTotals:
    """Index the given files and directories, whatever their sizes and times. Raises BadInput if a path is neither."""
    configured_roots()
    total = IndexTotals()
    for path in map(real_path, paths):
        if _is_directory(path):
            root_for(path)
            _index_directory(path, total, ReadOptions(rebuild, report), texts)
        else:
            with texts() as sink:
                index_file(path, total, rebuild=rebuild, report=report, texts=sink)
    return total


def _is_directory(path: Path) -> bool:
    with reported(path, "It was not indexed."):
        return path.is_dir()


def index_file(
    path: Path,
    total: IndexTotals | None = None,
    *,
    rebuild: bool = False,
    report: Report = str,
    texts: TextSink | None = None,
) -> Session:
    """Index the file at a real path and return its row.

    Raises the errors of reading it; an unknown file then stays unknown.
    """
    index_store.require_name(path)
    with index_store.only_indexer(path):
        rows, made = index_store.find_rows([path])
        session, is_new = rows[path], path in made
        try:
            scan = _read(session, path, total or IndexTotals(), ReadOptions(rebuild, report, texts), is_new=is_new)
        except RedlineError as fault:
            if is_new:
                session.delete()
            else:
                index_store.record_fault(session, fault)
            raise
        _write([scan])
    return session


def _index_directory(
    directory: Path,
    total: IndexTotals,
    options: ReadOptions,
    texts: OpenTexts,
    indexed: Mapping[Path, index_store.IndexedFile] = MappingProxyType({}),
) -> None:
    """Index the sessions below a directory, except those whose state equals that in `indexed`."""
    known = index_store.known_paths()
    found = discover_in(directory, root_for(directory)[0].agent)
    record_unread(directory, found.unread)
    total.unread += [RefusedPath(directory, found.unread)] if found.unread else []
    total.faults.extend(found.refused)
    total.unlisted.extend(found.unlisted)
    sizes, there = {}, set()
    for path in found.paths:
        row = indexed.get(path)
        seen = index_store.seen_session(path, row, found.changed_ns.get(path))
        if row is not None and seen is not None and row.is_still(seen):
            there.add(row.key)
            total.count(row.entries, row.size, row.damaged)
        else:
            # Reading will report a file that cannot be inspected.
            sizes[path] = seen.size if seen is not None else 0
    there |= _index_files(sizes, total, options, texts)
    index_store.mark_missing_below(directory, known, there, [refused.path for refused in found.refused])


def _index_files(sizes: Mapping[Path, int], total: IndexTotals, options: ReadOptions, texts: OpenTexts) -> set[int]:
    """Index files with these sizes, many of them with two processes; returns the keys of their rows."""
    index = partial(_index_part, lookup=total.lookup, texts=texts)
    if sum(sizes.values()) < BYTES_FOR_TWO or not may_fork():
        found, counted = index((sizes, options))
    else:
        connections.close_all()
        mine, other = _halves(sizes)
        silent = options._replace(report=str)
        (found, counted), (others, counted_there) = in_two_processes(index, (mine, options), (other, silent))
        found |= others
        counted.add(counted_there)
    total.add(counted)
    return found


def _halves(sizes: Mapping[Path, int]) -> tuple[dict[Path, int], dict[Path, int]]:
    """The files in two parts, each of about half of their bytes, which never wait for a lock of the other's files."""
    together: dict[int, dict[Path, int]] = defaultdict(dict)
    for path, size in sizes.items():
        together[index_store.lock_place(path)][path] = size
    parts: tuple[dict[Path, int], dict[Path, int]] = ({}, {})
    balance = 0
    for group in sorted(together.values(), key=lambda group: -sum(group.values())):
        parts[balance > 0].update(group)
        balance += -sum(group.values()) if balance > 0 else sum(group.values())
    return parts


def _index_part(
    part: tuple[Mapping[Path, int], ReadOptions], lookup: ContextWindowLookup, texts: OpenTexts
) -> tuple[set[int], IndexTotals]:
    sizes, options = part
    total, found = IndexTotals(lookup=lookup), set()
    with texts() as sink:
        for batch in batches(sizes):
            listed = index_batch(batch, total, options._replace(texts=sink))
            found |= {one.key for one in listed if one.key is not None}
    return found, total


# ---- batches -----------------------------------------------------------------------------------------------


def batches(sizes: Mapping[Path, int]) -> Iterator[list[Path]]:
    """Batches of files for `index_batch`, in order. `sizes` are in bytes."""
    batch: list[Path] = []
    held = 0
    for path, size in sizes.items():
        if batch and (len(batch) == FILES_AT_ONCE or held + size > BYTES_AT_ONCE):
            yield batch
            batch, held = [], 0
        batch.append(path)
        held += size
    if batch:
        yield batch


def index_batch(paths: Sequence[Path], total: IndexTotals, options: ReadOptions) -> list[IndexResult]:
    """Index files of roots, by their real paths.

    An unreadable file does not affect the others: the reason is recorded with its session and in `total`.
    """
    listed = [IndexResult(path, None, fault) for path in paths if (fault := _unusable(path))]
    usable = [path for path in paths if path not in {one.path for one in listed}]
    try:
        with index_store.only_indexer(*usable):
            listed += _index_locked(usable, total, options)
    except RedlineError as fault:
        listed += [IndexResult(path, None, fault.message) for path in usable]
    total.faults += [RefusedPath(one.path, one.fault) for one in listed if one.fault]
    return listed


def _unusable(path: Path) -> str:
    """Why a path cannot be stored in the database; empty if it can."""
    try:
        index_store.require_name(path)
    except RedlineError as fault:
        return fault.message
    return ""


def _index_locked(paths: Sequence[Path], total: IndexTotals, options: ReadOptions) -> list[IndexResult]:
    listed = []
    scans: list[Scan] = []
    rows, made = index_store.find_rows(paths)
    for path, session in rows.items():
        try:
            scans.append(_read(session, path, total, options, is_new=path in made))
        except RedlineError as fault:
            index_store.record_fault(session, fault)
            listed.append(IndexResult(path, session.pk, fault.message))
        else:
            listed.append(IndexResult(path, session.pk))
        if sum(len(scan.pending) for scan in scans) >= ENTRIES_AT_ONCE:
            _write(scans)
            scans.clear()
    _write(scans)
    return listed


def _read(session: Session, path: Path, total: IndexTotals, options: ReadOptions, *, is_new: bool) -> Scan:
    with session.agent.store.open(path) as reader:
        try:
            scan = Scan(session, path, reader, total.lookup, options, is_new=is_new)
            scan.run(options.report)
        finally:
            total.bytes_read += reader.bytes_read
    total.count(session.entry_count, session.size, session.damage_count)
    return scan


def _write(scans: Iterable[Scan]) -> None:
    changed = [scan for scan in scans if scan.changed]
    if changed:
        first_keys = index_store.write_read([(scan.session, scan.pending) for scan in changed])
        for scan, first_key in zip(changed, first_keys, strict=True):
            scan.stored(first_key)


def select_reader(session: Session, name: str) -> None:
    """Store the reader chosen for a session, and count its context with it; "" lets Redline choose again.

    Raises the errors of indexing: then the choice is stored, but the count is not.
    """
    Session.objects.filter(pk=session.pk).update(reader=name, read_as="")
    index_file(session.real_path())


# ---- one session file --------------------------------------------------------------------------------------


class Scan:
    """One scan of one file, which updates `session`.

    After `run`, the caller writes `pending`, the entries that are not in the index yet, and the session's row if
    `changed`, in one transaction, and calls `stored`. Entries of a long file are written on the way, BATCH at a time.

    As long as each entry follows the one before it, the context is totalled on the way and no entry is kept in memory
    after it was written. Otherwise the totals are computed from all entries at the end.

    `is_new`: the row was created for this scan.
    """

    def __init__(
        self,
        session: Session,
        path: Path,
        reader: SessionReader,
        lookup: ContextWindowLookup,
        options: ReadOptions,
        *,
        is_new: bool,
    ) -> None:
        self.session = session
        self.path = path
        self.pending: list[Entry] = []
        self.changed = False
        self._is_new = is_new
        self._lookup = lookup
        self._reader = reader
        self._found = reader.stat()
        """The state before reading: the index never claims more of a file than was read."""
        self._previous = None if options.rebuild else self._known()
        self._rebuilt: RebuiltSession | None = None
        """None as long as the context is totalled on the way."""
        self._texts = options.texts(session) if options.texts is not None and self._previous is None else None
        kept: dict[str, Any] = session.state if self._previous is not None else {}
        self._parser = session.agent.format.parser(
            msgspec.convert(kept["parser"], ParserState) if kept else ParserState(),
            msgspec.convert(kept["damage"], list[Damage]) if kept else [],
        )
        self._tree_damage: list[Any] = kept["tree_damage"] if kept else []
        self._tree_damaged: int = kept["tree_damaged"] if kept else 0
        self._tally = msgspec.convert(kept["tally"], Tally | None) if kept else self._first_tally()
        self._conversation = msgspec.convert(kept["conversation"], SentConversation | None) if kept else None
        """The conversation that the agent would send, without the entries in `_carried`; None before the first."""
        self._decided_by: list[Any] | None = kept.get("asked")
        """The agent whose installed version decided the reader, this version if there is one, and the reader of the
        versions that the lines recorded; None if the reader depends on no version."""
        self._inherited: object = kept.get("inherited", session.inherited)
        """The measure that the totals are computed with: see `Session.inherited`."""
        self._signs: list[Entry] = []
        """Entries in the totals that only one agent writes."""
        self._carried: list[Entry] = []
        """Entries in the totals, but not in the conversation yet."""
        self._complete: int = kept["entries"] if kept else 0
        """Entries on lines that end with a newline."""
        self._count = self._complete
        self._compactions: int = kept["compactions"] if kept else 0
        self._torn_compactions = 0
        self._seen: set[str] = set()
        self._used: str = kept.get("used", "")
        """The last time that an entry of the conversation records, on a line with a newline."""
        self._torn_used = ""
        self._recognised: bool | None = None
        """Whether the file was a session without its last line, if that has no newline."""
        self._titles: list[str] | None = None
        """First user message and name, if a line without a newline may have changed them."""
        if kept:
            session.first_user_message, session.name = kept["titles"]

    def _known(self) -> Fingerprint | None:
        session = self.session
        if session.schema != SCHEMA or session.fingerprint is None or session.state is None:
            return None
        fingerprint = msgspec.convert(session.fingerprint, Fingerprint)
        if len(fingerprint.segments) >= MAX_SEGMENTS:
            return None
        growth = self._reader.growth(fingerprint)
        return None if growth.kind is GrowthKind.REWRITTEN else fingerprint

    def run(self, report: Report) -> None:
        """Read the new part of the file. Raises the errors of reading, and BadInput `not_a_session`."""
        session, state = self.session, self._parser.state
        # Another reader was chosen, or a choice was withdrawn, or the agent was updated: the totals of the previous
        # reader are invalid.
        if (
            not session.read_as
            or self._chosen_reader not in ("", session.read_as)
            or self._is_agent_updated()
            or self._shows_other_versions()
            or self._inherited != session.inherited
        ):
            self._tally = None
        previous = self._previous
        if previous is not None and self._tally is not None and self._found.st_size == session.size == previous.size:
            self._update_metadata()
            return
        self.changed = True
        if previous is None:
            self._forget()
        if not self._is_new:
            index_store.remove_entries(session, state.next_offset)
        start = state.next_offset
        for line in split_lines(self._reader.chunks(start), offset=start, number=state.next_number):
            self._read(line)
            if len(self.pending) >= index_store.BATCH:
                self._require_session()
                self._check_ids()
                self._note_pending()
                first_key = index_store.insert_entries(session, self.pending)
                if self._texts is not None:
                    self._texts.stored(first_key, len(self.pending))
                self.pending.clear()
                self._continue_conversation()
                report(ReadSoFar(self.path, line.offset))
        self._note_pending()
        self._require_session()
        self._check_ids()
        fingerprint = self._reader.fingerprint(state.next_offset, previous)
        if not self._count:
            self._forget_branch()
        elif self._tally is None or self._shows_other_versions():
            self._recount()
        tally = self._tally
        if tally is not None and tally.leaf_id and tally.wants_sample:
            tally.take_sample(self._sample(tally.leaf_id))
        self._continue_conversation()
        self._conclude(fingerprint)
        self._update_metadata()

    def stored(self, first_key: int) -> None:
        """Called when the pending entries have rows, with keys from `first_key` on, and the session's row is
        written.
        """
        if self._texts is not None:
            self._texts.stored(first_key, len(self.pending))
            self._texts.complete(self._rebuilt)

    def _read(self, line: Line) -> None:
        session = self.session
        if not line.complete:
            self._titles = [session.first_user_message, session.name]
            self._recognised = self._parser.state.recognised
        for recorded in self._parser.read(line):
            entry = recorded.entry
            if entry.role == Role.USER or entry.control is not None:
                self._read_titles(recorded)
            if self._texts is not None:
                self._texts.take(entry, recorded.texts)
            self.pending.append(entry)
            self._count += 1
            if self._tally is not None:
                self._carry(self._tally, entry)

    def _note_pending(self) -> None:
        """Update the facts for the session's row from the pending entries, separately for those on a torn line."""
        end = self._parser.state.next_offset
        complete = [entry for entry in self.pending if entry.offset < end]
        torn = self.pending[len(complete) :]
        self._complete += len(complete)
        self._used, self._torn_used = _last_time(complete) or self._used, _last_time(torn)
        self._compactions += sum(entry.is_compaction for entry in complete)
        self._torn_compactions = sum(entry.is_compaction for entry in torn)

    @property
    def _kept_state(self) -> ParserState:
        """The state of the parser, without the effect of a line without a newline."""
        state = self._parser.state
        return state if self._recognised is None else msgspec.structs.replace(state, recognised=self._recognised)

    def _read_titles(self, recorded: Recorded) -> None:
        entry, session = recorded.entry, self.session
        if not session.first_user_message and entry.role == Role.USER:
            text = recorded.texts.joined(entry.blocks)
            session.first_user_message = title_of_prompt(text)
        if isinstance(entry.control, NameControl) and entry.control.name is not None:
            session.name = title_of(entry.control.name)

    def _carry(self, tally: Tally, entry: Entry) -> None:
        """Add an entry to the totals if it follows the previous one; otherwise discard the totals."""
        if not tally.carries(entry) or entry.id in self._seen or (entry.sole_agent and self._shows_reader(entry)):
            self._tally = None
            self._seen.clear()
            self._carried.clear()
            return
        self._seen.add(entry.id)
        tally.add(entry)
        self._carried.append(entry)
        if entry.sole_agent:
            self._signs.append(entry)
        if entry.model is not None:
            self.session.provider, self.session.model = entry.model

    def _shows_reader(self, entry: Entry) -> bool:
        """Whether an entry may change the reader of the session, because nothing else determines it."""
        if self._chosen_reader:
            return False
        return registry.may_show_another(entry, self.session.read_as, self._agent)

    def _require_session(self) -> None:
        require_session(self._parser.state, str(self.path), self._reader.head)

    def _check_ids(self) -> None:
        """Discard the totals if an id is already in the index, or was missing there as a parent: the tree differs."""
        if self._previous is None or self._tally is None:
            return
        ids = [entry.id for entry in self.pending]
        known = self.session.entries
        repeated = known.filter(entry_id__in=ids).exists()
        if repeated or (self._tree_damaged and known.filter(parent_id__in=ids).exists()):
            self._tally = None

    def _forget(self) -> None:
        """Clear the session's results, so that the index claims nothing about the file until the first batch."""
        session = self.session
        if session.state is not None or session.fingerprint is not None:
            Session.objects.filter(pk=session.pk).update(state=None, fingerprint=None)
        session.first_user_message = session.name = ""
        self._forget_branch()

    def _forget_branch(self) -> None:
        session = self.session
        session.leaf_id = session.provider = session.model = session.read_as = session.context_basis = ""
        session.broken = session.broken_at = session.fitting_reader = ""
        session.context_tokens = session.overflow = None
        session.tokens_after_first = session.context_estimate = 0
        session.context_ratio = 1.0
        self._tally, self._conversation = self._first_tally(), None
        self._tree_damage, self._tree_damaged = [], 0

    def _first_tally(self) -> Tally | None:
        """The totals before the first entry; None if an inherited measure requires the whole branch."""
        return Tally() if self.session.inherited is None else None

    def _recount(self) -> None:
        """Compute the totals of the leaf's branch from all entries of the session."""
        session = self.session
        tree = session.agent.format.tree(self._entries())
        branch = tree.branch(tree.leaf.id)
        reading = self._choose_reader(tree.entries, session.own_entries)
        self._tree_damage, self._tree_damaged = msgspec.to_builtins(tree.damage), tree.damaged
        session.read_as = reading.reader.name
        session.provider, session.model = model_of(branch) or ("", "")
        context = reading.reader.rebuild(branch)
        self._rebuilt = RebuiltSession(tree, branch, context)
        self._tally = Tally.of(context, branch, reading.reader.rebuild, session.inherited_measure)
        self._conversation = SentConversation.of(context)
        self._carried.clear()

    def _entries(self) -> list[Entry]:
        """All entries of the session."""
        if len(self.pending) == self._count:
            return self.pending
        return [*index_store.read_entries(self.session, self._reader, self._parser.state.version), *self.pending]

    def _branch(self, leaf_id: str) -> list[Entry]:
        return self.session.agent.format.tree(self._entries()).branch(leaf_id)

    def _sample(self, leaf_id: str) -> Measured:
        """The sample at the beginning of a branch whose tokens are counted."""
        agent, version = self.session.agent, self._parser.state.version

        def read(entry: Entry) -> Texts:
            return read_place(agent, self._reader, entry, version)[1]

        branch = self._branch(leaf_id) if self._rebuilt is None else self._rebuilt.branch
        return branch_sample(branch, read)

    def _continue_conversation(self) -> None:
        """Add the carried entries to the conversation: none of them changes how earlier ones are sent."""
        if not self._carried:
            return
        context = self._reader_so_far().rebuild(self._carried)
        if self._conversation is None:
            self._conversation = SentConversation.of(context)
        else:
            self._conversation.add(context.messages)
        self._carried.clear()

    def _choose_reader(self, entries: Sequence[Entry], own: Mapping[str, str] = registry.NOTHING_APPENDED) -> Reading:
        self._decided_by = None
        return registry.choose_reader(
            entries,
            chosen=self._chosen_reader,
            agent=self._agent,
            own=own,
            version_of=self._version_of,
            state=self._parser.state,
        )

    def _version_of(self, agent: str) -> Version | None:
        version = self._lookup.version_of(agent)
        self._decided_by = [agent, list(version) if version is not None else None, self._recorded_reader(agent)]
        return version

    def _is_agent_updated(self) -> bool:
        """Whether the installed version differs from the one that decided the reader."""
        if self._decided_by is None:
            return False
        agent, deciding, _ = self._decided_by
        version = self._lookup.version_of(agent)
        return version is not None and list(version) != deciding

    def _shows_other_versions(self) -> bool:
        """Whether the versions in the lines decided the reader, and now indicate another one."""
        if self._decided_by is None or self._chosen_reader:
            return False
        agent, deciding, recorded = self._decided_by
        return deciding is None and recorded != self._recorded_reader(agent)

    def _recorded_reader(self, key: str) -> str:
        """The reader of the versions that the lines record so far; empty if they record none."""
        agent = registry.AGENTS[key]
        recorded = agent.format.recorded_version(self._parser.state)
        return registry.generation_of(agent, recorded.numbers).reader.name if recorded is not None else ""

    def _reader_so_far(self) -> Reader:
        """The reader of the session; at first, the one that the entries in the totals show."""
        session = self.session
        if session.read_as not in registry.READERS:
            session.read_as = self._choose_reader(self._signs).reader.name
        return registry.READERS[session.read_as]

    @cached_property
    def _chosen_reader(self) -> str:
        return self.session.reader_choice or self.session.root.reader

    @property
    def _agent(self) -> str:
        """The key of the file's agent, if known."""
        return self.session.root.agent or self.session.found_agent

    def _update_metadata(self) -> None:
        """Update the fields that may change even if the file does not."""
        session = self.session
        seen = {
            "last_used": moment_of(self._torn_used or self._used) or datetime.fromtimestamp(self._found.st_mtime, UTC),
            "mtime_ns": self._found.st_mtime_ns,
            **self._lookup.fields(session),
            "taken_over": session.agent.store.taken_over(self.path),
            "missing": False,
            "fault": "",
        }
        for name, value in seen.items():
            if getattr(session, name) != value:
                setattr(session, name, value)
                self.changed = True
        if self.changed:
            session.indexed_at = datetime.now(UTC)

    def _conclude(self, fingerprint: Fingerprint) -> None:
        """Store the results of reading."""
        session, parser = self.session, self._parser
        header, tally = parser.state.header, self._tally
        if tally is not None and tally.leaf_id is not None:
            session.leaf_id = tally.leaf_id
            size = tally.size
            session.context_tokens, session.context_basis = size.tokens, size.basis
            session.context_ratio, session.context_estimate = size.ratio, tally.estimate
            session.overflow = tally.overflow
            branch = self._branch(tally.leaf_id) if tally.measure.is_of_another_context else []
            session.fitting_reader = registry.fitting_reader(session.agent, branch, self._reader_so_far())
            session.tokens_after_first = tally.after_first or 0
        broken = self._conversation.broken if self._conversation is not None else None
        session.broken = broken.sentence if broken is not None else ""
        session.broken_at = broken.entry_id if broken is not None else ""
        session.read_as = self._reader_so_far().name
        session.header_id = header.id if header is not None else ""
        session.parent_path = header.parent_session if header is not None else ""
        session.is_subagent = header is not None and header.is_subagent
        session.cwd = header.cwd if header is not None else ""
        session.version = parser.state.version
        session.recorded_window = parser.state.window
        session.entry_count = self._count
        session.size = self._found.st_size
        named = session.name if not is_noise(session.name) else ""
        session.title = named or session.first_user_message or session.name
        session.compaction_count = self._compactions + self._torn_compactions
        session.damage_count = parser.damaged + self._tree_damaged
        session.damage = [*msgspec.to_builtins(parser.damage), *self._tree_damage]
        session.schema = SCHEMA
        session.fingerprint = msgspec.to_builtins(fingerprint)
        if self._conversation is not None:
            self._conversation.forget_old_calls()
        end = parser.state.next_offset
        is_whole = self._complete == self._count
        session.state = {
            "parser": msgspec.to_builtins(self._kept_state),
            "damage": msgspec.to_builtins([fault for fault in parser.damage if fault.offset < end]),
            "tree_damage": self._tree_damage,
            "tree_damaged": self._tree_damaged,
            # The contribution of a line without a newline is not kept: the line is read again, and may change.
            "tally": msgspec.to_builtins(tally) if is_whole else None,
            "conversation": msgspec.to_builtins(self._conversation) if is_whole else None,
            "asked": self._decided_by,
            "inherited": session.inherited,
            "entries": self._complete,
            "compactions": self._compactions,
            "used": self._used,
            "titles": self._titles or [session.first_user_message, session.name],
        }


def _last_time(entries: Sequence[Entry]) -> str:
    """The last time that an entry of the conversation records; empty if none does."""
    times = (entry.timestamp for entry in reversed(entries) if not entry.is_off_branch)
    return next((time for time in times if moment_of(time) is not None), "")

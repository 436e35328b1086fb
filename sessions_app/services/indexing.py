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
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import connection, transaction

from ..agents import agent_of
from ..discovery import Discovery, RefusedPath, discover
from ..files import Fingerprint, GrowthKind, SessionReader, real_path
from ..loading import describe_again
from ..models import Entry as EntryRow
from ..models import Root, Session
from ..sessionlog.context import Tally, model_of
from ..sessionlog.entries import CONTROL_TYPES, Entry
from ..sessionlog.errors import RedlineError
from ..sessionlog.jsjson import parse, well_formed
from ..sessionlog.lines import split_lines
from ..sessionlog.packing import SCHEMA, pack, unpack
from ..sessionlog.readers import choose_reader
from ..sessionlog.session import TITLE_LENGTH, Damage, Recorded, SessionParser, State, require_session
from ..sessionlog.tree import SessionTree

BATCH: Final = 1_000
"""Rows written in one transaction."""
DAMAGE_SHOWN: Final = 200
SEGMENTS_KEPT: Final = 1_000
"""Pieces a fingerprint may have before the file is read anew from its start."""

Report = Callable[[str], object]


@dataclass(slots=True)
class Indexed:
    """Sums over one indexing. `bytes` is what the files hold, `bytes_read` what had to be read of them."""

    files: int = 0
    entries: int = 0
    bytes: int = 0
    bytes_read: int = 0
    damaged: int = 0
    faults: list[RefusedPath] = field(default_factory=list)


def configured_roots() -> list[Root]:
    """The configured roots, as rows; roots that are no longer configured lose their mark."""
    kept = []
    for setting in settings.REDLINE.roots:
        root, _ = Root.objects.update_or_create(
            path=str(real_path(setting.path)),
            defaults={"agent": setting.agent, "reader": setting.reader, "configured": True},
        )
        kept.append(root)
    Root.objects.filter(configured=True).exclude(pk__in=[root.pk for root in kept]).update(configured=False)
    return kept


def root_for(directory: Path) -> tuple[Root, Path]:
    """The root that a directory lies in, and its path below it; the directory itself where none is known."""
    real = real_path(directory)
    known = {root.path: root for root in Root.objects.all()}
    for candidate in (real, *real.parents):
        root = known.get(str(candidate))
        if root is not None:
            return root, real.relative_to(candidate)
    root = Root.objects.create(path=str(real), agent=agent_of(real))
    return root, Path()


def index_roots(*, rebuild: bool = False, report: Report = str) -> Indexed:
    """Index every configured root that is there."""
    total = Indexed()
    for root in configured_roots():
        if Path(root.path).is_dir():
            _index_directory(root, Path(root.path), total, rebuild, report)
        else:
            Session.objects.filter(root=root).update(missing=True)
    return total


def index_paths(paths: Iterable[Path], *, rebuild: bool = False, report: Report = str) -> Indexed:
    """Index files and directories that were named. Raises BadInput for a path that is neither."""
    configured_roots()
    total = Indexed()
    for path in paths:
        if path.is_dir():
            root, _ = root_for(path)
            _index_directory(root, path, total, rebuild, report)
        else:
            index_file(path, total, rebuild=rebuild, report=report)
    return total


def index_file(
    path: Path, total: Indexed | None = None, *, rebuild: bool = False, report: Report = str
) -> Session:
    """Index one file and give its row. Raises what reading it raises."""
    total = total if total is not None else Indexed()
    session = session_row(path)
    _index_session(session, real_path(path), total, rebuild, report)
    return session


def session_row(path: Path) -> Session:
    """The row of a file, made where there is none. Nothing is read."""
    real = real_path(path)
    root, below = root_for(real.parent)
    session, _ = Session.objects.get_or_create(root=root, relative_path=str(below / real.name))
    return session


def _index_directory(root: Root, directory: Path, total: Indexed, rebuild: bool, report: Report) -> None:
    found: Discovery = discover(directory)
    total.faults.extend(found.refused)
    top = Path(root.path)
    seen = set()
    for path in found.paths:
        relative = str(real_path(path).relative_to(top))
        seen.add(relative)
        session, _ = Session.objects.get_or_create(root=root, relative_path=relative)
        try:
            _index_session(session, path, total, rebuild, report)
        except RedlineError as fault:
            # One unreadable file must not hide the others; the reason is kept with the session.
            total.faults.append(RefusedPath(path, fault.message))
            Session.objects.filter(pk=session.pk).update(fault=fault.message)
    if real_path(directory) == top:
        _mark_missing(root, seen)


def _mark_missing(root: Root, seen: set[str]) -> None:
    gone = [
        session.pk
        for session in Session.objects.filter(root=root, missing=False).only("pk", "relative_path")
        if session.relative_path not in seen
    ]
    for start in range(0, len(gone), BATCH):
        Session.objects.filter(pk__in=gone[start : start + BATCH]).update(missing=True)


# ---- one session --------------------------------------------------------------------------------------------


def _index_session(session: Session, path: Path, total: Indexed, rebuild: bool, report: Report) -> None:
    with SessionReader(path) as reader:
        try:
            indexing = _Indexing(session, path, reader, rebuild)
            indexing.run(report)
        finally:
            total.bytes_read += reader.bytes_read
    total.files += 1
    total.entries += session.entry_count
    total.bytes += session.size
    total.damaged += session.damage_count


class _Indexing:
    """One reading of one file: from where the last one ended, or from the start."""

    def __init__(self, session: Session, path: Path, reader: SessionReader, rebuild: bool) -> None:
        self.session = session
        self.path = path
        self.reader = reader
        self.previous = None if rebuild else self._known()
        kept: dict[str, Any] = session.state if self.previous is not None else {}
        self.parser = SessionParser(
            state=msgspec.convert(kept["parser"], State) if kept else State(),
            damage=msgspec.convert(kept["damage"], list[Damage]) if kept else [],
        )
        self.tally = msgspec.convert(kept["tally"], Tally) if kept and kept["tally"] else None
        self.known_count: int = kept["entries"] if kept else 0
        self.new: list[Entry] = []

    def _known(self) -> Fingerprint | None:
        session = self.session
        if session.schema != SCHEMA or session.fingerprint is None or session.state is None:
            return None
        fingerprint = msgspec.convert(session.fingerprint, Fingerprint)
        if len(fingerprint.segments) >= SEGMENTS_KEPT:
            return None
        growth = self.reader.growth(fingerprint)
        return None if growth.kind is GrowthKind.REWRITTEN else fingerprint

    def run(self, report: Report) -> None:
        session, state = self.session, self.parser.state
        if self.previous is not None and self.reader.state().size == session.size == self.previous.size:
            self._settle(self.previous)
            return
        if self.previous is None:
            # Until the first batch is in, the index claims nothing about this file.
            Session.objects.filter(pk=session.pk).update(state=None, fingerprint=None)
            session.first_user_message = session.name = ""
        self._remove_rows(state.next_number)
        start = state.next_offset
        lines = split_lines(self.reader.chunks(start), offset=start, number=state.next_number)
        torn: Entry | None = None
        rows = []
        for line in lines:
            recorded = self.parser.read(line)
            if recorded is None:
                continue
            rows.append(self._row(recorded))
            if line.complete:
                self.new.append(recorded.entry)
            else:
                torn = recorded.entry
            if len(rows) >= BATCH:
                self._write(rows)
                report(f"{self.path.name}: {line.offset >> 20} MB")
        self._write(rows)
        require_session(state, str(self.path))
        fingerprint = self.reader.fingerprint(state.next_offset, self.previous)
        self._summarise(torn)
        self._settle(fingerprint)

    def _row(self, recorded: Recorded) -> tuple[Any, ...]:
        entry, session = recorded.entry, self.session
        if not session.first_user_message and entry.role == "user":
            session.first_user_message = title_of(recorded.texts.joined(entry.blocks))
        if entry.type == "session_info" and entry.control is not None:
            named = entry.control.get("name")
            session.name = title_of(named) if isinstance(named, str) else session.name
        return (
            session.pk,
            entry.number,
            entry.offset,
            entry.length,
            entry.id,
            entry.parent_id,
            pack(entry),
        )

    def _write(self, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            require_session(self.parser.state, str(self.path))
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.executemany(_INSERT, rows)
            rows.clear()

    def _remove_rows(self, number: int) -> None:
        rows = EntryRow.objects.filter(session=self.session, number__gte=number)
        while numbers := list(rows.order_by("-number").values_list("number", flat=True)[: 10 * BATCH]):
            rows.filter(number__gte=numbers[-1]).delete()

    def _summarise(self, torn: Entry | None) -> None:
        """Name, leaf and context of the session as it is now. A last line without newline counts as well."""
        session, tally = self.session, self.tally
        added = self.new if torn is None else [*self.new, torn]
        session.entry_count = self.known_count + len(added)
        if tally is None or not all(map(_carry(tally), added)):
            tally = self._recount(added)
        elif (model := model_of(added)) is not None:
            session.provider, session.model = model
        # What a torn line adds is not carried on: it is read again, and may then be another.
        self.tally = tally if torn is None else None
        if tally is not None:
            session.leaf_id = tally.leaf_id
            session.context_tokens, session.context_source = tally.gauge.tokens, tally.gauge.source

    def _recount(self, added: list[Entry]) -> Tally | None:
        """The sums of the leaf's branch from all entries; older ones are read from the index."""
        session = self.session
        entries = list(read_entries(session, self.path, self.reader)) if self.known_count else added
        if not entries:
            return None
        tree = SessionTree(entries)
        branch = tree.branch(tree.leaf.id)
        chosen = session.reader or session.root.reader
        reading = choose_reader(branch, chosen=chosen, agent=session.root.agent or agent_of(self.path))
        self.parser.damage.extend(fault for fault in tree.damage if fault not in self.parser.damage)
        session.read_as = reading.reader.name
        session.provider, session.model = model_of(branch) or ("", "")
        return Tally.of(reading.reader.rebuild(branch), tree.leaf.id)

    def _settle(self, fingerprint: Fingerprint) -> None:
        session, parser = self.session, self.parser
        header = parser.state.header
        found = self.reader.stat()
        session.header_id = header.id if header is not None else ""
        session.cwd = header.cwd if header is not None else ""
        session.version = parser.state.version
        session.size = found.st_size
        session.last_used = datetime.fromtimestamp(found.st_mtime, UTC)
        session.missing = False
        session.fault = ""
        session.damage_count = len(parser.damage)
        session.damage = msgspec.to_builtins(parser.damage[:DAMAGE_SHOWN])
        session.schema = SCHEMA
        session.fingerprint = msgspec.to_builtins(fingerprint)
        session.state = {
            "parser": msgspec.to_builtins(parser.state),
            "damage": msgspec.to_builtins(
                [fault for fault in parser.damage if fault.offset < parser.state.next_offset]
            ),
            "tally": msgspec.to_builtins(self.tally) if self.tally is not None else None,
            "entries": self.known_count + len(self.new),
        }
        session.save()


_INSERT: Final = (
    "INSERT INTO sessions_app_entry"
    ' (session_id, number, "offset", length, entry_id, parent_id, digest)'
    " VALUES (%s, %s, %s, %s, %s, %s, %s)"
)


def _carry(tally: Tally) -> Callable[[Entry], bool]:
    def carry(entry: Entry) -> bool:
        if not tally.carries(entry):
            return False
        tally.add(entry)
        return True

    return carry


def read_entries(session: Session, path: Path, reader: SessionReader) -> Iterator[Entry]:
    """The indexed entries of a session in file order; what steers a branch is read from the file again."""
    rows = EntryRow.objects.filter(session=session).order_by("number")
    columns = rows.values_list("number", "offset", "length", "entry_id", "parent_id", "digest")
    for number, offset, length, entry_id, parent_id, packed in columns.iterator(chunk_size=5_000):
        entry = unpack(number, offset, length, entry_id, parent_id, bytes(packed))
        if entry.type not in CONTROL_TYPES:
            yield entry
            continue
        data = parse(reader.read_at(offset, length))
        describe_again(data, entry, path)
        yield msgspec.structs.replace(entry, control=data)


def title_of(text: str) -> str:
    """The beginning of a text, on one line, at most TITLE_LENGTH characters."""
    return well_formed(" ".join(text[: 4 * TITLE_LENGTH].split())[:TITLE_LENGTH]).replace("\0", "")

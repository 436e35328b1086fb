"""The page of the history: every change of a session with the backup made before it, and whether the log is intact."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from compaction_app.changes.audit import verify
from compaction_app.changes.history import KINDS, view_history
from compaction_app.changes.proof import certificate_in
from compaction_app.core.states import RunState
from compaction_app.entries.links import entry_address
from compaction_app.entries.view import beginning_of, joined_in_short
from compaction_app.models import AuditEntry, Backup, Compaction, Undo
from sessions_app.disk.files import file_state
from sessions_app.document.document import indexed_texts
from sessions_app.index.index_store import entries_at
from sessions_app.models import Root, Session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.context import ContextSize
from sessions_app.sessionlog.entries import Stats
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.text import plural

PAGE_SIZE: Final = 100
FOUND_SESSIONS: Final = 500
"""The maximum number of sessions that a search finds by their title."""
WORDS_SHOWN: Final = 60
"""The maximum length of the quoted text of an entry, in characters."""
_Action = AuditEntry.Action
_NAMING: Final = (_Action.MOVE, _Action.LABEL)
"""The changes whose description ends with the id of an entry."""
_ICONS: Final[Mapping[str, str]] = {
    _Action.COMMIT: "dele",
    _Action.UNDO: "stet",
    _Action.BRING_BACK: "stet",
    _Action.RESTORE: "stet",
    _Action.FORK: "fork",
    _Action.MOVE: "right",
    _Action.LABEL: "label",
    _Action.SUMMARY: "fold",
}


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One change, with the backup made before it."""

    entry: AuditEntry
    session: Session | None
    """Its session, if it is shown and still at the same path."""
    backup: Backup | None
    """The record of its backup, if it has one."""
    has_backup_file: bool
    compaction: Compaction | None
    """The compaction that it made or undid, if Redline has a record of it."""
    certificate: Certificate | None
    said: Mapping[str, str] | None
    """For a move or a label, if its session is shown and has the entry: see `_said`."""

    @property
    def icon(self) -> str:
        return _ICONS[self.entry.action]

    @property
    def is_compaction(self) -> bool:
        return self.entry.action == _Action.COMMIT

    @property
    def run_id(self) -> int | None:
        """The number of the plan."""
        return self.compaction.run_id if self.compaction is not None else None

    @property
    def targets(self) -> str:
        """The number of deleted or restored entries and blocks, in words; empty if there are none."""
        blocks = sum("blockIndex" in target for target in self.entry.targets)
        entries = len(self.entry.targets) - blocks
        words = []
        if entries:
            words.append(plural(entries, "entry"))
        if blocks:
            words.append(plural(blocks, "block"))
        return " and ".join(words)

    @property
    def tokens(self) -> int | None:
        """The deleted tokens in the measure of the session's context; negative if they came back, None if unknown."""
        if self.compaction is None:
            return None
        stats = msgspec.convert(self.compaction.stats, Stats)
        deleted = stats.tokens_before - stats.tokens_after
        if self.compaction.context is not None:
            deleted = msgspec.convert(self.compaction.context, ContextSize).of(deleted)
        if self.is_compaction:
            return deleted
        return -deleted if self.entry.action == _Action.UNDO else None

    @property
    def writer(self) -> str:
        """The name of the writer; empty if the change has none."""
        return self.entry.writer.partition(", ")[0] if self.entry.action not in _NAMING else ""

    @property
    def remarks(self) -> str:
        """How it was written, or approved, if not by you on a page: such as `by the running agent`."""
        return self.entry.writer.partition(", ")[2] if self.entry.action not in _NAMING else ""

    @property
    def can_be_undone(self) -> bool:
        """Whether the compaction is still in effect."""
        run = self.compaction.run if self.compaction is not None and self.is_compaction else None
        return run is not None and self.session is not None and run.state == RunState.COMMITTED

    @property
    def undone(self) -> str:
        """Whether a compaction was undone since, in words; empty if it was not."""
        if self.compaction is None or not self.is_compaction or self.compaction.run is None:
            return ""
        if self.compaction.run.state == RunState.RESTORED:
            return "undone since"
        return "partly undone since" if self.compaction.undos.all() else ""

    @property
    def backup_name(self) -> str:
        return Path(self.entry.backup).name

    @property
    def new_file_name(self) -> str:
        return Path(self.entry.new_file).name

    @property
    def restored_name(self) -> str:
        return Path(self.entry.restored_from).name


@dataclass(frozen=True, slots=True)
class HistoryDay:
    """The changes of one day, newest first."""

    name: str
    rows: Sequence[HistoryRow]


def view_audit(number: str | None, kind: str = "", search: str = "") -> dict[str, Any]:
    """A page of the changes of a kind whose session is found by its title or path; the first one without a number."""
    page = Paginator(_chosen(kind, search), PAGE_SIZE).get_page(number)
    rows = _rows(list(page))
    today = timezone.localdate()
    days = groupby(rows, lambda row: timezone.localdate(row.entry.at))
    return {
        "state": verify(),
        "page": page,
        "days": [HistoryDay(_day_name(day, today), list(group)) for day, group in days],
        "kind": kind,
        "search": search,
        # For the links to other pages.
        "query": urlencode({"kind": kind, "search": search}),
        **view_history(),
    }


def _chosen(kind: str, search: str) -> QuerySet[AuditEntry]:
    found = AuditEntry.objects.order_by("-number")
    if kind in KINDS:
        found = found.filter(action__in=KINDS[kind][1])
    if search:
        titled = Session.objects.shown().filter(title__icontains=search).select_related("root")[:FOUND_SESSIONS]
        found = found.filter(Q(session__icontains=search) | Q(session__in=[str(one.path) for one in titled]))
    return found


def _day_name(day: date, today: date) -> str:
    days = (today - day).days
    if days in (0, 1):
        return ("Today", "Yesterday")[days]
    return f"{day:%A}" if 0 < days < 7 else f"{day.day} {day:%B %Y}"


def _rows(entries: Sequence[AuditEntry]) -> list[HistoryRow]:
    sessions = _sessions_at({entry.session for entry in entries})
    paths = [entry.backup for entry in entries if entry.backup]
    backups = {backup.path: backup for backup in Backup.objects.filter(path__in=paths)}
    compactions = {
        one.backup_id: one
        for one in Compaction.objects.filter(backup__in=backups.values())
        .select_related("run")
        .prefetch_related("undos")
    }
    undos = Undo.objects.filter(backup__in=backups.values()).select_related("compaction__run")
    undone = {one.backup_id: one.compaction for one in undos}
    rows = []
    for entry in entries:
        session, backup = sessions.get(entry.session), backups.get(entry.backup)
        by_action = compactions if entry.action == _Action.COMMIT else undone
        rows.append(
            HistoryRow(
                entry=entry,
                session=session,
                backup=backup,
                has_backup_file=backup is not None and file_state(Path(backup.path)) is not None,
                compaction=by_action.get(backup.pk) if backup is not None else None,
                certificate=certificate_in(entry),
                said=_said(entry, session) if session is not None and entry.action in _NAMING else None,
            )
        )
    return rows


def _said(entry: AuditEntry, session: Session) -> Mapping[str, str] | None:
    """The entry whose id ends the description of a change: the words `before` the id, such as `to` or `“a label” on`,
    the `words` of the entry, and its `address`.
    """
    before, _, entry_id = entry.writer.rpartition(" ")
    key = session.entries.filter(entry_id=entry_id).values_list("pk", flat=True).last()
    found = entries_at([key]).get(key) if key is not None else None
    if found is None:
        return None
    try:
        text = joined_in_short(indexed_texts(session, [found])[found.id], found.blocks)
    except RedlineError:
        return None  # the page of its session explains what is wrong with the file
    words = beginning_of(" ".join(text.split()), WORDS_SHOWN)
    address = entry_address(session.get_absolute_url(), entry_id)
    return {"before": before, "words": words, "address": address} if words else None


def _sessions_at(paths: Iterable[str]) -> dict[str, Session]:
    """The sessions of configured roots at these paths."""
    found = {}
    wanted = {Path(path) for path in paths}
    for root in Root.objects.filter(configured=True):
        names = [str(path.relative_to(root.path)) for path in wanted if path.is_relative_to(root.path)]
        for session in Session.objects.shown().filter(root=root, relative_path__in=names):
            session.root = root
            found[str(session.path)] = session
    return found


@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """Every change of a session, newest first, and whether the log is intact."""
    wanted = {name: request.GET.get(name, "") for name in ("kind", "search")}
    view = view_audit(request.GET.get("page"), **wanted)
    return render(request, "audit/audit.html", {"view": view, "active_nav": "history"})

"""The page of the audit log: the state of its chain, and its entries, newest first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from compaction_app.changes.audit import verify
from compaction_app.changes.proof import certificate_in
from compaction_app.entries.links import entry_address
from compaction_app.entries.view import beginning_of, joined_in_short
from compaction_app.models import AuditEntry, Compaction
from sessions_app.document.document import indexed_texts
from sessions_app.index.index_store import entries_at
from sessions_app.models import Root, Session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.text import plural

PAGE_SIZE: Final = 100
WORDS_SHOWN: Final = 60
"""The maximum length of the quoted text of an entry, in characters."""
_NAMING: Final = (AuditEntry.Action.MOVE, AuditEntry.Action.LABEL)
"""The changes whose description ends with the id of an entry."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One entry of the log."""

    entry: AuditEntry
    session: Session | None
    """Its session, if it is shown and still at the same path."""
    run_id: int | None
    """The run of the compaction, if there is one."""
    certificate: Certificate | None
    said: Mapping[str, str] | None
    """For a move or a label, if its session is shown and has the entry: see `_said`."""

    @property
    def targets(self) -> str:
        """The number of deleted entries and blocks, in words; empty if there are none."""
        blocks = sum("blockIndex" in target for target in self.entry.targets)
        entries = len(self.entry.targets) - blocks
        words = []
        if entries:
            words.append(plural(entries, "entry"))
        if blocks:
            words.append(plural(blocks, "block"))
        return " and ".join(words)

    @property
    def backup_name(self) -> str:
        return Path(self.entry.backup).name

    @property
    def new_file_name(self) -> str:
        return Path(self.entry.new_file).name

    @property
    def restored_name(self) -> str:
        return Path(self.entry.restored_from).name


def view_audit(number: str | None) -> dict[str, Any]:
    """The page with this number; the first one if there is none."""
    page = Paginator(AuditEntry.objects.order_by("-number"), PAGE_SIZE).get_page(number)
    entries = list(page)
    sessions = _sessions_at({entry.session for entry in entries})
    runs = dict(
        Compaction.objects.filter(backup__path__in=[entry.backup for entry in entries]).values_list(
            "backup__path", "run"
        )
    )
    rows = [_row(entry, sessions.get(entry.session), runs.get(entry.backup)) for entry in entries]
    return {"state": verify(), "page": page, "rows": rows}


def _row(entry: AuditEntry, session: Session | None, run_id: int | None) -> AuditRow:
    return AuditRow(
        entry=entry,
        session=session,
        run_id=run_id if entry.action == AuditEntry.Action.COMMIT else None,
        certificate=certificate_in(entry),
        said=_said(entry, session) if session is not None and entry.action in _NAMING else None,
    )


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
    view = view_audit(request.GET.get("page"))
    return render(request, "audit/audit.html", {"view": view, "active_nav": "history"})

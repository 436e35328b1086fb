from typing import Any, Final

from django.core.management.base import CommandParser

from compaction_app.changes.audit import AuditState, verify
from compaction_app.changes.proof import certificate_in
from compaction_app.models import AuditEntry
from sessions_app.cli import CHECK_FAILED, RedlineCommand, printable
from sessions_app.sessionlog.text import plural
from sessions_app.terminal import Column

HASH_SHOWN: Final = 12
COLUMNS: Final = (
    Column("ENTRY", right=True),
    Column("WHEN"),
    Column("CHANGE"),
    Column("SAVED AS", spare=True),
    Column("DELETED", right=True),
    Column("BYTES BEFORE", right=True),
    Column("BYTES AFTER", right=True),
    Column("SHA-256 AFTER", spare=True),
    Column("CHECKED", spare=True),
    Column("SESSION", cut="start"),
)


class Command(RedlineCommand):
    help = "List every change that Redline made to a session, newest first, and verify that the log is whole."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--verify",
            action="store_true",
            help="verify the chain of hashes only; exit code 1 if it is broken",
        )

    def run(self, options: dict[str, Any]) -> int | None:
        state = verify()
        document: dict[str, Any] = {"count": state.count, "sha256": state.sha256, "broken": None}
        if state.broken is not None:
            kind = state.broken.kind
            document["broken"] = {"entry": state.broken.position, "kind": kind, "reason": kind.sentence}
        entries = [] if options["verify"] else list(AuditEntry.objects.order_by("-number"))
        if not options["verify"]:
            document["entries"] = [
                {**entry.content, "previous": entry.previous, "sha256": entry.sha256} for entry in entries
            ]
        self.show_json(document)
        if entries:
            self.say_all(self.screen.table(COLUMNS, [_cells(entry) for entry in entries]))
        self.say(_sentence(state), "bold red" if state.broken else "")
        return CHECK_FAILED if state.broken else None


def _sentence(state: AuditState) -> str:
    if state.broken is not None:
        return f"The audit log is broken at entry {state.broken.position}. {state.broken.kind.sentence}"
    if not state.count:
        return "The audit log has no entries yet."
    return f"The audit log is whole: {plural(state.count, 'entry')}, the last with SHA-256 {state.sha256}"


def _cells(entry: AuditEntry) -> list[str]:
    certificate = certificate_in(entry)
    return [
        str(entry.number),
        entry.at.strftime("%Y-%m-%d %H:%M:%S"),
        entry.action_name,
        printable(entry.writer) or "-",
        str(len(entry.targets)) if entry.targets else "-",
        _number(entry.bytes_before),
        _number(entry.bytes_after),
        entry.sha256_after[:HASH_SHOWN] or "-",
        "-" if certificate is None else "passed" if certificate.holds else "FAILED",
        printable(entry.session),
    ]


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from sessions_app.cli import CHECK_FAILED, SESSION_HELP, RedlineCommand, printable
from sessions_app.disk.files import real_path
from sessions_app.earlier_names import with_earlier_names
from sessions_app.index.session_copies import RepairedCopy, write_repaired_copy
from sessions_app.sessionlog.diagnosis import Diagnosis, Finding, Severity
from sessions_app.sessionlog.text import one_line, plural
from sessions_app.storage.session_loader import diagnose

STYLES = {Severity.FATAL: "bold red", Severity.LOSS: "yellow", Severity.NONE: ""}


class Command(RedlineCommand):
    help = (
        "List the damage and broken pairs of a session, with their consequences in each agent. --fix writes a repaired "
        "copy beside it; the session itself is never changed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type="session", metavar="SESSION", help=SESSION_HELP)
        parser.add_argument(
            "--fix",
            action="store_true",
            help="write a repaired copy beside the session, and what it cannot save into a .lost file",
        )

    def run(self, options: dict[str, Any]) -> int | None:
        if options["fix"]:
            self.open_database()
        path = real_path(options["path"])
        diagnosis = diagnose(path, self._show_read)
        repaired = write_repaired_copy(path, diagnosis) if options["fix"] and diagnosis.is_repairable else None
        self.warn_if_taken_over(path)
        self.say_all(self._report(path, diagnosis))
        if repaired is not None:
            self.say_all(self._difference(repaired))
        elif options["fix"]:
            self.say("There is nothing to repair. No copy was made.")
        self.show_json(
            with_earlier_names(
                {
                    "path": str(path),
                    "problems": [_problem_json(problem) for problem in diagnosis.findings],
                    "moreProblems": diagnosis.more,
                    "repair": _repair_json(repaired) if repaired is not None else None,
                },
                findings="problems",
                moreFindings="moreProblems",
            )
        )
        return CHECK_FAILED if diagnosis.total else None

    def _report(self, path: Path, diagnosis: Diagnosis) -> Iterator[str]:
        if not diagnosis.total:
            yield f"{printable(path)}: no damage, no broken pairs"
            return
        yield f"{printable(path)}: {plural(diagnosis.total, 'problem')}"
        for problem in diagnosis.findings:
            place = f"line {problem.number:,}, byte {problem.offset:,}"
            yield f"{place}: {printable(problem.detail)}"
            for one in problem.shared_consequences:
                yield f"    {self.screen.paint(f'{one.agents}: {one.text}', STYLES[one.severity])}"
        if diagnosis.more:
            yield f"… and {diagnosis.more:,} more"

    def _difference(self, repaired: RepairedCopy) -> Iterator[str]:
        account = repaired.account
        yield f"Wrote {printable(repaired.path)}, {plural(account.copy_size, 'byte')}."
        if repaired.lost_path is not None:
            yield f"Wrote {printable(repaired.lost_path)}, {plural(account.lost_size, 'byte')} that could not be saved."
        kept = account.original_size - account.lost_size
        yield (
            f"Of {plural(account.original_size, 'byte')}, {kept:,} are in the copy and {account.lost_size:,} are not; "
            f"{account.inserted_size:,} were inserted:"
        )
        for change in account.changes:
            sign, style = ("-", "red") if change.is_loss else ("+", "green")
            place = f"line {change.number:,}, byte {change.offset:,}"
            size = f"{change.length:,} byte{'s' if change.length > 1 else ''}"
            text = one_line(change.text, 60) or "a line break"
            yield self.screen.paint(f"{sign} {place}: {size} ({change.reason}) {text}", style)


def _problem_json(problem: Finding) -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "line": problem.number,
        "offset": problem.offset,
        "length": problem.length,
        "detail": problem.detail,
        "repairable": problem.is_repairable,
        "severity": problem.severity,
        "consequences": [
            {"agent": one.agent, "severity": one.severity, "text": one.text} for one in problem.consequences
        ],
    }


def _repair_json(repaired: RepairedCopy) -> dict[str, Any]:
    """`at` is a position in the copy for inserted bytes, and in the file of lost bytes for lost ones."""
    account = repaired.account
    return {
        "written": str(repaired.path),
        "bytes": account.copy_size,
        "lost": str(repaired.lost_path) if repaired.lost_path is not None else None,
        "lostBytes": account.lost_size,
        "insertedBytes": account.inserted_size,
        "originalBytes": account.original_size,
        "changes": [
            {
                "change": change.fate,
                "line": change.number,
                "offset": change.offset,
                "at": change.at,
                "length": change.length,
                "text": change.text,
                "reason": change.reason,
            }
            for change in account.changes
        ],
    }

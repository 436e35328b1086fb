from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sessions_app.cli import RedlineCommand, one_line, printable
from sessions_app.list.listing import SessionSummary, list_sessions
from sessions_app.terminal import Column

COLUMNS: Final = (
    Column("SESSION", cut="end"),
    Column("PROJECT", cut="end", spare=True),
    Column("AGENT", spare=True),
    Column("ENTRIES", right=True, spare=True),
    Column("SIZE", right=True, spare=True),
    Column("CONTEXT", right=True),
    Column("DUE", styles={"due": "yellow", "overflow": "bold red"}),
    Column("LAST USED"),
    Column("DAMAGED", right=True, spare=True),
    Column("PATH", cut="start"),
)
DUE: Final = {"": "", "threshold": "due", "overflow": "overflow"}


class Command(RedlineCommand):
    help = "List the indexed sessions, the most recently used first."
    needs_database = True

    def run(self, options: dict[str, Any]) -> int | None:
        del options
        summaries = list_sessions()
        self.show_json([summary.to_json() for summary in summaries])
        if not summaries:
            self.say("No session is indexed. `redline index PATH` reads sessions from a directory.")
        else:
            self.say_all(self.screen.table(COLUMNS, list(map(_row, summaries))))
        return None


def _row(summary: SessionSummary) -> list[str]:
    return [
        one_line(summary.title or "(no user message)", 80),
        printable(Path(summary.cwd).name if summary.cwd else "?"),
        printable(summary.agent or "?"),
        str(summary.entries),
        _megabytes(summary.size),
        _gauge(summary),
        DUE[summary.due],
        summary.last_used.strftime("%Y-%m-%d %H:%M") if summary.last_used else "?",
        str(summary.damaged) if summary.damaged else "-",
        printable(summary.path) + _state(summary),
    ]


def _state(summary: SessionSummary) -> str:
    if summary.missing:
        return " (missing)"
    return " (cannot be read)" if summary.fault else ""


def _gauge(summary: SessionSummary) -> str:
    if summary.context_tokens is None:
        return "?"
    used = f"{summary.context_tokens / 1000:.1f}k"
    window = "unknown" if summary.window is None else f"{summary.window / 1000:.0f}k"
    return f"{used} / {window}"


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"

from __future__ import annotations

from pathlib import Path
from typing import Any

from sessions_app.console import RedlineCommand, one_line, table
from sessions_app.services.listing import SessionSummary, list_sessions

HEADINGS = ["SESSION", "PROJECT", "AGENT", "ENTRIES", "SIZE", "CONTEXT", "LAST USED", "DAMAGED", "PATH"]
RIGHT = (3, 4, 5, 7)
DUE = {"": "", "threshold": " due", "overflow": " overflow"}


class Command(RedlineCommand):
    help = "List the indexed sessions, the most recently used first."
    needs_database = True

    def run(self, options: dict[str, Any]) -> int | None:
        del options
        summaries = list_sessions()
        self.show_json([summary.to_json() for summary in summaries])
        if not summaries:
            self.say("No session is indexed. `redline index PATH` reads sessions from a directory.")
        for line in table([HEADINGS, *map(_row, summaries)], right=RIGHT) if summaries else ():
            self.say(line)
        return None


def _row(summary: SessionSummary) -> list[str]:
    return [
        one_line(summary.title or "(no user message)", 40),
        one_line(Path(summary.cwd).name if summary.cwd else "?", 20),
        one_line(summary.agent or "?", 10),
        str(summary.entries),
        _megabytes(summary.size),
        _gauge(summary),
        summary.last_used.strftime("%Y-%m-%d %H:%M") if summary.last_used else "?",
        str(summary.damaged) if summary.damaged else "-",
        one_line(summary.path, 200) + _state(summary),
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
    return f"{used} / {window}" + DUE[summary.due]


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"

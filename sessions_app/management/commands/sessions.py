from pathlib import Path
from typing import Any, Final

from django.utils import timezone

from sessions_app.cli import RedlineCommand, printable
from sessions_app.models import Root, Session
from sessions_app.sessionlog.text import one_line
from sessions_app.terminal import Column

COLUMNS: Final = (
    Column("SESSION", cut="end"),
    Column("ID", style="cyan"),
    Column("PROJECT", cut="end", spare=True),
    Column("AGENT", spare=True),
    Column("ENTRIES", right=True, spare=True),
    Column("SIZE", right=True, spare=True),
    Column("CONTEXT", right=True),
    Column("WINDOW", styles={"almost full": "yellow", "overflow": "bold red"}),
    Column("LAST USED"),
    Column("DAMAGED", right=True, spare=True),
    Column("BROKEN AT", cut="end", spare=True),
    Column("PATH", cut="start"),
)


class Command(RedlineCommand):
    help = "List the indexed sessions, most recently used first."
    needs_database = True

    def run(self, options: dict[str, Any]) -> None:
        del options
        sessions = list(Session.objects.for_display().latest_first())
        self.show_json([session.as_json() for session in sessions])
        for root in Root.objects.exclude(unread="").order_by("pk"):
            self.stderr.write(f"{printable(root.path)}: {printable(root.unread)}")
        if not sessions:
            self.say(
                "No sessions are indexed. `redline index` indexes those of all agents, or of a folder that you name."
            )
        else:
            self.say_all(self.screen.table(COLUMNS, list(map(_row, sessions))))


def _row(session: Session) -> list[str]:
    return [
        one_line(session.title or "(no message of yours)", 80),
        session.short_id,
        printable(Path(session.cwd).name if session.cwd else "?"),
        printable(session.agent_key or "?"),
        str(session.entry_count),
        f"{session.size / 1_000_000:.1f} MB",
        _gauge(session),
        "overflow" if session.has_overflown else "almost full" if session.due else "",
        f"{timezone.localtime(session.last_used):%Y-%m-%d %H:%M}" if session.last_used else "?",
        str(session.damage_count) if session.damage_count else "-",
        printable(session.broken_at) if session.broken else "-",
        printable(str(session.path)) + _state(session),
    ]


def _state(session: Session) -> str:
    if session.missing:
        return " (missing)"
    if session.fault:
        return " (cannot be read)"
    return f" ({session.taken_over})" if session.taken_over else ""


def _gauge(session: Session) -> str:
    if session.context_size is None:
        return "?"
    size = session.context_size
    used = f"{'≈' * size.is_rounded}{size.shown:,}"
    window = "unknown" if session.window is None else f"{session.window / 1000:.0f}k"
    return f"{used} / {window}"

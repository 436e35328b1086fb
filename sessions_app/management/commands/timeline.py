from typing import Any, Final

from django.core.management.base import CommandParser

from sessions_app.agents.registry import READERS_HELP
from sessions_app.cli import LEAF_HELP, SESSION_HELP, RedlineCommand, printable
from sessions_app.earlier_names import with_earlier_names
from sessions_app.sessionlog.entries import EntryKind
from sessions_app.sessionlog.text import plural
from sessions_app.sessionlog.timeline import TimelinePoint, timeline_of
from sessions_app.terminal import Column

COLUMNS: Final = (
    Column("ENTRY"),
    Column("CHANGE", style="cyan"),
    Column("WHEN"),
    Column("MESSAGES", right=True),
    Column("TOKENS", right=True),
    Column("BEFORE", right=True),
    Column("AFTER", right=True),
)


class Command(RedlineCommand):
    help = "List the changes of a branch's context: compactions, summaries and edits, and what each deleted."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type="session", metavar="SESSION", help=SESSION_HELP)
        parser.add_argument("--branch", dest="leaf", metavar="ID", help=LEAF_HELP)
        parser.add_argument("--open-as", dest="reader", default="", metavar="NAME", help=READERS_HELP)

    def run(self, options: dict[str, Any]) -> None:
        document = self.open_document(options["path"], options["reader"])
        leaf_id, reading = options["leaf"] or document.leaf_id, document.reading
        found = timeline_of(document.branch(leaf_id), reading.reader)
        self.show_json(
            with_earlier_names(
                {
                    "leafId": leaf_id,
                    "openedAs": reading.reader.name,
                    "points": [_point_json(point) for point in found.points],
                    "tokens": found.sizes[-1],
                },
                reader="openedAs",
            )
        )
        if self.as_json:
            return
        self.say(
            f"Branch of {printable(leaf_id)}, opened as {reading.reader.name} because {printable(reading.reason)}."
        )
        rows = [
            [
                printable(point.last.id),
                _change(point),
                printable(point.last.timestamp),
                str(len(point.removed)),
                f"{-point.tokens_removed:+}",
                str(point.tokens_before),
                str(point.tokens_after),
            ]
            for point in found.points
        ]
        self.say_all(self.screen.table(COLUMNS, rows))
        self.say(
            f"{plural(len(found.points), 'change')}; {found.sizes[-1]} tokens now, by the agent's own estimate: "
            "characters / 4."
        )


def _change(point: TimelinePoint) -> str:
    """The type of the change, by the agent's name; an undo is a custom entry of Redline's."""
    name = "undo" if point.kind is EntryKind.UNDO else printable(point.first.type)
    return f"{point.entries} {name}" if point.edits > 1 else name


def _point_json(point: TimelinePoint) -> dict[str, Any]:
    document = {
        "entryId": point.last.id,
        "type": point.last.type,
        "isUndo": point.kind is EntryKind.UNDO,
        "entries": point.entries,
        "timestamp": point.last.timestamp,
        "tokensBefore": point.tokens_before,
        "tokensAfter": point.tokens_after,
        "deleted": [message.entry.id for message in point.removed],
        "returned": point.returned,
    }
    return with_earlier_names(document, removed="deleted")

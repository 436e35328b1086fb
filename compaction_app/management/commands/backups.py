from typing import Any, Final

from django.core.management.base import CommandParser

from compaction_app.changes.backups import keeps_its_bytes, list_backups
from sessions_app.agents.registry import agent_at
from sessions_app.cli import CHECK_FAILED, SESSION_HELP, RedlineCommand, printable
from sessions_app.disk.files import real_path
from sessions_app.sessionlog.errors import BadInput
from sessions_app.storage.backups import verify
from sessions_app.terminal import Column

HOLDS = {True: "whole", False: "DAMAGED", None: "unverified"}
COLUMNS: Final = (
    Column("TAKEN"),
    Column("SIZE", right=True, spare=True),
    Column("MADE FOR"),
    Column("HASH", styles={"whole": "green", "DAMAGED": "bold red", "unverified": "yellow"}),
    Column("PATH", cut="start"),
)


class Command(RedlineCommand):
    help = "List a session's backups, newest first, and check each one's hash."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        help = f"{SESSION_HELP}; its file may not exist any more"  # noqa: A001  # as argparse calls it
        parser.add_argument("path", type="session", metavar="SESSION", help=help)

    def run(self, options: dict[str, Any]) -> int | None:
        path = real_path(options["path"])
        rows = []
        documents = []
        for listed in list_backups(path):
            found = listed.file
            checked = verify(found.path, listed.recorded)
            documents.append(
                {
                    "path": str(found.path),
                    "takenAt": found.taken_at.isoformat(),
                    "size": found.size,
                    "reason": listed.reason or None,
                    "label": found.label,
                    "sha256": checked.sha256,
                    "holds": checked.holds,
                }
            )
            rows.append(
                [
                    found.taken_at.strftime("%Y-%m-%d %H:%M:%S"),
                    str(found.size),
                    listed.reason or (f"? {found.label}" if listed.recorded is None else "?"),
                    HOLDS[checked.holds],
                    printable(found.path),
                ]
            )
        if not documents and agent_at(path).store.state(path) is None:
            raise BadInput("no_such_file", f"{options['path']} does not exist, and has no backups.")
        self.show_json(documents)
        if not documents:
            self.say(f"{printable(options['path'])} has no backups.")
        else:
            self.say_all(self.screen.table(COLUMNS, rows))
            if keeps_its_bytes(path):
                self.say("The session must not lose bytes, so that none of them can replace it: use redline undo.")
        return CHECK_FAILED if any(document["holds"] is False for document in documents) else None

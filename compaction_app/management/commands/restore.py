from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from compaction_app.changes.backups import NewerEntry, plan_restore, restore
from compaction_app.management.change_command import ChangeCommand, flags_of
from sessions_app.cli import printable, shell_path
from sessions_app.disk.files import file_state, other_names_note, real_path
from sessions_app.disk.open_files import describe
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded


class Command(ChangeCommand):
    help = "Replace a session by one of its backups. Its current content is backed up first."
    CONFIRMED = ("drop_newer", "unverified", "live")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("backup", type=Path, metavar="BACKUP", help="a backup, as `redline backups` lists it")
        self.add_confirmations(parser, "restore without asking")

    def run(self, options: dict[str, Any]) -> None:
        named: Path = options["backup"]
        backup = real_path(named.parent) / named.name
        if file_state(backup) is None:
            raise BadInput("no_such_file", f"{backup} does not exist. Nothing was restored.")
        now = datetime.now(UTC)
        plan = plan_restore(backup, now)
        newer = plan.change.newer
        if not options["yes"]:
            self._list("Would be deleted", newer)
        note = other_names_note(plan.session)
        if note:
            self.say(printable(note), "yellow")
        how = f"To restore it: {self.command_line(shell_path(backup), *flags_of(plan.needs))}"
        try:
            given = self.confirmed(plan, f"Restore {printable(plan.session)}", options, how)
        except ConfirmationNeeded:
            if options["yes"]:
                self._list("Would be deleted", newer)
            raise
        restored = restore(backup, given, now, shown=plan.digest())
        previous = str(restored.previous_backup.path) if restored.previous_backup is not None else None
        self.say(f"Restored {printable(restored.path)}.", "green")
        if options["yes"]:
            self._list("Deleted", newer)
        if previous is not None:
            self.say(f"Its previous content is in {printable(previous)}.")
        if restored.overtaken:
            self.stderr.write("Another process wrote to it at that moment: its text is in this backup, too.")
        if restored.writers:
            self.stderr.write(
                f"The replaced file is still open for writing in {printable(describe(restored.writers))}. What "
                "is written there from now on is lost."
            )
        self.say("An agent that has the session open must reload it.")
        self.show_json(
            {
                "restored": str(restored.path),
                "sha256": restored.sha256,
                "previousBackup": previous,
                "overtaken": restored.overtaken,
                "stillOpenIn": [writer._asdict() for writer in restored.writers],
            }
        )

    def _list(self, what: str, newer: Iterable[NewerEntry]) -> None:
        for line in newer:
            self.say(f"{what}: line {line.number} {printable(line.entry_id)} {printable(line.kind)}")

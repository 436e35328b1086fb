from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from compaction_app.changes.change import Confirmations
from compaction_app.changes.restore import (
    NewerEntry,
    needs_of,
    newer_lines,
    require_confirmations,
    require_replaceable,
    restore,
    restored_session,
)
from compaction_app.management.live_question import confirmed
from compaction_app.session_activity import activity_at
from sessions_app.cli import RedlineCommand, printable, shell_path, shell_quoted
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded
from sessions_app.storage.files import file_state, other_names_note, real_path
from sessions_app.storage.open_files import describe


class Command(RedlineCommand):
    help = "Replace a session by one of its backups. Its current content is backed up first."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("backup", type=Path, metavar="BACKUP", help="a backup, as `redline backups` lists it")
        parser.add_argument("--yes", action="store_true", help="restore without asking")
        parser.add_argument("--drop-newer", action="store_true", help="remove the entries that came after the backup")
        parser.add_argument("--unverified", action="store_true", help="trust a backup that Redline did not make")
        parser.add_argument("--live", action="store_true", help="restore although an agent may have the session open")

    def run(self, options: dict[str, Any]) -> int | None:
        named: Path = options["backup"]
        backup = real_path(named.parent) / named.name
        session = restored_session(backup)
        if file_state(backup) is None:
            raise BadInput("no_such_file", f"{backup} does not exist. Nothing was restored.")
        require_replaceable(session)
        newer = newer_lines(session, backup) if file_state(session) is not None else []
        if not options["yes"]:
            self._list("Would be removed", newer)
        note = other_names_note(session)
        if note:
            self.say(printable(note), "yellow")
        confirmations = Confirmations(**{name: options[name] for name in ("drop_newer", "unverified", "live")})
        try:
            if not options["yes"]:
                confirmations = self._confirmed(session, backup, confirmations)
            restored = restore(backup, confirmations, datetime.now(UTC))
        except ConfirmationNeeded as missing:
            if options["yes"]:
                self._list("Would be removed", newer)
            missing.message += f" {_how_to_restore(session, backup)}"
            raise
        previous = str(restored.previous_backup.path) if restored.previous_backup is not None else None
        self.say(f"Restored {printable(restored.path)}.", "green")
        if options["yes"]:
            self._list("Removed", newer)
        if previous is not None:
            self.say(f"Its previous content is in {printable(previous)}.")
        if restored.overtaken:
            self.stderr.write("Another process wrote to it at that moment: its text is in this backup, too.")
        if restored.writers:
            self.stderr.write(
                f"The replaced file is still open for writing in {printable(describe(restored.writers))}: what they "
                "write from now on is lost."
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
        return None

    def _confirmed(self, session: Path, backup: Path, given: Confirmations) -> Confirmations:
        """The confirmations of a restore that is to be made. Raises ConfirmationNeeded."""
        found = None
        if self.can_ask:
            now = datetime.now(UTC)
            found = confirmed(
                self,
                f"Restore {printable(session)}",
                needs_of(session, backup, now),
                given,
                session=session,
                activity=activity_at(session, now),
                yes=False,
                require=partial(require_confirmations, session, backup, given, now),
            )
        if found is None:
            raise ConfirmationNeeded("not_confirmed", f"{session} was not restored.", "--yes")
        return found

    def _list(self, what: str, newer: Iterable[NewerEntry]) -> None:
        for line in newer:
            self.say(f"{what}: line {line.number} {printable(line.entry_id)} {printable(line.kind)}")


def _how_to_restore(session: Path, backup: Path) -> str:
    """The command line with all confirmations that a restore needs now."""
    flags = [need.flag for need in needs_of(session, backup, datetime.now(UTC)).values()]
    words = map(shell_quoted, [shell_path(backup), "--yes", *flags])
    return f"To restore it: `{' '.join(['redline restore', *words])}`"

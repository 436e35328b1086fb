from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from compaction_app.changes import entries
from compaction_app.management.change_command import ChangeCommand, flags_of
from sessions_app.cli import SESSION_HELP, printable, resume_line, shell_path
from sessions_app.disk.files import real_path
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.text import plural
from sessions_app.storage.session_loader import LoadedSession


class Command(ChangeCommand):
    help = "Move the agent to another entry of a session, label an entry, or fork from one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type="session", metavar="SESSION", help=SESSION_HELP)
        step = parser.add_mutually_exclusive_group(required=True)
        step.add_argument(
            "--to", metavar="ID", help="let the agent continue after this entry, or before a message of yours"
        )
        step.add_argument("--label", nargs=2, metavar=("ID", "TEXT"), help="set the label of an entry")
        step.add_argument("--unlabel", metavar="ID", help="delete the label of an entry")
        step.add_argument(
            "--fork",
            metavar="ID",
            help="make a new session with the conversation up to this entry, or before a message of yours",
        )
        parser.add_argument(
            "--inclusive",
            action="store_true",
            help="with --to: continue after the entry, even if it is a message of yours",
        )
        self.add_confirmations(parser, "do it without asking", "show what would happen, change nothing")

    def run(self, options: dict[str, Any]) -> None:
        path = real_path(options["path"])
        if options["fork"] is not None:
            self._fork(path, options)
        elif options["to"] is not None:
            self._append(path, options["to"], entries.move_to(options["to"], is_leaf=options["inclusive"]), options)
        else:
            entry_id, words = options["label"] or (options["unlabel"], "")
            if options["label"] and not words.strip():
                raise BadInput("bad_label", "The label is empty. Nothing was written. Use --unlabel to delete one.")
            self._append(path, entry_id, entries.set_label(entry_id, words), options)

    # ---- lines in the session ----------------------------------------------------------------------------------

    def _append(self, path: Path, entry_id: str, make: entries.MakeChange, options: dict[str, Any]) -> None:
        plan = entries.plan_append(path, make, datetime.now(UTC))
        action = plan.change.action
        self.say(f"One line would be appended to {printable(path)}: {action} {plan.change.words}.")
        self.say(_how_taken_back(plan))
        document: dict[str, Any] = {
            "action": action,
            "entry": entry_id,
            "previousLeafId": plan.present.leaf_id,
            "needs": flags_of(plan.needs),
            "written": False,
            "leafId": None,
            "backup": None,
            "again": None,
        }
        if options["dry_run"]:
            self.say("Nothing was written.")
        else:
            given = self.confirmed(plan, "Write this", options, self._how(options, plan.needs))
            done = entries.append_entries(path, make, given, datetime.now(UTC), shown=plan.digest())
            entry, backup = done.made.entry_id, done.backup_path
            self.say(f"Appended; the last entry is {entry} now. The backup is {printable(backup)}.")
            self.say("An agent that has the session open must reload it.")
            is_before = action == "move" and plan.change.leaf_id != entry_id
            again = self._offer(plan.present, entry_id) if is_before else None
            document |= {"needs": [], "written": True, "leafId": entry, "backup": str(backup), "again": again}
        self.show_json(document)

    # ---- a new session -----------------------------------------------------------------------------------------

    def _fork(self, path: Path, options: dict[str, Any]) -> None:
        entry_id, now = options["fork"], datetime.now(UTC)
        plan = entries.plan_fork(path, entry_id, now)
        what = "every recorded line of" if plan.is_copy else "what the model sees of"
        self.say(f"A new session would have {what} a branch of {plural(len(plan.branch), 'entry')}.")
        self.say(f"{printable(path)} would not be changed. To undo it, delete the new session.")
        document: dict[str, Any] = {"action": "fork", "entry": entry_id, "needs": flags_of(plan.needs)}
        if options["dry_run"]:
            self.say("No new session was made.")
            self.show_json({**document, "created": None, "again": None})
            return
        self.confirmed(plan, "Make it", options, self._how(options, plan.needs))
        made = entries.fork_session(path, entry_id, now)
        self.say(f"Made {printable(made.path)}.")
        self.say(f"Continue there with: {printable(resume_line(made.agent, made.path))}")
        again = self._offer(plan.present, entry_id) if plan.destination.is_before else None
        self.show_json({**document, "needs": [], "created": str(made.path), "again": again})

    # ---- both --------------------------------------------------------------------------------------------------

    def _how(self, options: dict[str, Any], needs: Iterable[str]) -> str:
        """The command that does it without a question."""
        label = options["label"]
        own = [
            *(f"--{name}={options[name]}" for name in ("to", "unlabel", "fork") if options[name] is not None),
            *(["--label", *label] if label is not None else []),
            *(["--inclusive"] if options["inclusive"] else []),
        ]
        return f"To do it: {self.command_line(shell_path(options['path']), *own, *flags_of(needs))}"

    def _offer(self, session: LoadedSession, entry_id: str) -> str:
        """Print the message before which the agent continues now, and return it."""
        again = entries.text_said(session, entry_id)
        self.say("The message, to be sent again:")
        self.say_all(printable(line) for line in again.splitlines())
        return again


def _how_taken_back(plan: entries.AppendPlan) -> str:
    if plan.change.action == "move":
        return f"To take it back, use --to {printable(plan.present.leaf_id)} --inclusive."
    return "Another label, or --unlabel, takes it back."

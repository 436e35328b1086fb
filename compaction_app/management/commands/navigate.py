from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandParser

from compaction_app.changes.change import Confirmations
from compaction_app.changes.entries import (
    AppendPlan,
    MakeChange,
    append_entries,
    move_to,
    plan_append,
    set_label,
)
from compaction_app.changes.fork import fork_session, plan_fork
from compaction_app.management.live_question import confirmed
from compaction_app.navigation.presenter import text_said
from sessions_app.cli import SESSION_HELP, RedlineCommand, printable, shell_path, shell_quoted
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded
from sessions_app.sessionlog.printable import plural
from sessions_app.storage.files import real_path

CONFIRMATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "live": ("--live", "write although an agent may have the session open"),
    "after_torn_line": (
        "--after-torn-line",
        "append although the last line is torn: after it, on a new line",
    ),
}
"""The flag and help text of each field of `Confirmations`."""


class Command(RedlineCommand):
    help = "Move the agent to another entry of a session, label an entry, or fork from one."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type="session", metavar="SESSION", help=SESSION_HELP)
        step = parser.add_mutually_exclusive_group(required=True)
        step.add_argument(
            "--move", metavar="ID", help="let the agent continue after this entry, or before a user's message"
        )
        step.add_argument("--label", nargs=2, metavar=("ID", "TEXT"), help="set the label of an entry")
        step.add_argument("--unlabel", metavar="ID", help="remove the label of an entry")
        step.add_argument(
            "--fork",
            metavar="ID",
            help="make a new session with the conversation up to this entry, or before a user's message",
        )
        parser.add_argument(
            "--inclusive",
            action="store_true",
            help="with --move: continue after the entry, also if a user says it",
        )
        parser.add_argument("--dry-run", action="store_true", help="show what would happen, change nothing")
        parser.add_argument("--yes", action="store_true", help="do it without asking")
        for name, (flag, meaning) in CONFIRMATIONS.items():
            parser.add_argument(flag, dest=name, action="store_true", help=meaning)

    def run(self, options: dict[str, Any]) -> int | None:
        path = real_path(options["path"])
        if options["fork"] is not None:
            self._fork(path, options)
        elif options["move"] is not None:
            self._append(path, options["move"], move_to(options["move"], is_leaf=options["inclusive"]), options)
        else:
            entry_id, words = options["label"] or (options["unlabel"], "")
            if options["label"] and not words.strip():
                raise BadInput("bad_label", "The label is empty. Nothing was written. Use --unlabel to remove one.")
            self._append(path, entry_id, set_label(entry_id, words), options)
        return None

    # ---- lines in the session ----------------------------------------------------------------------------------

    def _append(self, path: Path, entry_id: str, make: MakeChange, options: dict[str, Any]) -> None:
        plan = plan_append(path, make, datetime.now(UTC))
        action = plan.change.action
        self.say(f"One line would be appended to {printable(path)}: {action} {plan.change.words}.")
        self.say(_how_taken_back(plan))
        document = {
            "action": action,
            "entry": entry_id,
            "previousLeafId": plan.present.leaf_id,
            "needs": ["--yes", *(CONFIRMATIONS[name][0] for name in plan.needs)],
            "written": False,
            "leafId": None,
            "backup": None,
            "again": None,
        }
        if options["dry_run"]:
            self.say("Nothing was written.")
            self.show_json(document)
            return
        confirmations = Confirmations(**{name: options[name] for name in CONFIRMATIONS})
        given = confirmed(
            self,
            "Write this",
            plan.needs,
            confirmations,
            session=plan.present.path,
            activity=plan.activity,
            yes=options["yes"],
            require=partial(plan.require_confirmed, confirmations),
        )
        if given is None:
            raise _not_confirmed(path, options)
        done = append_entries(path, make, given, datetime.now(UTC), shown=plan.digest())
        is_before = action == "move" and plan.change.leaf_id != entry_id
        again = text_said(plan.present, entry_id) if is_before else None
        self.say(f"Appended; the last entry is {done.made.entry_id} now. The backup is {printable(done.backup_path)}.")
        self.say("An agent that has the session open must reload it.")
        self._offer(again)
        self.show_json(
            {
                **document,
                "needs": [],
                "written": True,
                "leafId": done.made.entry_id,
                "backup": str(done.backup_path),
                "again": again,
            }
        )

    # ---- a new session -----------------------------------------------------------------------------------------

    def _fork(self, path: Path, options: dict[str, Any]) -> None:
        entry_id, now = options["fork"], datetime.now(UTC)
        plan = plan_fork(path, entry_id, now)
        what = "every recorded line of" if plan.is_copy else "what the model sees of"
        self.say(f"A new session would have {what} a branch of {plural(len(plan.branch), 'entry')}.")
        self.say(f"{printable(path)} would not be changed. To undo it, delete the new session.")
        document = {"action": "fork", "entry": entry_id, "needs": ["--yes"], "created": None, "again": None}
        if options["dry_run"]:
            self.say("No new session was made.")
            self.show_json(document)
            return
        if not (options["yes"] or (self.can_ask and self.ask("Make it?"))):
            raise _not_confirmed(path, options)
        made = fork_session(path, entry_id, now)
        again = text_said(plan.present, entry_id) if plan.destination.is_before else None
        resume = " ".join(map(shell_quoted, made.agent.resume_command(made.path)))
        self.say(f"Made {printable(made.path)}.")
        self.say(f"Continue there with: {printable(resume)}")
        self._offer(again)
        self.show_json({**document, "needs": [], "created": str(made.path), "again": again})

    # ---- both --------------------------------------------------------------------------------------------------

    def _offer(self, again: str | None) -> None:
        if again is not None:
            self.say("The message, to be sent again:")
            self.say_all(printable(line) for line in again.splitlines())


def _not_confirmed(path: Path, options: dict[str, Any]) -> ConfirmationNeeded:
    what = shell_quoted(shell_path(options["path"]))
    return ConfirmationNeeded(
        "not_confirmed",
        f"{path} was not changed. To do it, repeat `redline navigate {what}` with --yes.",
        "--yes",
    )


def _how_taken_back(plan: AppendPlan) -> str:
    if plan.change.action == "move":
        return f"To take it back, use --move {printable(plan.present.leaf_id)} --inclusive."
    return "Another label, or --unlabel, takes it back."

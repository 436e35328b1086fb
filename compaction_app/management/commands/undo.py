from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from compaction_app.changes.change import Applied
from compaction_app.changes.undo import UndoPlan, UndoRequest, planned, undo
from compaction_app.core.undo_ways import UndoWay
from compaction_app.management.change_command import ChangeCommand, flags_of, made_lines
from sessions_app.cli import SESSION_HELP, printable, shell_path
from sessions_app.document.document import Document
from sessions_app.earlier_names import with_earlier_names
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.text import plural


class Command(ChangeCommand):
    help = "Undo a compaction, or bring back some of the entries that it deleted."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type="session", metavar="SESSION", help=SESSION_HELP)
        parser.add_argument(
            "--compaction",
            metavar="ID",
            default="",
            help="the entry of the compaction, or the id of the session that it made (default: the latest one)",
        )
        parser.add_argument(
            "--entry",
            metavar="ID",
            action="append",
            default=[],
            help="bring back this entry, with the other side of its tool calls; can be repeated",
        )
        self.add_confirmations(parser, "undo without asking", "show what would happen, change nothing")

    def run(self, options: dict[str, Any]) -> None:
        request = UndoRequest(
            Document.to_change(options["path"]), name=options["compaction"], entry_ids=options["entry"]
        )
        plan = planned(request, datetime.now(UTC))
        self._show(plan)
        own = [f"--compaction={plan.state.undone_id}", *(f"--entry={one}" for one in options["entry"])]
        how = f"To undo it: {self.command_line(shell_path(options['path']), *own, *flags_of(plan.needs))}"
        if options["dry_run"]:
            self.say("Nothing was undone.")
            self.say(how, "yellow")
            self.show_json(_document(plan, None))
            return
        confirmations = self.confirmed(plan, "Undo this", options, how)
        undone = undo(request, confirmations, datetime.now(UTC), shown=plan.digest())
        self.say_all(_done_lines(undone), paged=False)
        self.show_json(_document(plan, undone))

    def _show(self, plan: UndoPlan) -> None:
        wanted = set(plan.wanted)
        what = "The whole compaction" if plan.is_whole else f"{plural(len(plan.back), 'deletion')} of the compaction"
        self.say(f"{what} {printable(plan.state.undone_id)}, saved as {plan.writer.name}, would be undone.")
        self.say(printable(plan.way.sentence))
        if plan.server is not None:
            self.say(f"This is done through the server at {plan.server.address}, one call for each row.")
        if not plan.is_whole:
            self._list("brought back", (target for target in plan.back if target in wanted))
            self._list(
                "brought back with it, because they belong together", (one for one in plan.back if one not in wanted)
            )
        self._list("summarised since, not brought back", plan.out_of_reach)

    def _list(self, what: str, targets: Iterable[Target]) -> None:
        for target in targets:
            self.say(f"  {what}: {printable(target)}")


def _done_lines(undone: Applied[UndoPlan]) -> list[str]:
    plan = undone.plan
    if plan.way is UndoWay.REMOVAL:
        return [f"Deleted {printable(plan.state.created)}; {printable(plan.path)} was not changed."]
    if plan.way is UndoWay.ROWS and undone.made.created is None:
        deleted = plan.state.created
        done = f"Changed the rows of {printable(plan.path)} back."
        if deleted is not None:
            done = f"Deleted {printable(deleted)}; {printable(plan.path)} was not changed."
        return [done, f"The backup is {printable(undone.backup_path)}."]
    return made_lines(undone, plan.path, plan.present.agent)


def _document(plan: UndoPlan, undone: Applied[UndoPlan] | None) -> dict[str, Any]:
    document = {
        "compaction": plan.state.undone_id,
        "savedAs": plan.writer.name,
        "way": plan.way,
        "whole": plan.is_whole,
        "broughtBack": [target.to_json() for target in plan.back],
        "outOfReach": [target.to_json() for target in plan.out_of_reach],
        "needs": flags_of(plan.needs),
        "undone": False,
        **dict.fromkeys(("entryId", "created", "deleted", "backup")),
    }
    if undone is not None:
        made = undone.made
        document |= {
            "needs": [],
            "undone": True,
            "entryId": made.entry_id,
            "created": str(made.created) if made.created is not None else None,
            "deleted": str(plan.state.created) if plan.way is UndoWay.REMOVAL else None,
            "backup": str(undone.backup.path) if undone.backup is not None else None,
        }
    return with_earlier_names(document, writer="savedAs", removed="deleted")

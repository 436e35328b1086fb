import sys
from typing import Any

from django.core.management.base import CommandParser

from compaction_app.models import Compaction, Run
from compaction_app.review.account import account_of, review_document, review_markdown
from compaction_app.runs.unseen_proposals import mark_seen
from sessions_app.cli import RedlineCommand
from sessions_app.sessionlog.errors import BadInput


class Command(RedlineCommand):
    help = "Print a plan as Markdown: what it deletes and keeps, who proposed and approved it, when and why."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "number",
            nargs="?",
            type=int,
            metavar="PLAN",
            help="the number of the plan (default: the newest plan of the newest session of this folder)",
        )

    def run(self, options: dict[str, Any]) -> None:
        found = self._newest_plan() if options["number"] is None else _run_with(options["number"])
        account = account_of(found)
        mark_seen(found)
        compaction = Compaction.objects.select_related("backup").filter(run=found).first()
        self.show_json(review_document(account, compaction))
        self.say_all(review_markdown(account, compaction).splitlines())

    def _newest_plan(self) -> Run:
        session = self.newest_session()
        found = Run.objects.with_session().filter(session=session, snapshot__isnull=False).order_by("pk").last()
        if found is None:
            raise BadInput(
                "no_such_run",
                f"Nothing was planned for {session.path}. Nothing was printed. To make a plan: `redline compact "
                f"{session.short_id}`",
            )
        sys.stderr.write(f"Its newest plan is number {found.pk}.\n")
        return found


def _run_with(number: int) -> Run:
    found = Run.objects.with_session().filter(pk=number).first()
    if found is None:
        raise BadInput("no_such_run", f"There is no plan {number}. Nothing was printed. The Inbox lists all plans.")
    return found

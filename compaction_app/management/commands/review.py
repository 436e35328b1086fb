from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from compaction_app.commit.export import review_document, review_markdown
from compaction_app.commit.units import account_of
from compaction_app.models import Compaction, Run
from sessions_app.cli import RedlineCommand
from sessions_app.sessionlog.errors import BadInput


class Command(RedlineCommand):
    help = "Print the review of a run as Markdown: what goes and stays, who proposed and who approved it, when and why."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", type=int, metavar="RUN", help="the number of the run")

    def run(self, options: dict[str, Any]) -> int | None:
        number = options["number"]
        found = Run.objects.with_session().filter(pk=number).first()
        if found is None:
            raise BadInput(
                "no_such_run",
                f"There is no run {number}. Nothing was printed. The page Runs lists all of them.",
            )
        account = account_of(found)
        compaction = Compaction.objects.select_related("backup").filter(run=found).first()
        self.show_json(review_document(account, compaction))
        self.say_all(review_markdown(account, compaction).splitlines())
        return None

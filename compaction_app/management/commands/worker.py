import signal
import sys
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from compaction_app.models import Run
from compaction_app.runs.worker import work
from sessions_app.cli import RedlineCommand
from sessions_app.jobs.job import worker_name
from sessions_app.jobs.pool import work_until_idle, work_until_stopped
from sessions_app.jobs.recorder import Terminated
from sessions_app.server.broadcast import relay_through
from sessions_app.sessionlog.errors import BadInput
from sessions_app.web.server_log import defects_logged


class Command(RedlineCommand):
    help = "Make queued plans in this process until it is stopped."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        only = parser.add_mutually_exclusive_group()
        only.add_argument("--plan", dest="run", type=int, metavar="N", help="make this plan only, then exit")
        only.add_argument(
            "--until-idle",
            action="store_true",
            help="exit if nothing has been queued for a while: the server starts its workers this way",
        )

    def warns(self, options: dict[str, Any]) -> bool:
        return options["run"] is None and not options["until_idle"]

    def run(self, options: dict[str, Any]) -> None:
        if options["run"] is not None and not Run.objects.filter(pk=options["run"]).exists():
            raise BadInput("no_such_run", f"There is no plan {options['run']}. Nothing was done.")
        signal.signal(signal.SIGTERM, _terminate)
        try:
            if self.as_json:
                self.show_json({"data": str(settings.REDLINE_DATA_DIR)})
                self.stdout.flush()
            elif options["run"] is not None or options["until_idle"]:
                # The server that started this process reads its announcements; without a server, no process does.
                relay_through(sys.stdout)
            if options["run"] is not None:
                with defects_logged(f"plan {options['run']}"):
                    work(options["run"], worker_name())
            elif options["until_idle"]:
                work_until_idle()
            else:
                self.say(f"Waiting for plans in {settings.REDLINE_DATA_DIR}. Ctrl-C stops it.")
                self.stdout.flush()
                work_until_stopped()
        except (Terminated, KeyboardInterrupt):
            return


def _terminate(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    raise Terminated

"""The `redline` command."""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import version

from django.core.management import ManagementUtility, get_commands, load_command_class
from django.core.management.base import BaseCommand

from sessions_app.console import report_failure
from sessions_app.sessionlog.errors import BadInput, RedlineError

OUR_APPS = ("sessions_app", "compaction_app")


class Redline(ManagementUtility):
    """Django's dispatcher, with Redline's own commands in its help and an unknown one as bad input."""

    for_developers = False
    """Whether Django's own commands are there too, as in `manage.py`."""

    def fetch_command(self, subcommand: str) -> BaseCommand:
        if get_commands().get(subcommand) not in OUR_APPS and not self.for_developers:
            raise BadInput(
                "unknown_command",
                f"There is no command {subcommand}. Nothing was done. `redline help` lists them.",
            )
        return super().fetch_command(subcommand)

    def main_help_text(self, commands_only: bool = False) -> str:
        ours = sorted(name for name, app in get_commands().items() if app in OUR_APPS)
        if commands_only:
            return "\n".join(ours)
        lines = ["usage: redline COMMAND [--help] [--json] …", ""]
        for name in ours:
            summary = load_command_class(str(get_commands()[name]), name).help
            lines.append(f"  {name:<16} {summary}")
        return "\n".join(lines)


def main(*, for_developers: bool = False) -> None:
    """Run a command: `redline COMMAND`; `manage.py COMMAND` has Django's own as well, for those who build it."""
    # Whatever is made in the data directory, by a library as well, is for this user alone. A copy of a session gets
    # the session's own mode.
    os.umask(0o077)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Closed by whoever started this: what is printed goes nowhere.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  # until the end
    if sys.argv[1:] in (["--version"], ["version"]):
        sys.stdout.write(f"redline {version('redline')}\n")
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "redline.settings")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What the terminal's encoding does not know is shown as an escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        utility = Redline(sys.argv)
        utility.for_developers = for_developers
        utility.execute()
    except RedlineError as failure:
        # Before a command runs: there is none of that name, or the settings could not be loaded.
        sys.exit(report_failure(failure, as_json="--json" in sys.argv))

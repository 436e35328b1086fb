"""The `redline` command."""

from __future__ import annotations

import io
import os
import sys

from django.core.management import ManagementUtility, get_commands, load_command_class
from django.core.management.base import BaseCommand

from sessions_app.console import report_failure
from sessions_app.sessionlog.errors import BadInput, RedlineError

OUR_APPS = ("sessions_app", "compaction_app")


class Redline(ManagementUtility):
    """Django's dispatcher, with Redline's own commands in its help and an unknown one as bad input."""

    def fetch_command(self, subcommand: str) -> BaseCommand:
        if subcommand not in get_commands():
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


def main() -> None:
    """Run a management command: `redline COMMAND`, or `manage.py COMMAND`."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "redline.settings")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What the terminal's encoding does not know is shown as an escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        Redline(sys.argv).execute()
    except RedlineError as failure:
        # Before a command runs: there is none of that name, or the settings could not be loaded.
        sys.exit(report_failure(failure, as_json="--json" in sys.argv))

"""The `redline` command."""

from __future__ import annotations

import os
import sys

from sessions_app.console import report_failure
from sessions_app.sessionlog.errors import RedlineError


def main() -> None:
    """Run a management command: `redline COMMAND`, or `manage.py COMMAND`."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "redline.settings")
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except RedlineError as failure:
        # Before a command is found: the settings could not be loaded.
        sys.exit(report_failure(failure, as_json="--json" in sys.argv))

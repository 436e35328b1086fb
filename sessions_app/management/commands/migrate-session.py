from typing import Any

from django.core.management.base import CommandParser

from sessions_app.cli import SESSION_HELP, RedlineCommand, printable
from sessions_app.disk.files import real_path
from sessions_app.index.session_copies import write_version_3
from sessions_app.sessionlog.text import plural


class Command(RedlineCommand):
    help = (
        "Write a version 3 copy beside a session of version 1 or 2, or one without a header. The session itself is not "
        "changed."
    )
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "path",
            type="session",
            metavar="SESSION",
            help=f"a session of version 1 or 2, or without a header; {SESSION_HELP}",
        )

    def run(self, options: dict[str, Any]) -> None:
        written = write_version_3(real_path(options["path"]))
        self.say(f"Wrote {printable(written.path)}, {plural(written.size, 'byte')}.")
        self.show_json({"written": str(written.path), "bytes": written.size})

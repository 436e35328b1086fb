from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from sessions_app.console import RedlineCommand, printable
from sessions_app.services.indexing import index_paths, index_roots


class Command(RedlineCommand):
    help = "Index the configured roots, or the files and directories that are named."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "paths", nargs="*", type=Path, metavar="PATH", help="a session file or a directory"
        )
        parser.add_argument("--rebuild", action="store_true", help="read every file anew from its start")

    def run(self, options: dict[str, Any]) -> int | None:
        started = time.perf_counter()
        if options["paths"]:
            total = index_paths(options["paths"], rebuild=options["rebuild"], report=self.progress.show)
        else:
            total = index_roots(rebuild=options["rebuild"], report=self.progress.show)
        self.progress.clear()
        seconds = round(time.perf_counter() - started, 3)
        for refused in total.faults:
            self.stderr.write(f"{printable(refused.path)}: {printable(refused.reason)}")
        self.say(
            f"{total.files} sessions with {total.entries} entries, {total.damaged} damaged lines. "
            f"They hold {total.bytes} bytes; {total.bytes_read} were read in {seconds} s."
        )
        self.show_json(
            {
                "files": total.files,
                "entries": total.entries,
                "bytes": total.bytes,
                "bytes_read": total.bytes_read,
                "damaged": total.damaged,
                "seconds": seconds,
            }
        )
        return None

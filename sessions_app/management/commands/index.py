from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from sessions_app.children import exit_with_parent
from sessions_app.cli import RedlineCommand, printable
from sessions_app.index.follower import Follower
from sessions_app.index.indexer import index_paths, index_roots
from sessions_app.index.progress import ReadSoFar
from sessions_app.search.text_index import TextIndexer
from sessions_app.sessionlog.errors import BadInput, SystemFailure
from sessions_app.web.broadcast import relay_through


class Command(RedlineCommand):
    help = "Index the configured roots, or the given files and directories."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="a session file or a directory")
        parser.add_argument("--rebuild", action="store_true", help="read every file again from its start")
        parser.add_argument(
            "--follow",
            action="store_true",
            help="index the configured roots, then follow changes until standard input closes; "
            "standard output reports them as lines of JSON",
        )

    def warns(self, options: dict[str, Any]) -> bool:
        return not options["follow"]

    def run(self, options: dict[str, Any]) -> int | None:
        if options["follow"]:
            return self._follow(options)
        started = time.perf_counter()
        if options["paths"]:
            total = index_paths(options["paths"], rebuild=options["rebuild"], report=self._show)
        else:
            total = index_roots(rebuild=options["rebuild"], report=self._show)
        self.progress.clear()
        seconds = round(time.perf_counter() - started, 3)
        for refused in total.faults:
            self.stderr.write(f"{printable(refused.path)}: {printable(refused.reason)}")
        self.say(
            f"{total.files} sessions with {total.entries} entries, {total.damaged} damaged lines. "
            f"They have {total.bytes} bytes; {total.bytes_read} were read in {seconds} s."
        )
        self.show_json(
            {
                "files": total.files,
                "entries": total.entries,
                "bytes": total.bytes,
                "bytes_read": total.bytes_read,
                "damaged": total.damaged,
                "seconds": seconds,
                "refused": [{"path": str(path), "reason": reason} for path, reason in total.faults],
            }
        )
        return SystemFailure.exit_code if total.unlisted else None

    def _show(self, so_far: ReadSoFar) -> None:
        self.progress.show(str(so_far))

    def _follow(self, options: dict[str, Any]) -> int | None:
        if options["paths"] or options["rebuild"]:
            raise BadInput(
                "bad_arguments",
                "--follow applies to the configured roots and accepts neither PATH nor --rebuild. Nothing was done.",
            )
        exit_with_parent()
        # The server reads events from standard output, so nothing else may be printed there.
        relay_through(sys.stdout)
        sys.stdout = sys.stderr
        Follower(background=TextIndexer().step).run()
        return None

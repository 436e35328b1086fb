import sys
import time
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from sessions_app.cli import SESSION_HELP, RedlineCommand, printable
from sessions_app.database.salvage import Salvage, SalvagedTable, salvage_database
from sessions_app.index.follower import Follower
from sessions_app.index.indexer import index_paths, index_roots
from sessions_app.index.progress import ReadSoFar, TextProgress
from sessions_app.search.text_index import TextIndexer, index_with_texts
from sessions_app.server.broadcast import relay_through
from sessions_app.server.children import exit_with_parent
from sessions_app.sessionlog.errors import BadInput, SystemFailure
from sessions_app.sessionlog.text import plural


class Command(RedlineCommand):
    help = "Index the sessions of all agents, or the given files and folders."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("paths", nargs="*", type="session", metavar="PATH", help=f"{SESSION_HELP}; or a folder")
        parser.add_argument("--rebuild", action="store_true", help="read every file again from its start")
        parser.add_argument("--texts", action="store_true", help="make their texts searchable as well, in one reading")
        parser.add_argument(
            "--salvage",
            action="store_true",
            help="replace a damaged database by a new one with everything that can be read and is not the index; the "
            "damaged file is kept",
        )
        parser.add_argument(
            "--follow",
            action="store_true",
            help="index the sessions of all agents, then follow changes until standard input closes; "
            "standard output reports them as lines of JSON",
        )

    def warns(self, options: dict[str, Any]) -> bool:
        return not options["follow"]

    def run(self, options: dict[str, Any]) -> int | None:
        salvaged = self._salvage(options) if options["salvage"] else None
        self.open_database()
        if options["follow"]:
            self._follow(options)
            return None
        started = time.perf_counter()
        index = partial(index_paths, options["paths"]) if options["paths"] else index_roots
        index = partial(index, rebuild=options["rebuild"], report=self._show)
        total = index_with_texts(lambda texts: index(texts=texts), self._show) if options["texts"] else index()
        self.progress.clear()
        seconds = round(time.perf_counter() - started, 3)
        for refused in (*total.faults, *total.unread):
            self.stderr.write(f"{printable(refused.path)}: {printable(refused.reason)}")
        self.say(
            f"{plural(total.files, 'session')} with {plural(total.entries, 'entry')}, "
            f"{plural(total.damaged, 'damaged line')}. {total.bytes_read:,} of {plural(total.bytes, 'byte')} read in "
            f"{seconds} s."
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
                "unread": [{"path": str(path), "reason": reason} for path, reason in total.unread],
                **({"salvaged": _salvage_json(salvaged)} if salvaged is not None else {}),
            }
        )
        return SystemFailure.exit_code if total.unlisted else None

    def _salvage(self, options: dict[str, Any]) -> Salvage:
        if options["paths"] or options["follow"] or options["rebuild"]:
            raise BadInput(
                "bad_arguments",
                "--salvage replaces the database and indexes the sessions of all agents: it accepts neither PATH, nor "
                "--follow, nor --rebuild. Nothing was done.",
            )
        salvaged = salvage_database()
        self.say(f"The damaged database is kept as {printable(salvaged.kept)}. Brought over into a new one:")
        for table in salvaged.tables:
            self.say(f"  {_words_of(table)}")
        if not salvaged.tables:
            self.say("  nothing: it had only an index")
        return salvaged

    def _show(self, so_far: ReadSoFar | TextProgress) -> None:
        self.progress.show(str(so_far))

    def _follow(self, options: dict[str, Any]) -> None:
        if options["paths"] or options["rebuild"] or options["texts"]:
            raise BadInput(
                "bad_arguments",
                "--follow is for the sessions of all agents: it accepts no PATH and no other flag. Nothing was done.",
            )
        # Imported here: no other use of this command watches files.

        exit_with_parent()
        # The server reads events from standard output, so nothing else may be printed there.
        relay_through(sys.stdout)
        sys.stdout = sys.stderr
        Follower(background=TextIndexer().step).run()


def _words_of(table: SalvagedTable) -> str:
    words = [f"{table.name}: {plural(table.rows, 'row')}"]
    if table.by_name:
        words.append(f"{table.by_name:,} of them by their names alone: what you chose for them is lost")
    if table.unusable:
        words.append(f"{table.unusable:,} more cannot be used")
    if table.has_gaps:
        words.append("others cannot be read")
    return "; ".join(words)


def _salvage_json(salvaged: Salvage) -> dict[str, Any]:
    return {
        "kept": str(salvaged.kept),
        "tables": {
            table.name: {
                "rows": table.rows,
                "byName": table.by_name,
                "unusable": table.unusable,
                "gaps": table.has_gaps,
            }
            for table in salvaged.tables
        },
    }

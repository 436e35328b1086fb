from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from devtools.vector_files import find_cases
from sessions_app.cli import CHECK_FAILED, RedlineCommand, printable
from sessions_app.sessionlog.errors import BadInput


class Command(RedlineCommand):
    help = "Compare Redline's results with those of the real agents, case by case."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "paths",
            nargs="+",
            type=Path,
            metavar="PATH",
            help="a directory of vectors, or a .json, .jsonl or .jsonl.gz",
        )

    def run(self, options: dict[str, Any]) -> int | None:
        passed = 0
        failures = []
        for case in find_cases(options["paths"]):
            self.progress.show(case.name)
            found = next(case.differences(), None)
            if found is None:
                passed += 1
            else:
                failures.append({"case": case.name, "section": found.section, "path": found.path})
                self.say(f"{printable(case.name)}: {printable(found)}")
        self.progress.clear()
        if not passed and not failures:
            raise BadInput("no_cases", "There are no cases below these paths. Nothing was checked.")
        self.say(f"{passed} passed, {len(failures)} failed")
        self.show_json({"passed": passed, "failed": len(failures), "failures": failures})
        return CHECK_FAILED if failures else None

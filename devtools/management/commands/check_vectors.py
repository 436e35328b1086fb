from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from devtools.conformance import case_lines, differences
from sessions_app.cli import CHECK_FAILED, RedlineCommand, printable
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.lines import Line, split_lines
from sessions_app.storage.files import SessionReader, real_path, reported

SUFFIXES = (".json", ".jsonl", ".jsonl.gz")


class Command(RedlineCommand):
    help = "Compare Redline's results with those of the real agents, case by case."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "paths", nargs="+", type=Path, metavar="PATH", help="a directory, .json, .jsonl or .jsonl.gz"
        )

    def run(self, options: dict[str, Any]) -> int | None:
        passed = 0
        failures = []
        for name, path, case in read_cases(options["paths"]):
            self.progress.show(name)
            found = next(differences(case, _lines(case, path)), None)
            if found is None:
                passed += 1
            else:
                failures.append({"case": name, "section": found.section, "path": found.path})
                self.say(f"{printable(name)}: {printable(found)}")
        self.progress.clear()
        if not passed and not failures:
            raise BadInput("no_cases", "There are no cases below these paths. Nothing was checked.")
        self.say(f"{passed} passed, {len(failures)} failed")
        self.show_json({"passed": passed, "failed": len(failures), "failures": failures})
        return CHECK_FAILED if failures else None


def read_cases(paths: Iterable[Path]) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Name, file and content of each case. Raises BadInput `no_such_file` and `not_a_vector`."""
    for path in paths:
        with reported(path, "Nothing was checked."):
            files = (
                sorted(found for found in path.rglob("*") if found.name.endswith(SUFFIXES))
                if path.is_dir()
                else [path]
            )
        for file in files:
            raw = _read(file)
            one_a_line = file.name.endswith((".jsonl", ".jsonl.gz"))
            for number, text in enumerate(raw.splitlines() if one_a_line else [raw], 1):
                if text.strip():
                    yield f"{file.name}:{number}" if one_a_line else file.name, file, _case(file, text)


def _read(file: Path) -> bytes:
    with SessionReader(real_path(file)) as reader:
        raw = b"".join(reader.chunks(0))
    if file.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as fault:
        raise BadInput("not_a_vector", f"{file} cannot be unpacked: {fault}. Nothing was checked.") from fault


def _case(file: Path, text: bytes) -> dict[str, Any]:
    try:
        case = parse(text)
    except ValueError as fault:
        raise BadInput("not_a_vector", f"{file} is not valid JSON: {fault}. Nothing was checked.") from fault
    if not isinstance(case, dict) or not {"leafId", "settings", "context", "prepare"} <= case.keys():
        raise BadInput("not_a_vector", f"{file} is not a conformance vector. Nothing was checked.")
    return case


def _lines(case: dict[str, Any], file: Path) -> Iterator[Line]:
    if "session" not in case:
        yield from case_lines(case)
        return
    # The session's path is relative to a directory above the vectors.
    near = next(
        (above / case["session"] for above in file.resolve().parents if (above / case["session"]).is_file()),
        None,
    )
    if near is None:
        raise BadInput(
            "no_such_file", f"{file} refers to {case['session']}, which does not exist. Nothing was checked."
        )
    with SessionReader(real_path(near)) as reader:
        yield from split_lines(reader.chunks(0))

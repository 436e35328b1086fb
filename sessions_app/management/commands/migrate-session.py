from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from sessions_app.backups import create_beside
from sessions_app.console import RedlineCommand, printable
from sessions_app.files import SessionReader
from sessions_app.services.indexing import index_file, remember_own_write
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.migration import migrate


class Command(RedlineCommand):
    help = "Write a version 3 copy beside a version 1 or 2 session. The session itself stays as it is."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, metavar="PATH", help="a version 1 or 2 session file")

    def run(self, options: dict[str, Any]) -> int | None:
        path: Path = options["path"]
        copy = path.with_name(f"{path.name.removesuffix('.jsonl')}.v3.jsonl")
        with SessionReader(path) as reader:
            lines = migrate(split_lines(reader.chunks(0)), str(path))
            size = create_beside(copy, lines, reader.stat())
        index_file(copy)
        remember_own_write(copy, size)
        self.say(f"Wrote {printable(copy)}, {size} bytes.")
        self.show_json({"written": str(copy), "bytes": size})
        return None

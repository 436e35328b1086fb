from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from compaction_app.exports.branch_export import FORMS, BranchExport
from compaction_app.exports.spoken_entry import ExportHead
from sessions_app.agents.registry import agent_at
from sessions_app.cli import RedlineCommand, plural, printable
from sessions_app.storage.copies import create_beside
from sessions_app.storage.session_loader import load_session


class Command(RedlineCommand):
    help = "Write a branch of a session to a new file: as Markdown, as a page that needs nothing else, or as recorded."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, metavar="PATH", help="a session file")
        parser.add_argument("--format", choices=list(FORMS), default="markdown", help="(default: markdown)")
        parser.add_argument(
            "--leaf", metavar="ID", help="the last entry of the branch (default: the session's)"
        )
        parser.add_argument(
            "--output",
            type=Path,
            metavar="FILE",
            help="a new file (default: in this directory, named like the session)",
        )

    def run(self, options: dict[str, Any]) -> int | None:
        loaded = load_session(options["path"], lambda read: self.progress.show(f"{read >> 20} MB read"))
        leaf = options["leaf"] or loaded.leaf_id
        entries = len(loaded.tree.branch(leaf))
        agent, form = agent_at(loaded.path), FORMS[options["format"]]
        facts = [agent.label, plural(entries, "entry").replace("entrys", "entries"), f"leaf {leaf}"]
        export = BranchExport(
            agent, loaded.path, loaded.fingerprint, loaded.tree, leaf, ExportHead(loaded.path.name, facts)
        )
        output = options["output"] or Path(loaded.path.stem + form.suffix)
        size = create_beside(
            output.absolute(), export.pieces(options["format"]), output.absolute().parent.stat()
        )
        note = export.note if options["format"] == "jsonl" else ""
        self.show_json(
            {"path": str(output), "format": options["format"], "bytes": size, "leafId": leaf, "note": note}
        )
        self.say(f"{printable(output)}: {size:,} bytes. {note}".rstrip())
        return None

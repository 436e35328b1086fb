from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from compaction_app.entries.branch_export import FORMS, BranchExport, export_name, note_of
from compaction_app.entries.branches import VIEWS
from sessions_app.agents.registry import agent_at
from sessions_app.cli import SESSION_HELP, RedlineCommand, printable
from sessions_app.disk.copies import create_beside
from sessions_app.sessionlog.text import plural


class Command(RedlineCommand):
    help = (
        "Write a branch of a session to a new file. It has everything, what the model sees, or what was deleted: as "
        "Markdown, as one self-contained page, or as recorded."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type="session", metavar="SESSION", help=SESSION_HELP)
        parser.add_argument("--format", choices=list(FORMS), default="markdown", help="(default: markdown)")
        parser.add_argument(
            "--view",
            type=lambda name: "removed" if name == "deleted" else name,
            choices=[*VIEWS],
            metavar="{sees,all,deleted}",
            default="all",
            help="what the model sees, the full history, or what was deleted (default: all)",
        )
        parser.add_argument(
            "--branch", dest="leaf", metavar="ID", help="the last entry of the branch (default: the session's)"
        )
        parser.add_argument(
            "--output",
            type=Path,
            metavar="FILE",
            help="a new file (default: in this directory, named like the session)",
        )

    def run(self, options: dict[str, Any]) -> None:
        document = self.open_document(options["path"])
        leaf = options["leaf"] or document.leaf_id
        form, view = options["format"], options["view"]
        agent = agent_at(document.path)
        export = BranchExport.of(document, leaf, view, document.path.name, [agent.label])
        output = options["output"] or Path(export_name(document.path, form, view))
        size = create_beside(output.absolute(), export.pieces(form), output.absolute().parent.stat())
        note = note_of(agent, document.path, view) if form == "jsonl" else ""
        written = {"path": str(output), "format": form, "view": view, "bytes": size}
        self.show_json({**written, "entries": len(export.messages), "leafId": leaf, "note": note})
        self.say(f"{printable(output)}: {plural(size, 'byte')}. {note}".rstrip())

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.management.base import CommandParser

from sessions_app.cli import NEWEST, NEWEST_HELP, RedlineCommand, printable
from sessions_app.sessionlog.entries import Entry, Role, Texts
from sessions_app.sessionlog.text import one_line, plural
from sessions_app.sessionlog.tree import OutlineRun, labels, runs
from sessions_app.storage.session_loader import LoadedSession


class Command(RedlineCommand):
    help = "Draw a session's branches, with labels, compactions and the entry after which the agent continues."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", nargs="?", type="session", default=NEWEST, metavar="SESSION", help=NEWEST_HELP)

    def run(self, options: dict[str, Any]) -> None:
        loaded = self.load_session(options["path"])
        leaf_id = loaded.leaf_id
        found = list(runs(loaded.tree))
        named = labels(loaded.tree)
        damage = [*loaded.log.damage, *loaded.tree.damage]
        self.show_json(
            {
                "leafId": leaf_id,
                "version": loaded.log.version,
                "entries": len(loaded.log.entries),
                "branches": [_run_json(run) for run in found],
                "labels": dict(named),
                "compactions": [entry.id for entry in loaded.log.entries if entry.is_compaction],
                "damage": [
                    {
                        "kind": fault.kind.value,
                        "line": fault.number,
                        "offset": fault.offset,
                        "detail": fault.detail,
                    }
                    for fault in damage
                ],
            }
        )
        if self.as_json:
            return
        self.say(f"{printable(loaded.path)}: {plural(len(loaded.log.entries), 'entry')}, version {loaded.log.version}")
        self.say_all(self._draw(loaded, found, named))
        for fault in damage:
            self.say(f"damaged: line {fault.number} {printable(fault.detail)}", "red")

    def _draw(self, loaded: LoadedSession, found: list[OutlineRun], named: Mapping[str, str]) -> Iterator[str]:
        texts = loaded.texts([run.first for run in found] + [run.last for run in found])
        for run in found:
            stem = "".join("│  " if continues else "   " for continues in run.above)
            fork = ("└─ " if run.is_last else "├─ ") if run.depth else ""
            inner = stem + ("   " if run.is_last else "│  ") if run.depth else ""
            yield stem + fork + _headline(run.first, texts)
            for entry in run.entries:
                mark = _mark(entry, named, is_leaf=entry is loaded.tree.leaf)
                if mark:
                    yield f"{inner}   {self.screen.paint(mark, 'cyan')}"
            if len(run.entries) > 1:
                counted = f"{plural(len(run.entries), 'entry')}, {plural(run.tokens, 'token')}"
                yield f"{inner}   … {counted}, to {_headline(run.last, texts)}"


def _headline(entry: Entry, texts: Mapping[str, Texts]) -> str:
    text = texts[entry.id].joined(entry.blocks) if entry.id in texts else ""
    what = entry.tool_name or entry.role or entry.type
    return f"{printable(entry.id)} {printable(what)} {one_line(text, 60)}".rstrip()


def _mark(entry: Entry, named: Mapping[str, str], *, is_leaf: bool) -> str:
    marks = []
    if entry.id in named:
        marks.append(f"label “{one_line(named[entry.id], 60)}”")
    if entry.is_compaction or entry.role == Role.BRANCH_SUMMARY:
        marks.append(printable(entry.type))
    if is_leaf:
        marks.append("◀ the agent continues here")
    return f"{printable(entry.id)} {', '.join(marks)}" if marks else ""


def _run_json(run: OutlineRun) -> dict[str, Any]:
    return {
        "first": run.first.id,
        "last": run.last.id,
        "parent": run.first.parent_id,
        "entries": len(run.entries),
        "tokens": run.tokens,
        "depth": run.depth,
        "active": run.has_leaf,
    }

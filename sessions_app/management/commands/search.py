from typing import Any, Final

from django.core.management.base import CommandParser

from sessions_app.agents.registry import AGENTS
from sessions_app.cli import RedlineCommand, printable
from sessions_app.models import Session
from sessions_app.search.filters import KIND_NAMES, SearchFilters
from sessions_app.search.pure.query import day_of
from sessions_app.search.results import SearchHit, SearchResults, search
from sessions_app.search.text_index import update_texts
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.passages import PassageState
from sessions_app.sessionlog.text import one_line, plural
from sessions_app.terminal import Column

TEXT_WIDTH: Final = 200
COLUMNS: Final = (
    Column("SESSION", cut="end"),
    Column("AGENT", spare=True),
    Column("WHO", style="cyan"),
    Column("WHEN", spare=True),
    Column("STATE", spare=True, styles={"deleted": "yellow"}),
    Column("TEXT", cut="end"),
    Column("ENTRY", spare=True),
    Column("PATH", cut="start", spare=True),
)


class Command(RedlineCommand):
    help = "Search the texts of all indexed sessions: messages, answers, thinking, calls and results."
    needs_database = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "words",
            nargs="+",
            metavar="WORDS",
            help="words, '\"a phrase\"', or after -- also -words to exclude",
        )
        parser.add_argument("--agent", choices=sorted(AGENTS), help="only sessions of this agent")
        parser.add_argument("--project", metavar="PATH", help="only this project, or the end of its path")
        parser.add_argument("--role", choices=sorted(KIND_NAMES), help="only what comes from this")
        parser.add_argument("--tool", metavar="NAME", help="only results of this tool")
        parser.add_argument("--since", metavar="DATE", help="from this day, month or year on, as in 2026-01")
        parser.add_argument("--until", metavar="DATE", help="up to this day, month or year, including it")
        parser.add_argument("--limit", type=int, default=20, metavar="N", help="places to show (default: 20)")

    def run(self, options: dict[str, Any]) -> None:
        filters = _filters(options)
        try:
            for progress in update_texts():
                self.progress.show(str(progress))
        except Conflict:
            self.stderr.write("redline: another Redline process is reading sessions; some cannot be found yet.")
        self.progress.clear()
        found = search(filters, shown_only=False, limit=options["limit"])
        self.show_json(_json(found))
        rows = [_row(one.session, hit) for one in found.found for hit in one.hits]
        if rows:
            self.say_all(self.screen.table(COLUMNS, rows))
        self.say(_summary(found, len(rows)))


def _filters(options: dict[str, Any]) -> SearchFilters:
    """Raises BadInput `bad_arguments` and `no_words`."""
    for name in ("since", "until"):
        if options[name] and day_of(options[name]) is None:
            raise BadInput(
                "bad_arguments",
                f"--{name} {options[name]} is not a day, a month or a year. Nothing was searched. Write it as "
                "2026-01-31, 2026-01 or 2026.",
            )
    if options["limit"] < 1:
        raise BadInput("bad_arguments", "--limit is at least 1. Nothing was searched.")
    given = [(name, options[name] or "") for name in ("agent", "project", "tool", "since", "until")]
    filters = SearchFilters.of(" ".join(options["words"]), [*given, ("in", options["role"] or "")], sort="best")
    if not filters.query.finds:
        raise BadInput(
            "no_words",
            "There is no word to find. Nothing was searched. Give a word with a letter or a digit.",
        )
    return filters


def _row(session: Session, hit: SearchHit) -> list[str]:
    return [
        one_line(session.heading, 40),
        printable(session.agent_key or "?"),
        hit.who,
        hit.recorded_at.strftime("%Y-%m-%d %H:%M") if hit.recorded_at else "?",
        "deleted" if hit.state is PassageState.STRUCK else hit.state.name.lower(),
        one_line(hit.text or hit.fault, TEXT_WIDTH),
        printable(hit.entry_id),
        printable(str(session.path)),
    ]


def _summary(found: SearchResults, shown: int) -> str:
    if not found.places:
        words = "Nothing found."
    else:
        words = f"{plural(found.places, 'place')} in {plural(found.sessions, 'session')}"
        words += f"; {shown} are shown." if shown < found.places else "."
    if found.left_out:
        words += f" {plural(found.left_out, 'text')} more with all these words were not compared with the phrase."
    if found.is_incomplete:
        words += f" Searchable: {found.progress.searchable:,} of {plural(found.progress.sessions, 'session')}."
    return words


def _json(found: SearchResults) -> dict[str, Any]:
    return {
        "places": found.places,
        "sessions": found.sessions,
        "leftOut": found.left_out,
        "searchable": found.progress.searchable,
        "known": found.progress.sessions,
        "found": [
            {
                "path": str(one.session.path),
                "title": one.session.title,
                "agent": one.session.agent_key,
                "project": one.session.cwd,
                "places": one.places,
                "hits": [_hit_json(hit) for hit in one.hits],
            }
            for one in found.found
        ],
    }


def _hit_json(hit: SearchHit) -> dict[str, Any]:
    return {
        "entryId": hit.entry_id,
        "line": hit.number,
        "kind": hit.kind.name.lower(),
        "tool": hit.tool,
        "state": hit.state.name.lower(),
        "recordedAt": hit.recorded_at.isoformat() if hit.recorded_at else None,
        "text": hit.text,
        "marked": [part.text for part in hit.snippet if part.marked],
        "fault": hit.fault,
    }

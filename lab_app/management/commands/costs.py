from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandParser
from django.utils import timezone

from lab_app.hindsight.service import update
from lab_app.hindsight.views import Sums, view_overview
from lab_app.pure.hindsight import Hindsight, Way, hindsights
from sessions_app.agents.registry import READERS_HELP
from sessions_app.cli import SESSION_HELP, RedlineCommand, printable
from sessions_app.earlier_names import with_earlier_names
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.text import one_line, plural
from sessions_app.terminal import Column

COLUMNS: Final = (
    Column("COMPACTION"),
    Column("WHEN"),
    Column("REQUESTS", right=True),
    Column("DELETED", right=True),
    Column("SAVED", right=True),
    Column("FETCHED", right=True),
    Column("READ AGAIN", right=True),
    Column("FILES", right=True),
    Column("RECALLED NAMES", right=True),
)
SUM_COLUMNS: Final = (
    Column("COMPACTIONS", right=True),
    Column("SAVED", right=True),
    Column("FETCHED", right=True),
    Column("READ AGAIN", right=True),
    Column("SHARE", right=True),
    Column("FILES", right=True),
    Column("RECALLED NAMES", right=True),
    Column("WORTH", right=True),
    Column("COST", right=True),
)
NOT_KNOWN: Final = (
    "SAVED: tokens that later requests no longer had. READ AGAIN: what was fetched, times the requests that had it "
    "then. Counted up to the next change of the context. It cannot be known what would have been read again anyway."
)
WAYS: Final = {
    Way.MEMORY: "written again from memory, or as a guess",
    Way.FETCHED: "written again after a tool had shown them",
    Way.SHOWN: "written again after you or the agent had shown them",
}
EARLIER_SUMS: Final = {"notSent": "saved", "sentAgain": "readAgain"}
"""The present field of the JSON for each earlier one."""
WIDTH: Final = 90
"""The maximum number of characters shown of a path, a command or a name."""


class Command(RedlineCommand):
    help = (
        "Show what compactions cost: what was deleted and read again. Redline's own and those of the agents are shown, "
        "with the names that the model recalled without having seen them again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "paths",
            nargs="*",
            type="session",
            metavar="SESSION",
            help=f"{SESSION_HELP} (default: all indexed sessions)",
        )
        parser.add_argument("--entry", default="", metavar="ID", help="one compaction, with everything that came back")
        parser.add_argument("--open-as", dest="reader", default="", metavar="NAME", help=READERS_HELP)
        parser.add_argument(
            "--update",
            action="store_true",
            help="only bring the figures of all indexed sessions up to date, as the server does in the background",
        )

    def warns(self, options: dict[str, Any]) -> bool:
        return not options["update"]

    def run(self, options: dict[str, Any]) -> int | None:
        if not options["paths"]:
            self._of_index(options)
            return None
        if options["update"]:
            raise BadInput(
                "bad_arguments", "--update is for all indexed sessions and accepts no SESSION. Nothing was done."
            )
        found = [(path, self._look_back(path, options)) for path in options["paths"]]
        every = [one for _, looks in found for one in looks]
        self.show_json(
            {
                "sessions": [
                    {"path": str(path), "compactions": [_json(one) for one in looks]} for path, looks in found
                ],
                "total": with_earlier_names(_sums(every), **EARLIER_SUMS),
            }
        )
        if self.as_json:
            return None
        for path, looks in found:
            if len(found) > 1 and looks:
                self.say(f"{printable(path)}:")
            if looks:
                self.say_all(self.screen.table(COLUMNS, [_row(one) for one in looks]))
            if options["entry"]:
                self.say_all(line for one in looks for line in _lines(one))
        self._say_sum(every)
        return None

    def _of_index(self, options: dict[str, Any]) -> None:
        if options["entry"] or options["reader"]:
            raise BadInput("bad_arguments", "--entry and --open-as need a SESSION. Nothing was done.")
        self.open_database()
        now = timezone.now()
        looked_at = update(now, lambda done, total: self.progress.show(f"{done:,} of {plural(total, 'session')}"))
        self.progress.clear()
        if options["update"]:
            self.show_json({"sessions": looked_at})
            return
        view = view_overview(now)
        self.show_json(
            {
                "agents": [{"agent": row.agent, **_sums_json(row.sums)} for row in view.agents],
                "months": [{"month": row.month, **_sums_json(row.sums)} for row in view.months],
                "total": _sums_json(view.total),
                "sessions": view.sessions,
                "waiting": view.waiting,
            }
        )
        if self.as_json:
            return
        if not view.total.compactions:
            self.say("No indexed session has a compaction that was followed by a request.")
            return
        agents = [_sums_row(row.label, row.sums) for row in view.agents]
        months = [_sums_row(row.month, row.sums) for row in view.months]
        self.say_all(self.screen.table((Column("AGENT"), *SUM_COLUMNS), agents))
        self.say("")
        self.say_all(self.screen.table((Column("MONTH"), *SUM_COLUMNS), [*months, _sums_row("all", view.total)]))
        self.say(NOT_KNOWN)

    def _look_back(self, path: Path, options: dict[str, Any]) -> list[Hindsight]:
        document = self.open_document(path, options["reader"])
        found = hindsights(document.branch(), document.reading.reader, document.texts, document.log.cwd)
        return [one for one in found if options["entry"] in ("", one.entry_id)]

    def _say_sum(self, found: list[Hindsight]) -> None:
        if not found:
            self.say("No compaction was followed by a request.")
            return
        sums = _sums(found)
        self.say(
            f"{plural(len(found), 'compaction')} saved {plural(sums['saved'], 'token')}. "
            f"{plural(sums['readAgain'], 'token')} of them came back: {sums['fetchedAgain']:,} were fetched again, and "
            "later requests had them too."
        )
        self.say(f"Tokens are the agent's own estimate: characters / 4. {NOT_KNOWN}")


def _sums_row(label: str, sums: Sums) -> list[str]:
    share = "" if sums.percent is None else f"{sums.percent:.1f}%"
    numbers = (sums.compactions, sums.saved, sums.again, sums.sent)
    return [label, *map(str, numbers), share, str(sums.files), str(sums.memory), sums.worth, sums.cost]


def _sums_json(sums: Sums) -> dict[str, Any]:
    document = {
        "compactions": sums.compactions,
        "requests": sums.requests,
        "saved": sums.saved,
        "fetchedAgain": sums.again,
        "readAgain": sums.sent,
        "files": sums.files,
        "recalledNames": sums.memory,
        "priced": sums.priced,
        "dollarsSaved": sums.dollars_saved if sums.priced else None,
        "dollarsCost": sums.dollars_cost if sums.priced else None,
    }
    return with_earlier_names(document, **EARLIER_SUMS, fromMemory="recalledNames")


def _row(found: Hindsight) -> list[str]:
    return [
        printable(found.entry_id),
        printable(found.point.last.timestamp),
        str(found.requests),
        str(found.point.tokens_removed),
        str(found.saved),
        str(found.again),
        str(found.sent),
        str(found.files),
        "?" if found.is_encrypted else str(found.count(Way.MEMORY)),
    ]


def _lines(found: Hindsight) -> Iterator[str]:
    """Everything that came back after a compaction."""
    yield ""
    yield f"{plural(len(found.fetched), 'call')} read again what had been deleted:"
    for call in found.fetched:
        tokens = f"{call.again} of {plural(call.tokens, 'token')}"
        yield f"  {one_line(call.name, WIDTH)}  ({tokens}, {printable(call.entry_id)})"
    for way, words in WAYS.items():
        names = [one for one in found.returned if one.way is way]
        yield ""
        yield f"{plural(len(names), 'reference')} {words}:"
        for one in names:
            yield f"  {one_line(one.reference, WIDTH)}  ({printable(one.entry_id)})"


def _sums(found: Iterable[Hindsight]) -> dict[str, int]:
    sums = {"saved": 0, "fetchedAgain": 0, "readAgain": 0}
    for one in found:
        sums["saved"] += one.saved
        sums["fetchedAgain"] += one.again
        sums["readAgain"] += one.sent
    return sums


def _json(found: Hindsight) -> dict[str, Any]:
    document = {
        "entryId": found.entry_id,
        "timestamp": found.point.last.timestamp,
        "isSummary": found.is_summary,
        "isEncrypted": found.is_encrypted,
        "untilId": found.until_id or None,
        "messages": found.messages,
        "requests": found.requests,
        "tokensDeleted": found.point.tokens_removed,
        **_sums([found]),
        "fetched": [
            {
                "kind": call.kind,
                "name": call.name,
                "entryId": call.entry_id,
                "stoodIn": call.stood_in,
                "tokens": call.tokens,
                "again": call.again,
                "requests": call.requests,
            }
            for call in found.fetched
        ],
        "returned": [
            {"reference": one.reference, "way": one.way, "entryId": one.entry_id, "stoodIn": one.stood_in}
            for one in found.returned
        ],
    }
    return with_earlier_names(document, **EARLIER_SUMS, tokensRemoved="tokensDeleted")

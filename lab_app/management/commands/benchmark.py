from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandParser
from django.template.loader import render_to_string

from lab_app.lab.experiments import branch_to_measure
from lab_app.pure.report import LABELS, StrategyResult, TriedSession, as_document, loss_plot, percent, results_of
from lab_app.pure.strategies import KEYS, Strategy, strategies_named
from lab_app.pure.trials import KEEPS, trials_of
from sessions_app.cli import SESSION_HELP, RedlineCommand, printable, shell_path
from sessions_app.disk.files import reported
from sessions_app.document.document import Document
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.text import plural
from sessions_app.terminal import Column

COLUMNS: Final = (
    Column("STRATEGY", style="cyan"),
    Column("KEEP", right=True),
    Column("KEPT", right=True),
    Column("LOSS", right=True),
    Column("95% OF DRAWS", right=True),
    Column("ABOVE LEAST", right=True),
    Column("DELETED", right=True),
    Column("REWRITTEN", right=True),
    Column("TIME", right=True),
)


class Command(RedlineCommand):
    help = (
        "Test whether what compactions delete is needed again. Sessions are cut in the middle, the first part is "
        "compacted by each strategy, and what the next messages use of the deleted text is counted. Nothing is written."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("paths", type="session", nargs="+", metavar="SESSION", help=SESSION_HELP)
        parser.add_argument(
            "--strategies",
            default=",".join(KEYS),
            metavar="NAMES",
            help=f"the strategies to compare, with commas between them: {', '.join(KEYS)} (default: all)",
        )
        parser.add_argument(
            "--ratios",
            default=",".join(map(str, KEEPS)),
            metavar="SHARES",
            help="the shares of the tokens that are kept, with commas between them (default: %(default)s)",
        )

        parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the losses in this new SVG file")

    def run(self, options: dict[str, Any]) -> int | None:
        strategies = strategies_named(options["strategies"].split(","))
        keeps = _keeps(options["ratios"])
        sessions, faults = [], []
        for path in options["paths"]:
            try:
                sessions.append(self._tried(path, strategies, keeps))
            except RedlineError as fault:
                faults.append(fault)
                self.say(fault.message, "red")
        self.progress.clear()
        if not sessions:
            raise faults[0]
        results = results_of(sessions)
        named = {"strategies": [one.key for one in strategies], "keeps": keeps}
        self.show_json(
            as_document(sessions, version=version("redline"), **named, failures=[fault.message for fault in faults])
        )
        self._show(results, sessions)
        if options["plot"] is not None:
            self._draw(results, options["plot"])
        return None

    def _tried(self, path: Path, strategies: Sequence[Strategy], keeps: Sequence[float]) -> TriedSession:
        document = Document.of_file(path)
        trials = []
        for trial in trials_of(branch_to_measure(document), strategies, keeps):
            trials.append(trial)
            self.progress.show(f"{printable(path.name)}: {plural(len(trials), 'plan')}")
        return TriedSession(str(document.path), trials, None)

    def _draw(self, results: Sequence[StrategyResult], path: Path) -> None:
        plot = loss_plot(results, LABELS)
        if plot is None:
            raise BadInput("no_plot", "A drawing needs two shares. None was made. Give more with --ratios.")
        drawn = render_to_string("lab/plot.svg", {"plot": plot, "title": "Loss against the share that is kept"})
        with reported(path, "The drawing was not written."), path.open("x", encoding="utf-8") as file:
            file.write(drawn)
        self.say(f"The drawing is in {shell_path(path)}.")

    def _show(self, results: Sequence[StrategyResult], sessions: Sequence[TriedSession]) -> None:
        short = sum(not session.trials for session in sessions)
        if results:
            self.say_all(self.screen.table(COLUMNS, [_row(one) for one in results]))
        self.say(f"{plural(len(sessions) - short, 'session')} tested, {short} too short.")
        if results:
            self.say(
                "LOSS: the share of the needed references that are in nothing that was kept. It compares strategies "
                "and is not a probability."
            )


def _keeps(typed: str) -> list[float]:
    """The shares to keep. Raises BadInput `bad_ratio`."""
    try:
        keeps = sorted({float(one) for one in typed.split(",")}, reverse=True)
    except ValueError:
        keeps = []
    if not keeps or not all(0.01 <= keep <= 0.99 for keep in keeps):
        raise BadInput(
            "bad_ratio",
            f"{typed!r} are not shares between 0.01 and 0.99 with commas between them, such as 0.7,0.5. Nothing was "
            "tested.",
        )
    return keeps


def _row(one: StrategyResult) -> list[str]:
    return [
        LABELS.get(one.strategy, one.strategy),
        f"{one.keep:.0%}" if one.keep is not None else "",
        percent(one.kept),
        one.loss_words,
        one.interval_words,
        one.excess_words,
        f"{round(one.deleted):,}",
        f"{round(one.rewritten):,}",
        f"{max(1, round(1000 * one.seconds)):,} ms",
    ]

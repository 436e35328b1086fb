from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from django.core.management.base import CommandParser

from compaction_app.bench import core, models, pages, scale
from compaction_app.bench.figures import Figure
from sessions_app.console import CHECK_FAILED, RedlineCommand, table
from sessions_app.sessionlog.errors import BadInput

BENCHMARKS: Final[Mapping[str, Callable[[], Iterator[Figure]]]] = {
    "validation": core.validation,
    "grep": core.grep,
    "extremes": core.extremes,
    "preparation": core.preparation,
    "planner": core.planner,
    "replay": core.replay_loss,
    "many": scale.many,
    "large": scale.large,
    "huge": scale.huge,
    "pages": pages.pages,
    "models": models.models,
}


class Command(RedlineCommand):
    help = "Measure the figures that Redline promises, and say whether they hold."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(BENCHMARKS)}; else all")

    def run(self, options: dict[str, Any]) -> int | None:
        unknown = [name for name in options["names"] if name not in BENCHMARKS]
        if unknown:
            raise BadInput(
                "unknown_benchmark", f"There is no benchmark {unknown[0]}. Known are {', '.join(BENCHMARKS)}."
            )
        figures = []
        for name in options["names"] or BENCHMARKS:
            self.progress.show(name)
            figures += list(BENCHMARKS[name]())
        self.progress.clear()
        for line in table([["FIGURE", "VALUE", "UNIT", "BAR", "HOLDS"], *map(_row, figures)], right=(1, 3)):
            self.say(line)
        self.show_json({"figures": [figure.to_json() for figure in figures]})
        return CHECK_FAILED if any(figure.holds is False for figure in figures) else None


def _row(figure: Figure) -> list[str]:
    holds = {True: "yes", False: "NO", None: ""}[figure.holds]
    value = "not measured" if figure.value is None else f"{figure.value:g}"
    return [figure.name, value, figure.unit, "" if figure.bar is None else f"{figure.bar:g}", holds]

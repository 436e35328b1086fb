from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from django.core.management.base import CommandParser

from devtools.bench import (
    certificates,
    claude_scale,
    codex,
    core,
    damage,
    handshakes,
    models,
    pages,
    replays,
    review_keys,
    scale,
    search,
    start,
    written_plans,
)
from devtools.bench.figures import Figure
from sessions_app.cli import CHECK_FAILED, RedlineCommand
from sessions_app.sessionlog.errors import BadInput
from sessions_app.terminal import Column

BENCHMARKS: Final[Mapping[str, Callable[[], Iterator[Figure]]]] = {
    "start": start.start,
    "validation": core.validation,
    "grep": core.grep,
    "extremes": core.extremes,
    "preparation": core.preparation,
    "planner": core.planner,
    "lab": replays.lab_seconds,
    "replay": replays.replay_loss,
    "many": scale.many,
    "large": scale.large,
    "huge": scale.huge,
    "search": search.search,
    "pages": pages.pages,
    "models": models.models,
    "damage": damage.damage,
    "certificates": certificates.certificates,
    "plans": certificates.random_plans,
    "claude-code-scale": claude_scale.claude_scale,
    "codex": codex.codex,
    "claude-code": written_plans.claude_code_plans,
    "review-keys": review_keys.review_keys,
    "handshake": handshakes.handshake,
}

COLUMNS: Final = (
    Column("FIGURE", cut="end"),
    Column("VALUE", right=True),
    Column("UNIT"),
    Column("BAR", right=True),
    Column("PASSED", styles={"yes": "green", "NO": "bold red"}),
)


class Command(RedlineCommand):
    help = "Measure the performance figures that Redline promises, and compare each with its limit."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BENCHMARKS)} (default: all)")

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
        self.say_all(self.screen.table(COLUMNS, list(map(_row, figures))), paged=False)
        self.show_json({"figures": [figure.to_json() for figure in figures]})
        return CHECK_FAILED if any(figure.passed is False for figure in figures) else None


def _row(figure: Figure) -> list[str]:
    passed = {True: "yes", False: "NO", None: ""}[figure.passed]
    value = "not measured" if figure.value is None else f"{figure.value:g}"
    return [figure.name, value, figure.unit, "" if figure.bar is None else f"{figure.bar:g}", passed]

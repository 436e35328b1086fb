"""All benchmarks by name, and the table of what they measure."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

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
from sessions_app.cli import Progress, printable
from sessions_app.sessionlog.errors import BadInput
from sessions_app.terminal import Column, Screen

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


def measure(names: Sequence[str], *, as_json: bool = False) -> bool:
    """Measure the named figures, or all of them, and print each with its limit. Returns whether all limits hold.

    Raises BadInput `unknown_benchmark`.
    """
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise BadInput(
            "unknown_benchmark",
            f"There is no benchmark {printable(unknown[0])}. Nothing was measured. Known are {', '.join(BENCHMARKS)}.",
        )
    progress, figures = Progress(), list[Figure]()
    for name in names or BENCHMARKS:
        progress.show(name)
        figures += BENCHMARKS[name]()
    progress.clear()
    if as_json:
        sys.stdout.write(json.dumps({"figures": [figure.to_json() for figure in figures]}) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in Screen(sys.stdout).table(COLUMNS, list(map(_row, figures))))
    return all(figure.passed is not False for figure in figures)


def _row(figure: Figure) -> list[str]:
    passed = {True: "yes", False: "NO", None: ""}[figure.passed]
    value = "not measured" if figure.value is None else f"{figure.value:g}"
    return [figure.name, value, figure.unit, "" if figure.bar is None else f"{figure.bar:g}", passed]

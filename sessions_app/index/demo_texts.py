"""Generated texts of files and commands in the demo session: made of a few words, always the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_HARBOURS: Final = "Kalvik Storeby Nesodden Halmvik Tornby Askholm Brekke Sandoy Fjellvik Ronne Grimsted Ulvoy".split()
_THINGS: Final = "sailing quay deck route season holiday fare vessel berth tide platform connection".split()
_VERBS: Final = "read check merge sort print find load store count compare split join".split()


def _each(words: list[str], number: int) -> str:
    return words[number * 7 % len(words)]


def source(module: str, functions: int) -> str:
    """Python source with this number of functions."""
    parts = [f'"""The {module} of the timetable."""\n\nfrom __future__ import annotations\n']
    for number in range(functions):
        verb, thing, other = _each(_VERBS, number), _each(_THINGS, number), _each(_THINGS, number + 5)
        name = f"{verb}_{thing}_{module}_{number}"
        parts.append(
            f"\ndef {name}({thing}s: list[{thing.title()}], limit: int = {number * 13 % 90 + 10}) -> int:\n"
            f'    """{verb.title()} what each {thing} says of its {other}, for the {module}."""\n'
            f"    found = 0\n    for {thing} in {thing}s[:limit]:\n"
            f"        if {thing}.{other} is None or {thing}.closed:\n            continue\n"
            f"        found += {thing}.{other}.minutes % {number * 37 % 1440 + 1}\n"
            f"    return found if found < 1440 else 1440\n"
        )
    return "\n".join(parts)


def matches(word: str, lines: int) -> str:
    """The output of a search."""
    return "\n".join(
        f"harbour/{_each(_THINGS, number)}.py:{number * 11 % 700 + 1}:    {_each(_VERBS, number)}_{word}"
        f"({_each(_THINGS, number + 3)}.{word}, harbour={_each(_HARBOURS, number)!r})"
        for number in range(lines)
    )


def feed(rows: int) -> str:
    """Rows of a timetable."""
    return "\n".join(["service_day,route,from,to,departure,arrival,vessel", *map(_sailing, range(rows))])


def _sailing(number: int) -> str:
    leaves = number * 53 % 1440
    arrives = (leaves + 35 + number % 50) % 1440
    return (
        f"2026-01-{number % 28 + 1:02d},{number % 17 + 1},{_each(_HARBOURS, number)},{_each(_HARBOURS, number + 2)},"
        f"{leaves // 60:02d}:{leaves % 60:02d},{arrives // 60:02d}:{arrives % 60:02d},MF {_each(_HARBOURS, number + 5)}"
    )


def prose(subject: str, paragraphs: int) -> str:
    """A document."""
    return "\n\n".join(_paragraph(subject, number) for number in range(paragraphs))


def _paragraph(subject: str, number: int) -> str:
    thing, other = _each(_THINGS, number), _each(_THINGS, number + 4)
    return (
        f"## {number + 1}. {thing.title()} and {other}\n\nA {subject} names the {thing} of every sailing from "
        f"{_each(_HARBOURS, number)}. Where the {other} is not known the field is empty, and whoever reads it "
        f"decides by the season. Times are local to {_each(_HARBOURS, number + 3)}, with two digits for the hour, "
        "and never carry a zone."
    )


def test_log(tests: int, *, failing: int) -> str:
    """The output of pytest."""
    lines = [f"collected {tests} items", ""]
    failed = list(_failures(tests, failing))
    for number in range(tests):
        state = "FAILED" if number in failed else "PASSED"
        lines.append(
            f"tests/test_{_each(_THINGS, number)}.py::test_{_each(_VERBS, number)}_{_each(_THINGS, number + 1)}"
            f"[{_each(_HARBOURS, number)}] {state} [{100 * (number + 1) // tests:3d}%]"
        )
    for number in failed:
        lines += ["", f"____ test_{_each(_VERBS, number)}_{_each(_THINGS, number + 1)} ____"]
        lines.append(f"E   AssertionError: {_each(_HARBOURS, number)} 23:{number % 60:02d} is not in the timetable")
    lines += ["", f"==== {failing} failed, {tests - failing} passed in 3.1s ===="]
    return "\n".join(lines)


def _failures(tests: int, failing: int) -> Iterable[int]:
    return (number * tests // (failing + 1) for number in range(1, failing + 1))

"""Standard output as a terminal or a pipe: tables that fit, colour, and a pager for long output.

A pipe gets aligned plain text with complete cells, so that other programs can search it. Texts must be escaped before
they reach this module.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

LEAST: Final = 8
"""The minimum width of a shortened cell, in columns."""
GAP: Final = "  "
ELLIPSIS: Final = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    heading: str
    right: bool = False
    cut: Literal["", "start", "end"] = ""
    """The end at which cells are cut if the terminal is too narrow: the start of paths, the end of texts."""
    spare: bool = False
    """Whether the column is left out if cutting is not enough."""
    style: str = ""
    styles: Mapping[str, str] = field(default_factory=dict)
    """Styles for cells with certain texts."""


class Screen:
    """The output of a command."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._codes: dict[str, tuple[str, str]] = {}
        self.is_terminal = stream.isatty()

    @cached_property
    def _console(self) -> Console:
        # It takes long to import, and a pipe does not need it.
        from rich.console import Console

        return Console(file=self._stream, markup=False, highlight=False, emoji=False)

    def paint(self, text: str, style: str) -> str:
        """The text in a style such as `bold red`, if the terminal has colours and `NO_COLOR` is not set."""
        if not style or not self.is_terminal or not text.strip():
            return text
        if style not in self._codes:
            from rich.text import Text

            with self._console.capture() as captured:
                self._console.print(Text("x", style=style), end="")
            before, _, after = captured.get().partition("x")
            self._codes[style] = before, after
        before, after = self._codes[style]
        return f"{before}{text}{after}"

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[str]:
        """Lines of aligned columns, below their headings. On a terminal they fit its width."""
        room = shutil.get_terminal_size().columns if self.is_terminal else None
        shown, widths = _layout(columns, rows, room)
        yield self._line(shown, widths, [one.heading for one in columns], headings=True)
        for row in rows:
            yield self._line(shown, widths, row)

    def _line(
        self,
        shown: Mapping[int, Column],
        widths: Sequence[int],
        row: Sequence[str],
        *,
        headings: bool = False,
    ) -> str:
        cells = []
        for index, column in shown.items():
            text = _cut(row[index], widths[index], column.cut)
            space = " " * (widths[index] - display_width(text))
            style = "bold" if headings else column.styles.get(row[index], column.style)
            painted = self.paint(text, style)
            cells.append(space + painted if column.right else painted + space)
        return GAP.join(cells).rstrip()

    def page(self, lines: Sequence[str]) -> bool:
        """Show lines in the user's pager if they do not fit the terminal; returns whether they were shown."""
        if not (self.is_terminal and sys.stdin.isatty()) or len(lines) < shutil.get_terminal_size().lines:
            return False
        try:
            command = shlex.split(os.environ.get("PAGER", shutil.which("less") or ""))
        except ValueError:
            # It has an unclosed quote.
            command = []
        if not command:
            return False
        # An interrupt is for the pager.
        usual = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            # R: colours; F: quit at once if everything fits; X: leave the text on the screen.
            environment = {"LESS": "FRX", **os.environ}
            subprocess.run(command, input="\n".join(lines).encode() + b"\n", env=environment, check=False)  # noqa: S603
        except OSError:
            # The pager does not exist.
            return False
        finally:
            signal.signal(signal.SIGINT, usual)
        return True


def display_width(text: str) -> int:
    """The number of terminal columns of a printable text; wide characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _layout(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None
) -> tuple[dict[int, Column], list[int]]:
    """The visible columns by number, and the width of every column."""
    widths = [max(map(display_width, cells)) for cells in zip([one.heading for one in columns], *rows, strict=True)]
    shown = dict(enumerate(columns))
    if room is None:
        return shown, widths
    for index in [None, *(number for number in reversed(range(len(columns))) if columns[number].spare)]:
        if index is not None:
            del shown[index]
        least = [min(widths[number], LEAST) if one.cut else widths[number] for number, one in shown.items()]
        if sum(least) + len(GAP) * (len(shown) - 1) <= room:
            break
    over = sum(widths[number] for number in shown) + len(GAP) * (len(shown) - 1) - room
    flexible = [number for number, one in shown.items() if one.cut]
    while over > 0 and flexible:
        widest = max(flexible, key=widths.__getitem__)
        if widths[widest] <= LEAST:
            break
        widths[widest] -= 1
        over -= 1
    return shown, widths


def _cut(text: str, width: int, end: str) -> str:
    """The text in at most `width` columns, if it may be cut."""
    if not end or display_width(text) <= width:
        return text
    kept = ""
    for character in reversed(text) if end == "start" else text:
        more = character + kept if end == "start" else kept + character
        if display_width(more) >= width:
            break
        kept = more
    kept = ELLIPSIS + kept if end == "start" else kept + ELLIPSIS
    if end == "start" and "/" in kept:
        # A cut path starts with a complete directory name.
        kept = ELLIPSIS + kept[kept.index("/") :]
    return kept

"""Tables: columns are aligned, fit the terminal, and lose nothing in a pipe."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.cli import printable
from sessions_app.terminal import Column, Screen, display_width


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_wide_characters_take_two_columns_and_marks_none():
    columns = {"": 0, "plain": 5, "größer": 6, "漢字": 4, "ｆｕｌｌ": 8, "한글": 4, "😀": 2, "e\u0301": 1}
    assert {text: display_width(text) for text in columns} == columns


cells = st.text().map(printable)
tables = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1))


@given(tables)
def test_in_a_pipe_columns_are_aligned_and_cells_are_whole(rows):
    columns = [Column(f"C{index}", cut="end", style="red") for index in range(len(rows[0]))]
    heading, *lines = Screen(io.StringIO()).table([*columns, Column("|")], [[*row, "|"] for row in rows])
    assert len(lines) == len(rows)
    widths = [max(map(display_width, column)) for column in zip([one.heading for one in columns], *rows, strict=True)]
    for line, row in zip(lines, rows, strict=True):
        rest = line
        for cell, width in zip(row, widths, strict=True):
            assert rest.startswith(cell)
            space = width - display_width(cell) + 2
            assert rest[len(cell) :].startswith(" " * space)
            rest = rest[len(cell) + space :]
        assert rest == "|"
    assert heading.split()[-1] == "|"


def test_numbers_are_aligned_right_and_lines_have_no_trailing_blanks():
    columns = [Column("name"), Column("size", right=True), Column("note")]
    rows = [["漢字", "7", ""], ["x", "12345", "é"]]
    assert list(Screen(io.StringIO()).table(columns, rows)) == ["name   size  note", "漢字      7", "x     12345  é"]


@given(tables, st.integers(40, 200))
def test_on_a_terminal_no_line_is_wider_than_it(rows, width):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "dumb")
        columns = [Column("H", cut="start" if index % 2 else "end") for index in range(len(rows[0]))]
        for line in Screen(Terminal()).table(columns, rows):
            assert display_width(line) <= width


def on_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int, columns: list[Column], rows: list[list[str]], **environment: str
) -> list[str]:
    for name, value in {"COLUMNS": str(width), "TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, value)
    return list(Screen(Terminal()).table(columns, rows))


def test_a_path_is_shortened_from_the_left_at_a_directory(monkeypatch):
    rows = [["/home/someone/.pi/agent/sessions/project/2026-01-05.jsonl"]]
    columns = [Column("PATH", cut="start")]
    assert on_terminal(monkeypatch, 30, columns, rows)[1] == "…/project/2026-01-05.jsonl"


def test_spare_columns_are_omitted_only_if_nothing_else_helps(monkeypatch):
    columns = [Column("NAME", cut="end"), Column("SPARE", spare=True), Column("KEPT")]
    rows = [["n" * 30, "s" * 20, "k" * 20]]
    heading, line = on_terminal(monkeypatch, 40, columns, rows, NO_COLOR="1", TERM="dumb")
    assert "SPARE" not in heading
    assert line == "n" * 17 + "…  " + "k" * 20


def test_colours_are_only_for_terminals_that_want_them(monkeypatch):
    columns = [Column("STATE", styles={"bad": "red"})]
    assert "\x1b[31m" in on_terminal(monkeypatch, 80, columns, [["bad"]])[1]
    assert "\x1b[31m" not in on_terminal(monkeypatch, 80, columns, [["bad"]], NO_COLOR="1")[1]
    assert "\x1b" not in "".join(on_terminal(monkeypatch, 80, columns, [["bad"]], TERM="dumb"))
    assert "\x1b" not in "".join(Screen(io.StringIO()).table(columns, [["bad"]]))


def test_the_content_of_a_cell_is_never_markup(monkeypatch):
    held = "[bold red]x[/] :smile: [link=http://x]y[/link]"
    assert on_terminal(monkeypatch, 80, [Column("TEXT", cut="end", style="cyan")], [[held]])[1].count(held) == 1


def test_rows_of_different_lengths_are_a_programming_error():
    with pytest.raises(ValueError, match="shorter"):
        list(Screen(io.StringIO()).table([Column("A"), Column("B")], [["a", "b"], ["a"]]))

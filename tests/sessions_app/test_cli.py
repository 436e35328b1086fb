"""Terminal output: text that was read cannot act on the terminal, and failures and progress are shown.

Columns of tables are aligned, fit the terminal, and lose nothing in a pipe.
"""

import io
import json
import os
import subprocess
import unicodedata
from types import SimpleNamespace

import pytest
from hypothesis import example, given, strategies as st

from sessions_app.cli import Progress, printable, report_failure, shell_quoted, text_lines
from sessions_app.sessionlog import errors
from sessions_app.sessionlog.text import one_line
from sessions_app.terminal import Column, Screen, display_width
from tests.budget import examples

any_text = st.text(
    st.characters(exclude_categories=())
    | st.characters(categories=["Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs", "Mn", "Lo"])
)
HARMFUL = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


@given(any_text)
@example("\x1b]0;title\x07\x1b[2J\x9b31m")
@example("\u202egnp.exe\u2066\u200f\u061c")
@example("\ud800\udfff\ue000\U000e0041\u2028\xad\u200b")
def test_nothing_in_any_text_acts_on_a_terminal_and_harmless_text_is_shown_unchanged(text):
    shown = printable(text)
    assert shown.isprintable()
    assert not [one for one in shown if unicodedata.category(one) in HARMFUL]
    shown.encode()
    lines = text_lines(text)
    assert len(lines) == text.count("\n") + 1
    assert all(line.isprintable() for line in lines)
    harmless = "".join(one for one in text if one.isprintable() and unicodedata.category(one) not in HARMFUL)
    assert printable(harmless) == harmless
    assert printable(shown) == shown


def test_an_unsafe_character_is_shown_as_its_code():
    for text, shown in {
        "plain text, größer 漢字 😀": "plain text, größer 漢字 😀",
        "a\nb\tc\r": r"a\x0ab\x09c\x0d",
        "\x1b[31m": r"\x1b[31m",
        "\x7f\x9b": r"\x7f\x9b",
        "\u202e": r"\u202e",
        "\ud800": r"\ud800",
        "\U000e0041": r"\U000e0041",
        7: "7",
        None: "None",
    }.items():
        assert printable(text) == shown


@given(any_text, st.integers(1, 40))
@example("a\n\n\x1b[2J b", 3)
def test_the_beginning_of_a_text_is_one_harmless_line(text, width):
    assert one_line(text, width).isprintable()


def test_the_beginning_of_a_text_is_cut_only_if_there_is_more():
    assert one_line("  a \n\t b\u2028c  ", 10) == "a b c"
    assert (one_line("exactly", 7), one_line("exactly!", 7)) == ("exactly", "exactl…")
    assert (one_line(" " * 99 + "a", 5), one_line("a" + " " * 99 + "b", 5)) == ("a", "a…")
    assert one_line("a" * 1_000_000, 5) == "aaaa…"
    assert one_line("", 5) == one_line(" \n", 5) == ""


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
        | st.binary(min_size=1).filter(lambda raw: b"\0" not in raw).map(os.fsdecode),
        min_size=1,
    )
)
@example(["it's \x1b[2J \\ $HOME `x` \u202e", "\udcff\udcfe"])
@examples(4)
def test_quoted_texts_are_printable_and_read_back_by_a_shell(texts):
    quoted = [shell_quoted(text) for text in texts]
    assert [one for one in quoted if not one.isprintable()] == []
    command = ["bash", "-c", f"printf '%s\\0' {' '.join(quoted)}"]
    shown = subprocess.run(command, capture_output=True, check=True).stdout
    assert shown == b"".join(os.fsencode(text) + b"\0" for text in texts)


HAPPENED = ("code", "what\x1b[2J happened")
FAILURES: dict[int, errors.RedlineError] = {
    2: errors.BadInput(*HAPPENED),
    3: errors.TargetNotMet(*HAPPENED),
    4: errors.Conflict(*HAPPENED),
    5: errors.ConfirmationNeeded(*HAPPENED, "--yes"),
    6: errors.SystemFailure(*HAPPENED),
}


def test_a_failure_is_explained_on_standard_error_or_with_json_in_a_document_on_standard_output(capsys):
    for code, failure in FAILURES.items():
        assert report_failure(failure, as_json=False) == code
        assert capsys.readouterr() == ("", "redline: what\\x1b[2J happened\n")
        assert report_failure(failure, as_json=True) == code
        shown = capsys.readouterr()
        assert json.loads(shown.out) == {"error": {"code": "code", "message": "what\x1b[2J happened"}}
        assert ("\x1b" in shown.out, shown.err) == (False, "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock():
    """Seconds that pass when the test says so."""
    return SimpleNamespace(now=100.0)


def test_progress_is_silent_in_the_first_half_second_and_without_a_terminal(clock):
    terminal, pipe = Terminal(), io.StringIO()
    shown, unseen = (Progress(stream, lambda: clock.now) for stream in (terminal, pipe))
    clock.now += 0.4
    shown.show("early")
    assert terminal.getvalue() == ""
    clock.now += 0.2
    for progress in (shown, unseen):
        progress.show("late")
        progress.clear()
    assert "late" in terminal.getvalue()
    assert pipe.getvalue() == ""


def test_progress_is_overwritten_at_most_five_times_a_second_and_leaves_nothing(clock):
    terminal = Terminal()
    progress = Progress(terminal, lambda: clock.now)
    clock.now += 1
    for number in range(100):
        progress.show(f"a long name\x1b[2J {number}" if number == 0 else str(number))
        clock.now += 0.01
    written = terminal.getvalue().split("\r")
    assert 5 <= len([one for one in written if one]) <= 6
    assert "\x1b" not in terminal.getvalue()
    assert written[2].rstrip().isdigit()
    assert len(written[2]) == len(written[1]), "a longer line before it is covered"
    progress.clear()
    *_, covered, last = terminal.getvalue().split("\r")
    assert (covered.strip(), last) == ("", "")
    assert "\n" not in terminal.getvalue()


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


def test_columns_are_aligned_by_their_width_without_trailing_blanks_and_rows_are_of_one_length():
    columns = [Column("name"), Column("size", right=True), Column("note")]
    rows = [["漢字", "7", ""], ["x", "12345", "é"]]
    assert list(Screen(io.StringIO()).table(columns, rows)) == ["name   size  note", "漢字      7", "x     12345  é"]
    columns = {"": 0, "plain": 5, "größer": 6, "漢字": 4, "ｆｕｌｌ": 8, "한글": 4, "😀": 2, "e\u0301": 1}
    assert {text: display_width(text) for text in columns} == columns
    with pytest.raises(ValueError, match="shorter"):
        list(Screen(io.StringIO()).table([Column("A"), Column("B")], [["a", "b"], ["a"]]))


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


def test_spare_columns_are_omitted_only_if_nothing_else_helps_and_a_path_shortened_from_the_left(monkeypatch):
    columns = [Column("NAME", cut="end"), Column("SPARE", spare=True), Column("KEPT")]
    rows = [["n" * 30, "s" * 20, "k" * 20]]
    heading, line = on_terminal(monkeypatch, 40, columns, rows, NO_COLOR="1", TERM="dumb")
    assert "SPARE" not in heading
    assert line == "n" * 17 + "…  " + "k" * 20
    rows = [["/home/someone/.pi/agent/sessions/project/2026-01-05.jsonl"]]
    columns = [Column("PATH", cut="start")]
    assert on_terminal(monkeypatch, 30, columns, rows)[1] == "…/project/2026-01-05.jsonl"


def test_colours_are_only_for_terminals_that_want_them(monkeypatch):
    columns = [Column("STATE", styles={"bad": "red"})]
    assert "\x1b[31m" in on_terminal(monkeypatch, 80, columns, [["bad"]])[1]
    assert "\x1b[31m" not in on_terminal(monkeypatch, 80, columns, [["bad"]], NO_COLOR="1")[1]
    assert "\x1b" not in "".join(on_terminal(monkeypatch, 80, columns, [["bad"]], TERM="dumb"))
    assert "\x1b" not in "".join(Screen(io.StringIO()).table(columns, [["bad"]]))


def test_the_content_of_a_cell_is_never_markup(monkeypatch):
    held = "[bold red]x[/] :smile: [link=http://x]y[/link]"
    assert on_terminal(monkeypatch, 80, [Column("TEXT", cut="end", style="cyan")], [[held]])[1].count(held) == 1

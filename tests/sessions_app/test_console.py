"""Promises of the terminal: nothing that was read can act on it, and columns stand below one another."""

from __future__ import annotations

import io
import json
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessions_app.console import Progress, display_width, one_line, printable, report_failure, table
from sessions_app.sessionlog.errors import (
    BadInput,
    ConfirmationNeeded,
    Conflict,
    RedlineError,
    SystemFailure,
    TargetNotMet,
)

any_text = st.text(
    st.characters(exclude_categories=())
    | st.characters(categories=["Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs", "Mn", "Lo"])
)
HARMFUL = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")

# ---- what reaches a terminal --------------------------------------------------------------------------------


@given(any_text)
@example("\x1b]0;title\x07\x1b[2J\x9b31m")
@example("\u202egnp.exe\u2066\u200f\u061c")
@example("\ud800\udfff\ue000\U000e0041\u2028\xad\u200b")
def test_nothing_in_any_text_acts_on_a_terminal(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert not [one for one in shown if unicodedata.category(one) in HARMFUL]
    shown.encode()


@given(any_text)
def test_what_is_harmless_is_shown_as_it_is(text: str) -> None:
    harmless = "".join(one for one in text if one.isprintable() and unicodedata.category(one) not in HARMFUL)
    assert printable(harmless) == harmless
    assert printable(printable(text)) == printable(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, größer 漢字 😀", "plain text, größer 漢字 😀"),
        ("a\nb\tc\r", r"a\x0ab\x09c\x0d"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\x7f\x9b", r"\x7f\x9b"),
        ("\u202e", r"\u202e"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        (7, "7"),
        (None, "None"),
    ],
)
def test_a_character_that_is_held_back_is_shown_by_its_number(text: object, shown: str) -> None:
    assert printable(text) == shown


@given(any_text, st.integers(1, 40))
@example("a\n\n\x1b[2J b", 3)
def test_the_beginning_of_a_text_is_one_harmless_line(text: str, width: int) -> None:
    assert one_line(text, width).isprintable()


def test_the_beginning_of_a_text_is_cut_where_there_is_more_and_only_there() -> None:
    assert one_line("  a \n\t b\u2028c  ", 10) == "a b c"
    assert one_line("exactly", 7) == "exactly"
    assert one_line("exactly!", 7) == "exactl…"
    assert one_line("a" * 1_000_000, 5) == "aaaa…"
    assert one_line("", 5) == one_line(" \n", 5) == ""


# ---- columns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("plain", 5),
        ("größer", 6),
        ("漢字", 4),
        ("ｆｕｌｌ", 8),
        ("한글", 4),
        ("😀", 2),
        ("e\u0301", 1),
        ("ก\u0e31", 1),
        ("\u2764\ufe0f", 1),
        ("か\u3099", 2),
    ],
)
def test_wide_characters_take_two_columns_and_marks_none(text: str, columns: int) -> None:
    assert display_width(text) == columns


cells = any_text.map(printable)


@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1)
    )
)
def test_every_column_starts_below_itself(rows: list[list[str]]) -> None:
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    # A last column of the same width in all rows, so that no line is cut at its end.
    lines = list(table([[*row, "|"] for row in rows]))
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        rest = line
        for cell, width in zip(row, widths, strict=True):
            assert rest.startswith(cell)
            assert rest[len(cell) :].startswith(" " * (width - display_width(cell) + 2))
            rest = rest[len(cell) + width - display_width(cell) + 2 :]
        assert rest == "|"


def test_numbers_stand_flush_right_and_lines_end_with_no_blanks() -> None:
    rows = [["name", "size", "note"], ["漢字", "7", ""], ["x", "12345", "é"]]
    assert list(table(rows, right=[1])) == ["name   size  note", "漢字      7", "x     12345  é"]


def test_no_rows_make_no_lines() -> None:
    assert list(table([])) == []


def test_rows_of_different_lengths_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="shorter"):
        list(table([["a", "b"], ["a"]]))


# ---- failures -----------------------------------------------------------------------------------------------

FAILURES: list[tuple[RedlineError, int]] = [
    (BadInput("code", "what\x1b[2J happened"), 2),
    (TargetNotMet("code", "what\x1b[2J happened"), 3),
    (Conflict("code", "what\x1b[2J happened"), 4),
    (ConfirmationNeeded("code", "what\x1b[2J happened", "--yes"), 5),
    (SystemFailure("code", "what\x1b[2J happened"), 6),
]


@pytest.mark.parametrize(("failure", "code"), FAILURES, ids=lambda one: type(one).__name__)
def test_a_failure_is_told_in_words_on_standard_error_alone(
    failure: RedlineError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_failure(failure, as_json=False) == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "redline: what\\x1b[2J happened\n")


@pytest.mark.parametrize(("failure", "code"), FAILURES, ids=lambda one: type(one).__name__)
def test_a_failure_with_json_is_one_document_on_standard_output_alone(
    failure: RedlineError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_failure(failure, as_json=True) == code
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"error": {"code": "code", "message": "what\x1b[2J happened"}}
    assert "\x1b" not in shown.out
    assert shown.err == ""


# ---- progress -----------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that pass when they are told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_progress_is_silent_in_the_first_half_second_and_where_no_terminal_is() -> None:
    clock, terminal, pipe = Clock(), Terminal(), io.StringIO()
    shown, unseen = Progress(terminal, clock), Progress(pipe, clock)
    clock.now += 0.4
    shown.show("early")
    assert terminal.getvalue() == ""
    clock.now += 0.2
    for progress in (shown, unseen):
        progress.show("late")
        progress.clear()
    assert "late" in terminal.getvalue()
    assert pipe.getvalue() == ""


def test_progress_is_written_over_at_most_five_times_a_second_and_leaves_nothing() -> None:
    clock, terminal = Clock(), Terminal()
    progress = Progress(terminal, clock)
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
    assert terminal.getvalue().split("\r")[-1] == ""
    assert terminal.getvalue().split("\r")[-2].strip() == ""
    assert "\n" not in terminal.getvalue()

"""Terminal output: text that was read cannot act on the terminal, and columns are aligned."""

import io
import json
import os
import subprocess
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from sessions_app.cli import Progress, one_line, printable, report_failure, shell_quoted, text_lines
from sessions_app.sessionlog.errors import (
    BadInput,
    ConfirmationNeeded,
    Conflict,
    RedlineError,
    SystemFailure,
    TargetNotMet,
)
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
def test_nothing_in_any_text_acts_on_a_terminal(text):
    shown = printable(text)
    assert shown.isprintable()
    assert not [one for one in shown if unicodedata.category(one) in HARMFUL]
    shown.encode()


@given(any_text)
def test_harmless_text_is_shown_unchanged(text):
    harmless = "".join(one for one in text if one.isprintable() and unicodedata.category(one) not in HARMFUL)
    assert printable(harmless) == harmless
    assert printable(printable(text)) == printable(text)


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
    assert one_line("exactly", 7) == "exactly"
    assert one_line("exactly!", 7) == "exactl…"
    assert one_line("a" * 1_000_000, 5) == "aaaa…"
    assert one_line("", 5) == one_line(" \n", 5) == ""


@given(any_text)
def test_a_whole_text_is_shown_line_by_line_and_harmless(text):
    lines = text_lines(text)
    assert len(lines) == text.count("\n") + 1
    assert all(line.isprintable() for line in lines)


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


FAILURES: dict[RedlineError, int] = {
    BadInput("code", "what\x1b[2J happened"): 2,
    TargetNotMet("code", "what\x1b[2J happened"): 3,
    Conflict("code", "what\x1b[2J happened"): 4,
    ConfirmationNeeded("code", "what\x1b[2J happened", "--yes"): 5,
    SystemFailure("code", "what\x1b[2J happened"): 6,
}


def test_a_failure_is_explained_on_standard_error_or_with_json_in_a_document_on_standard_output(capsys):
    for failure, code in FAILURES.items():
        assert report_failure(failure, as_json=False) == code
        assert capsys.readouterr() == ("", "redline: what\\x1b[2J happened\n")
        assert report_failure(failure, as_json=True) == code
        shown = capsys.readouterr()
        assert json.loads(shown.out) == {"error": {"code": "code", "message": "what\x1b[2J happened"}}
        assert ("\x1b" in shown.out, shown.err) == (False, "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that pass when the test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_progress_is_silent_in_the_first_half_second_and_without_a_terminal():
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


def test_progress_is_overwritten_at_most_five_times_a_second_and_leaves_nothing():
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

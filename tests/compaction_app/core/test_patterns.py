"""Patterns: linear in the text, folded by default, and refused if the engine cannot keep its promise."""

import pytest

from compaction_app.core.errors import Code, Refusal
from compaction_app.core.patterns import PATTERN_LENGTH, Pattern, compile_pattern


def compiled(pattern: str, *, regex: bool = True, case_sensitive: bool = False) -> Pattern:
    made = compile_pattern(pattern, regex=regex, case_sensitive=case_sensitive)
    assert isinstance(made, Pattern), made
    return made


def refused(pattern: str, *, regex: bool = True) -> Code:
    made = compile_pattern(pattern, regex=regex, case_sensitive=False)
    assert isinstance(made, Refusal)
    assert "Nothing was searched" in made.message
    return made.code


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a|a?)+b", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_patterns_with_catastrophic_backtracking_return_on_a_long_text(pattern):
    searched = "a" * 200_000 + "!"
    # A backtracking engine would never return.
    assert compiled(pattern).index_in(searched) is None


def test_a_pattern_has_at_most_512_utf16_units():
    assert compiled("a" * PATTERN_LENGTH, regex=False).found_in("A" * 600)
    assert refused("a" * (PATTERN_LENGTH + 1)) is Code.PATTERN_TOO_LONG
    assert compiled("🙂" * (PATTERN_LENGTH // 2), regex=False)
    assert refused("🙂" * (PATTERN_LENGTH // 2) + "a", regex=False) is Code.PATTERN_TOO_LONG


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(", "[", "a**", r"\8", "(?>a)"])
def test_unsupported_patterns_are_refused(pattern):
    assert refused(pattern) is Code.INVALID_PATTERN
    assert compiled(pattern, regex=False).index_in(f"x{pattern}") == 1


@pytest.mark.parametrize("regex", [True, False])
def test_an_empty_pattern_is_refused(regex):
    assert refused("", regex=regex) is Code.INVALID_PATTERN


def test_case_is_ignored_unless_requested():
    for regex in (True, False):
        assert compiled("Fehler", regex=regex).index_in("ein FEHLER") == 4
        assert compiled("Fehler", regex=regex, case_sensitive=True).index_in("ein FEHLER") is None
    assert compiled("ÜBER", regex=False).index_in("hinüber") == 3
    assert compiled("[a-f]x").index_in("CX") == 0


def test_anchors_mean_the_whole_text():
    assert compiled("^b").index_in("a\nb") is None
    assert compiled("a$").index_in("a\nb") is None
    assert compiled("^a\nb$").index_in("a\nb") == 0
    assert compiled("b$").index_in("a\nb\n") is None
    assert compiled("a.b").index_in("a\nb") is None


def test_a_literal_pattern_means_itself():
    assert compiled("a.b", regex=False).index_in("axb a.b") == 4
    assert compiled("$^", regex=False).index_in("no $^") == 3


def test_an_index_counts_utf16_units():
    assert compiled("needle", regex=False).index_in("🙂é needle") == 4
    assert compiled("needle", regex=False).index_in("needle 🙂") == 0
    assert compiled("🙂", regex=False).index_in("x🙂") == 1


def test_a_lone_surrogate_is_searched_as_a_replacement_character():
    assert compiled("b", regex=False).index_in("a\ud800b") == 2
    assert compiled("\ufffd", regex=False).index_in("a\ud800b") == 1
    assert compiled("\udc00", regex=False).found_in("x\ud800")
    assert compiled(".b").index_in("\ud800b") == 0
    assert not compiled("c", regex=False).found_in("a\ud800b")


def test_a_nul_in_a_pattern_or_text_is_a_character():
    assert compiled("a\0b", regex=False).index_in("xa\0b") == 1
    assert compiled("a\0b", regex=False).index_in("a") is None

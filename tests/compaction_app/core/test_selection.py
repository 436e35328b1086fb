"""Patterns, selections by pattern and by meaning, and what they are in a review.

Patterns are linear in the text, folded by default, and refused if the engine cannot keep its promise.
"""

import pytest
from hypothesis import given, strategies as st

from compaction_app.core.embedded import Unit, units_of
from compaction_app.core.gates import Code, Refusal
from compaction_app.core.loop import Origin
from compaction_app.core.patterns import PATTERN_LENGTH, Pattern, compile_pattern
from compaction_app.core.review_fold import Kind, Proposed, Reviewer, ReviewStatus, Step
from compaction_app.core.selection import Criterion, SelectionKind, pattern_of, review_selection, select, targets_of
from compaction_app.core.transcript import Transcript
from sessions_app.sessionlog.entries import Target
from tests.factories import assistant, call, named, result, text, thinking, transcript_of, user


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


def test_anchors_mean_the_whole_text_and_a_literal_pattern_itself_with_an_index_in_utf16_units():
    assert compiled("^b").index_in("a\nb") is None
    assert compiled("a$").index_in("a\nb") is None
    assert compiled("^a\nb$").index_in("a\nb") == 0
    assert compiled("b$").index_in("a\nb\n") is None
    assert compiled("a.b").index_in("a\nb") is None
    assert compiled("a.b", regex=False).index_in("axb a.b") == 4
    assert compiled("$^", regex=False).index_in("no $^") == 3
    assert compiled("needle", regex=False).index_in("🙂é needle") == 4
    assert compiled("needle", regex=False).index_in("needle 🙂") == 0
    assert compiled("🙂", regex=False).index_in("x🙂") == 1


def test_a_lone_surrogate_is_searched_as_a_replacement_character_and_a_nul_as_a_character():
    assert compiled("b", regex=False).index_in("a\ud800b") == 2
    assert compiled("\ufffd", regex=False).index_in("a\ud800b") == 1
    assert compiled("\udc00", regex=False).found_in("x\ud800")
    assert compiled(".b").index_in("\ud800b") == 0
    assert not compiled("c", regex=False).found_in("a\ud800b")
    assert compiled("a\0b", regex=False).index_in("xa\0b") == 1
    assert compiled("a\0b", regex=False).index_in("a") is None


WHY = Origin(1, "context_delete", "why", by_repair=False)


@pytest.fixture
def transcript():
    return transcript_of(
        user("mend src/a.py"),
        assistant(thinking("first idea"), text("I look."), call("c1", path="src/a.py")),
        result("c1", "the old text"),
        assistant(call("c2", path="src/a.py", offset=3)),
        result("c2", "a part of the text"),
        assistant(call("c3", "bash", command="make test")),
        result("c3", "all 12 passed", name="bash"),
        assistant(call("c4", "bash", command="make test")),
        result("c4", "all 12 passed", name="bash"),
        assistant(call("c5", path="src/a.py")),
        result("c5", "no such file", error=True),
        assistant(call("c6", path="src/a.py"), call("c7", path="src/b.py")),
        result("c6", "the new text"),
        result("c7", " "),
        assistant(thinking("last idea"), text("It is mended.")),
    )


def units(transcript: Transcript, kind: SelectionKind, value: str = "") -> list[Unit]:
    found = select(Criterion(kind, value), transcript)
    assert not isinstance(found, Refusal), found.message
    return found


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (SelectionKind.PATTERN, "MAKE test", "e7 e9"),
        (SelectionKind.PATTERN, "12 passed", "e7 e9"),
        (SelectionKind.PATTERN, "/the (old|new) text/", "e3 e13"),
        (SelectionKind.PATTERN, "(old|new)", ""),
        (SelectionKind.PATTERN, "/", "e1 e3 e5 e11 e13 e14"),
        (SelectionKind.PATTERN, "idea", "e2[0] e15[0]"),
        (SelectionKind.TOOL, "bash", "e7 e9"),
        (SelectionKind.TOOL, "Bash", ""),
        (SelectionKind.FILE, "src/a.py", "e3 e5"),
        (SelectionKind.FILE, "src/b.py", ""),
        (SelectionKind.OLDER, "e4", "e1 e2[0] e2[1] e3"),
        (SelectionKind.OLDER, "e1", ""),
        (SelectionKind.THINKING, "", "e2[0] e15[0]"),
        (SelectionKind.REPEATED, "", "e7"),
    ],
)
def test_criteria_select_units(transcript, kind, value, found):
    selected = units(transcript, kind, value)
    assert named(*(next(iter(targets_of(unit, transcript))) for unit in selected)) == found


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        (SelectionKind.PATTERN, "", Code.INVALID_ARGUMENTS),
        (SelectionKind.TOOL, "", Code.INVALID_ARGUMENTS),
        (SelectionKind.PATTERN, "/(/", Code.INVALID_PATTERN),
        (SelectionKind.PATTERN, "x" * 513, Code.PATTERN_TOO_LONG),
        (SelectionKind.OLDER, "e99", Code.UNKNOWN_ENTRY),
    ],
)
def test_an_unusable_value_is_refused(transcript, kind, value, code):
    assert select(Criterion(kind, value), transcript).code is code


@given(st.text(min_size=1, max_size=40).filter(lambda value: not (value.startswith("/") and value.endswith("/"))))
def test_a_text_without_slashes_around_it_is_found_as_it_is(value):
    pattern = pattern_of(value)
    assert not isinstance(pattern, Refusal)
    assert pattern.found_in(f"before {value} after")


def reviewer(transcript: Transcript, *proposed: Target) -> Reviewer:
    return Reviewer(transcript, [Proposed(target, "planner", WHY) for target in proposed])


def test_a_selection_in_a_review_is_what_was_proposed_and_what_could_be_added(transcript):
    review = reviewer(transcript, Target("e7"), Target("e6")).review([])
    found = review_selection(units(transcript, SelectionKind.TOOL, "bash"), transcript, review, "latest")
    assert [item.target for item in found.proposed] == [Target("e7")]
    assert [one.target for one in found.addable] == [Target("e9")]
    assert not found.refused


def test_what_may_not_go_is_named_with_its_reason(transcript):
    review = reviewer(transcript).review([Step(Kind.REJECT, (Target("e3"),))])
    found = review_selection(units(transcript, SelectionKind.TOOL, "read"), transcript, review, "latest")
    assert [item.target for item in found.proposed] == [Target("e3")]
    assert found.proposed[0].standing is ReviewStatus.REJECTED
    assert [(one.target, one.refusal.code) for one in found.refused] == [(Target("e11"), Code.PROTECTED)]
    assert Target("e5") in [one.target for one in found.addable]


def test_what_goes_already_is_left_out(transcript):
    review = reviewer(transcript, Target("e2")).review([])
    assert Target("e3") in review.would_go
    found = review_selection(units(transcript, SelectionKind.PATTERN, "old text"), transcript, review, "latest")
    assert not found.addable
    assert not found.refused


def test_an_entry_is_not_selected_with_its_thinking_alone(transcript):
    review = reviewer(transcript, Target("e2"), Target("e3")).review([])
    thought = units(transcript, SelectionKind.THINKING)[:1]
    assert not review_selection(thought, transcript, review, "latest").proposed
    assert review_selection(thought, transcript, review, "latest", in_part=True).proposed


@given(st.sets(st.integers(0, 14)))
def test_each_unit_of_a_selection_has_one_fate(chosen):
    looked = assistant(thinking("hm"), text("I look."), call("c1", path="a"))
    said = user("go on"), looked, result("c1", "text"), assistant(text("one"), text("two")), user("more")
    transcript = transcript_of(*said)
    some = [unit for number, unit in enumerate(units_of(transcript)) if number in chosen]
    found = review_selection(some, transcript, reviewer(transcript, Target("e3")).review([]), "latest")
    assert len(found.proposed) + len(found.addable) + len(found.refused) <= len(some)
    added = [one.target for one in found.addable]
    after = reviewer(transcript, Target("e3")).review([Step(Kind.ADD, (target,)) for target in added[:1]])
    assert all(target in after.goes for target in added[:1])

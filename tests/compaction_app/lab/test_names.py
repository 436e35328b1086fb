"""What a reference is by each measure, and where it stands."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_app.lab.names import NameIndex, ReplayMeasure

TEXT = "a well-known Read-only claude-code-2 in src/app.py:42 of 3foo_bar and x1.foo_bar, readFile"


def test_hyphenated_words_and_ends_of_components_are_references_of_the_older_measure_only():
    found = {"claude-code-2", "src/app.py:42", "x1.foo_bar", "readFile"}
    assert ReplayMeasure.COMPONENTS.references(TEXT) == found
    assert ReplayMeasure.SUBSTRINGS.references(TEXT) == found | {"well-known", "Read-only", "foo_bar"}


def test_the_arguments_of_a_call_are_decoded():
    arguments = '{"path":"a.py","edits":[{"new_text":"one\\ntwo"},3,null]}'
    text = ReplayMeasure.COMPONENTS.call_text("edit", arguments)
    assert set(text.split("\n")) == {"edit", "path", "a.py", "edits", "new_text", "one", "two"}
    assert ReplayMeasure.SUBSTRINGS.call_text("edit", arguments) == f"edit {arguments}"


@pytest.mark.parametrize("arguments", ["", "{", "[" * 100_000])
def test_arguments_that_are_not_json_are_taken_as_they_are(arguments):
    assert ReplayMeasure.COMPONENTS.call_text("edit", arguments) == f"edit\n{arguments}"


@pytest.mark.parametrize(
    ("reference", "places", "substrings"),
    [
        ("foo_bar", "bc", "abc"),
        ("src/foo_bar", "c", "c"),
        ("foo_bar.py", "c", "c"),
        ("other", "", ""),
        ("rc/foo_bar", "", "c"),
    ],
)
def test_a_reference_stands_in_whole_components(reference, places, substrings):
    texts = [("a", {"my_foo_bar"}), ("b", {"foo_bar", "foo_bar_2"}), ("c", {"src/foo_bar.py"})]
    assert "".join(NameIndex(ReplayMeasure.COMPONENTS, texts).standing(reference)) == places
    assert "".join(NameIndex(ReplayMeasure.SUBSTRINGS, texts).standing(reference)) == substrings


def test_the_very_same_token_is_found_alone():
    index = NameIndex(ReplayMeasure.SUBSTRINGS, [(1, {"foo_bar_2"}), (2, {"foo_bar"}), (3, {"foo_bar"})])
    assert index.same("foo_bar") == (2, 3)
    assert index.same("bar_2") == ()


@given(st.lists(st.text(alphabet="ab_./:-", min_size=1, max_size=8), min_size=1, max_size=8))
def test_the_index_finds_what_a_search_by_components_finds(names):
    index = NameIndex(ReplayMeasure.COMPONENTS, [(name, [name]) for name in dict.fromkeys(names)])
    for reference in names:
        if not reference.strip("./:-"):
            continue
        bounded = re.compile(rf"(?<!\w){re.escape(reference)}(?!\w)")
        assert set(index.standing(reference)) >= {reference}
        assert set(index.standing(reference)) == {name for name in names if bounded.search(name)}

"""Reasons are read again as they were written, and claim no more than the lines show."""

from hypothesis import given
from hypothesis import strategies as st

from compaction_app.core.embedded import ELSEWHERE
from compaction_app.core.reasons import (
    NOT_MENTIONED,
    ONLY_THERE,
    Supersession,
    is_about_names,
    repeat_in,
    repeat_words,
    supersession_in,
    swap_in,
    swap_words,
)
from compaction_app.core.standing_lines import Standing

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: " in " not in name)
IDS = st.text("0123456789abcdef-", min_size=1)
VERBS = st.sampled_from(["read", "edit", "write"])
COUNTS = st.integers(0, 5_000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


@given(VERBS, NAMES, IDS, COUNTS)
def test_a_supersession_is_read_again(verb, path, entry_id, counts):
    found = Supersession(verb, path, entry_id)
    words = found.words(Standing(*counts))
    assert supersession_in(words) == found
    assert words.startswith("superseded") is (5 * counts[0] >= 4 * counts[1] and (counts[1] > 0 or verb != "edit"))
    assert words.startswith("partly superseded") is (0 < 5 * counts[0] < 4 * counts[1])


@given(IDS)
def test_a_repeat_is_read_from_its_words(entry_id):
    assert repeat_in(repeat_words(entry_id)) == entry_id


@given(IDS)
def test_a_swap_is_read_from_its_words_and_says_something_about_names(entry_id):
    reason = f"{swap_words('a long old output of read', entry_id)}; 3 of the 9 {ONLY_THERE}"
    assert swap_in(reason) == entry_id
    assert is_about_names(reason)
    assert supersession_in(reason) is None


@given(st.text())
def test_other_reasons_name_no_later_call(reason):
    assert supersession_in(reason) is None
    assert repeat_in(reason) is None
    assert swap_in(reason) is None


def test_a_partly_superseded_read_says_how_much_still_stands():
    words = Supersession("edit", "docs/theme.md", "000003ab").words(Standing(73, 367))
    assert words == "partly superseded by the edit of docs/theme.md in 000003ab: 73 of 367 lines still stand later"


def test_reasons_about_names():
    assert is_about_names(f"an old call of edit; {ELSEWHERE}")
    assert is_about_names(f"old reasoning; {NOT_MENTIONED}")
    assert is_about_names(f"a long old output of bash; 3 of the 9 {ONLY_THERE}")
    assert not is_about_names("an output that is empty")

"""Reasons are read again as they were written, claim no more than the lines show, and are put into groups.

Alike reasons are one group.
"""

import pytest
from hypothesis import given, strategies as st

from compaction_app.core import reasons
from compaction_app.core.embedded import ELSEWHERE
from compaction_app.core.file_touches import Standing
from compaction_app.core.groups import (
    NO_REASON,
    ONLY_HERE,
    OTHERS,
    REPEATED,
    SINGLES,
    SUPERSEDED,
    SWAPPED,
    Bar,
    bars,
    group_key,
    grouped,
    only_here,
    reason_title,
    reason_titles,
)
from compaction_app.core.loop import Origin
from compaction_app.core.review_fold import ReviewItem, ReviewStatus
from sessions_app.sessionlog.entries import Target

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: " in " not in name)
IDS = st.text("0123456789abcdef-", min_size=1)
COUNTS = st.integers(0, 5_000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


@given(st.sampled_from(["read", "edit", "write"]), NAMES, IDS, COUNTS)
def test_a_supersession_is_read_again(verb, path, entry_id, counts):
    found = reasons.Supersession(verb, path, entry_id)
    words = found.words(Standing(*counts))
    assert reasons.supersession_in(words) == found
    assert words.startswith("superseded") is (5 * counts[0] >= 4 * counts[1] and (counts[1] > 0 or verb != "edit"))
    assert words.startswith("partly superseded") is (0 < 5 * counts[0] < 4 * counts[1])


@given(IDS)
def test_a_repeat_and_a_swap_are_read_from_their_words_and_only_a_swap_is_about_names(entry_id):
    assert reasons.repeat_in(reasons.repeat_words(entry_id)) == entry_id
    reason = f"{reasons.swap_words('a long old output of read', entry_id)}; 3 of the 9 {reasons.ONLY_THERE}"
    assert reasons.swap_in(reason) == entry_id
    assert reasons.is_about_names(reason)
    assert reasons.supersession_in(reason) is None


@given(st.text())
def test_other_reasons_name_no_later_call(reason):
    assert reasons.supersession_in(reason) is None
    assert reasons.repeat_in(reason) is None
    assert reasons.swap_in(reason) is None


def test_a_partly_superseded_read_says_how_much_still_stands():
    words = reasons.Supersession("edit", "docs/theme.md", "000003ab").words(Standing(73, 367))
    assert words == "partly superseded by the edit of docs/theme.md in 000003ab: 73 of 367 lines still stand later"


def test_reasons_about_names_are_recognised_with_how_many_occur_nowhere_else():
    assert reasons.is_about_names(f"an old call of edit; {ELSEWHERE}")
    assert reasons.is_about_names(f"old reasoning; {reasons.NOT_MENTIONED}")
    assert reasons.is_about_names(f"a long old output of bash; 3 of the 9 {reasons.ONLY_THERE}")
    assert not reasons.is_about_names("an output that is empty")
    assert only_here("an old call of bash; 3 of the 13 names in it occur only there") == (3, 13)
    assert only_here("3 of the 13 names in it occur elsewhere") is None


PARTLY, OLDER = "Partly superseded by a later read or edit", "Older than a later read or edit"
FOUND = "mentioned elsewhere"


def item(position: int, tokens: int, reason: str = "", status: ReviewStatus = ReviewStatus.UNDECIDED) -> ReviewItem:
    origin = Origin(call=1, tool="context_delete", reason=reason, by_repair=False)
    return ReviewItem(Target(f"e{position}"), position, tokens, status, "planner", origin)


@pytest.mark.parametrize(
    ("reason", "title"),
    [
        ("superseded by the edit of src/a b.ts in 0000", SUPERSEDED),
        ("superseded by the read of x in 1", SUPERSEDED),
        ("partly superseded by the edit of a.ts in 0001: 73 of 367 lines still stand later", PARTLY),
        ("older than the write of a.ts in 0001: none of its lines stands later", OLDER),
        ("a repeat of the output in 0002", REPEATED),
        ("an old output of read; 27 of the 51 names in it occur only there", ONLY_HERE),
        ("old reasoning; 1 of the 2 names in it occur only there", ONLY_HERE),
        ("old reasoning, deleted so that 0a1b can stay; 1 of the 2 names in it occur only there", SWAPPED),
        ("an old output of bash; nothing later mentions a name in it", "Nothing later mentions it"),
        ("old reasoning; it holds no names that later work could need", "Contains no names"),
        ("a long old output of bash; every name in it occurs elsewhere too", f"Old outputs of bash, {FOUND}"),
        ("an old output; every name in it occurs elsewhere too", f"Old outputs, {FOUND}"),
        ("an old call of edit; every name in it occurs elsewhere too", f"Old calls of edit, {FOUND}"),
        (reasons.pruned_words("bash", 40_000, 61_020), "Older than the newest 40,000 tokens of tool results"),
        (reasons.pruned_words("", 40_000, 40_001), "Older than the newest 40,000 tokens of tool results"),
        ("  ", NO_REASON),
        ("", NO_REASON),
    ],
)
def test_the_wordings_of_the_embedded_planner_have_titles(reason, title):
    assert reason_title(reason) == title


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Read of src/app.ts, read again in 00000123.", "read of lib/other_name.py, read again in 00000999", True),
        ("The build failed 3 times", "The build failed 12 times.", True),
        ("Contents of `a` are stale", "Contents of `some b` are stale", True),
        ('Says "no" to it', 'Says "yes, indeed" to it', True),
        ("An old listing of files", "An old listing of tests", False),
    ],
)
def test_reasons_that_differ_in_names_and_numbers_are_one_group_and_in_words_are_two(one, other, alike):
    assert (reason_title(one) == reason_title(other)) is alike


def groups_of(items: list[ReviewItem]) -> list[tuple[str, list[int]]]:
    """The titles of groups by reason, and the positions in each of them."""
    groups = grouped(items, lambda one: one.origin.reason, lambda one: one.tokens)
    return [(group.title, [one.position for one in group.leads]) for group in groups]


def test_groups_are_in_the_order_of_their_titles_and_in_each_the_largest_proposal_is_first():
    items = [item(1, 2, "b"), item(2, 9, "b"), item(0, 5, "a"), item(3, 3, "a"), item(4, 3, "a")]
    assert groups_of(items) == [("a", [0, 3, 4]), ("b", [2, 1])]


def test_a_group_counts_by_status_and_has_a_short_key_of_its_own():
    items = [item(0, 1), item(1, 1, status=ReviewStatus.REJECTED)]
    (group,) = grouped(items, lambda one: one.source, lambda one: one.tokens)
    assert [one.position for one in group.with_status(ReviewStatus.REJECTED)] == [1]
    assert group.key == group_key("planner")
    keys = {group_key(f"title {number} \ud800") for number in range(1_000)}
    assert len(keys) == 1_000
    assert all(len(key) == 10 and key.isalnum() for key in keys)


@pytest.mark.parametrize("singles", [SINGLES, SINGLES + 1])
def test_many_reasons_that_were_given_once_each_are_one_group(singles):
    items = [item(n, 1, f"reason {'x' * n}") for n in range(singles)]
    items += [item(100 + n, 1, "often") for n in range(2)]
    titles = reason_titles(items, lambda one: one.origin.reason)
    assert list(titles.values()).count("often") == 2
    assert (OTHERS in titles.values()) is (singles > SINGLES)


def test_bars_begin_at_zero_and_have_one_scale_that_the_longest_fills():
    assert bars([(10, 30), (20, 0)]) == [Bar(25, 100), Bar(50, 50)]
    assert bars([(50, 150), (0, 50)]) == [Bar(25, 100), Bar(0, 25)]
    assert bars([(0, 0)]) == [Bar(0, 0)]
    assert bars([]) == []

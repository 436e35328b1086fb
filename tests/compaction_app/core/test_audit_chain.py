"""The chain of the audit log: whatever is done to its entries is found, at the first entry concerned."""

import pytest
from hypothesis import given, strategies as st

from compaction_app.core.audit_chain import (
    EMPTY_CHAIN,
    NO_ENTRY,
    BreakKind,
    ChainBreak,
    ChainHead,
    ChainLink,
    find_break,
    link_hash,
)

Links = list[ChainLink]


def chain(*contents: str, previous: str = NO_ENTRY) -> Links:
    links: Links = []
    for content in contents:
        recorded = {"words": content}
        links.append(ChainLink(recorded, previous, link_hash(recorded, previous)))
        previous = links[-1].sha256
    return links


def head_of(links: Links) -> ChainHead:
    return ChainHead(len(links), links[-1].sha256) if links else EMPTY_CHAIN


WHOLE = chain("a", "b", "c", "d")


A, B, C, D = WHOLE


@pytest.mark.parametrize(
    ("links", "number", "kind"),
    [
        pytest.param([A, B._replace(content={"words": "B"}), C, D], 2, BreakKind.CHANGED, id="changed"),
        pytest.param([A, *chain("B", previous=A.sha256), C, D], 3, BreakKind.DETACHED, id="changed with its hash"),
        pytest.param([A, B._replace(previous=NO_ENTRY), C, D], 2, BreakKind.DETACHED, id="linked elsewhere"),
        pytest.param([B, C, D], 1, BreakKind.DETACHED, id="first removed"),
        pytest.param([A, C, D], 2, BreakKind.DETACHED, id="removed"),
        pytest.param([A, C, B, D], 2, BreakKind.DETACHED, id="moved"),
        pytest.param([A, B, B, C, D], 3, BreakKind.DETACHED, id="repeated"),
        pytest.param([A, B, C], 4, BreakKind.MISSING, id="last removed"),
        pytest.param([], 1, BreakKind.MISSING, id="all removed"),
        pytest.param([A, B, *chain("C", "D", previous=B.sha256)], 4, BreakKind.REPLACED, id="replaced at the end"),
        pytest.param([*chain("z"), A, B, C, D], 2, BreakKind.DETACHED, id="inserted at the start"),
    ],
)
def test_whatever_is_done_to_entries_is_found(links, number, kind):
    assert find_break(links, head_of(WHOLE)) == ChainBreak(number, kind)
    assert kind.sentence


@pytest.mark.parametrize("count", range(5))
def test_a_whole_chain_is_not_broken_also_if_its_head_is_behind(count):
    assert find_break(WHOLE, head_of(WHOLE[:count])) is None


def test_a_chain_without_its_head_is_broken_unless_it_is_empty():
    assert find_break(WHOLE, None) == ChainBreak(4, BreakKind.NO_HEAD)
    assert find_break([], None) is None
    assert find_break([], EMPTY_CHAIN) is None


def test_the_hash_covers_the_content_and_the_entry_before():
    hashes = {
        link_hash({"a": 1, "b": 2}, NO_ENTRY),
        link_hash({"a": 1, "b": 3}, NO_ENTRY),
        link_hash({"a": 1}, NO_ENTRY),
        link_hash({"a": 1, "b": 2}, "1" * 64),
    }
    assert len(hashes) == 4
    assert link_hash({"b": 2, "a": 1}, NO_ENTRY) in hashes


@given(st.permutations(range(4)), st.sets(st.integers(0, 3)))
def test_any_other_order_or_selection_of_the_entries_is_broken(order, left):
    mutated = [WHOLE[index] for index in order if index in left]
    assert (find_break(mutated, head_of(WHOLE)) is None) == (mutated == WHOLE)

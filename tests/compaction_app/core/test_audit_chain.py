"""The chain of the audit log: whatever is done to its entries is found, at the first entry concerned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def changed(links: Links) -> Links:
    return [links[0], links[1]._replace(content={"words": "B"}), *links[2:]]


def changed_with_its_hash(links: Links) -> Links:
    new = {"words": "B"}
    return [links[0], ChainLink(new, links[1].previous, link_hash(new, links[1].previous)), *links[2:]]


def linked_elsewhere(links: Links) -> Links:
    return [links[0], links[1]._replace(previous=NO_ENTRY), *links[2:]]


@pytest.mark.parametrize(
    ("mutate", "found"),
    [
        (changed, ChainBreak(2, BreakKind.CHANGED)),
        (changed_with_its_hash, ChainBreak(3, BreakKind.DETACHED)),
        (linked_elsewhere, ChainBreak(2, BreakKind.DETACHED)),
        (lambda links: links[1:], ChainBreak(1, BreakKind.DETACHED)),
        (lambda links: links[:1] + links[2:], ChainBreak(2, BreakKind.DETACHED)),
        (lambda links: [links[0], links[2], links[1], links[3]], ChainBreak(2, BreakKind.DETACHED)),
        (lambda links: [*links[:2], links[1], *links[2:]], ChainBreak(3, BreakKind.DETACHED)),
        (lambda links: links[:3], ChainBreak(4, BreakKind.MISSING)),
        (lambda links: links[:0], ChainBreak(1, BreakKind.MISSING)),
        (lambda links: [*links[:2], *chain("C", "D", previous=links[1].sha256)], ChainBreak(4, BreakKind.REPLACED)),
        (lambda links: [*chain("z"), *links], ChainBreak(2, BreakKind.DETACHED)),
    ],
    ids=[
        *("changed", "changed with its hash", "linked elsewhere", "first removed", "removed", "moved", "repeated"),
        *("last removed", "all removed", "replaced at the end", "inserted at the start"),
    ],
)  # fmt: skip
def test_whatever_is_done_to_entries_is_found(mutate, found):
    assert find_break(mutate(WHOLE), head_of(WHOLE)) == found
    assert found.kind.sentence


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

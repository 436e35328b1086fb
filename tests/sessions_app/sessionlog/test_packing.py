"""Packed index rows: an entry is restored exactly, except for what is read from the file."""

import msgspec
from hypothesis import given, strategies as st

from sessions_app.sessionlog.entries import Block, BoundaryControl, Entry, EntryKind, LabelControl
from sessions_app.sessionlog.session import pack, unpack
from tests.factories import assistant, branch_of, call, chain, compaction, result, text, thinking, user, whole

words = st.text(max_size=8)
numbers = st.integers(-(2**55), 2**55)
block_lists = st.lists(st.builds(Block, st.integers(0, 9), words, numbers, numbers, st.none() | words), max_size=3).map(
    tuple
)
entries = st.builds(
    Entry,
    number=st.integers(1, 2**40),
    kind=st.sampled_from(EntryKind),
    tokens=numbers,
    blocks=st.none() | block_lists,
    usage=st.none() | numbers,
    model=st.none() | st.tuples(words, words),
    control=st.none() | st.builds(LabelControl, st.none() | words, words),
    **dict.fromkeys(("offset", "length"), st.integers(0, 2**40)),
    **dict.fromkeys(("id", "type", "timestamp", "role", "tool_name", "stop_reason", "sole_agent", "reply"), words),
    **dict.fromkeys(("parent_id", "result_for"), st.none() | words),
    **dict.fromkeys(("failed", "excluded", "empty"), st.booleans()),
)


def unpacked(entry: Entry, packed: bytes) -> Entry:
    return unpack(entry.number, entry.offset, entry.length, entry.id, entry.parent_id, packed, control=entry.control)


@given(entries)
def test_an_entry_is_restored_exactly_from_what_neither_its_object_nor_its_columns_have(entry):
    assert unpacked(entry, pack(entry)) == entry
    bare = msgspec.structs.replace(entry, number=0, offset=0, length=0, id="", parent_id=None, control=None)
    assert pack(entry) == pack(bare)


@given(entries, st.builds(BoundaryControl, st.lists(words).map(tuple), st.none() | words))
def test_a_boundary_is_restored_without_its_line(entry, control):
    boundary = msgspec.structs.replace(entry, control=control)
    assert unpacked(msgspec.structs.replace(boundary, control=None), pack(boundary)) == boundary


def test_realistic_entries_are_restored():
    said = assistant(thinking("t"), text("größer 😀"), call("c1"), usage={"totalTokens": 9}, provider="p", model="m")
    branch = branch_of(chain(user("x"), said, result("c1", error=True), compaction(whole("e1"))))
    assert [unpacked(entry, pack(entry)) for entry in branch] == branch
    assert all(len(pack(entry)) < 200 for entry in branch)

"""The positions of values in recorded JSON agree with its parser, whatever strings, blanks and nesting it has."""

import json
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.sessionlog.raw_json import Span, items, members, splice

BLANKS = st.sampled_from([b"", b"", b" ", b"\t", b" \r\n "])
WORDS = st.one_of(
    st.sampled_from(["", "a", "id", '"', "\\", '\\"', "{", "}]", "[,", ":", "naïve 🙂", "\u0000\n", '{"a":[1]}']),
    st.text(max_size=6),
)
STRINGS = st.builds(lambda words, plain: json.dumps(words, ensure_ascii=plain).encode(), WORDS, st.booleans())
ODD_STRINGS = st.sampled_from([b'"\\u005b\\u007d"', b'"\\/"', b'"\\ud83d\\ude42"', b'"\\\\"', b'"\\\\\\""'])
SCALARS = st.one_of(
    st.sampled_from([b"null", b"true", b"false", b"0", b"-0.0", b"1e3", b"1.50", b"-12E-2"]), STRINGS, ODD_STRINGS
)


def padded(value: bytes, before: bytes, after: bytes) -> bytes:
    return before + value + after


def arrays(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    inside = st.lists(st.builds(padded, values, BLANKS, BLANKS), max_size=4)
    return st.builds(lambda found, blank: b"[" + (b",".join(found) or blank) + b"]", inside, BLANKS)


def objects(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Objects with repeated keys among them."""
    keys = st.one_of(STRINGS, st.sampled_from([b'"a"', b'"\\u0061"', b'"b"']))
    pairs = st.builds(
        lambda key, value: key + b":" + value,
        st.builds(padded, keys, BLANKS, BLANKS),
        st.builds(padded, values, BLANKS, BLANKS),
    )
    return st.builds(
        lambda found, blank: b"{" + (b",".join(found) or blank) + b"}", st.lists(pairs, max_size=4), BLANKS
    )


VALUES = st.recursive(SCALARS, lambda inner: st.one_of(arrays(inner), objects(inner)), max_leaves=12)


def parsed(raw: bytes, spans: Sequence[Span]) -> list[object]:
    """The values at these positions. Each has no blank around it."""
    found = [span.of(raw) for span in spans]
    assert all(value == value.strip() != b"" for value in found)
    return [json.loads(value) for value in found]


@given(objects(VALUES), st.binary(max_size=3))
def test_members_are_those_of_the_parsed_object(raw, behind):
    found = members(raw + behind)
    assert dict(zip(found, parsed(raw, list(found.values())), strict=True)) == json.loads(raw)


@given(arrays(VALUES), st.binary(max_size=3))
def test_items_are_those_of_the_parsed_array(raw, behind):
    assert parsed(raw, items(raw + behind)) == json.loads(raw)


@given(st.builds(lambda inner, blank: b'{"x":[1],"in":' + blank + inner + b"}", objects(VALUES), BLANKS))
def test_positions_inside_another_value_count_from_the_beginning_of_the_line(raw):
    inside = members(raw, members(raw)["in"].start)
    assert dict(zip(inside, parsed(raw, list(inside.values())), strict=True)) == json.loads(raw)["in"]


@given(objects(VALUES))
def test_replacing_nothing_or_values_by_themselves_changes_no_byte(raw):
    assert splice(raw, []) == raw
    assert splice(raw, [(span, span.of(raw)) for span in members(raw).values()]) == raw


@given(objects(VALUES), st.data())
def test_a_replaced_value_is_the_only_change(raw, data):
    found = members(raw)
    if not found:
        return
    chosen = data.draw(st.lists(st.sampled_from(sorted(found)), unique=True))
    changed = splice(raw, [(found[name], b"[0]") for name in chosen])
    assert json.loads(changed) == {**json.loads(raw), **{name: [0] for name in chosen}}
    assert len(changed) - len(raw) == sum(3 - (found[name].end - found[name].start) for name in chosen)


@pytest.mark.parametrize("changes", [[(1, 1), (4, 5)], [(4, 5), (1, 1)]])
def test_the_order_of_changes_does_not_matter(changes):
    assert splice(b'{"a":1}', [(Span(*span), b"x") for span in changes]) == b'{x"a"x1}'


def test_of_a_repeated_key_the_last_value_counts():
    raw = b'{"a":1,"\\u0061":{"a":2},"b":3}'
    assert members(raw)["a"].of(raw) == b'{"a":2}'


@pytest.mark.parametrize("piece", [b"A", rb"\n", rb"A\\"])
def test_a_long_string_takes_no_memory_for_each_of_its_bytes(piece):
    raw = b'{"data":"' + piece * 100_000 + b'"}'
    tracemalloc.start()
    try:
        assert members(raw)["data"] == Span(8, len(raw) - 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(raw)

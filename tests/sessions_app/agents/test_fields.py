"""Fields of a recorded object: a value of another type reads as absent, and none raises."""

from datetime import UTC, datetime

import pytest

from sessions_app.agents.pure import fields

ABSENT = object()
VALUES = [ABSENT, None, True, False, 0, 3, -3, 1.5, 2**53, 1e300, "", "a", "\ud800", [], [{}, 1], {}, {"b": 1}]
"""JSON values of each type, and no value."""


@pytest.mark.parametrize(
    ("read", "absent", "found"),
    [
        (fields.mapping, {}, {"b": 1}),
        (fields.items, [], [{}, 1]),
        (fields.objects, [], [{}]),
        (fields.texts, [], []),
        (fields.identifier, "", "a"),
        (fields.text, "", "\ud800"),
        (fields.text_or_none, None, ""),
        (fields.stored_text, "", "\N{REPLACEMENT CHARACTER}"),
        (fields.stored_text_or_none, None, "\N{REPLACEMENT CHARACTER}"),
        (fields.word, "", "\N{REPLACEMENT CHARACTER}"),
        (fields.number, None, 1.5),
        (fields.integer, None, -3),
        (fields.whole_number, None, 3),
        (fields.moment, None, datetime.fromtimestamp(0.003, UTC)),
    ],
)
def test_a_field_has_the_wanted_type_or_reads_as_absent(read, absent, found):
    read_values = [read({} if value is ABSENT else {"a": value}, "a") for value in VALUES]
    assert read_values[0] == absent
    assert found in read_values
    assert {type(value) for value in read_values} <= {
        type(absent),
        *(() if read is not fields.number else (int, float)),
        type(found),
    }


def test_true_and_false_are_no_numbers_and_counts_are_not_negative():
    for read in (fields.number, fields.integer, fields.whole_number, fields.moment):
        assert [read({"a": value}, "a") for value in (True, False)] == [None, None]
    assert [fields.number({"a": value}, "a") for value in (2**60, -1.5)] == [2**60, -1.5]
    assert [fields.integer({"a": value}, "a") for value in (1.0, -1, 2**60)] == [None, -1, 2**60]
    assert [fields.whole_number({"a": value}, "a") for value in (1.0, -1, 2**53, 2**53 - 1)] == [
        None,
        None,
        None,
        2**53 - 1,
    ]
    assert [fields.moment({"a": value}, "a") for value in (0, -1, 1e300, 253_402_300_800_000)] == [None] * 4


def test_an_object_is_told_from_other_values_and_from_bytes_that_are_not_json():
    assert [fields.object_in(raw) for raw in (b"{}", b'{"a":1}')] == [{}, {"a": 1}]
    assert [fields.object_in(raw) for raw in (b"", b"{", b"[1]", b"1", b"null", b"\xff")] == [None] * 6
    assert [fields.has_type(value, "a") for value in ({"type": "a"}, {"type": ["a"]}, {}, "a", None)] == [
        True,
        *[False] * 4,
    ]
    assert [fields.as_mapping(value) for value in ({"a": 1}, [], None, "a")] == [{"a": 1}, {}, {}, {}]


def test_a_model_has_a_provider_and_an_id_and_equal_ones_are_one_object():
    assert fields.model("a", "\ud800") == ("a", "\N{REPLACEMENT CHARACTER}")
    assert [fields.model(*pair) for pair in ((None, "b"), ("a", None), ("a", 1), (["a"], "b"))] == [None] * 4
    assert fields.model("a", "b") is fields.model("a", "b")

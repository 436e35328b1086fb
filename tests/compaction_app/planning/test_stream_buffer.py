"""What a model streams is buffered for rows, and never contains the provider's key."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_app.planning.stream_buffer import SecretRedactor, StreamBuffer
from compaction_app.providers.types import ArgumentsPiece, CallBegun, Piece, TextPiece, ThoughtPiece

KEY = "sk-ant-0123456789abcdef"


def batches_of(*batches: list[Piece]) -> list[list[list[object]]]:
    pieces = StreamBuffer(SecretRedactor(KEY))
    rows = []
    for batch in batches:
        for piece in batch:
            pieces.add(piece)
        rows.append(pieces.take(last=batch is batches[-1]))
    return rows


def test_neighbours_of_one_kind_are_one_piece():
    assert batches_of([TextPiece("a"), TextPiece("b"), ThoughtPiece("c"), TextPiece("d")]) == [
        [["text", "ab"], ["thought", "c"], ["text", "d"]]
    ]


def test_each_call_starts_afresh():
    assert batches_of([CallBegun(0, "read"), CallBegun(1, "read"), ArgumentsPiece(1, "{"), ArgumentsPiece(1, "}")]) == [
        [["call", 0, "read"], ["call", 1, "read"], ["arguments", 1, "{}"]]
    ]


@given(st.lists(st.integers(0, len(KEY) + 20), max_size=6), st.booleans())
def test_a_key_is_hidden_however_it_is_cut_into_rows(cuts, is_thought):
    whole = f"so it is {KEY} here"
    places = sorted({0, *cuts, len(whole)} & set(range(len(whole) + 1)))
    make = ThoughtPiece if is_thought else TextPiece
    rows = batches_of(*[[make(whole[one:other])] for one, other in pairwise(places)])
    joined = "".join(str(text) for row in rows for *_, text in row)
    assert joined == "so it is …cdef here"


@given(st.text(alphabet="sk-ant01 x", max_size=60), st.integers(1, 7))
def test_text_without_a_key_is_passed_on_unchanged(text, length):
    rows = batches_of(*[[TextPiece(text[start : start + length])] for start in range(0, len(text), length)] or [[]])
    assert "".join(str(one) for row in rows for *_, one in row) == text


def test_the_texts_of_two_calls_are_not_taken_for_one():
    (row,) = batches_of([ArgumentsPiece(0, KEY[:10]), ArgumentsPiece(1, KEY[10:])])
    of_call = ["".join(str(text) for _, call, text in row if call == number) for number in (0, 1)]
    assert of_call == [KEY[:10], KEY[10:]]


def test_values_of_any_shape_are_freed_of_the_key():
    hidden = SecretRedactor(KEY).value({"a": [KEY, 1, None], f"x{KEY}": {"b": f"{KEY}{KEY}"}})
    assert KEY not in json.dumps(hidden)
    assert hidden == {"a": ["…cdef", 1, None], "x…cdef": {"b": "…cdef…cdef"}}


@pytest.mark.parametrize("word", ["", "ollama", "EMPTY", "lm-studio"])
def test_placeholder_keys_of_local_servers_are_not_secrets(word):
    value = {"pattern": f"the {word} server"}
    assert SecretRedactor(word).value(value) == value

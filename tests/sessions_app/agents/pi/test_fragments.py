"""The records on a damaged line."""

import pytest

from sessions_app.agents.pi import fragments as module
from sessions_app.agents.pi.fragments import fragments

A = b'{"type":"message","id":"a","message":{"content":[{"type":"text","text":"x {\\"type\\":\\"label\\"}"}]}}'
B = b'{"type":"label","id":"b","parentId":"a","targetId":"a"}'
HEADER = b'{"type":"session","version":3,"id":"s"}'
BOM = b"\xef\xbb\xbf"


def parts(raw: bytes, *, is_first: bool = False) -> list[tuple[bytes, bool]]:
    """The bytes of each fragment, and whether it is a record."""
    found = fragments(raw, is_first=is_first)
    assert b"".join(raw[one.start : one.end] for one in found) == raw
    return [(raw[one.start : one.end], one.data is not None) for one in found]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", []),
        (b" \t", [(b" \t", False)]),
        (A, [(A, True)]),
        (b" " + A + b"\r", [(b" " + A + b"\r", True)]),
        (b'{"any":"object"}', [(b'{"any":"object"}', True)]),
        (b"[1]", [(b"[1]", False)]),
        (A + B, [(A, True), (B, True)]),
        (HEADER + A, [(HEADER, True), (A, True)]),
        (A + b" \r" + B + b"\r", [(A + b" \r", True), (B + b"\r", True)]),
        (A + b"\0\0" + B + b"\0", [(A, True), (b"\0\0", False), (B, True), (b"\0", False)]),
        (A + b"garbage", [(A, True), (b"garbage", False)]),
        (A[:-9] + B, [(A[:-9], False), (B, True)]),
        (A[:20] + B + b"}", [(A[:20] + B + b"}", False)]),
        (b'{"type":"new","id":"n"}' + B, [(b'{"type":"new","id":"n"}', False), (B, True)]),
        (BOM + A, [(BOM, False), (A, True)]),
        (b'{"a":NaN}' + B, [(b'{"a":NaN}', False), (B, True)]),
        (b"\xff" + B, [(b"\xff", False), (B, True)]),
    ],
)
def test_a_line_is_divided_into_records_and_other_bytes(raw, expected):
    assert parts(raw) == expected


def test_only_the_first_line_may_begin_with_a_byte_order_mark():
    other = b'{"type":"new","id":"n"}'
    assert parts(BOM + other, is_first=True) == [(BOM, False), (other, True)]
    assert parts(BOM + other) == [(BOM + other, False)]


@pytest.mark.parametrize(
    "torn", [A[:-3], *(b'{"type":"custom","id":"c","data":[' + B + then for then in (b',"x', b"}", b"]", b' ,"'))]
)
def test_what_looks_like_a_record_inside_an_incomplete_one_is_not_one(torn):
    assert parts(torn) == [(torn, False)]


def test_a_record_keeps_invalid_utf_8_and_deep_nesting_is_none():
    raw = A.replace(b"x ", b"\xff\xe2\x80 ") + B
    assert [is_record for _, is_record in parts(raw)] == [True, True]
    assert parts(b'{"type":"message","a":' * 3_000 + B)[-1] == (B, True)


def test_a_line_is_searched_for_so_many_records(monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    assert parts(A + B + A) == [(A, True), (B, True), (A, False)]

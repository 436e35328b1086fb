"""What is read of a file: any bytes, in any chunks, become the same lines, and what is no session is refused."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given, strategies as st

from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import ParserState, require_session
from tests.installation import refusal

LONGEST_MET = 12_800_000
"""Characters of the longest line seen in practice."""
OBJECT = "Its first line is an object"
file_bytes = st.lists(
    st.binary(max_size=8) | st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\0", "\u2028\u0085".encode(), b"\x0b"])
).map(b"".join)


def cut(data: bytes, places: Sequence[int]) -> Iterator[bytes]:
    start = 0
    for place in sorted(place % (len(data) + 1) for place in places):
        yield data[start:place]
        start = place
    yield data[start:]


@given(file_bytes, st.lists(st.integers(0, 200)))
@example(b"\n", [0, 0, 1, 1])
@example(b"a\nb", [1, 2])
def test_any_chunking_gives_the_same_lines(data, places):
    assert list(split_lines(cut(data, places))) == list(split_lines([data]))


@given(file_bytes)
@example(b"")
@example(b"a\r\nb\rc\n")
def test_the_lines_of_a_file_are_the_file(data):
    lines = list(split_lines([data]))
    assert b"".join(line.raw + b"\n" * line.complete for line in lines) == data
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert all(b"\n" not in line.raw for line in lines)
    assert [line.complete for line in lines] == [True] * data.count(b"\n") + [False] * (data[-1:] not in (b"", b"\n"))
    position = 0
    for line in lines:
        assert line.offset == position
        assert data[line.offset : line.offset + len(line.raw)] == line.raw
        position = line.end
    assert position == len(data)


@given(file_bytes, st.integers(0, 50))
def test_reading_can_continue_at_the_end_of_any_line(data, at):
    lines = list(split_lines([data]))
    at %= len(lines) + 1
    before, after = lines[:at], lines[at:]
    end = before[-1].end if before else 0
    assert list(split_lines([data[end:]], offset=end, number=at + 1)) == after


def test_only_a_newline_ends_a_line_of_any_length():
    data = "a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h".encode()
    assert [line.raw for line in split_lines([data + b"\n"])] == [data]
    long = b"x" * LONGEST_MET
    data = b"first\n" + long + b"\nlast"
    chunks = (data[start : start + 65_536] for start in range(0, len(data), 65_536))
    first, middle, last = split_lines(chunks)
    assert (first.raw, middle.raw == long, last.raw) == (b"first", True, b"last")
    assert (middle.offset, middle.end) == (6, 6 + LONGEST_MET + 1)
    assert (last.offset, last.end) == (middle.end, len(data))
    assert (middle.complete, last.complete) == (True, False)


def test_at_most_a_line_and_a_chunk_are_requested():
    requested = []

    def chunks() -> Iterator[bytes]:
        for number in range(100):
            requested.append(number)
            yield b"line\nli"

    lines = split_lines(chunks())
    assert next(lines).raw == b"line"
    assert requested == [0]
    assert next(lines).raw == b"liline"
    assert requested == [0, 1]


@pytest.mark.parametrize(
    ("head", "words"),
    [
        *((b"", "It is empty."), (b"\n \n", "It is empty.")),
        (b"hello\n", "It does not begin with a line of JSON."),
        (b"[1]\n", "Its first line is JSON, but not an object."),
        (b"{}\n", f"{OBJECT} with no fields."),
        (
            b'\n{"type":"turn","role":"user","x":1}\n',
            f"{OBJECT} of the type 'turn' with the fields 'type', 'role', 'x'.",
        ),
        (b'{"type":7,"\\u001b[2J":1}\n', f"{OBJECT} with the fields 'type', '\\x1b[2J'."),
        (b'{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}', f"{OBJECT} with the fields 'a', 'b', 'c', 'd', 'e', 'f'."),
    ],
)
def test_a_refusal_says_what_a_file_begins_with(head, words):
    assert refusal(lambda: require_session(ParserState(), "a.jsonl", lambda: head), words) == "2 not_a_session"


def test_a_session_is_not_asked_for_its_beginning():
    require_session(ParserState(recognised=True), "a.jsonl", lambda: pytest.fail("it was read"))

"""What a file is instead of a session, in the words of the refusal."""

import pytest

from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.session import ParserState, require_session


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "It is empty."),
        (b"\n \n", "It is empty."),
        (b"hello\n", "It does not begin with a line of JSON."),
        (b"[1]\n", "Its first line is JSON, but not an object."),
        (b"{}\n", "Its first line is an object with no fields."),
        (
            b'\n{"type":"turn","role":"user","x":1}\n',
            "Its first line is an object of the type 'turn' with the fields 'type', 'role', 'x'.",
        ),
        (b'{"type":7,"\\u001b[2J":1}\n', "Its first line is an object with the fields 'type', '\\x1b[2J'."),
        (
            b'{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}',
            "Its first line is an object with the fields 'a', 'b', 'c', 'd', 'e', 'f'.",
        ),
    ],
)
def test_a_refusal_says_what_a_file_begins_with(head, words):
    with pytest.raises(BadInput) as caught:
        require_session(ParserState(), "a.jsonl", lambda: head)
    assert caught.value.code == "not_a_session"
    assert words in caught.value.message


def test_a_session_is_not_asked_for_its_beginning():
    require_session(ParserState(recognised=True), "a.jsonl", lambda: pytest.fail("it was read"))

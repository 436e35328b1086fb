"""Of a recorded line only what has to differ in another session is replaced."""

import json

from sessions_app.agents.claude_code.lines import is_one_of_several, line_without, moved_line
from sessions_app.sessionlog.entries import Entry, Role

LINE = (
    rb'{ "parentUuid" : "old" ,"type":"assistant","uuid":"n2","message":{"content": [ '
    rb'{"type":"text","text":"\u0041]}" } , {"text":"b","type":"text"},{ "n" : 1.50 } ] ,"id":"m1",'
    rb'"usage":{"input_tokens":90000,"iterations":[{"input_tokens":7}]},"more":"parentUuid"},'
    rb'"sessionId":"here","entrypoint":"sdk-cli","toolUseResult":{"sessionId":"x","usage":{"n":1}},"n":-0.0}'
)
NO_USAGE = b'{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}'


def test_the_parent_the_session_and_the_reported_tokens_are_replaced():
    expected = (
        LINE.replace(b'"old"', b'"n1"')
        .replace(b'"here"', b'"there"')
        .replace(b'"sdk-cli"', b'"cli"')
        .replace(b'{"input_tokens":90000,"iterations":[{"input_tokens":7}]}', NO_USAGE)
    )
    assert moved_line(LINE, parentUuid="n1", sessionId="there") == expected


def test_the_remaining_blocks_keep_every_recorded_byte():
    entry = Entry(2, 0, len(LINE), "n2", None, "assistant", role=Role.ASSISTANT)
    left = line_without(LINE, [entry], {"n2": frozenset({1})})
    assert rb'"content": [{"type":"text","text":"\u0041]}" },{ "n" : 1.50 }] ,"id":"m1"' in left
    assert line_without(LINE, [entry], {"n3": None}) == LINE


def test_a_line_without_a_parent_or_a_session_gets_them():
    minimal = b'{"type":"user","uuid":"n1","message":{"role":"user","content":"go"}}'
    moved = moved_line(minimal, parentUuid="n0", sessionId="there")
    assert json.loads(moved) == {**json.loads(minimal), "parentUuid": "n0", "sessionId": "there"}
    assert moved.endswith(minimal[1:])


def test_no_entrypoint_is_made_up():
    assert b"entrypoint" not in moved_line(b'{"uuid":"n1","message":{"content":"go"}}', parentUuid=None)


def test_an_entry_is_one_of_several_if_it_or_its_parent_is_a_part():
    def entry(entry_id: str, parent_id: str | None = None) -> Entry:
        return Entry(2, 0, 9, entry_id, parent_id, "user")

    assert is_one_of_several(entry("n2.0"))
    assert is_one_of_several(entry("n2", "n2.0"))
    for alone in (entry("n2"), entry("12"), entry("n2.x"), entry("n2", "n1.0")):
        assert not is_one_of_several(alone)

"""Calls on files, and the lines that each of them has."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_app.core.file_touches import (
    LINE_LENGTH,
    FileCall,
    Touch,
    comparable,
    file_calls,
    lines_of,
    new_text,
    touch_of,
)
from compaction_app.core.transcript_entries import WHOLE, Object
from tests.factories import assistant, call, result, text, transcript_of, user

WORDS = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="→|:"), min_size=1)


@pytest.mark.parametrize(
    ("tool", "arguments", "touch"),
    [
        ("read", {"path": "a.py"}, Touch("read", "a.py")),
        ("Read", {"file_path": "a.py", "offset": 3}, Touch("part", "a.py")),
        ("view", {"path": "a.py", "view_range": [1, 2]}, Touch("part", "a.py")),
        ("multi_edit", {"filePath": "a.py", "limit": 3}, Touch("edit", "a.py")),
        ("Write", {"file_path": "a.py"}, Touch("write", "a.py")),
        ("bash", {"path": "a.py"}, None),
        ("read", {"url": "a.py"}, None),
    ],
)
def test_a_call_touches_the_file_that_it_names(tool, arguments, touch):
    assert touch_of(tool, json.dumps(arguments, separators=(",", ":"))) == touch


@pytest.mark.parametrize(
    "numbered",
    ["     {}→{}", "     {}\t{}", "{}\t{}", "{:05}| {}", "{:05}|{}", "{}: {}"],
    ids=["arrow", "cat", "tab", "bar", "bare-bar", "colon"],
)
@given(st.lists(WORDS, min_size=2), st.integers(0, 10_000))
def test_numbers_that_a_tool_puts_before_lines_go(numbered, words, first):
    shown = "\n".join(numbered.format(first + at, line) for at, line in enumerate(words))
    assert lines_of(shown) == words


@pytest.mark.parametrize("shown", ["7\tseven\n9\tnine\n4\tfour", "7: seven", "1| one\n2\ttwo", "12 names"])
def test_numbers_that_do_not_count_up_belong_to_the_lines(shown):
    assert lines_of(shown) == shown.split("\n")


def test_one_numbered_line_has_an_arrow_between():
    assert lines_of("     1→settings.local.json\n\nA note") == ["settings.local.json", "", "A note"]


@given(st.text())
def test_spaces_around_a_line_do_not_matter(shown):
    spaced = "\n".join(f"  {line}\t\r" for line in shown.split("\n"))
    assert [line for line in lines_of(spaced) if line] == [line for line in lines_of(shown) if line]


@given(st.text())
def test_short_lines_are_not_compared(shown):
    lines = list(comparable(shown))
    assert lines == [line for line in lines_of(shown) if len(line) >= LINE_LENGTH]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"path": "a", "content": "one\ntwo"}, "one\ntwo"),
        ({"file_path": "a", "old_string": "was", "new_string": "is"}, "is"),
        ({"path": "a", "oldText": "was", "newText": "is"}, "is"),
        ({"path": "a", "edits": [{"oldText": "1", "newText": "2"}, {"oldText": "3", "newText": "4"}]}, "2\n4"),
        ({"path": "a", "file_text": "is", "command": "create"}, "is"),
        ({"path": "a", "content": 7}, ""),
        ({"path": "a", "label": "why"}, ""),
        ([["new"]], ""),
        ("new", ""),
    ],
)
def test_the_new_text_of_a_call_is_what_the_file_has_after_it(arguments, text):
    assert new_text(json.dumps(arguments)) == text


def test_arguments_that_are_not_json_have_no_new_text():
    assert new_text("{") == ""
    assert new_text("[" * 100_000) == ""
    assert new_text('{"new":' * 900 + '"deep"' + "}" * 900) == "deep"


def read_and_edit() -> list[FileCall]:
    transcript = transcript_of(
        user("go on"),
        assistant(text("I look."), call("c1", path="a.py")),
        result("c1", "def first():\n}\n    return True\n"),
        assistant(call("c2", "edit", path="a.py", oldText="def first():", newText="def other():")),
        result("c2", "def all_lines_of_the_file():", name="edit"),
        assistant(call("c3", "edit", path="a.py", newText="def failed():")),
        result("c3", "no match", name="edit", error=True),
        assistant(call("c4", "bash", path="a.py")),
        result("c4", "def shown_by_bash():", name="bash"),
        assistant(call("c5", path="a.py")),
        user("no answer"),
    )
    return list(file_calls(transcript))


def test_a_read_has_the_lines_of_its_result_and_an_edit_those_of_its_new_text():
    read, edit = read_and_edit()
    assert (read.touch, read.position, read.shown) == (Touch("read", "a.py"), 2, Object(2, WHOLE))
    assert list(read.lines) == [hash("def first():"), hash("return True")]
    assert (edit.touch, edit.position, edit.shown) == (Touch("edit", "a.py"), 4, Object(3, 0))
    assert list(edit.lines) == [hash("def other():")]


def test_the_time_for_hostile_lines_grows_with_their_number():
    source = random.Random(1)
    hostile = "\n".join(" " * 50 + "1" * source.randrange(9) + "\t" * 50 for _ in range(20_000))
    assert len(lines_of(hostile)) == 20_000

"""What reasons can be checked by: calls on files, how many of their lines still stand, and the places of names.

The nearest later place that stays counts, otherwise the nearest earlier one.
"""

import json
import random
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from compaction_app.core.file_touches import (
    LINE_LENGTH,
    FileCall,
    FileHistory,
    Standing,
    Touch,
    comparable,
    file_calls,
    lines_of,
    name_places,
    new_text,
    touch_of,
)
from compaction_app.core.mentions import references
from compaction_app.core.transcript import WHOLE, Object, Transcript
from tests.budget import some
from tests.compaction_app.core.test_embedded import Run
from tests.factories import assistant, branch_and_texts, call, prepare, result, text, transcript_of, user
from tests.paths import corpus, corpus_sessions

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
def test_spaces_around_a_line_do_not_matter_and_short_lines_are_not_compared(shown):
    spaced = "\n".join(f"  {line}\t\r" for line in shown.split("\n"))
    assert [line for line in lines_of(spaced) if line] == [line for line in lines_of(shown) if line]
    assert list(comparable(shown)) == [line for line in lines_of(shown) if len(line) >= LINE_LENGTH]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"path": "a", "content": "one\ntwo"}, "one\ntwo"),
        ({"file_path": "a", "old_string": "was", "new_string": "is"}, "is"),
        ({"path": "a", "oldText": "was", "newText": "is"}, "is"),
        ({"path": "a", "edits": [{"oldText": "1", "newText": "2"}, {"oldText": "3", "newText": "4"}]}, "2\n4"),
        ({"path": "a", "file_text": "is", "command": "create"}, "is"),
        *(({"path": "a", "content": 7}, ""), ({"path": "a", "label": "why"}, ""), ([["new"]], ""), ("new", "")),
    ],
)
def test_the_new_text_of_a_call_is_what_the_file_has_after_it(arguments, text):
    assert new_text(json.dumps(arguments)) == text


def test_arguments_that_are_not_json_have_no_new_text():
    assert new_text("{") == ""
    assert new_text("[" * 100_000) == ""
    assert new_text('{"new":' * 900 + '"deep"' + "}" * 900) == "deep"


def test_a_read_has_the_lines_of_its_result_and_an_edit_those_of_its_new_text():
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
    read, edit = file_calls(transcript)
    assert (read.touch, read.position, read.shown) == (Touch("read", "a.py"), 2, Object(2, WHOLE))
    assert list(read.lines) == [hash("def first():"), hash("return True")]
    assert (edit.touch, edit.position, edit.shown) == (Touch("edit", "a.py"), 4, Object(3, 0))
    assert list(edit.lines) == [hash("def other():")]


def test_the_time_for_hostile_lines_grows_with_their_number():
    source = random.Random(1)
    hostile = "\n".join(" " * 50 + "1" * source.randrange(9) + "\t" * 50 for _ in range(20_000))
    assert len(lines_of(hostile)) == 20_000


KINDS = st.sampled_from(["read", "part", "edit", "write"])
CALLS = st.lists(
    st.tuples(KINDS, st.sampled_from("ab"), st.lists(st.integers(0, 6), max_size=6), st.booleans()), max_size=12
)
Drawn = Sequence[tuple[str, str, Sequence[int], bool]]


def history(drawn: Drawn) -> tuple[list[FileCall], set[Object]]:
    """Calls at positions 0, 1, … with these lines, and what of them stays."""
    calls = [
        FileCall(100 + at, at, Touch(kind, path), Object(at), array("q", lines))
        for at, (kind, path, lines, _) in enumerate(drawn)
    ]
    return calls, {Object(at) for at, (*_, stays) in enumerate(drawn) if stays}


@given(CALLS, st.randoms())
def test_a_line_stands_if_a_later_call_on_its_file_that_stays_has_it(drawn, source):
    calls, staying = history(drawn)
    shuffled = sorted(calls, key=lambda one: hash((one.order, str(source))))
    found = FileHistory(shuffled).standing(staying.__contains__)
    for made in calls:
        same = [one for one in calls if one.touch.path == made.touch.path and one.position > made.position]
        stays = [one for one in same if one.shown in staying]
        if not same:
            assert made.order not in found
            continue
        lines = sum(any(line in one.lines for one in stays) for line in made.lines)
        assert found[made.order].standing == Standing(lines, len(made.lines))
        wholes = [one for one in stays if one.touch.kind in ("read", "write")] or stays
        assert found[made.order].call is (wholes[-1] if wholes else None)


@given(CALLS)
def test_the_best_of_the_later_calls_has_most_of_the_lines(drawn):
    calls, staying = history(drawn)
    found = FileHistory(calls)
    for made in calls:
        later = [one for one in found.later(made.order) if one.shown in staying]
        best = found.best(made.order, staying.__contains__)
        shared = [len(set(made.lines) & set(one.lines)) for one in later]
        assert (best is None) == (max(shared, default=0) == 0)
        if best is not None:
            at = max(number for number, count in enumerate(shared) if count == max(shared))
            assert best is later[at]


@pytest.mark.parametrize(("lines", "total", "enough"), [(8, 10, True), (79, 100, False), (0, 0, True), (0, 3, False)])
def test_four_fifths_are_enough(lines, total, enough):
    assert Standing(lines, total).is_enough is enough


def test_a_count_of_lines_in_words():
    assert str(Standing(1_132, 14_300)) == "1,132 of 14,300"


def test_a_superseded_read_of_a_real_session_has_most_of_its_lines_in_what_stays(tmp_path):
    for path in some(corpus_sessions(tmp_path)):
        transcript = prepare(*branch_and_texts(path.read_bytes()), {})
        if transcript is not None:
            require_true_claims(Run(transcript), transcript)


def require_true_claims(run: Run, transcript: Transcript) -> None:
    standing = FileHistory(file_calls(transcript)).standing(lambda found: found not in run.store)
    for order, later in standing.items():
        shown = transcript.pairs.calls[order].results[0]
        origin = run.loop.origins.get(run.store.transcript.target(shown))
        if origin is not None and origin.reason.startswith("superseded") and later.standing.total:
            assert later.standing.is_enough, origin.reason
            assert later.call is not None


def test_a_read_of_a_real_session_is_counted_line_by_line():
    path = corpus()
    if path is None:
        pytest.skip("there are no real sessions")
    transcript = prepare(*branch_and_texts((path / "pi/large-session.v3.jsonl").read_bytes()), {})
    run = Run(transcript)
    made = transcript.pairs.answered_by(transcript.entry("00000152"))
    history = FileHistory(file_calls(transcript))
    assert str(history.standing(lambda found: found not in run.store)[made.order].standing) == "132 of 143"
    best = history.best(made.order, lambda found: found not in run.store)
    assert transcript.entries[best.shown.position].entry_id == "00000383"


GONE = Object(3)


def transcript() -> Transcript:
    return transcript_of(
        user("mend early_name and both_name"),
        assistant(text("far_name"), text("early_name again")),
        user("own_name far_name"),
        result("c1", "early_name both_name later_name own_name far_name words only", name="bash"),
        assistant(text("later_name"), text("both_name")),
        user("both_name later_name"),
    )


def test_the_nearest_later_place_comes_before_any_earlier_one():
    places = name_places(transcript(), [GONE, Object(2)], lambda _: True)
    earlier, later = {"early_name": Object(1, 1), "far_name": Object(1, 0)}, {"later_name": Object(4, 0)}
    assert places == {"both_name": Object(4, 1), **earlier, **later, "own_name": None}


def test_what_goes_is_no_place_nor_are_its_blocks_but_other_blocks_of_its_entry_are():
    gone = {Object(4, 1), Object(1, 1)}
    places = name_places(transcript(), [GONE], lambda found: found not in gone)
    assert {"both_name": Object(5), "early_name": Object(0), "own_name": Object(2)}.items() <= places.items()
    assert name_places(transcript(), [Object(4)], lambda _: True)["later_name"] == Object(5)
    places = name_places(transcript(), [Object(1, 0), GONE, Object(2)], lambda _: True)
    assert places["early_name"] == Object(1, 1)


def test_the_id_of_a_call_is_no_name_also_if_its_whole_entry_goes():
    called, answer = call("call_1234", path="src/a.py"), result("call_1234", "fine")
    made = transcript_of(user("go on"), assistant(called), answer)
    assert name_places(made, [Object(1, 0), Object(2)], lambda _: True) == {"src/a.py": None}
    made = transcript_of(user("go on"), assistant(text("I see b_name."), called), answer)
    assert name_places(made, [Object(1), Object(2)], lambda _: True) == {"b_name": None, "src/a.py": None}


def test_ordinary_words_are_not_references():
    words = "the parser of src/app/main.ts:42 called readFile and read_it with a-b in v2 at Monday or HTTP200 x_"
    assert references(words) == {"src/app/main.ts:42", "readFile", "read_it", "HTTP200"}
    assert references("") == set()

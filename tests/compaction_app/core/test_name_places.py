"""What is a reference, and the places of names: the nearest later one that stays, otherwise the nearest earlier one."""

from compaction_app.core.name_places import name_places
from compaction_app.core.references import references
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import Object
from tests.factories import assistant, call, result, text, transcript_of, user

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
    assert places == {
        "both_name": Object(4, 1),
        "early_name": Object(1, 1),
        "far_name": Object(1, 0),
        "later_name": Object(4, 0),
        "own_name": None,
    }


def test_what_goes_is_no_place():
    gone = {Object(4, 1), Object(1, 1)}
    places = name_places(transcript(), [GONE], lambda found: found not in gone)
    assert places["both_name"] == Object(5)
    assert places["early_name"] == Object(0)
    assert places["own_name"] == Object(2)


def test_the_blocks_of_a_deleted_entry_are_no_places():
    assert name_places(transcript(), [Object(4)], lambda _: True)["later_name"] == Object(5)


def test_other_blocks_of_the_same_entry_are_places():
    places = name_places(transcript(), [Object(1, 0), GONE, Object(2)], lambda _: True)
    assert places["early_name"] == Object(1, 1)


def test_the_id_of_a_call_is_no_name():
    made = transcript_of(user("go on"), assistant(call("call_1234", path="src/a.py")), result("call_1234", "fine"))
    assert name_places(made, [Object(1, 0), Object(2)], lambda _: True) == {"src/a.py": None}


def test_the_id_of_a_call_is_no_name_either_if_its_whole_entry_goes():
    made = transcript_of(
        user("go on"), assistant(text("I see b_name."), call("call_1234", path="src/a.py")), result("call_1234", "fine")
    )
    assert name_places(made, [Object(1), Object(2)], lambda _: True) == {"b_name": None, "src/a.py": None}


def test_ordinary_words_are_not_references():
    words = "the parser of src/app/main.ts:42 called readFile and read_it with a-b in v2 at Monday or HTTP200 x_"
    assert references(words) == {"src/app/main.ts:42", "readFile", "read_it", "HTTP200"}
    assert references("") == set()

"""`redline search`: finds what is in the sessions, brings the index up to date first, and prints nothing that acts."""

from pathlib import Path
from typing import Any

import pytest

from sessions_app.search.text_index import only_text_indexer
from tests.factories import assistant, call, chain, result, session_bytes, text, user
from tests.html import missing
from tests.installation import UNSAFE_CHARACTERS, Installation
from tests.opencode_stores import OpenCodeStore, worked_session


def indexed(redline: Installation, path: Path, *messages: dict[str, Any]) -> Path:
    path.write_bytes(session_bytes(chain(*messages)))
    assert redline.call("index", path).code == 0
    return path


@pytest.fixture
def session(redline, tmp_path):
    looked = assistant(text("I look for the needle"), call("c1", "bash", command="grep needle hay"))
    found = result("c1", "needle found", name="bash")
    return indexed(redline, tmp_path / "a.jsonl", user("Where is the needle?"), looked, found)


def test_words_are_found_in_sessions_that_were_indexed_before_and_shown_up_to_a_limit(redline, session):
    found = redline.call("search", "needle", "--json").json
    assert (found["places"], found["sessions"], found["searchable"], found["known"]) == (4, 1, 1, 1)
    (one,) = found["found"]
    assert one["path"] == str(session)
    assert [hit["kind"] for hit in one["hits"]] == ["said", "reply", "call", "result"]
    assert [hit["marked"] for hit in one["hits"]] == [["needle"]] * 4
    assert one["hits"][3]["tool"] == "bash"
    assert len(redline.call("search", "needle", "--limit", "2", "--json").json["found"][0]["hits"]) == 2
    assert "4 places in 1 session; 2 are shown." in redline.call("search", "needle", "--limit", "2").out
    assert not missing(redline.call("search", "needle").out, "Where is the needle?", "assistant")
    assert "Nothing found." in redline.call("search", "absent").out


def test_flags_narrow_the_search(redline, session):
    for arguments, places in {
        ("needle", "--role", "user"): 1,
        ("needle", "--tool", "bash"): 1,
        ("needle", "--project", "project"): 4,
        ("needle", "--project", "ject"): 0,
        ("needle", "--agent", "codex"): 0,
        ("needle", "--until", "1999"): 0,
        ("needle", "--", "-hay"): 3,
        ('"the needle"',): 2,
        ("absent",): 0,
    }.items():
        answer = redline.call("search", "--json", *arguments)
        assert (answer.code, answer.json["places"]) == (0, places), arguments


def test_bad_input_is_refused(redline):
    for line in ("...", "-- -needle"):
        assert redline.call("search", "--json", *line.split()).refusal == "2 no_words"
    for line in ("needle --since yesterday", "needle --limit 0", "needle --agent nobody", ""):
        assert redline.call("search", "--json", *line.split()).refusal == "2 bad_arguments"


def test_nothing_that_a_session_says_acts_on_the_terminal(redline, tmp_path):
    hostile = "needle \x1b]0;owned\x07 \u202egnp.exe \x00 <b>"
    answered = result("c", hostile, name=hostile)
    indexed(redline, tmp_path / "a.jsonl", user("x"), assistant(call("c", "x")), answered)
    shown = redline.call("search", "needle").out
    assert ("<b>" in shown, UNSAFE_CHARACTERS.search(shown)) == (True, None)


def test_another_process_that_indexes_is_not_waited_for(redline, session):
    with only_text_indexer(0):
        answer = redline.call("search", "needle")
    assert (answer.code, "another Redline process" in answer.err) == (0, True)
    assert "Searchable: 0 of 1 session" in answer.out


def test_sessions_in_a_database_are_found(redline, tmp_path):
    assert redline.call("index", worked_session(OpenCodeStore(tmp_path / "opencode" / "opencode.db"))).code == 0
    found = redline.call("search", "done", "--json").json["found"][0]
    assert (found["agent"], found["hits"][0]["state"]) == ("opencode", "seen")

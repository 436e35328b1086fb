"""`redline benchmark`: the figures of sessions in a terminal and as JSON, without a database."""

import pytest

from tests.factories import session_bytes, working_session
from tests.files import place, unchanged
from tests.html import missing
from tests.lab_app.lab_sessions import worked_session


@pytest.fixture
def long(redline):
    return place(redline.sessions / "long.jsonl", session_bytes(worked_session()))


def test_the_table_has_a_row_for_each_strategy_and_share(redline, long):
    shown = redline.call("benchmark", long, "--strategies", "embedded,prune", "--ratios", "0.5,0.3").out
    assert [shown.count(name) for name in ("the least possible", "built-in planner", "OpenCode")] == [2, 2, 1]
    assert "1 session tested, 0 too short." in shown


def test_the_document_has_the_trials_and_no_session_that_cannot_be_read_hides_the_others(redline, long):
    found = redline.call("benchmark", long, "--strategies", "oldest", "--ratios", "0.5", "--json").json
    assert {one["strategy"] for one in found["results"]} == {"bound", "oldest"}
    assert found["sessions"][0]["path"] == str(long)
    assert found["sessions"][0]["trials"]
    ended = redline.call("benchmark", long, long.with_name("gone.jsonl"), "--strategies", "oldest").ok()
    assert not missing(ended.out, "gone.jsonl", "1 session tested")
    assert redline.call("benchmark", long.with_name("gone.jsonl")).code != 0


def test_the_drawing_is_a_new_file(redline, long):
    drawn = redline.home / "losses.svg"
    redline.call("benchmark", long, "--strategies", "oldest", "--plot", drawn)
    assert "oldest first" in drawn.read_text()
    with unchanged(drawn):
        assert "losses.svg" in redline.call("benchmark", long, "--strategies", "oldest", "--plot", drawn).err
    ended = redline.call("benchmark", long, "--ratios", "0.5", "--plot", redline.home / "one.svg")
    assert "needs two shares" in ended.err


def test_a_short_session_is_counted_and_what_cannot_be_measured_refused(redline, long):
    short = place(redline.sessions / "short.jsonl", session_bytes(working_session(steps=3)))
    assert "0 sessions tested, 1 too short." in redline.call("benchmark", short).out
    refused = {
        ("--ratios", "half"): "'half' are not shares",
        ("--ratios", "0.5,1.5"): "'0.5,1.5' are not shares",
        ("--strategies", "guess"): "There is no strategy 'guess'",
    }
    for arguments, words in refused.items():
        ended = redline.call("benchmark", long, *arguments)
        assert (ended.code, words in ended.err) == (2, True), ended.err

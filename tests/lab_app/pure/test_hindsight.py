"""Hindsight on branches with known costs: what came back after a compaction, and what did not."""

from typing import Any

import pytest

from lab_app.pure.hindsight import Hindsight, Way, hindsights
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.registry import READERS
from sessions_app.index.session_reading import reading_of
from sessions_app.sessionlog.entries import ENCRYPTED
from sessions_app.storage.session_loader import load_session
from tests.factories import (
    assistant,
    branch_and_texts,
    call,
    chain,
    compaction,
    context_edit,
    result,
    session_bytes,
    summary_compaction,
    text,
    user,
    whole,
)
from tests.paths import corpus_sessions

Recorded = dict[str, Any]
LINES = [f"    value_{number:03} = compute(number, {number})" for number in range(40)]
FILE = "\n".join(LINES)
READ = (
    user("Mend the parser."),
    assistant(call("c1", path="src/cache_store.py")),
    result("c1", FILE),
    assistant(text("I have read it.")),
)
"""e1 to e4."""
GONE = compaction(whole("e2"), whole("e3"))
CALL = assistant(call("c2", path="src/cache_store.py"))
AGAIN = (CALL, result("c2", FILE))
"""The file is read again."""


def looks(*messages: Recorded, reader: str = "", project: str = "/home/dev/project") -> list[Hindsight]:
    branch, texts = branch_and_texts(session_bytes(chain(*messages)))
    found = READERS[reader] if reader else ATOMIC.format.generations[-1].reader
    return list(hindsights(branch, found, lambda _: texts, project))


def look(*messages: Recorded, reader: str = "") -> Hindsight:
    (found,) = looks(*messages, reader=reader)
    return found


def returned(found: Hindsight, way: Way) -> list[str]:
    return [one.reference for one in found.returned if one.way is way]


def test_a_file_that_is_read_again_is_a_cost():
    found = look(*READ, GONE, *AGAIN, assistant(text("Now again.")), assistant(text("Done.")))
    (fetched,) = found.fetched
    expected = (*("file", "src/cache_store.py"), *("e7", "e3"))
    assert (fetched.kind, fetched.name, fetched.entry_id, fetched.stood_in) == expected
    assert fetched.again == fetched.tokens == found.again
    assert (fetched.requests, found.sent) == (2, 2 * fetched.again)
    assert (found.requests, found.messages, found.files) == (3, 4, 1)
    assert found.saved == 3 * found.point.tokens_removed


def test_only_the_lines_that_had_gone_count_also_of_a_file_that_was_written():
    changed = "\n".join([*LINES[:20], *(line.upper() for line in LINES[20:])])
    (fetched,) = look(*READ, GONE, CALL, result("c2", changed)).fetched
    assert fetched.again == pytest.approx(fetched.tokens / 2, abs=2)
    write = assistant(call("c1", name="write", path="src/cache_store.py", content=FILE))
    written = (write, result("c1", "written", name="write"), assistant(text("Written.")))
    found = look(user("Write it."), *written, GONE, *AGAIN)
    assert [(one.name, one.stood_in) for one in found.fetched] == [("src/cache_store.py", "e2")]


@pytest.mark.parametrize("path", ["./src/cache_store.py", "/home/dev/project/src/cache_store.py"])
def test_a_path_is_the_same_however_it_is_written(path):
    found = look(*READ, GONE, assistant(call("c2", path=path)), result("c2", FILE))
    assert [one.name for one in found.fetched] == [path]


def test_a_file_that_is_read_twice_was_missed_once_and_one_that_still_stands_was_not():
    more = (assistant(call("c3", path="src/cache_store.py")), result("c3", FILE))
    assert [one.entry_id for one in look(*READ, GONE, *AGAIN, *more).fetched] == ["e7"]
    found = look(*READ, assistant(call("c0", path="src/cache_store.py")), result("c0", FILE), GONE, *AGAIN)
    assert not found.fetched
    assert not found.returned


def run_twice(first: str, second: str) -> Hindsight:
    """A command is run, its output goes, and it is run again."""
    runs = [
        (assistant(call(call_id, name="bash", command="make list")), result(call_id, output, name="bash"))
        for call_id, output in (("c1", first), ("c2", second))
    ]
    return look(user("List it."), *runs[0], assistant(text("Listed.")), GONE, *runs[1])


@pytest.mark.parametrize(("output", "count"), [("12 tests passed", 1), ("13 tests passed", 0)])
def test_a_command_counts_if_its_output_is_the_same(output, count):
    found = run_twice("12 tests\n passed", output)
    assert [one.name for one in found.fetched] == ["bash make list"] * count


@pytest.mark.parametrize(("share", "count"), [(0.95, 1), (0.5, 0)])
def test_an_output_is_the_same_if_little_of_it_is_new(share, count):
    """Agents print how long a command took."""
    old = round(len(LINES) * share)
    found = run_twice(FILE, "\n".join([*LINES[:old], *(line.upper() for line in LINES[old:])]))
    assert len(found.fetched) == count
    assert all(one.again < one.tokens for one in found.fetched)


def test_a_call_that_failed_brings_nothing_back_and_a_failed_request_is_not_counted():
    assert not look(*READ, GONE, CALL, result("c2", FILE, error=True)).fetched
    assert look(*READ, GONE, assistant(text("…"), stopReason="error"), assistant(text("Yes."))).requests == 1


def test_a_reference_from_memory_counts_unless_it_stayed_and_no_component_beside_it():
    found = look(*READ, GONE, assistant(text("I change value_007, as before.")))
    assert [(one.reference, one.entry_id, one.stood_in) for one in found.returned] == [("value_007", "e6", "e3")]
    assert returned(found, Way.MEMORY) == ["value_007"]
    found = look(*READ, GONE, assistant(text("src/cache_store.py, that is cache_store")))
    assert returned(found, Way.MEMORY) == ["src/cache_store.py"]
    kept = assistant(text("value_007 is wrong."))
    assert not look(*READ, kept, GONE, assistant(text("I change value_007."))).returned


def test_a_reference_that_a_tool_or_the_user_had_shown_again():
    shown = (assistant(call("c2", name="bash", command="cat it")), result("c2", "value_007 = 1", name="bash"))
    found = look(*READ, GONE, *shown, assistant(text("I change value_007.")))
    assert (returned(found, Way.FETCHED), found.count(Way.MEMORY)) == (["value_007"], 0)
    found = look(*READ, GONE, user("And value_007?"), assistant(text("I change value_007.")))
    assert returned(found, Way.SHOWN) == ["value_007"]


def test_names_of_arguments_are_no_references():
    found = look(
        user("Go."),
        assistant(call("c1", name="find", output_mode="plain")),
        result("c1", "nothing", name="find"),
        assistant(text("I looked.")),
        GONE,
        assistant(call("c2", name="find", output_mode="other")),
    )
    assert not found.returned


def test_what_a_summary_mentions_did_not_go_but_an_encrypted_one_cannot_be_judged():
    talk = (*READ, user("Go on."), assistant(text("Yes.")))
    later = assistant(text("I change value_007 and value_008."))
    found = look(*talk, summary_compaction("value_007 was wrong.", "e5"), later, reader="pi")
    assert found.is_summary
    assert returned(found, Way.MEMORY) == ["value_008"]
    found = look(*talk, summary_compaction(ENCRYPTED, "e5"), *AGAIN, reader="pi")
    assert found.is_encrypted
    assert not found.returned
    assert found.files == 1


def test_each_compaction_counts_up_to_the_next_unless_nothing_followed_it():
    more = (assistant(call("c3", path="src/cache_store.py")), result("c3", FILE))
    second = compaction(*map(whole, ("e2", "e3", "e6", "e7")))
    found = looks(*READ, GONE, *AGAIN, assistant(text("Yes.")), second, *more)
    assert [(one.entry_id, one.until_id, one.requests) for one in found] == [("e5", "e9", 2), ("e9", "", 1)]
    assert [[call.entry_id for call in one.fetched] for one in found] == [["e7"], ["e11"]]
    assert not looks(*READ, GONE)
    assert not looks(*READ, GONE, user("Go on."))


def test_edits_are_compactions_too_and_what_went_is_rewritten_from_its_place_on():
    found = look(*READ, context_edit("e3", None), assistant(text("value_007")), reader="pi")
    assert returned(found, Way.MEMORY) == ["value_007"]
    assert look(*READ, GONE, assistant(text("Yes."))).rewritten == len("I have read it.") // 4 + 1


@pytest.mark.parametrize(
    "arguments", [{"path": "\x00\x1b[2J"}, {"path": "../" * 900}, {"command": {"a": [[[["x"]]]]}}, {"path": 7}, {}]
)
def test_hostile_arguments_are_read(arguments):
    calls = [assistant({**call(name, "read"), "arguments": arguments}) for name in ("c1", "c2")]
    talk = (user("Go."), calls[0], result("c1", FILE), assistant(text("Yes.")))
    assert looks(*talk, GONE, calls[1], result("c2", FILE))


def test_real_sessions_add_up(tmp_path):
    for path in corpus_sessions(tmp_path):
        loaded = load_session(path)
        reading = reading_of(path, loaded.log.entries, loaded.log.state)
        branch = loaded.tree.branch(loaded.leaf_id)
        for one in hindsights(branch, reading.reader, loaded.texts, loaded.log.cwd):
            assert all(0 < call.again <= call.tokens for call in one.fetched if call.tokens)
            assert one.again <= one.point.tokens_before
            assert one.sent <= one.again * one.requests
            assert one.saved == one.point.tokens_removed * one.requests

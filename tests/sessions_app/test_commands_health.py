"""`redline health`: what is found, and the repaired copy with its account of every byte."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.bench.damage import NEW_HEADER, original_of
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.pi.agent import PI
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.repair_pieces import Fate, RepairChange
from sessions_app.storage import repair
from tests.factories import HEADER, assistant, call, chain, message, result, session_bytes, user, working_session
from tests.files import append_as_agent, place, snapshot
from tests.html import missing
from tests.installation import UNSAFE_CHARACTERS
from tests.sessions_app.agents.pi.test_repair import A, B, C, raw

DAMAGED = session_bytes([A, raw(B) + raw(C), b"\0" * 9, message("d", "nowhere", user("four"))]) + b'{"type'


@pytest.fixture
def put(redline):
    """Makes a session with this content."""
    return lambda content: place(redline.sessions / "s.jsonl", content)


@pytest.fixture
def damaged(put):
    return put(DAMAGED)


def test_a_healthy_session_is_a_success_another_file_bad_input_and_neither_is_copied(redline, put):
    path = put(session_bytes(working_session()))
    ended = redline.call("health", path, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json == {
        "path": str(path),
        "problems": [],
        "moreProblems": 0,
        "repair": None,
        "findings": [],
        "moreFindings": 0,
    }
    assert redline.call("health", path).out == f"{path}: no damage, no broken pairs\n"
    ended = redline.call("health", put(session_bytes([HEADER, b"", A])), "--fix")
    assert (ended.code, "nothing to repair" in ended.out) == (0, True)
    assert list(path.parent.iterdir()) == [path]
    path = put(b"\0" * 100)
    assert redline.call("health", path, "--fix", "--json").refusal == "2 not_a_session"
    assert list(path.parent.iterdir()) == [path]


def test_problems_have_line_byte_and_consequences(redline, damaged):
    before = snapshot(damaged.parent)
    ended = redline.call("health", damaged, "--json")
    assert (ended.code, ended.err) == (1, "")
    problems = {problem["kind"]: problem for problem in ended.json["problems"]}
    assert problems.keys() == {"no_header", "not_json", "missing_parent", "torn_line"}
    parent = problems["missing_parent"]
    start = DAMAGED.index(b'{"type": "message", "id": "d"')
    assert (parent["line"], parent["offset"], parent["severity"], parent["repairable"]) == (4, start, "loss", True)
    consequences = {one["agent"]: one["severity"] for one in problems["no_header"]["consequences"]}
    agents = [generation.label for agent in (PI, ATOMIC) for generation in agent.format.generations]
    assert consequences == dict.fromkeys(agents, "fatal")
    assert (ended.json["repair"], snapshot(damaged.parent)) == (None, before)


def test_people_read_each_consequence_once(redline, damaged):
    lines = redline.call("health", damaged).out.splitlines()
    assert lines[0] == f"{damaged}: 5 problems"
    assert "line 1, byte 0: the session has no header line" in lines
    refused = "pi 0.87 and newer, pi before 0.87, Atomic 0.9.11 and newer, Atomic 0.9.9 and 0.9.10"
    assert f"    {refused}: refuses to open the session" in lines
    assert "    every version: sends nothing of what came before this entry" in lines


def test_a_read_only_diagnosis_needs_no_database(fresh, tmp_path):
    ended = fresh.call("health", place(tmp_path / "s.jsonl", DAMAGED), "--json")
    assert (ended.code, ended.err) == (1, "")
    assert not list(fresh.data.glob("*.sqlite3"))


def test_broken_pairs_are_found_in_every_generation_and_on_every_branch(redline, put):
    recorded = chain(user("go"), assistant(call("x"), call("y")), result("x"), user("next"), result("z"))
    other = message("side", "e1", assistant(call("w")))
    path = put(session_bytes([*recorded[:2], other, *recorded[2:]]))
    ended = redline.call("health", path, "--fix", "--json")
    assert ended.code == 1
    found = [(one["kind"], one["line"], one["repairable"]) for one in ended.json["problems"]]
    assert found == [("unanswered_call", 3, False), ("unanswered_call", 4, False), ("stray_result", 7, False)]
    stray = {one["agent"]: (one["severity"], one["text"]) for one in ended.json["problems"][2]["consequences"]}
    refused = "sends it, and providers refuse: a tool result has no tool call in the message before it"
    assert stray["pi 0.87 and newer"] == ("fatal", refused)
    assert stray["Atomic 0.9.11 and newer"] == ("loss", "leaves the result out")
    filled = ended.json["problems"][0]["consequences"]
    assert {one["text"] for one in filled} == {"answers the call with a result of its own"}
    assert (ended.json["repair"], list(path.parent.iterdir())) == (None, [path])


def test_a_repaired_copy_is_written_beside_the_session_and_its_changes_lead_back_to_the_original(redline, damaged):
    ended = redline.call("health", damaged, "--fix", "--json")
    assert (ended.code, ended.err) == (1, "")
    written = ended.json["repair"]
    copy, lost = Path(written["written"]), Path(written["lost"])
    assert (copy.name, lost.name) == ("s.repaired.jsonl", "s.repaired.lost")
    assert damaged.read_bytes() == DAMAGED
    _, rest = copy.read_bytes().split(b"\n", 1)
    assert rest == session_bytes([A, B, C, message("d", "c", user("four"))])
    assert lost.read_bytes() == b"\0" * 9 + b'\n"nowhere"{"type'
    assert (written["bytes"], written["lostBytes"]) == (copy.stat().st_size, lost.stat().st_size)
    assert written["bytes"] + written["lostBytes"] == written["originalBytes"] + written["insertedBytes"]
    assert redline.call("health", copy).code == 0
    assert Session.objects.get().path == copy
    places = ("line", "offset", "at", "length")
    changes = [
        RepairChange(Fate(one["change"]), *(one[name] for name in places), one["text"].encode(), one["reason"])
        for one in written["changes"]
    ]
    assert original_of(copy.read_bytes(), lost.read_bytes(), changes) == DAMAGED
    assert all(one.reason for one in changes)


def test_people_read_the_difference_and_nothing_is_overwritten(redline, damaged):
    out = redline.call("health", damaged, "--fix").out
    copied = f"Wrote {damaged.with_name('s.repaired.jsonl')}"
    assert not missing(out, copied, "+ line 2, byte", "- line 4, byte", '(its parent was missing) "nowhere"')
    before = snapshot(damaged.parent)
    again = redline.call("health", damaged, "--fix", "--json")
    damaged.with_name("s.repaired.jsonl").unlink()
    assert again.refusal == redline.call("health", damaged, "--fix", "--json").refusal == "2 exists"
    assert snapshot(damaged.parent) == {name: one for name, one in before.items() if name != "s.repaired.jsonl"}


def test_a_copy_without_lost_bytes_has_no_second_file(redline, put):
    path = put(session_bytes([HEADER, A])[:-1])
    written = redline.call("health", path, "--fix", "--json").json["repair"]
    assert (written["lost"], written["lostBytes"], written["insertedBytes"]) == (None, 0, 1)
    assert sorted(one.name for one in path.parent.iterdir()) == ["s.jsonl", "s.repaired.jsonl"]


@pytest.fixture
def meanwhile(damaged, monkeypatch):
    """Write a repaired copy, while something happens before each reading of the session, which has a number."""
    copy, lost = damaged.with_name("copy.jsonl"), damaged.with_name("copy.lost")

    def write(happens: Callable[[int], object]) -> Any:
        class Watched(repair.SessionReader):
            readings = 0

            def chunks(self, start: int, size: int = 1 << 20) -> Any:
                Watched.readings += 1
                happens(Watched.readings)
                return super().chunks(start, size)

        monkeypatch.setattr(repair, "SessionReader", Watched)
        return repair.write_repaired(damaged, copy, lost, NEW_HEADER)

    return write


def test_what_an_agent_appends_meanwhile_is_not_part_of_the_copy(damaged, meanwhile):
    assert meanwhile(lambda _: append_as_agent(damaged, b"later\n")).original_size == len(DAMAGED)
    assert all(b"later" not in damaged.with_name(f"copy.{name}").read_bytes() for name in ("jsonl", "lost"))


def test_a_session_that_is_rewritten_meanwhile_is_a_conflict(damaged, meanwhile):
    rewritten = DAMAGED.replace(b"three", b"THREE")
    with pytest.raises(Conflict, match="changed while"):
        meanwhile(lambda number: number == 3 and damaged.write_bytes(rewritten))
    assert sorted(one.name for one in damaged.parent.iterdir()) == ["s.jsonl"]


def test_a_copy_that_another_process_makes_meanwhile_is_not_overwritten(damaged, meanwhile):
    with pytest.raises(BadInput, match="exists already"):
        meanwhile(lambda _: damaged.with_name("copy.jsonl").write_bytes(b"theirs"))
    assert snapshot(damaged.parent) == {"copy.jsonl": b"theirs", "s.jsonl": DAMAGED}


def test_a_link_is_followed_once_and_its_target_is_repaired(redline, damaged):
    link = redline.home / "link.jsonl"
    link.symlink_to(damaged)
    written = redline.call("health", link, "--fix", "--json").json["repair"]
    assert Path(written["written"]).parent == Path(os.path.realpath(damaged.parent))


def test_text_of_a_session_cannot_control_the_terminal(redline, put):
    hostile = message("\x1b[2J\u202e", "\x1b]0;x\x07", user("x"))
    out = redline.call("health", put(session_bytes([HEADER, A, hostile, b"\x1b[31m"])), "--fix").out
    assert not UNSAFE_CHARACTERS.search(out)
    assert "\\x1b[2J" in out
